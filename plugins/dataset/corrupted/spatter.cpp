#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "weather.hpp"

namespace corrupted {
namespace {

using trainyard::RandomStream;

struct Spatter {
  double mean = 0.0, deviation = 0.0,
         sigma = 0.0;      ///< of the numbers that drops are made of, and of their blur
  double threshold = 0.0;  ///< smaller ones are no drops
  double strength = 0.0;   ///< of water; of mud the sigma of another blur
  bool mud = false;
};
constexpr BySeverity<Spatter> spatters = {{{0.62, 0.1, 0.7, 0.7, 0.5, false},
                                           {0.65, 0.1, 0.8, 0.7, 0.5, false},
                                           {0.65, 0.3, 1.0, 0.69, 0.5, false},
                                           {0.65, 0.1, 0.7, 0.69, 0.6, true},
                                           {0.65, 0.1, 0.5, 0.68, 0.6, true}}};
using Colour = std::array<float, 3>;  // red, green, blue, in bytes
constexpr Colour water_colour = {175, 238, 238}, mud_colour = {63, 42, 20};

/// What a channel of the image has of a colour; of a grey image the grey.
float part_of(const Colour& colour, const Picture& picture, std::int64_t channel) {
  if (picture.channels == 1) return luma(colour[0], colour[1], colour[2]) / 255.0f;
  return colour[static_cast<std::size_t>(channel)] / 255.0f;
}

/// Bytes, one a pixel. Beyond the edges the outermost values go on unless a function says otherwise.
struct Bytes {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> values;

  int at(Border border, std::int64_t y, std::int64_t x) const {
    return values[static_cast<std::size_t>(within(border, y, height) * width + within(border, x, width))];
  }
};

/// The slope of an image at a pixel, by Sobel's filters of 3 x 3.
struct Slope {
  int right = 0, down = 0;

  int steepness() const { return std::abs(right) + std::abs(down); }
};

Slope slope_at(const Bytes& image, std::int64_t y, std::int64_t x) {
  const auto at = [&](std::int64_t dy, std::int64_t dx) { return image.at(Border::nearest, y + dy, x + dx); };
  return {at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1),
          at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1)};
}

/// Where an image has edges, by Canny's detector: the steepest pixels across a slope, of which those that are steep
/// enough, and less steep ones that hang together with them, are edges.
class Edges {
 public:
  explicit Edges(const Bytes& image) : height_(image.height), width_(image.width) {
    for (std::int64_t y = 0; y < height_; ++y)
      for (std::int64_t x = 0; x < width_; ++x) slopes_.push_back(slope_at(image, y, x));
  }

  std::vector<bool> find(int least, int enough) const {
    std::vector<bool> edge(slopes_.size(), false);
    std::vector<std::int64_t> open;
    const auto take = [&](std::int64_t y, std::int64_t x, int steep) {
      if (!inside(y, x) || edge[place(y, x)] || steepness(y, x) <= steep || !is_ridge(y, x)) return;
      edge[place(y, x)] = true;
      open.push_back(y * width_ + x);
    };
    for (std::int64_t y = 0; y < height_; ++y)
      for (std::int64_t x = 0; x < width_; ++x) take(y, x, enough);
    while (!open.empty()) {
      const std::int64_t y = open.back() / width_, x = open.back() % width_;
      open.pop_back();
      for (std::int64_t dy = -1; dy <= 1; ++dy)
        for (std::int64_t dx = -1; dx <= 1; ++dx) take(y + dy, x + dx, least);
    }
    return edge;
  }

 private:
  bool inside(std::int64_t y, std::int64_t x) const { return y >= 0 && y < height_ && x >= 0 && x < width_; }
  std::size_t place(std::int64_t y, std::int64_t x) const { return static_cast<std::size_t>(y * width_ + x); }
  int steepness(std::int64_t y, std::int64_t x) const {
    return inside(y, x) ? slopes_[place(y, x)].steepness() : 0;
  }

  /// Of the two neighbours along the slope, whose direction is rounded to eighths of a turn, none is steeper; of equal
  /// pixels in a row or a column the last is the ridge.
  bool is_ridge(std::int64_t y, std::int64_t x) const {
    const Slope& slope = slopes_[place(y, x)];
    const double across = std::abs(slope.right), along = std::abs(slope.down);
    const double flat = 0.4142135623730950488;  // the tangent of 22.5 degrees
    const int own = steepness(y, x);
    if (along < across * flat) return own > steepness(y, x - 1) && own >= steepness(y, x + 1);
    if (along > across * (2.0 + flat)) return own > steepness(y - 1, x) && own >= steepness(y + 1, x);
    const std::int64_t side = (slope.right < 0) != (slope.down < 0) ? -1 : 1;
    return own > steepness(y - 1, x - side) && own > steepness(y + 1, x + side);
  }

  std::int64_t height_, width_;
  std::vector<Slope> slopes_;
};

/// Returns how far each pixel is from the nearest edge, at most `most`, in steps to pixels next to it, diagonal ones and
/// those of a knight (Borgefors' masks of 5 x 5, with OpenCV's lengths).
Field distances(const std::vector<bool>& edges, float most, std::int64_t height, std::int64_t width) {
  struct Step {
    std::int64_t dy, dx;
    float length;
  };
  constexpr Step before[] = {{0, -1, 1.0f},     {-1, 0, 1.0f},    {-1, -1, 1.4f},    {-1, 1, 1.4f},
                             {-1, -2, 2.1969f}, {-1, 2, 2.1969f}, {-2, -1, 2.1969f}, {-2, 1, 2.1969f}};
  Field far(height, width);
  for (std::size_t i = 0; i < far.values.size(); ++i) far.values[i] = edges[i] ? 0.0f : most;
  const auto shorten = [&](std::int64_t y, std::int64_t x, std::int64_t direction) {
    for (const auto& [dy, dx, length] : before) {
      const std::int64_t from_y = y + direction * dy, from_x = x + direction * dx;
      if (from_y < 0 || from_y >= height || from_x < 0 || from_x >= width) continue;
      far.at(y, x) = std::min(far.at(y, x), far.at(from_y, from_x) + length);
    }
  };
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) shorten(y, x, 1);
  for (std::int64_t y = height - 1; y >= 0; --y)
    for (std::int64_t x = width - 1; x >= 0; --x) shorten(y, x, -1);
  return far;
}

