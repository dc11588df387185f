// Writes JPEG files.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>

#include <jpeglib.h>

namespace trainyard::test {

/// Bytes [height, width, channels], of 1 or 3 channels; quality 1 to 100. Makes the folders above. libjpeg
/// ends the program where it cannot write.
inline void write_jpeg(const std::string& path, int height, int width, int channels,
                       std::span<const std::uint8_t> pixels, int quality = 90, bool progressive = false) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw std::runtime_error("cannot write " + path);
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  jpeg_stdio_dest(&encoder, file);
  encoder.image_height = static_cast<JDIMENSION>(height);
  encoder.image_width = static_cast<JDIMENSION>(width);
  encoder.input_components = channels;
  encoder.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, quality, TRUE);
  if (progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    const std::size_t at = std::size_t{encoder.next_scanline} * static_cast<std::size_t>(width * channels);
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data() + at);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  std::fclose(file);
}

}  // namespace trainyard::test
