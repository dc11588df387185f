// Work on few rows of a matrix against sums in double precision, at widths with and without a rest.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "kernels/cpu/adam.hpp"
#include "kernels/cpu/row_sets.hpp"
#include "kernels/cpu/rows.hpp"
#include "tests/kernels/isas.hpp"

namespace rows_tests {

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;
using Random = std::mt19937_64;

constexpr std::int64_t widths[] = {1, 7, 15, 16, 17, 64, 100, 127, 128, 129, 512};
constexpr std::size_t row_count = 50;

Floats normal(std::size_t count, Random& random) {
  std::normal_distribution<float> draw;
  Floats values(count);
  for (float& each : values) each = draw(random);
  return values;
}

std::vector<std::int64_t> some_rows(std::size_t count, Random& random) {
  std::vector<std::int64_t> rows(count);
  for (std::int64_t& row : rows) row = static_cast<std::int64_t>(random() % row_count);
  return rows;
}

/// The matrix ends with its last row: what reads beyond it is seen by the sanitizers.
struct Problem {
  std::size_t width;
  Floats matrix, x, scales;
  std::vector<std::int64_t> rows;

  Problem(std::int64_t columns, std::size_t count, Random& random)
      : width(static_cast<std::size_t>(columns)),
        matrix(normal(row_count * width, random)),
        x(normal(width, random)),
        scales(normal(count, random)),
        rows(some_rows(count, random)) {
    if (count > 0) rows.back() = row_count - 1;
  }
  double at(std::int64_t row, std::size_t column) const {
    return matrix[static_cast<std::size_t>(row) * width + column];
  }
  RowMatrix view() const { return {matrix.data(), static_cast<std::int64_t>(width)}; }
};

}  // namespace

TEST_CASE("rows: dot products and sums of named rows are those of double precision") {
  Random random(3);
  for (const std::int64_t width : widths)
    for (const std::size_t count : {0, 1, 2, 9, 40})
      for (const Isa isa : isas()) {
        INFO("width " << width << ", " << count << " rows, set " << static_cast<int>(isa));
        const Problem problem(width, count, random);
        const RowKernels& kernels = row_kernels(isa);
        Floats dots(count, -7.5f), sum(problem.width, -7.5f), from_zero = sum;
        kernels.dots(dots.data(), problem.x.data(), problem.view(), problem.rows.data(), std::ssize(dots));
        kernels.sum(sum.data(), problem.x.data(), problem.scales.data(), problem.view(), problem.rows.data(),
                    std::ssize(dots));
        kernels.sum(from_zero.data(), nullptr, problem.scales.data(), problem.view(), problem.rows.data(),
                    std::ssize(dots));
        const double bound = 1e-5 * std::sqrt(static_cast<double>(width) * 10.0);
        for (std::size_t i = 0; i < count; ++i) {
          double expected = 0;
          for (std::size_t k = 0; k < problem.width; ++k)
            expected += static_cast<double>(problem.x[k]) * problem.at(problem.rows[i], k);
          CHECK(std::abs(static_cast<double>(dots[i]) - expected) < bound);
        }
        for (std::size_t k = 0; k < problem.width; ++k) {
          double expected = 0;
          for (std::size_t i = 0; i < count; ++i)
            expected += static_cast<double>(problem.scales[i]) * problem.at(problem.rows[i], k);
          CHECK(std::abs(static_cast<double>(from_zero[k]) - expected) < bound);
          CHECK(std::abs(static_cast<double>(sum[k] - problem.x[k]) - expected) < bound);
        }
      }
}

TEST_CASE("rows: products and sums of halves are those of the floats that halves stand for") {
  Random random(4);
  for (const std::int64_t width : widths)
    for (const Isa isa : isas()) {
      INFO("width " << width << ", set " << static_cast<int>(isa));
      constexpr std::size_t count = 21;
      Problem problem(width, count, random);
      std::vector<std::uint16_t> halves;
      for (float& each : problem.matrix) {
        std::uint32_t bits;
        std::memcpy(&bits, &each, sizeof bits);
        halves.push_back(static_cast<std::uint16_t>(bits >> 16));
        bits &= 0xffff0000;
        std::memcpy(&each, &bits, sizeof bits);
      }
      const RowKernels& kernels = row_kernels(isa);
      Floats whole(count), found(count), whole_sum(problem.width), found_sum(problem.width);
      const HalfMatrix matrix{halves.data(), width};
      kernels.dots(whole.data(), problem.x.data(), problem.view(), problem.rows.data(), count);
      kernels.half_dots(found.data(), problem.x.data(), matrix, problem.rows.data(), count);
      for (std::size_t i = 0; i < count; ++i)  // narrow ones are rounded in other places
        CHECK(std::abs(found[i] - whole[i]) < 1e-5f * (1.0f + std::abs(whole[i])));
      kernels.sum(whole_sum.data(), problem.x.data(), problem.scales.data(), problem.view(),
                  problem.rows.data(), count);
      kernels.half_sum(found_sum.data(), problem.x.data(), problem.scales.data(), matrix, problem.rows.data(),
                       count);
      for (std::size_t k = 0; k < problem.width; ++k)
        CHECK(std::abs(found_sum[k] - whole_sum[k]) < 1e-5f * (1.0f + std::abs(whole_sum[k])));
    }
}

