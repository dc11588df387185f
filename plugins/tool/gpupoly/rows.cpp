#include "rows.hpp"

#include <algorithm>
#include <utility>

namespace gpupoly {

Rows Rows::over(const Map& map, const Window& window, std::vector<std::array<std::int64_t, 2>> pixels) {
  Rows rows{.map = map, .window = window, .pixels = std::move(pixels), .low = {}, .up = {}};
  const std::size_t size = rows.count() * static_cast<std::size_t>(rows.width());
  rows.low.assign(size, 0.0);
  rows.up.assign(size, 0.0);
  return rows;
}

Window Rows::whole(const Map& map) {
  return {.height = map.height, .width = map.width, .stride_y = 0, .stride_x = 0};
}

Rows Rows::widened(const Window& to) && {
  if (to == window) return std::move(*this);
  Rows wide = over(map, to, pixels);
  for (std::size_t r = 0; r < count(); ++r)
    stretches(r, [&](std::int64_t offset, std::int64_t element, std::int64_t size) {
      const std::int64_t pixel = element / map.channels,
                         at = wide.place(r, pixel / map.width, pixel % map.width);
      std::copy_n(low.begin() + offset, size, wide.low.begin() + at);
      std::copy_n(up.begin() + offset, size, wide.up.begin() + at);
    });
  return wide;
}

void Rows::keep(const std::vector<std::size_t>& rows) {
  const std::int64_t size = width();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i) * size, from = static_cast<std::int64_t>(rows[i]) * size;
    pixels[i] = pixels[rows[i]];
    if (to == from) continue;
    std::copy_n(low.begin() + from, size, low.begin() + to);
    std::copy_n(up.begin() + from, size, up.begin() + to);
  }
  pixels.resize(rows.size());
  low.resize(rows.size() * static_cast<std::size_t>(size));
  up.resize(low.size());
}

namespace {

/// The smallest that holds both for every row; the whole map where they move at different strides.
Window joined(const Window& a, const Window& b, const Map& map) {
  if (a == b) return a;
  if (a.stride_y != b.stride_y || a.stride_x != b.stride_x) return Rows::whole(map);
  Window both = a;
  both.pad_y = std::max(a.pad_y, b.pad_y);
  both.pad_x = std::max(a.pad_x, b.pad_x);
  both.height = std::max(a.height - a.pad_y, b.height - b.pad_y) + both.pad_y;
  both.width = std::max(a.width - a.pad_x, b.width - b.pad_x) + both.pad_x;
  return both.height >= map.height || both.width >= map.width ? Rows::whole(map) : both;
}

}  // namespace

void Rows::add(Rows other) {
  const Window both = joined(window, other.window, map);
  *this = std::move(*this).widened(both);
  const Rows wide = std::move(other).widened(both);
  for (std::size_t i = 0; i < low.size(); ++i) {
    low[i] += wide.low[i];
    up[i] += wide.up[i];
  }
}

}  // namespace gpupoly
