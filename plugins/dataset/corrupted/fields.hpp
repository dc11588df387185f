// Parts of several corruptions: fields of one number a pixel, filters of them, and numbers drawn for them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <trainyard/random.hpp>

#include "kernels.hpp"

namespace corrupted {

/// The constants of a corruption, for severity 1 to 5.
template <class Number>
using BySeverity = std::array<Number, most_severe>;

template <class Number>
Number of(const BySeverity<Number>& constants, std::int64_t severity) {
  return constants[static_cast<std::size_t>(severity - 1)];
}

/// One number for each pixel.
struct Field {
  std::int64_t height = 0, width = 0;
  std::vector<float> values;

  Field(std::int64_t rows, std::int64_t columns)
      : height(rows), width(columns), values(static_cast<std::size_t>(rows * columns)) {}
  float& at(std::int64_t y, std::int64_t x) { return values[static_cast<std::size_t>(y * width + x)]; }
  float at(std::int64_t y, std::int64_t x) const { return values[static_cast<std::size_t>(y * width + x)]; }
};

/// The values of a channel, which are written where they lie.
inline std::span<float> plane_of(const Picture& picture, std::int64_t channel) {
  return picture.values.subspan(static_cast<std::size_t>(channel * picture.plane()),
                                static_cast<std::size_t>(picture.plane()));
}

/// The grey of a colour, as television weighs red, green and blue.
inline float luma(float red, float green, float blue) {
  return 0.299f * red + 0.587f * green + 0.114f * blue;
}
inline float grey_of(const Picture& picture, std::size_t pixel) {
  if (picture.channels == 1) return picture.values[pixel];
  return luma(plane_of(picture, 0)[pixel], plane_of(picture, 1)[pixel], plane_of(picture, 2)[pixel]);
}

Field copy_of(const Picture& picture, std::int64_t channel);

/// What lies beyond the ends of a line.
enum class Border : std::uint8_t {
  nearest,  ///< the outermost value again and again: a a | a b c | c c
  reflect,  ///< the line backwards: b a | a b c | c b
  mirror,   ///< the line backwards without its outermost value: c b | a b c | b a
};
/// Returns the place in [0, count) whose value stands at `place`.
std::int64_t within(Border border, std::int64_t place, std::int64_t count);

/// Returns the samples of a normal curve at -radius to radius; they add up to 1.
std::vector<float> normal_weights(double sigma, std::int64_t radius);
/// Blurs by samples of a normal curve that is cut at `truncate` deviations, as SciPy and scikit-image do. A deviation that
/// reaches no other pixel leaves all as it is.
void gaussian_filter(double sigma, double truncate, Border border, std::int64_t height, std::int64_t width,
                     std::span<float> values);

/// Each value is the mean of those that lie behind it in one direction, near ones more: on a half of a normal curve of
/// `radius` pixels beside the first, at whole pixels, as ImageMagick's motion blur. Angle in degrees from the x axis
/// towards larger y.
struct Motion {
  std::int64_t radius = 0;
  double sigma = 0.0;
};
void motion_filter(const Motion& motion, double angle, std::int64_t height, std::int64_t width,
                   std::span<float> values);

/// Returns the middle of a field, enlarged to the size of the whole: lines between neighbours, as SciPy's zoom of order 1.
Field zoomed(const Field& field, double factor);

// The numbers that a corruption draws, each kind with blocks of its own in the stream.

std::vector<float> normal_numbers(const trainyard::RandomStream& random, std::size_t count);
/// Numbers in [0, 1) for a field; `which` tells several apart and is not negative.
std::vector<float> uniform_numbers(const trainyard::RandomStream& random, std::size_t count,
                                   std::uint64_t which);
/// Returns one number in [low, high), apart from those of all fields; the same for the same `which`.
double uniform_number(const trainyard::RandomStream& random, std::uint64_t which, double low, double high);

}  // namespace corrupted
