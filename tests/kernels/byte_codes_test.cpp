// Codes of 8 bits against plain loops, and to the bit on every instruction set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/byte_codes.hpp"
#include "tests/kernels/isas.hpp"

namespace byte_codes_tests {

using namespace trainyard::kernels;

TEST_CASE("codes of 8 bits are those of plain loops, and so are the values") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Isa isa : isas())
    for (const std::int64_t count : {0, 1, 15, 16, 17, 63, 64, 1000}) {
      const ByteCodeKernels& kernels = byte_code_kernels(isa);
      std::vector<float> x(static_cast<std::size_t>(count));
      for (float& each : x) each = random() % 4 == 0 ? 0.0f : normal(random);
      for (std::size_t i = 0; i < x.size(); i += 7) x[i] = 0.025f * static_cast<float>(i % 5);  // ties
      const ByteRange range = kernels.range(x.data(), count);
      float least = 0.0f, most = 0.0f;
      for (const float each : x) {
        least = std::min(least, each);
        most = std::max(most, each);
      }
      CHECK(range.least == least);
      CHECK(range.most == most);
      CHECK(range.finite);
      for (const bool keeps : {false, true}) {
        const float inverse = 20.0f;
        std::vector<std::uint8_t> codes(x.size());
        std::vector<std::int8_t> signed_codes(x.size());
        kernels.unsigned_codes(codes.data(), x.data(), count, inverse, 100, keeps);
        kernels.signed_codes(signed_codes.data(), x.data(), count, 90.0f, keeps);
        std::vector<float> values(x.size()), signed_values(x.size());
        kernels.unsigned_values(values.data(), codes.data(), count, 0.05f, 100);
        kernels.signed_values(signed_values.data(), signed_codes.data(), count, 0.05f);
        for (std::size_t i = 0; i < x.size(); ++i) {
          long code = std::lrint(x[i] * inverse) + 100, other = std::lrint(x[i] * 90.0f);
          if (keeps && x[i] > 0.0f) {
            code = std::max(code, 101L);
            other = std::max(other, 1L);
          }
          CHECK(codes[i] == std::clamp(code, 0L, 255L));
          CHECK(signed_codes[i] == std::clamp(other, -127L, 127L));
          CHECK(values[i] == static_cast<float>(codes[i] - 100) * 0.05f);
          CHECK(signed_values[i] == static_cast<float>(signed_codes[i]) * 0.05f);
        }
      }
      for (std::size_t i = 0; i < x.size(); i += 5)
        for (const float odd : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
          std::vector<float> wrong = x;
          wrong[i] = odd;
          CHECK_FALSE(kernels.range(wrong.data(), count).finite);
        }
    }
}

}  // namespace byte_codes_tests
