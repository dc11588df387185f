// Turns linear forms of a convolution's output into forms of its input, one coefficient at a time: the code
// of CUDA devices, and of the host to check it. A dense layer is a convolution of images of one pixel.
#pragma once

#include <cstdint>

#include "kernels/both.hpp"
#include "kernels/interval.hpp"

namespace trainyard::kernels {

/// An image; a form has coefficients for the pixels of a window: [window row][window column][channel]. The
/// window of the form that belongs to pixel (y, x) begins at row y stride_y - pad_y, likewise to the right.
struct FormWindow {
  std::int64_t height, width, channels;
  std::int64_t window_height, window_width, stride_y, stride_x, pad_y, pad_x;

  TRAINYARD_BOTH std::int64_t coefficients() const { return window_height * window_width * channels; }
};

/// Output pixel (y, x) of the convolution reads rows y stride_y - pad_y to that + height of its input.
struct IntervalConv {
  std::int64_t forms;
  FormWindow out,
      in;  ///< of the convolution's output, where forms come from, and of its input, where they go
  std::int64_t height, width, stride_y, stride_x, pad_y, pad_x;
};

/// Adds forms `from` to into[at], at = [form][window row][window column][channel] of `in`. `weights`: [out
/// channel] [height][width][in channel]; `pixels`: y and x per form. `multiply_add(a, b, c)` gives a b + c,
/// rounded as the bound needs; sums go by kernel rows, kernel columns, then output channels.
template <class MultiplyAdd>
TRAINYARD_BOTH void interval_conv_at(const IntervalConv& conv, std::int64_t at, ConstIntervalRows from,
                                     const double* weights, const std::int64_t* pixels, IntervalRows into,
                                     const MultiplyAdd& multiply_add) {
  const FormWindow &out = conv.out, &in = conv.in;
  const std::int64_t channel = at % in.channels, pixel = at / in.channels, column = pixel % in.window_width,
                     row = pixel / in.window_width % in.window_height, form = at / in.coefficients();
  const std::int64_t form_y = pixels[2 * form], form_x = pixels[2 * form + 1];
  const std::int64_t y = form_y * in.stride_y - in.pad_y + row, x = form_x * in.stride_x - in.pad_x + column;
  if (y < 0 || y >= in.height || x < 0 || x >= in.width) return;
  const std::int64_t top = form_y * out.stride_y - out.pad_y, left = form_x * out.stride_x - out.pad_x;
  double low = into.low[at], up = into.up[at];
  for (std::int64_t ky = 0; ky < conv.height; ++ky) {
    const std::int64_t steps_y = y + conv.pad_y - ky, out_y = steps_y / conv.stride_y;
    if (steps_y < 0 || steps_y % conv.stride_y != 0 || out_y >= out.height || out_y < top ||
        out_y >= top + out.window_height)
      continue;
    for (std::int64_t kx = 0; kx < conv.width; ++kx) {
      const std::int64_t steps_x = x + conv.pad_x - kx, out_x = steps_x / conv.stride_x;
      if (steps_x < 0 || steps_x % conv.stride_x != 0 || out_x >= out.width || out_x < left ||
          out_x >= left + out.window_width)
        continue;
      const std::int64_t first =
          ((form * out.window_height + out_y - top) * out.window_width + out_x - left) * out.channels;
      const double* w = weights + (ky * conv.width + kx) * in.channels + channel;
      for (std::int64_t c = 0; c < out.channels; ++c, w += conv.height * conv.width * in.channels) {
        const double a_low = from.low[first + c], a_up = from.up[first + c], size = *w < 0.0 ? -*w : *w;
        low = multiply_add(*w < 0.0 ? a_up : a_low, size, low);
        up = multiply_add(*w < 0.0 ? a_low : a_up, size, up);
      }
    }
  }
  into.low[at] = low;
  into.up[at] = up;
}

}  // namespace trainyard::kernels
