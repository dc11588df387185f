// An image compressed as JPEG, and read again.
#pragma once

#include <cstdint>
#include <vector>

namespace corrupted {

/// Bytes [height, width, channels], 1 channel of grey or 3 of red, green and blue; quality 1 to 100, as libjpeg counts it;
/// chroma is sampled at half the resolution, as libjpeg does by itself. Throws DataError with libjpeg's words. Any thread.
std::vector<std::uint8_t> through_jpeg(const std::vector<std::uint8_t>& pixels, std::int64_t height,
                                       std::int64_t width, std::int64_t channels, int quality);

}  // namespace corrupted
