#include <algorithm>
#include <cmath>

#include "weather.hpp"

namespace corrupted {
namespace {

using trainyard::RandomStream;

/// Shares of the shorter side of the image.
struct Elastic {
  double displacement = 0.0, sigma = 0.0;  ///< of the smooth field
  double corner = 0.0;                     ///< how far the three points of the affine map go
};
constexpr BySeverity<Elastic> elastics = {
    {{0.0, 0.0, 0.08}, {0.05, 0.2, 0.07}, {0.08, 0.06, 0.06}, {0.1, 0.04, 0.05}, {0.1, 0.03, 0.03}}};

struct Point {
  double x = 0.0, y = 0.0;
};

/// Returns the value between four pixels.
float between(const Field& field, Border border, Point place) {
  const double left = std::floor(place.x), top = std::floor(place.y);
  const auto right = static_cast<float>(place.x - left), down = static_cast<float>(place.y - top);
  const auto at = [&](std::int64_t dy, std::int64_t dx) {
    return field.at(within(border, static_cast<std::int64_t>(top) + dy, field.height),
                    within(border, static_cast<std::int64_t>(left) + dx, field.width));
  };
  const float upper = at(0, 0) * (1.0f - right) + at(0, 1) * right;
  const float lower = at(1, 0) * (1.0f - right) + at(1, 1) * right;
  return upper * (1.0f - down) + lower * down;
}

/// An affine map of a result's places to those of the image that it is made of.
struct Affine {
  Point along_x, along_y, origin;

  Point operator()(Point place) const {
    return {origin.x + along_x.x * place.x + along_y.x * place.y,
            origin.y + along_x.y * place.x + along_y.y * place.y};
  }
};

/// Three corners of a square in the middle each move by up to `reach` in both directions, and the image with them.
Affine drawn_affine(double reach, const RandomStream& random, std::int64_t height, std::int64_t width) {
  const auto side = static_cast<double>(std::max<std::int64_t>(1, std::min(height, width) / 3));
  const Point middle = {static_cast<double>(width / 2), static_cast<double>(height / 2)};
  const Point corners[3] = {{middle.x + side, middle.y + side},
                            {middle.x + side, middle.y - side},
                            {middle.x - side, middle.y - side}};
  Point moved[3];
  for (std::uint64_t i = 0; i < 3; ++i)
    moved[i] = {corners[i].x + uniform_number(random, 2 * i, -reach, reach),
                corners[i].y + uniform_number(random, 2 * i + 1, -reach, reach)};
  // One step in x and in y of the image, by the square's sides, and the inverse of that map.
  const double length = 2.0 * side;
  const Point x = {(moved[1].x - moved[2].x) / length, (moved[1].y - moved[2].y) / length};
  const Point y = {(moved[0].x - moved[1].x) / length, (moved[0].y - moved[1].y) / length};
  const double area = x.x * y.y - y.x * x.y;
  Affine back = {{y.y / area, -x.y / area}, {-y.x / area, x.x / area}, {}};
  const Point from = back(moved[1]);
  back.origin = {corners[1].x - from.x, corners[1].y - from.y};
  return back;
}

Field smooth_field(const Elastic& constants, double side, const RandomStream& random, std::uint64_t which,
                   std::int64_t height, std::int64_t width) {
  Field field(height, width);
  field.values = uniform_numbers(random, field.values.size(), which);
  for (float& each : field.values) each = 2.0f * each - 1.0f;
  gaussian_filter(constants.sigma * side, 3.0, Border::reflect, height, width, field.values);
  for (float& each : field.values) each *= static_cast<float>(constants.displacement * side);
  return field;
}

}  // namespace

void elastic_transform(std::int64_t severity, const RandomStream& random, const Picture& picture) {
  const Elastic& constants = of(elastics, severity);
  const std::int64_t height = picture.height, width = picture.width;
  const auto side = static_cast<double>(std::min(height, width));
  const Affine back = drawn_affine(constants.corner * side, random, height, width);
  const Field right = smooth_field(constants, side, random, 0, height, width);
  const Field down = smooth_field(constants, side, random, 1, height, width);
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    const Field source = copy_of(picture, c);
    Field turned(height, width);
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x)
        turned.at(y, x) =
            between(source, Border::mirror, back({static_cast<double>(x), static_cast<double>(y)}));
    const std::span<float> plane = plane_of(picture, c);
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x)
        plane[static_cast<std::size_t>(y * width + x)] =
            between(turned, Border::reflect,
                    {static_cast<double>(x) + static_cast<double>(right.at(y, x)),
                     static_cast<double>(y) + static_cast<double>(down.at(y, x))});
  }
}

}  // namespace corrupted
