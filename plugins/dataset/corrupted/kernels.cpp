#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>

#include "blur.hpp"
#include "jpeg.hpp"
#include "weather.hpp"

namespace corrupted {
namespace {

using trainyard::RandomStream;

constexpr BySeverity<double> gaussian_deviation = {0.04, 0.06, 0.08, 0.09, 0.10};
constexpr BySeverity<double> photons = {500, 250, 100, 75, 50};
constexpr BySeverity<double> impulse_share = {0.01, 0.02, 0.03, 0.05, 0.07};
constexpr BySeverity<double> speckle_deviation = {0.06, 0.1, 0.12, 0.16, 0.2};
constexpr BySeverity<double> contrast_left = {0.75, 0.5, 0.4, 0.3, 0.15};
constexpr BySeverity<double> brighter = {0.05, 0.1, 0.15, 0.2, 0.3};
constexpr BySeverity<std::pair<double, double>> saturation = {
    {{0.3, 0.0}, {0.1, 0.0}, {1.5, 0.0}, {2.0, 0.1}, {2.5, 0.2}}};  // factor, and summand
constexpr BySeverity<double> pixels_left = {0.95, 0.9, 0.85, 0.75, 0.65};
constexpr BySeverity<int> jpeg_quality = {80, 65, 58, 50, 40};

void clip(std::span<float> values) {
  for (float& each : values) each = std::clamp(each, 0.0f, 1.0f);
}

// Noise

void gaussian_noise(double deviation, const RandomStream& random, std::span<float> values) {
  const std::vector<float> noise = normal_numbers(random, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<float>(deviation) * noise[i];
}

void speckle_noise(double deviation, const RandomStream& random, std::span<float> values) {
  const std::vector<float> noise = normal_numbers(random, values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] += values[i] * static_cast<float>(deviation) * noise[i];
}

/// Returns the smallest count whose share of the distribution, with all below it, is more than `uniform`. Means are 500 at
/// most, so that the first term is a number.
double poisson(double mean, double uniform) {
  const double most = mean + 20.0 * std::sqrt(mean) + 20.0;  // past it nothing is left in double precision
  double count = 0.0, term = std::exp(-mean), sum = term;
  while (sum <= uniform && count < most) {
    count += 1.0;
    term *= mean / count;
    sum += term;
  }
  return count;
}

void shot_noise(double photons_of_white, const RandomStream& random, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(poisson(values[i] * photons_of_white, random.uniform(i)) / photons_of_white);
}

/// Half of the values that are hit become 1, the others 0.
void impulse_noise(double share, const RandomStream& random, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double drawn = random.uniform(i);
    if (drawn < share) values[i] = drawn < share / 2 ? 1.0f : 0.0f;
  }
}

// Light and colour

/// Each channel keeps its mean.
void contrast(double left, const Picture& picture) {
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    const auto plane = picture.values.subspan(static_cast<std::size_t>(c * picture.plane()),
                                              static_cast<std::size_t>(picture.plane()));
    double sum = 0.0;
    for (const float each : plane) sum += each;
    const double mean = sum / static_cast<double>(picture.plane());
    for (float& each : plane) each = static_cast<float>((each - mean) * left + mean);
  }
}

/// The largest and the smallest of the channels of a pixel.
std::pair<float, float> range_of(const Picture& picture, std::int64_t pixel) {
  float most = 0.0f, least = 1.0f;
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    const float value = picture.values[static_cast<std::size_t>(c * picture.plane() + pixel)];
    most = std::max(most, value);
    least = std::min(least, value);
  }
  return {most, least};
}

/// Adds to the value V of hue, saturation and value, which is the largest channel; the other two stay as they are, so that
/// all channels grow by one factor. Of grey the value is all there is.
void brightness(double added, const Picture& picture) {
  for (std::int64_t pixel = 0; pixel < picture.plane(); ++pixel) {
    const float value = range_of(picture, pixel).first;
    const float then = std::clamp(value + static_cast<float>(added), 0.0f, 1.0f);
    for (std::int64_t c = 0; c < picture.channels; ++c) {
      float& channel = picture.values[static_cast<std::size_t>(c * picture.plane() + pixel)];
      channel = value > 0.0f ? channel * (then / value) : then;
    }
  }
}

/// Changes the saturation S = (V - least) / V. A pixel of grey has the hue 0, which is red's.
void saturate(std::pair<double, double> constants, const Picture& picture) {
  if (picture.channels != 3)
    throw trainyard::ConfigError(
        "corruptions: saturate changes colours, and the images have 1 channel, of grey: leave it out");
  for (std::int64_t pixel = 0; pixel < picture.plane(); ++pixel) {
    const auto [value, least] = range_of(picture, pixel);
    if (value <= 0.0f) continue;
    const float before = (value - least) / value;
    const float then = std::clamp(
        before * static_cast<float>(constants.first) + static_cast<float>(constants.second), 0.0f, 1.0f);
    for (std::int64_t c = 0; c < 3; ++c) {
      float& channel = picture.values[static_cast<std::size_t>(c * picture.plane() + pixel)];
      if (before > 0.0f)
        channel = value - (value - channel) * (then / before);
      else if (c > 0)
        channel = value * (1.0f - then);
    }
  }
}

// Bytes

