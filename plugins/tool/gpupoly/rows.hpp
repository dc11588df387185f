// Linear forms over one layer, many at once: what back-substitution carries from the output to the input.
// Their coefficients are intervals, (-low, up) as the kernels have them, so that what rounding adds is in them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "layers.hpp"

namespace gpupoly {

/// Lower and upper bounds of the elements of a layer, each as a number that rounding up moves outward.
struct Bounds {
  std::vector<double> low;  ///< the lower bound, negated
  std::vector<double> up;
};

/// Row r has coefficients for the pixels of a window only (its dependence set): from row pixels[r].y stride_y -
/// pad_y of the map on, likewise to the right. A window may reach over the map's edge; coefficients there are 0.
struct Rows {
  Map map;
  Window window;
  std::vector<std::array<std::int64_t, 2>> pixels;  ///< y, x: one a row
  std::vector<double> low, up;                      ///< [row][window row][window column][channel]

  /// Zeros.
  static Rows over(const Map& map, const Window& window, std::vector<std::array<std::int64_t, 2>> pixels);
  /// The window that is the whole map, of any row.
  static Window whole(const Map& map);

  std::size_t count() const { return pixels.size(); }
  std::int64_t width() const { return window.height * window.width * map.channels; }
  std::int64_t top(std::size_t r) const { return pixels[r][0] * window.stride_y - window.pad_y; }
  std::int64_t left(std::size_t r) const { return pixels[r][1] * window.stride_x - window.pad_x; }

  /// Place in `low` and `up` of row r's pixel (y, x) of the map, which is in its window.
  std::int64_t place(std::size_t r, std::int64_t y, std::int64_t x) const {
    return ((static_cast<std::int64_t>(r) * window.height + y - top(r)) * window.width + x - left(r)) *
           map.channels;
  }

  /// f(offset in `low` and `up`, element of the map, count) for each stretch of row r within the map.
  template <class F>
  void stretches(std::size_t r, const F& f) const {
    const std::int64_t from = std::max<std::int64_t>(0, -left(r)),
                       to = std::min(window.width, map.width - left(r));
    if (from >= to) return;
    for (std::int64_t y = 0; y < window.height; ++y) {
      const std::int64_t line = top(r) + y;
      if (line < 0 || line >= map.height) continue;
      f((static_cast<std::int64_t>(r) * window.height * window.width + y * window.width + from) *
            map.channels,
        (line * map.width + left(r) + from) * map.channels, (to - from) * map.channels);
    }
  }

  /// The same forms with a window that holds this one.
  Rows widened(const Window& to) &&;
  /// Only these rows, in this order.
  void keep(const std::vector<std::size_t>& rows);
  /// Sums, over the smallest window that holds both.
  void add(Rows other);
};

}  // namespace gpupoly
