#include "fields.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace corrupted {
namespace {

using trainyard::RandomStream;

constexpr std::uint64_t blocks_of_a_field = std::uint64_t{1} << 32;

/// Filters a line of `count` values that lie `stride` apart. `longer` is room for the line with what lies beyond it.
void filter_line(float* line, std::int64_t count, std::int64_t stride, const std::vector<float>& weights,
                 Border border, std::vector<float>& longer) {
  const std::int64_t radius = std::ssize(weights) / 2;
  longer.resize(static_cast<std::size_t>(count + 2 * radius));
  for (std::int64_t i = -radius; i < count + radius; ++i)
    longer[static_cast<std::size_t>(i + radius)] = line[within(border, i, count) * stride];
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = 0.0f;
    for (std::size_t k = 0; k < weights.size(); ++k)
      sum += weights[k] * longer[static_cast<std::size_t>(i) + k];
    line[i * stride] = sum;
  }
}

/// A place between two values of a line, and how near the second is.
struct Between {
  std::int64_t first = 0;
  float share = 0.0f;
};

/// Returns where the values of a line come from whose middle part is stretched over all of it.
std::vector<Between> stretched(std::int64_t count, double factor) {
  const auto part = static_cast<std::int64_t>(std::ceil(static_cast<double>(count) / factor));
  const auto made = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(part) * factor));
  const std::int64_t begin = (count - part) / 2, cut = (made - count) / 2;
  const double step = made > 1 ? static_cast<double>(part - 1) / static_cast<double>(made - 1) : 0.0;
  std::vector<Between> places;
  for (std::int64_t i = 0; i < count; ++i) {
    const double place = static_cast<double>(i + cut) * step;
    const auto first = std::min(static_cast<std::int64_t>(place), std::max<std::int64_t>(part - 2, 0));
    places.push_back({begin + first, static_cast<float>(place - static_cast<double>(first))});
  }
  return places;
}

}  // namespace

Field copy_of(const Picture& picture, std::int64_t channel) {
  Field field(picture.height, picture.width);
  std::ranges::copy(plane_of(picture, channel), field.values.begin());
  return field;
}

std::int64_t within(Border border, std::int64_t place, std::int64_t count) {
  if (border == Border::nearest || count == 1) return std::clamp<std::int64_t>(place, 0, count - 1);
  const std::int64_t repeated = border == Border::reflect ? 1 : 0;
  const std::int64_t period = 2 * (count - 1 + repeated);
  place = (place % period + period) % period;
  return place < count ? place : period - place - repeated;
}

std::vector<float> normal_weights(double sigma, std::int64_t radius) {
  std::vector<float> weights;
  double sum = 0.0;
  for (std::int64_t i = -radius; i <= radius; ++i)
    sum += std::exp(-0.5 * static_cast<double>(i * i) / (sigma * sigma));
  for (std::int64_t i = -radius; i <= radius; ++i)
    weights.push_back(
        static_cast<float>(std::exp(-0.5 * static_cast<double>(i * i) / (sigma * sigma)) / sum));
  return weights;
}

void gaussian_filter(double sigma, double truncate, Border border, std::int64_t height, std::int64_t width,
                     std::span<float> values) {
  const auto radius = static_cast<std::int64_t>(truncate * sigma + 0.5);
  if (radius == 0) return;
  const std::vector<float> weights = normal_weights(sigma, radius);
  std::vector<float> longer;
  for (std::int64_t y = 0; y < height; ++y)
    filter_line(values.data() + y * width, width, 1, weights, border, longer);
  for (std::int64_t x = 0; x < width; ++x)
    filter_line(values.data() + x, height, width, weights, border, longer);
}

void motion_filter(const Motion& motion, double angle, std::int64_t height, std::int64_t width,
                   std::span<float> values) {
  const double radians = angle * std::numbers::pi / 180.0;
  const std::vector<float> source(values.begin(), values.end());
  const std::vector<float> curve = normal_weights(motion.sigma, 2 * motion.radius);
  const std::span<const float> half = std::span(curve).subspan(static_cast<std::size_t>(2 * motion.radius));
  float sum = 0.0f;
  for (const float weight : half) sum += weight;
  std::ranges::fill(values, 0.0f);
  for (std::size_t i = 0; i < half.size(); ++i) {
    const auto far = static_cast<double>(i);
    const auto down = static_cast<std::int64_t>(std::ceil(far * std::sin(radians) - 0.5));
    const auto right = static_cast<std::int64_t>(std::ceil(far * std::cos(radians) - 0.5));
    for (std::int64_t y = 0; y < height; ++y) {
      const float* const line = source.data() + within(Border::nearest, y + down, height) * width;
      float* const to = values.data() + y * width;
      for (std::int64_t x = 0; x < width; ++x)
        to[x] += half[i] / sum * line[within(Border::nearest, x + right, width)];
    }
  }
}

Field zoomed(const Field& field, double factor) {
  const std::vector<Between> rows = stretched(field.height, factor), columns = stretched(field.width, factor);
  Field made(field.height, field.width);
  for (std::int64_t y = 0; y < field.height; ++y)
    for (std::int64_t x = 0; x < field.width; ++x) {
      const auto [top, down] = rows[static_cast<std::size_t>(y)];
      const auto [left, right] = columns[static_cast<std::size_t>(x)];
      const std::int64_t bottom = std::min(top + 1, field.height - 1);
      const std::int64_t far = std::min(left + 1, field.width - 1);
      const float upper = field.at(top, left) * (1.0f - right) + field.at(top, far) * right;
      const float lower = field.at(bottom, left) * (1.0f - right) + field.at(bottom, far) * right;
      made.at(y, x) = upper * (1.0f - down) + lower * down;
    }
  return made;
}

std::vector<float> normal_numbers(const RandomStream& random, std::size_t count) {
  at::Tensor drawn = at::empty({static_cast<std::int64_t>(count)}, at::kFloat);
  trainyard::fill_normal(drawn, random, 0.0, 1.0);
  return {drawn.const_data_ptr<float>(), drawn.const_data_ptr<float>() + count};
}

std::vector<float> uniform_numbers(const RandomStream& random, std::size_t count, std::uint64_t which) {
  std::vector<float> numbers(count);
  random.fill_uniform(numbers, (which + 1) * blocks_of_a_field);
  return numbers;
}

double uniform_number(const RandomStream& random, std::uint64_t which, double low, double high) {
  constexpr std::uint64_t apart = blocks_of_a_field << 8;  // a block holds two of these numbers
  return low + (high - low) * random.uniform(2 * apart + which);
}

}  // namespace corrupted
