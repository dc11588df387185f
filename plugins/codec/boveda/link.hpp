// Whether packing pays on the way to where the bytes go. Packed, a byte of a tensor takes r / B + 1 / E + 1 / D seconds,
// with r the packed share, B the bandwidth of the link, E and D those of encoding and decoding; as it is, 1 / B.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/cpu/boveda.hpp"

namespace boveda_codec {

/// Bytes of values a second, on one core.
struct Speeds {
  double encode, decode;
};

/// Returns the least share of a tensor that packing must save, so that it pays on a link of `bandwidth` bytes a second.
inline double least_gain(double bandwidth, const Speeds& speeds) {
  return bandwidth * (1.0 / speeds.encode + 1.0 / speeds.decode);
}

/// Returns values that pack well, more than caches hold: from round(Laplace(4)), and normal floats.
inline std::vector<std::byte> sample_of(trainyard::kernels::boveda::Element element) {
  using trainyard::kernels::boveda::Element;
  const std::size_t width = trainyard::kernels::boveda::element_bytes(element);
  std::vector<std::byte> bytes(std::size_t{8} << 20);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::exponential_distribution<float> magnitude(0.25f);
  constexpr std::size_t drawn = 4096;
  for (std::size_t i = 0; i < drawn; ++i) {
    const float number = normal(random);
    const double wide = static_cast<double>(number);
    std::int64_t value = std::lround(number < 0.0f ? -magnitude(random) : magnitude(random));
    if (element == Element::float32 || element == Element::bfloat16 || element == Element::float16)
      std::memcpy(&value, &number, sizeof number);
    if (element == Element::float64) std::memcpy(&value, &wide, sizeof wide);
    if (element == Element::bfloat16) value >>= 16;
    if (element == Element::float16) value = value >> 13 & 0x3fff;  // of which the exponents alone matter
    std::memcpy(bytes.data() + i * width, &value, width);
  }
  for (std::size_t at = drawn * width; at < bytes.size(); at += drawn * width)
    std::copy_n(bytes.begin(), std::min(drawn * width, bytes.size() - at),
                bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return bytes;
}

/// Measures processor time of the calling thread, the best of three: what else the machine does is not in it.
inline Speeds speeds_of(const trainyard::kernels::boveda::Recipe& recipe) {
  namespace boveda = trainyard::kernels::boveda;
  const std::vector<std::byte> values = sample_of(recipe.element);
  std::vector<std::byte> code(boveda::bound(recipe, values.size())), back(values.size());
  const auto seconds = [](const auto& work) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) {
      timespec from{}, to{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
      work();
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
      best = std::min(best, static_cast<double>(to.tv_sec - from.tv_sec) +
                                1e-9 * static_cast<double>(to.tv_nsec - from.tv_nsec));
    }
    return std::max(best, 1e-9);
  };
  std::size_t length = 0;
  const auto size = static_cast<double>(values.size());
  const double encoding = seconds([&] { length = boveda::encode(recipe, values, code); });
  const double decoding = seconds([&] { boveda::decode(std::span(code).first(length), back); });
  return {size / encoding, size / decoding};
}

}  // namespace boveda_codec
