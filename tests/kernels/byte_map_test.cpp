// Codes of the dynamic maps against a look at every number of the map, and equal bits of all instruction sets. What the maps
// are is compared with the paper in tests/plugins/byte_optimizer_test.cpp.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/byte_map.hpp"
#include "tests/kernels/isas.hpp"

namespace byte_map_tests {

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;
using Codes = std::vector<std::uint8_t>;

constexpr double rounding = 3e-7;  ///< of the middle of two numbers, relative

struct Packed {
  Codes codes;
  float scale;
};

Packed pack(const Floats& values, const ByteMap& map, Isa isa = fastest_isa()) {
  Packed packed{Codes(values.size()), 0.0f};
  packed.scale = byte_map_kernels(isa).pack(packed.codes.data(), values.data(), std::ssize(values), map);
  return packed;
}

Floats unpack(const Packed& packed, const ByteMap& map, Isa isa = fastest_isa()) {
  Floats values(packed.codes.size());
  byte_map_kernels(isa).unpack(values.data(), packed.codes.data(), packed.scale, std::ssize(values), map);
  return values;
}

Floats draw(std::mt19937_64& random, std::size_t count, bool has_sign) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> decades(-9.0f, 0.0f);
  Floats values(count);
  for (float& each : values) {
    each = normal(random) * std::pow(10.0f, decades(random));
    if (!has_sign) each = std::abs(each);
  }
  return values;
}

/// Looks at all codes. -128 is none of the signed ones.
double least_distance(double quotient, const ByteMap& map) {
  double least = std::numeric_limits<double>::infinity();
  for (int byte = 0; byte < 256; ++byte)
    if (!map.has_sign || byte != 128)
      least = std::min(least, std::abs(quotient - static_cast<double>(map.value[byte])));
  return least;
}

TEST_CASE("a value is packed to the nearest number of the map, in all instruction sets alike", "[byte_map]") {
  std::mt19937_64 random(5);
  for (const bool has_sign : {true, false}) {
    const ByteMap& map = has_sign ? signed_map() : unsigned_map();
    for (const std::size_t count : {1, 7, 256, 2048}) {
      const Floats values = draw(random, count, has_sign);
      const Packed packed = pack(values, map, Isa::portable);
      const Floats found = unpack(packed, map, Isa::portable);
      for (const Isa isa : isas()) {
        CHECK(pack(values, map, isa).codes == packed.codes);
        CHECK(pack(values, map, isa).scale == packed.scale);
        CHECK(unpack(packed, map, isa) == found);
      }
      for (std::size_t i = 0; i < count; ++i) {
        const double quotient = static_cast<double>(values[i] / packed.scale);
        const double distance = std::abs(quotient - static_cast<double>(map.value[packed.codes[i]]));
        const bool lifted = !has_sign && packed.codes[i] == 1;  // no square becomes zero
        if (distance > least_distance(quotient, map) + rounding * std::abs(quotient) && !lifted)
          FAIL_CHECK(quotient);
        if (!has_sign && values[i] > 0.0f && found[i] == 0.0f) FAIL_CHECK("zero for " << values[i]);
      }
    }
  }
}

TEST_CASE("every bucket of quotients leads to the nearest magnitude at its ends", "[byte_map]") {
  for (const bool has_sign : {true, false}) {
    const ByteMap& map = has_sign ? signed_map() : unsigned_map();
    Floats values{1.0f};
    for (int i = 0; i < map.count; ++i)
      for (const float of :
           {map.magnitude[i], (map.magnitude[i] + map.magnitude[std::min(i + 1, map.count - 1)]) / 2})
        if (of <= 1.0f)
          for (const float near : {std::nextafter(of, 0.0f), of, std::nextafter(of, 1.0f)})
            values.push_back(near);
    for (float size = 1e-8f; size < 1.0f; size *= 1.0007f) values.push_back(size);
    const Packed packed = pack(values, map);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      const double distance = std::abs(value - static_cast<double>(map.value[packed.codes[i]]));
      if (distance > least_distance(value, map) + rounding * value && packed.codes[i] > 1) FAIL_CHECK(value);
    }
  }
}

TEST_CASE("what was unpacked is packed to the same bits again", "[byte_map]") {
  for (const bool has_sign : {true, false}) {
    const ByteMap& map = has_sign ? signed_map() : unsigned_map();
    Packed all{{}, 0.0f};
    for (int byte = 0; byte < 256; ++byte)
      if (!has_sign || byte != 128) all.codes.push_back(static_cast<std::uint8_t>(byte));
    for (const float scale : {1.0f, 3.3e-7f, 0.7f, 1.9e20f}) {
      all.scale = scale;
      const Packed again = pack(unpack(all, map), map);
      CHECK(again.codes == all.codes);
      CHECK(again.scale == scale);
    }
  }
}

TEST_CASE("zeros, numbers below the normal ones, NaN and infinity", "[byte_map]") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                  infinity = std::numeric_limits<float>::infinity();
  for (const Isa isa : isas())
    for (const ByteMap* map : {&signed_map(), &unsigned_map()}) {
      CHECK(unpack(pack(Floats(300, 0.0f), *map, isa), *map, isa) == Floats(300, 0.0f));
      CHECK(unpack(pack(Floats(300, 1e-42f), *map, isa), *map, isa) == Floats(300, 0.0f));
      for (const float wrong : {nan, infinity}) {
        Floats values(300, 0.5f);
        values[17] = wrong;
        const Packed packed = pack(values, *map, isa);
        CHECK_FALSE(std::isfinite(packed.scale));
        CHECK_FALSE(std::isfinite(unpack(packed, *map, isa)[17]));
      }
    }
}

}  // namespace

}  // namespace byte_map_tests