/// Bytes [height, width, channels], as image files have them.
std::vector<std::uint8_t> bytes_of(const Picture& picture) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(picture.values.size());
  for (std::int64_t pixel = 0; pixel < picture.plane(); ++pixel)
    for (std::int64_t c = 0; c < picture.channels; ++c)
      bytes.push_back(static_cast<std::uint8_t>(
          std::lround(255.0f * picture.values[static_cast<std::size_t>(c * picture.plane() + pixel)])));
  return bytes;
}

void jpeg_compression(int quality, const Picture& picture) {
  const std::vector<std::uint8_t> bytes =
      through_jpeg(bytes_of(picture), picture.height, picture.width, picture.channels, quality);
  std::size_t at = 0;
  for (std::int64_t pixel = 0; pixel < picture.plane(); ++pixel)
    for (std::int64_t c = 0; c < picture.channels; ++c)
      picture.values[static_cast<std::size_t>(c * picture.plane() + pixel)] =
          static_cast<float>(bytes[at++]) / 255.0f;
}

/// Scales the lines of an array [lines, count, inner] to `size` values, each the mean of those whose middle falls into its
/// share of the line, or of the nearest one, rounded to a byte: the filter "box" of Pillow, with its way of a middle that
/// lies on the border of two shares.
std::vector<std::uint8_t> scaled(const std::vector<std::uint8_t>& from, std::int64_t lines,
                                 std::int64_t count, std::int64_t inner, std::int64_t size) {
  const double scale = static_cast<double>(count) / static_cast<double>(size), width = std::max(scale, 1.0);
  std::vector<std::uint8_t> to(static_cast<std::size_t>(lines * size * inner));
  for (std::int64_t i = 0; i < size; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - 0.5 * width + 0.5));
    auto end = std::min(count, static_cast<std::int64_t>(centre + 0.5 * width + 0.5));
    const auto place = [&](std::int64_t x) { return (static_cast<double>(x) - centre + 0.5) / width; };
    while (end - first > 1 && place(first) <= -0.5) ++first;
    while (end - first > 1 && place(end - 1) > 0.5) --end;
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t k = 0; k < inner; ++k) {
        double sum = 0.0;
        for (std::int64_t x = first; x < end; ++x)
          sum += from[static_cast<std::size_t>((line * count + x) * inner + k)];
        to[static_cast<std::size_t>((line * size + i) * inner + k)] =
            static_cast<std::uint8_t>(sum / static_cast<double>(end - first) + 0.5);
      }
  }
  return to;
}

void pixelate(double left, const Picture& picture) {
  const std::int64_t height = picture.height, width = picture.width, channels = picture.channels;
  const auto fewer = [&](std::int64_t side) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(side) * left));
  };
  std::vector<std::uint8_t> bytes = bytes_of(picture);
  bytes = scaled(bytes, height, width, channels, fewer(width));
  bytes = scaled(bytes, 1, height, fewer(width) * channels, fewer(height));
  bytes = scaled(bytes, fewer(height), fewer(width), channels, width);
  bytes = scaled(bytes, 1, fewer(height), width * channels, height);
  std::size_t at = 0;
  for (std::int64_t pixel = 0; pixel < picture.plane(); ++pixel)
    for (std::int64_t c = 0; c < channels; ++c)
      picture.values[static_cast<std::size_t>(c * picture.plane() + pixel)] =
          static_cast<float>(bytes[at++]) / 255.0f;
}

}  // namespace

void corrupt(Corruption corruption, std::int64_t severity, const RandomStream& random,
             const Picture& picture) {
  switch (corruption) {
    case Corruption::gaussian_noise:
      gaussian_noise(of(gaussian_deviation, severity), random, picture.values);
      break;
    case Corruption::shot_noise: shot_noise(of(photons, severity), random, picture.values); break;
    case Corruption::impulse_noise: impulse_noise(of(impulse_share, severity), random, picture.values); break;
    case Corruption::speckle_noise:
      speckle_noise(of(speckle_deviation, severity), random, picture.values);
      break;
    case Corruption::gaussian_blur: gaussian_blur(severity, picture); break;
    case Corruption::defocus_blur: defocus_blur(severity, picture); break;
    case Corruption::glass_blur: glass_blur(severity, random, picture); break;
    case Corruption::motion_blur: motion_blur(severity, random, picture); break;
    case Corruption::zoom_blur: zoom_blur(severity, picture); break;
    case Corruption::snow: snow(severity, random, picture); break;
    case Corruption::fog: fog(severity, random, picture); break;
    case Corruption::spatter: spatter(severity, random, picture); break;
    case Corruption::contrast: contrast(of(contrast_left, severity), picture); break;
    case Corruption::brightness: brightness(of(brighter, severity), picture); break;
    case Corruption::saturate: saturate(of(saturation, severity), picture); break;
    case Corruption::elastic_transform: elastic_transform(severity, random, picture); break;
    case Corruption::pixelate: pixelate(of(pixels_left, severity), picture); break;
    case Corruption::jpeg_compression: jpeg_compression(of(jpeg_quality, severity), picture); break;
    case Corruption::uniform_noise: return;
  }
  clip(picture.values);
}

void add_uniform_noise(double eps, const RandomStream& random, std::span<float> values) {
  std::vector<float> noise(values.size());
  random.fill_uniform(noise);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] += static_cast<float>(eps) * (2.0f * noise[i] - 1.0f);
}

}  // namespace corrupted
