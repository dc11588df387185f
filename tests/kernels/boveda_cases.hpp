// Recipes and tensors with which packing by group widths is tried.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/boveda.hpp"

namespace boveda_cases {

using namespace trainyard::kernels;
using boveda::Element;
using boveda::Layout;
using boveda::Map;
using boveda::Recipe;
using boveda::Zero;
using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

/// Every layout, group and zero mode of an element, with both maps for integers.
inline std::vector<Recipe> recipes(Element element, std::uint32_t block = 4096) {
  std::vector<Recipe> all;
  const bool integers = element == Element::int8 || element == Element::int16;
  for (const Map map : {Map::identity, Map::zigzag}) {
    if (map == Map::zigzag && !integers) continue;
    for (const Zero zero : {Zero::none, Zero::bitmap}) {
      for (const std::uint16_t group : {8, 16, 32, 64, 256})
        if (block % group == 0) all.push_back({element, map, Layout::stream, zero, group, block});
      all.push_back({element, map, Layout::plane, zero, 64, block});
    }
    for (const std::uint16_t group : {16, 32})
      all.push_back({element, map, Layout::lane, Zero::none, group, block});
  }
  return all;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Returns a number as a float of 16, 32 or 64 bits; halves too small for a normal one are zero.
inline std::uint64_t float_bits(Element element, double number) {
  std::uint64_t wide = 0;
  std::memcpy(&wide, &number, 8);
  if (element == Element::float64) return wide;
  const auto single = static_cast<float>(number);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &single, 4);
  if (element == Element::float32) return bits;
  if (element == Element::bfloat16) return bits >> 16;
  const std::uint32_t magnitude =
      std::fabs(number) < 0x1p-14 ? 0 : ((bits & 0x7fffffff) - (112U << 23)) >> 13;
  return (bits >> 16 & 0x8000) | magnitude;
}

/// Numbers of one of several kinds: narrow, wide, sparse, constant, of extremes, of widths that change.
inline Bytes tensor(Element element, std::size_t count, Random& random) {
  const unsigned kind = random() % 7;
  const std::size_t width = boveda::element_bytes(element);
  Bytes bytes(count * width);
  const auto draw = [&](std::size_t i) -> std::int64_t {
    const auto noise = static_cast<std::int64_t>(random());
    switch (kind) {
      case 0: return noise % 4;
      case 1: return noise;
      case 2: return random() % 4 == 0 ? noise % 100 : 0;
      case 3: return 42;
      case 4: return random() % 2 == 0 ? -128 : -32768;
      case 5: return random() % 500 == 0 ? noise : noise % 3 - 1;
      default: return noise >> (64 - 1 - i / 40 % 16);
    }
  };
  std::normal_distribution<double> normal(0.0, 0.05);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t value = static_cast<std::uint64_t>(draw(i));
    if (element >= Element::float32 && kind != 1)
      value = float_bits(element, kind == 2 && value == 0 ? 0.0 : kind == 3 ? -0.0 : normal(random));
    std::memcpy(bytes.data() + i * width, &value, width);
  }
  return bytes;
}

inline Bytes encoded(const Recipe& recipe, const Bytes& values, Isa isa) {
  Bytes code(boveda::bound(recipe, values.size()));
  code.resize(boveda::encode(recipe, values, code, true, isa));
  code.shrink_to_fit();  // so that the sanitizer sees a byte read beyond it
  return code;
}

/// Returns `values` of round(Laplace(scale)), clipped to 127.
inline std::vector<std::int8_t> laplace(std::size_t values, double scale, std::uint64_t seed) {
  Random random(seed);
  std::exponential_distribution<double> magnitude(1.0 / scale);
  std::vector<std::int8_t> all(values);
  for (std::int8_t& each : all) {
    const double value = std::fmin(127.0, std::nearbyint(magnitude(random)));
    each = static_cast<std::int8_t>(random() % 2 == 0 ? value : -value);
  }
  return all;
}

/// Returns values of which `zeros` are zero and the others of exponentially distributed magnitude.
inline std::vector<std::uint8_t> activations(std::size_t values, double zeros, std::uint64_t seed) {
  Random random(seed);
  std::exponential_distribution<double> magnitude(1.0 / 12.0);
  std::uniform_real_distribution<double> uniform;
  std::vector<std::uint8_t> all(values);
  for (std::uint8_t& each : all)
    each = uniform(random) < zeros
               ? std::uint8_t{0}
               : static_cast<std::uint8_t>(std::fmax(1.0, std::fmin(255.0, std::ceil(magnitude(random)))));
  return all;
}

/// How many cases a test goes through: those of the environment where they are given, for the long forms.
inline std::uint64_t number(const char* variable, std::uint64_t usual) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? usual : std::strtoull(given, nullptr, 10);
}

}  // namespace boveda_cases
