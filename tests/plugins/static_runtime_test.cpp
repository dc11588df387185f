// Operators of a static export by themselves: functions against those of the library, in doubles; sparse matrices against loops.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include "plugins/tool/export/sparse_rows.hpp"
#include "plugins/tool/export/static/runtime.hpp"

namespace static_runtime_test {

TEST_CASE("functions of a static export are exact to some units in the last place") {
  for (int i = -90'000; i <= 90'000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    const double exact = std::expm1(static_cast<double>(x)), curve = std::tanh(static_cast<double>(x));
    if (std::abs(i) < 87'000)
      REQUIRE(std::abs(runtime::exponential_less_one(x) - exact) <= 3e-7 * std::abs(exact));
    REQUIRE(std::abs(runtime::sigmoid(x) - 1.0 / (1.0 + std::exp(-static_cast<double>(x)))) < 2e-7);
    REQUIRE(std::abs(runtime::tanh(x) - curve) <= 3e-7 * std::abs(curve));
  }
  constexpr float infinity = std::numeric_limits<float>::infinity(),
                  none = std::numeric_limits<float>::quiet_NaN();
  CHECK(runtime::sigmoid(infinity) == 1.0f);
  CHECK(runtime::sigmoid(-infinity) < 1e-37f);
  CHECK(runtime::tanh(1e-30f) == 1e-30f);
  CHECK(runtime::tanh(infinity) == 1.0f);
  CHECK(runtime::tanh(-infinity) == -1.0f);
  CHECK(std::isnan(runtime::sigmoid(none)));
  CHECK(std::isnan(runtime::tanh(none)));
}

TEST_CASE("sparse matrices of a static export, against loops over all of their elements") {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const int out = 1 + static_cast<int>(random() % 70), in = 1 + static_cast<int>(random() % 40),
              rows = 1 + round % 3;
    const float share = static_cast<float>(round % 6) / 5.0f;  // from none to all
    at::Tensor matrix = at::zeros({out, in});
    std::vector<float> x(static_cast<std::size_t>(rows * in)), y(static_cast<std::size_t>(rows * out), 0.5f);
    std::normal_distribution<float> normal;
    for (float& each : x) each = normal(random);
    float* const elements = matrix.mutable_data_ptr<float>();
    std::int64_t numbers = 0;
    for (int i = 0; i < out * in; ++i)
      if (std::generate_canonical<float, 24>(random) < share) elements[i] = normal(random), ++numbers;
    const SparseRows packed = sparse_rows(matrix);
    REQUIRE(std::ssize(packed.numbers) == numbers);
    REQUIRE(sparse_bytes(matrix) == 4 * std::ssize(packed.numbers) + 2 * std::ssize(packed.places));
    runtime::add_sparse(packed.numbers.data(), packed.places.data(), x.data(), y.data(), rows, in, out);
    for (int r = 0; r < rows; ++r)
      for (int o = 0; o < out; ++o) {
        double sum = 0.5;
        for (int i = 0; i < in; ++i)
          sum += static_cast<double>(elements[o * in + i]) *
                 static_cast<double>(x[static_cast<std::size_t>(r * in + i)]);
        REQUIRE(std::abs(y[static_cast<std::size_t>(r * out + o)] - sum) < 1e-5);
      }
  }
}

}  // namespace static_runtime_test
