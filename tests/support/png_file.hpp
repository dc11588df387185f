// Writes PNG files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>

#include <png.h>

namespace trainyard::test {

/// Bytes [height, width, channels], of 1 or 3 channels. Makes the folders above.
inline void write_png(const std::string& path, int height, int width, int channels,
                      std::span<const std::uint8_t> pixels) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  if (png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error(path + ": " + image.message);
}

}  // namespace trainyard::test
