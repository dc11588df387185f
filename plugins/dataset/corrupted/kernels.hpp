// Corruptions of images: those of CIFAR-10-C (Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common
// Corruptions and Perturbations", ICLR 2019) but for frost, which needs photographs, under their names and with their
// constants for 32 x 32 pixels, and uniform noise on standardised pixels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <trainyard/manifest.hpp>
#include <trainyard/random.hpp>

namespace corrupted {

enum class Corruption : std::uint8_t {
  gaussian_noise,
  shot_noise,
  impulse_noise,
  speckle_noise,
  gaussian_blur,
  defocus_blur,
  glass_blur,
  motion_blur,
  zoom_blur,
  snow,
  fog,
  spatter,
  contrast,
  brightness,
  saturate,
  elastic_transform,
  pixelate,
  jpeg_compression,
  uniform_noise,
};

/// The names of the corruptions, in the order of the enumeration.
inline constexpr std::array<std::string_view, 19> names = {"gaussian_noise",
                                                           "shot_noise",
                                                           "impulse_noise",
                                                           "speckle_noise",
                                                           "gaussian_blur",
                                                           "defocus_blur",
                                                           "glass_blur",
                                                           "motion_blur",
                                                           "zoom_blur",
                                                           "snow",
                                                           "fog",
                                                           "spatter",
                                                           "contrast",
                                                           "brightness",
                                                           "saturate",
                                                           "elastic_transform",
                                                           "pixelate",
                                                           "jpeg_compression",
                                                           "uniform_noise"};
inline constexpr std::int64_t most_severe = 5;

inline std::string_view name_of(Corruption corruption) {
  return names[static_cast<std::size_t>(corruption)];
}

/// An image whose values are changed where they lie, [channels, height, width]: 1 channel of grey, or 3 of red, green and
/// blue.
struct Picture {
  std::int64_t channels = 0, height = 0, width = 0;
  std::span<float> values;

  std::int64_t plane() const { return height * width; }
};

/// Returns the random numbers by which a sample is corrupted; `draw` tells apart several copies of it. The dataset and the
/// tool audit_pruned make the same image of the same arguments.
inline trainyard::RandomStream stream_of(Corruption corruption, std::uint64_t seed, std::int64_t sample,
                                         std::uint32_t draw = 0) {
  std::string owner = "corrupted/";
  owner += name_of(corruption);
  return {seed, owner, static_cast<std::uint64_t>(sample), draw};
}

/// Corrupts an image of pixels in [0, 1], which they are afterwards, too; severity 1 to 5. Not for uniform_noise. Throws
/// ConfigError for a corruption of colours and an image of grey. Any thread.
void corrupt(Corruption corruption, std::int64_t severity, const trainyard::RandomStream& random,
             const Picture& picture);

/// Adds noise in [-eps, eps) to each value; nothing is clipped. Any thread.
void add_uniform_noise(double eps, const trainyard::RandomStream& random, std::span<float> values);

}  // namespace corrupted

template <>
struct trainyard::Words<corrupted::Corruption> {
  static constexpr std::span<const std::string_view> words = corrupted::names;
};