/// Returns the sum over 3 x 3 pixels, each by its weight.
template <class Image, class Weights>
auto sum_around(const Image& at, const Weights& weights, std::int64_t y, std::int64_t x) {
  auto sum = weights[0][0] * at(y, x) * 0;
  for (std::int64_t dy = -1; dy <= 1; ++dy)
    for (std::int64_t dx = -1; dx <= 1; ++dx)
      sum += weights[static_cast<std::size_t>(dy + 1)][static_cast<std::size_t>(dx + 1)] * at(y + dy, x + dx);
  return sum;
}
using Weights = std::array<std::array<int, 3>, 3>;
constexpr Weights equal = {{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};
constexpr Weights relief = {{{-2, -1, 0}, {-1, 1, 1}, {0, 1, 2}}};  // lit from one side

/// Filters bytes by 3 x 3 weights, rounded and cut off to bytes. Beyond the edges lies the image in a mirror.
Bytes filtered(const Bytes& image, const Weights& weights, int divisor) {
  Bytes made = image;
  const auto at = [&](std::int64_t y, std::int64_t x) { return image.at(Border::mirror, y, x); };
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = 0; x < image.width; ++x) {
      const double mean = static_cast<double>(sum_around(at, weights, y, x)) / divisor;
      made.values[static_cast<std::size_t>(y * image.width + x)] =
          static_cast<std::uint8_t>(std::clamp(std::nearbyint(mean), 0.0, 255.0));
    }
  return made;
}

/// Changes bytes so that all are about as frequent: each becomes the share of those up to it, the smallest 0.
void equalize(Bytes& image) {
  std::array<std::int64_t, 256> counts{};
  for (const std::uint8_t each : image.values) ++counts[each];
  const std::size_t first = *std::ranges::min_element(image.values);
  const std::int64_t others = std::ssize(image.values) - counts[first];
  if (others == 0) return;
  const float scale = 255.0f / static_cast<float>(others);
  std::array<std::uint8_t, 256> then{};
  std::int64_t sum = 0;
  for (std::size_t i = first + 1; i < then.size(); ++i)
    then[i] = static_cast<std::uint8_t>(std::nearbyint(static_cast<float>(sum += counts[i]) * scale));
  for (std::uint8_t& each : image.values) each = then[each];
}

/// Returns how much water is at each pixel: light falls in from one side at the rims of drops.
Field water(const Field& liquid, double strength) {
  Bytes drops{liquid.height, liquid.width, {}};
  for (const float each : liquid.values)
    drops.values.push_back(static_cast<std::uint8_t>(std::min(255.0f * each, 255.0f)));
  const Field far = distances(Edges(drops).find(50, 150), 20.0f, liquid.height, liquid.width);
  Bytes depth = drops;
  const auto at = [&](std::int64_t y, std::int64_t x) {
    return far.at(within(Border::mirror, y, far.height), within(Border::mirror, x, far.width));
  };
  for (std::int64_t y = 0; y < far.height; ++y)
    for (std::int64_t x = 0; x < far.width; ++x)
      depth.values[static_cast<std::size_t>(y * far.width + x)] =
          static_cast<std::uint8_t>(sum_around(at, equal, y, x) / 9.0f);
  equalize(depth);
  depth = filtered(filtered(depth, relief, 1), equal, 9);
  Field amount(liquid.height, liquid.width);
  for (std::size_t i = 0; i < amount.values.size(); ++i)
    amount.values[i] = static_cast<float>(drops.values[i]) * static_cast<float>(depth.values[i]);
  const float most = std::ranges::max(amount.values);
  for (float& each : amount.values) each = most > 0.0f ? each / most * static_cast<float>(strength) : 0.0f;
  return amount;
}

Field mud(const Field& liquid, double sigma) {
  Field amount = liquid;
  for (float& each : amount.values) each = each > 0.0f ? 1.0f : 0.0f;
  gaussian_filter(sigma, 4.0, Border::nearest, amount.height, amount.width, amount.values);
  for (float& each : amount.values) each = each < 0.8f ? 0.0f : each;
  return amount;
}

}  // namespace

void spatter(std::int64_t severity, const RandomStream& random, const Picture& picture) {
  const Spatter& constants = of(spatters, severity);
  Field liquid(picture.height, picture.width);
  liquid.values = normal_numbers(random, liquid.values.size());
  for (float& each : liquid.values)
    each = static_cast<float>(constants.mean + constants.deviation * static_cast<double>(each));
  gaussian_filter(constants.sigma, 4.0, Border::nearest, liquid.height, liquid.width, liquid.values);
  for (float& each : liquid.values) each = each < static_cast<float>(constants.threshold) ? 0.0f : each;
  const Field amount = constants.mud ? mud(liquid, constants.strength) : water(liquid, constants.strength);
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    const float colour = part_of(constants.mud ? mud_colour : water_colour, picture, c);
    const std::span<float> plane = plane_of(picture, c);
    for (std::size_t i = 0; i < plane.size(); ++i)
      plane[i] =
          (constants.mud ? plane[i] * (1.0f - amount.values[i]) : plane[i]) + amount.values[i] * colour;
  }
}

}  // namespace corrupted