TEST_CASE("rows: Adam's step is its formula, and idle steps at once are those one by one to the bit") {
  Random random(5);
  for (const std::int64_t width : widths)
    for (const Isa isa : isas())
      for (const float decay : {0.0f, 0.1f}) {
        INFO("width " << width << ", set " << static_cast<int>(isa) << ", weight decay " << decay);
        const auto count = static_cast<std::size_t>(width);
        Floats w = normal(count, random), m = normal(count, random), v = normal(count, random);
        const Floats g = normal(count, random);
        for (float& each : v) each *= each;
        const Floats w0 = w, m0 = m, v0 = v;
        const AdamKernels& kernels = adam_kernels(isa);
        const AdamStep step{.of_mean = 0.1f,
                            .beta2 = 0.99f,
                            .of_square = 0.01f,
                            .rate = 0.02f,
                            .inverse_root = 1.7f,
                            .eps = 1e-3f,
                            .weight_decay = decay};
        kernels.step({w.data(), m.data(), v.data(), width}, g.data(), step);
        for (std::size_t i = 0; i < count; ++i) {
          const double gradient =
              static_cast<double>(g[i]) + static_cast<double>(decay) * static_cast<double>(w0[i]);
          const double average = 0.9 * static_cast<double>(m0[i]) + 0.1 * gradient;
          const double square = 0.99 * static_cast<double>(v0[i]) + 0.01 * gradient * gradient;
          CHECK(static_cast<double>(m[i]) == Approx(average).margin(1e-6));
          CHECK(static_cast<double>(v[i]) == Approx(square).margin(1e-6));
          CHECK(static_cast<double>(w[i]) ==
                Approx(static_cast<double>(w0[i]) - 0.02 * average / (std::sqrt(square) * 1.7 + 1e-3))
                    .margin(1e-5));
        }

        std::vector<AdamStep> steps(7, step);
        for (std::size_t s = 0; s < steps.size(); ++s) steps[s].rate /= static_cast<float>(s + 1);
        Floats at_once[] = {w, m, v}, singly[] = {w, m, v}, with_zeros[] = {w, m, v};
        const Floats zeros(count, 0.0f);
        const auto row = [&](Floats(&of)[3]) {
          return AdamRow{of[0].data(), of[1].data(), of[2].data(), width};
        };
        kernels.idle(row(at_once), steps.data(), 7);
        for (const AdamStep& each : steps) {
          kernels.idle(row(singly), &each, 1);
          kernels.step(row(with_zeros), zeros.data(), each);
        }
        for (int part = 0; part < 3; ++part) {
          CHECK(at_once[part] == singly[part]);
          CHECK(at_once[part] == with_zeros[part]);
        }
      }
}

TEST_CASE("rows: the uses of a row are the samples that name it, in their order") {
  Random random(7);
  for (const std::int64_t rows : {1, 3, 2000, 2049, 5'000'000}) {
    std::vector<std::int64_t> offsets{0}, named;
    for (int sample = 0; sample < 30; ++sample) {
      for (std::uint64_t i = random() % 20; i > 0; --i)
        named.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows)));
      offsets.push_back(std::ssize(named));
    }
    named.front() = rows - 1;
    std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::uint32_t>>> expected;
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
      for (std::int64_t e = offsets[s]; e < offsets[s + 1]; ++e)
        expected[named[static_cast<std::size_t>(e)]].emplace_back(s, e);

    const RowUses uses = uses_of({offsets, named}, rows);
    REQUIRE(uses.rows.size() == expected.size());
    std::size_t r = 0;
    for (const auto& [row, of_row] : expected) {
      CHECK(uses.rows[r] == row);
      const auto first = static_cast<std::size_t>(uses.offsets[r]);
      REQUIRE(static_cast<std::size_t>(uses.offsets[r + 1]) - first == of_row.size());
      for (std::size_t i = 0; i < of_row.size(); ++i) {
        CHECK(uses.sample[first + i] == of_row[i].first);
        CHECK(uses.entry[first + i] == of_row[i].second);
      }
      ++r;
    }
  }
  const std::vector<std::int64_t> none{0, 0};
  CHECK(uses_of({none, {}}, 5).rows.empty());
}

}  // namespace rows_tests
