#include "blur.hpp"

#include <algorithm>
#include <utility>

namespace corrupted {
namespace {

using trainyard::RandomStream;

constexpr BySeverity<double> blur_sigma = {0.4, 0.6, 0.7, 0.8, 1.0};
constexpr BySeverity<std::pair<double, double>> defocus = {
    {{0.3, 0.4}, {0.4, 0.5}, {0.5, 0.6}, {1.0, 0.2}, {1.5, 0.1}}};  // radius, and sigma of the rim
constexpr BySeverity<std::pair<double, int>> glass = {
    {{0.05, 1}, {0.25, 1}, {0.4, 1}, {0.25, 2}, {0.4, 2}}};  // sigma, and rounds of exchanges
constexpr BySeverity<Motion> motion = {{{6, 1.0}, {6, 1.5}, {6, 2.0}, {8, 2.0}, {9, 2.5}}};
constexpr BySeverity<int> zooms = {7, 12, 16, 21, 26};  // of 1, 1.01, 1.02 ...

/// Returns a square of weights: a disk whose rim is blurred by a filter of 3 x 3.
std::vector<float> disk(double radius, double sigma, std::int64_t reach) {
  const std::int64_t side = 2 * reach + 1;
  const std::vector<float> rim = normal_weights(sigma, 1);
  std::vector<float> weights(static_cast<std::size_t>(side * side), 0.0f);
  float sum = 0.0f;
  for (std::int64_t y = 1 - reach; y < reach; ++y)
    for (std::int64_t x = 1 - reach; x < reach; ++x) {
      if (static_cast<double>(x * x + y * y) > radius * radius) continue;
      sum += 1.0f;
      for (std::int64_t dy = -1; dy <= 1; ++dy)
        for (std::int64_t dx = -1; dx <= 1; ++dx)
          weights[static_cast<std::size_t>((y + dy + reach) * side + x + dx + reach)] +=
              rim[static_cast<std::size_t>(dy + 1)] * rim[static_cast<std::size_t>(dx + 1)];
    }
  for (float& each : weights) each /= sum;
  return weights;
}

}  // namespace

void gaussian_blur(std::int64_t severity, const Picture& picture) {
  for (std::int64_t c = 0; c < picture.channels; ++c)
    gaussian_filter(of(blur_sigma, severity), 4.0, Border::nearest, picture.height, picture.width,
                    plane_of(picture, c));
}

void defocus_blur(std::int64_t severity, const Picture& picture) {
  const auto [radius, sigma] = of(defocus, severity);
  const std::int64_t reach = static_cast<std::int64_t>(radius) + 1, side = 2 * reach + 1;
  const std::vector<float> weights = disk(radius, sigma, reach);
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    const Field source = copy_of(picture, c);
    const std::span<float> plane = plane_of(picture, c);
    for (std::int64_t y = 0; y < picture.height; ++y)
      for (std::int64_t x = 0; x < picture.width; ++x) {
        float sum = 0.0f;
        for (std::int64_t dy = -reach; dy <= reach; ++dy)
          for (std::int64_t dx = -reach; dx <= reach; ++dx)
            sum += weights[static_cast<std::size_t>((dy + reach) * side + dx + reach)] *
                   source.at(within(Border::mirror, y + dy, picture.height),
                             within(Border::mirror, x + dx, picture.width));
        plane[static_cast<std::size_t>(y * picture.width + x)] = sum;
      }
  }
}

void glass_blur(std::int64_t severity, const RandomStream& random, const Picture& picture) {
  const auto [sigma, rounds] = of(glass, severity);
  const std::int64_t width = picture.width;
  const auto blur = [&, sigma = sigma] {
    for (std::int64_t c = 0; c < picture.channels; ++c)
      gaussian_filter(sigma, 4.0, Border::nearest, picture.height, width, plane_of(picture, c));
  };
  blur();
  // From the last pixel on, each goes one up or not and one to the left or not; the first two lines stay.
  std::vector<std::uint32_t> drawn(static_cast<std::size_t>(rounds * picture.plane()));
  random.fill_words(drawn);
  for (std::int64_t round = 0; round < rounds; ++round)
    for (std::int64_t y = picture.height - 1; y > 1; --y)
      for (std::int64_t x = width - 1; x > 1; --x) {
        const std::uint32_t word = drawn[static_cast<std::size_t>(round * picture.plane() + y * width + x)];
        const std::int64_t up = word >> 31, left = word >> 30 & 1;
        for (std::int64_t c = 0; c < picture.channels; ++c) {
          const std::span<float> plane = plane_of(picture, c);
          std::swap(plane[static_cast<std::size_t>(y * width + x)],
                    plane[static_cast<std::size_t>((y - up) * width + x - left)]);
        }
      }
  blur();
}

void motion_blur(std::int64_t severity, const RandomStream& random, const Picture& picture) {
  const double angle = uniform_number(random, 0, -45.0, 45.0);
  for (std::int64_t c = 0; c < picture.channels; ++c)
    motion_filter(of(motion, severity), angle, picture.height, picture.width, plane_of(picture, c));
}

void zoom_blur(std::int64_t severity, const Picture& picture) {
  const int count = of(zooms, severity);
  constexpr double step =
      (1.0 + 0.01) - 1.0;  // as NumPy counts: the largest side is 33 pixels, not 32, at 1.25
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    const Field source = copy_of(picture, c);
    const std::span<float> plane = plane_of(picture, c);
    for (int i = 0; i < count; ++i) {
      const Field larger = zoomed(source, 1.0 + step * i);
      for (std::size_t pixel = 0; pixel < plane.size(); ++pixel) plane[pixel] += larger.values[pixel];
    }
    for (float& each : plane) each /= static_cast<float>(count + 1);
  }
}

}  // namespace corrupted
