#include "resize.hpp"

#include <algorithm>
#include <cmath>

namespace image_folder {
namespace {

/// What pixel `i` of a side is made of: `weights` of the source's pixels from `first` on.
struct Taps {
  std::int64_t first = 0;
  std::vector<float> weights;
};

/// Of a side of `length` pixels, of which [begin, begin + taken) is scaled to `size`.
std::vector<Taps> taps(std::int64_t length, double begin, double taken, std::int64_t size) {
  const double scale = taken / static_cast<double>(size), reach = std::max(scale, 1.0);
  std::vector<Taps> all(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - reach + 0.5));
    const auto end = std::min(length, static_cast<std::int64_t>(centre + reach + 0.5));
    std::vector<double> weights;
    double sum = 0.0;
    for (std::int64_t x = first; x < end; ++x) {
      weights.push_back(std::max(0.0, 1.0 - std::abs(static_cast<double>(x) + 0.5 - centre) / reach));
      sum += weights.back();
    }
    all[i].first = first;
    for (const double weight : weights) all[i].weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

/// Rows [height, columns.size(), channels] of the source, each scaled by itself.
std::vector<float> scale_rows(const Pixels& pixels, const std::vector<Taps>& columns) {
  const auto channels = static_cast<std::size_t>(pixels.channels);
  const auto height = static_cast<std::size_t>(pixels.height);
  std::vector<float> rows(height * columns.size() * channels);
  float* out = rows.data();
  for (std::size_t y = 0; y < height; ++y) {
    const std::uint8_t* row = pixels.bytes.data() + y * static_cast<std::size_t>(pixels.width) * channels;
    for (const Taps& column : columns) {
      const std::uint8_t* from = row + static_cast<std::size_t>(column.first) * channels;
      for (std::size_t c = 0; c < channels; ++c) {
        float sum = 0.0f;
        for (std::size_t k = 0; k < column.weights.size(); ++k)
          sum += column.weights[k] * from[k * channels + c];
        *out++ = sum;
      }
    }
  }
  return rows;
}

}  // namespace

void resize(const Pixels& pixels, std::int64_t height, std::int64_t width, Fit fit, std::uint8_t* out) {
  const auto source_height = static_cast<double>(pixels.height),
             source_width = static_cast<double>(pixels.width);
  double taken_height = source_height, taken_width = source_width;
  if (fit == Fit::crop) {
    const double scale =
        std::min(source_height / static_cast<double>(height), source_width / static_cast<double>(width));
    taken_height = scale * static_cast<double>(height);
    taken_width = scale * static_cast<double>(width);
  }
  const std::vector<Taps> columns = taps(pixels.width, (source_width - taken_width) / 2, taken_width, width);
  const std::vector<Taps> lines =
      taps(pixels.height, (source_height - taken_height) / 2, taken_height, height);
  const std::vector<float> rows = scale_rows(pixels, columns);
  const auto channels = static_cast<std::size_t>(pixels.channels);
  const std::size_t row_size = columns.size() * channels;
  for (std::size_t c = 0; c < channels; ++c)
    for (const Taps& line : lines)
      for (std::size_t x = 0; x < columns.size(); ++x) {
        const float* from = rows.data() + static_cast<std::size_t>(line.first) * row_size + x * channels + c;
        float sum = 0.0f;
        for (std::size_t k = 0; k < line.weights.size(); ++k) sum += line.weights[k] * from[k * row_size];
        *out++ = static_cast<std::uint8_t>(std::clamp(sum + 0.5f, 0.0f, 255.0f));
      }
}

}  // namespace image_folder
