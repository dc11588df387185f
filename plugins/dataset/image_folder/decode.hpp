// Files of images as pixels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace image_folder {

/// Bytes [height, width, channels].
struct Pixels {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> bytes;
};

/// Decodes the content of a JPEG or PNG file, which its first bytes tell apart, to R, G, B (`channels` 3) or
/// to luma (1), Y = 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601, as JFIF has it). Transparency is dropped. Throws
/// DataError that names `path` where it is neither, or damaged: pixels are never made up. Any thread.
Pixels decode(const std::string& path, std::span<const std::uint8_t> file, std::int64_t channels);

}  // namespace image_folder
