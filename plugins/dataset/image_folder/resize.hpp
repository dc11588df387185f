// Pixels brought to the size that the samples of a data set have.
#pragma once

#include "decode.hpp"

namespace image_folder {

enum class Fit : std::uint8_t {
  stretch,  ///< the whole image, its proportions changed
  crop,     ///< the largest part around the centre that has the proportions asked for
};

/// Scales by the triangle filter ("bilinear"), which is widened where the image shrinks, so that every pixel
/// counts: that of Pillow and of torch's interpolate(antialias=True). Writes [channels, height, width].
void resize(const Pixels& pixels, std::int64_t height, std::int64_t width, Fit fit, std::uint8_t* out);

}  // namespace image_folder
