#include "weather.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace corrupted {
namespace {

using trainyard::RandomStream;

struct Snow {
  double mean = 0.0, deviation = 0.0;  ///< of the numbers that flakes are made of
  double zoom = 0.0, threshold = 0.0;  ///< they are enlarged, and smaller ones are no flakes
  Motion fall;
  double kept = 0.0;  ///< of the image, beside its paler self
};
constexpr BySeverity<Snow> snows = {{{0.1, 0.2, 1.0, 0.6, {8, 3.0}, 0.95},
                                     {0.1, 0.2, 1.0, 0.5, {10, 4.0}, 0.9},
                                     {0.15, 0.3, 1.75, 0.55, {10, 4.0}, 0.9},
                                     {0.25, 0.3, 2.25, 0.6, {12, 6.0}, 0.85},
                                     {0.3, 0.3, 1.25, 0.65, {14, 12.0}, 0.8}}};
constexpr BySeverity<std::pair<double, double>> fogs = {
    {{0.2, 3.0}, {0.5, 3.0}, {0.75, 2.5}, {1.0, 2.0}, {1.5, 1.75}}};  // how much, and decay of finer parts

Field flakes(const Snow& constants, const RandomStream& random, std::int64_t height, std::int64_t width) {
  Field layer(height, width);
  layer.values = normal_numbers(random, layer.values.size());
  for (float& each : layer.values)
    each = static_cast<float>(constants.mean + constants.deviation * static_cast<double>(each));
  layer = zoomed(layer, constants.zoom);
  for (float& each : layer.values)
    each = each < static_cast<float>(constants.threshold) ? 0.0f : std::min(each, 1.0f);
  motion_filter(constants.fall, uniform_number(random, 0, -135.0, -45.0), height, width, layer.values);
  return layer;
}

/// Returns a map of `side` x `side` heights, a power of two, by the diamond-square algorithm on a torus; they go from 0 to
/// 1. Each point deviates from the mean of its neighbours by a number of its own, less at finer steps.
Field plasma(std::int64_t side, double decay, const RandomStream& random) {
  Field map(side, side);
  const std::vector<float> deviations = uniform_numbers(random, map.values.size(), 0);
  double reach = 100.0;
  const auto around = [&](std::int64_t y, std::int64_t x) { return map.at(y & (side - 1), x & (side - 1)); };
  const auto set = [&](std::int64_t y, std::int64_t x, float sum) {
    const double drawn = 2.0 * deviations[static_cast<std::size_t>(y * side + x)] - 1.0;
    map.at(y, x) = static_cast<float>(sum / 4.0 + reach * reach * drawn);
  };
  for (std::int64_t step = side; step > 1; step /= 2, reach /= decay) {
    const std::int64_t half = step / 2;
    for (std::int64_t y = half; y < side; y += step)
      for (std::int64_t x = half; x < side; x += step)
        set(y, x,
            around(y - half, x - half) + around(y - half, x + half) + around(y + half, x - half) +
                around(y + half, x + half));
    for (std::int64_t y = 0; y < side; y += half)
      for (std::int64_t x = y % step == 0 ? half : 0; x < side; x += step)
        set(y, x, around(y - half, x) + around(y + half, x) + around(y, x - half) + around(y, x + half));
  }
  const auto [least, most] = std::ranges::minmax(map.values);
  for (float& each : map.values) each = most > least ? (each - least) / (most - least) : 0.0f;
  return map;
}

}  // namespace

void snow(std::int64_t severity, const RandomStream& random, const Picture& picture) {
  const Snow& constants = of(snows, severity);
  const auto kept = static_cast<float>(constants.kept);
  const Field layer = flakes(constants, random, picture.height, picture.width);
  const auto last = static_cast<std::size_t>(picture.plane() - 1);
  for (std::size_t pixel = 0; pixel <= last; ++pixel) {
    const float grey = grey_of(picture, pixel);
    const float fallen =
        layer.values[pixel] + layer.values[last - pixel];  // the layer also turned upside down
    for (std::int64_t c = 0; c < picture.channels; ++c) {
      float& value = plane_of(picture, c)[pixel];
      value = kept * value + (1.0f - kept) * std::max(value, 1.5f * grey + 0.5f) + fallen;
    }
  }
}

void fog(std::int64_t severity, const RandomStream& random, const Picture& picture) {
  const auto [amount, decay] = of(fogs, severity);
  const auto longest = static_cast<std::uint64_t>(std::max(picture.height, picture.width));
  const Field map = plasma(static_cast<std::int64_t>(std::bit_ceil(longest)), decay, random);
  const float most = std::ranges::max(picture.values), added = static_cast<float>(amount);
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    const std::span<float> plane = plane_of(picture, c);
    for (std::int64_t y = 0; y < picture.height; ++y)
      for (std::int64_t x = 0; x < picture.width; ++x) {
        float& value = plane[static_cast<std::size_t>(y * picture.width + x)];
        value = (value + added * map.at(y, x)) * most / (most + added);
      }
  }
}

}  // namespace corrupted
