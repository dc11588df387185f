// The block-sparse products against sums in double precision over the masked matrices.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/masked_gemm.hpp"
#include "tests/kernels/isas.hpp"

namespace masked_gemm_tests {

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Random = std::mt19937_64;

Floats normal(Random& random, std::int64_t count) {
  std::normal_distribution<float> distribution;
  Floats numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = distribution(random);
  return numbers;
}

/// Masks of blocks for each slice, and the layer that reads them.
struct Problem {
  MaskedLinear layer;
  std::int64_t rows = 0;
  std::vector<std::vector<std::int32_t>> in, out;
  std::vector<Slice> slices;

  Problem(Random& random, std::int64_t rows, std::int64_t in_width, std::int64_t out_width,
          std::int64_t block, std::int64_t tau, double keep_in, double keep_out)
      : layer{.in = in_width, .out = out_width, .block = block, .relu = random() % 2 == 0, .scale = 1.75f},
        rows(rows) {
    const auto draw = [&](std::int64_t width, double keep) {
      std::bernoulli_distribution live(keep);
      std::vector<std::int32_t> blocks;
      for (std::int32_t i = 0; i * block < width; ++i)
        if (live(random)) blocks.push_back(i);
      return blocks;
    };
    for (std::int64_t j = 0; j < tau; ++j) {
      in.push_back(draw(in_width, keep_in));
      out.push_back(draw(out_width, keep_out));
    }
    for (std::size_t j = 0; j < in.size(); ++j) {
      const auto slice = static_cast<std::int64_t>(j);
      slices.push_back({rows * slice / tau, rows * (slice + 1) / tau, in[j], out[j]});
    }
    layer.slices = slices;
  }
  bool live(const std::vector<std::vector<std::int32_t>>& blocks, std::int64_t row, std::int64_t unit) const {
    for (std::size_t j = 0; j < slices.size(); ++j)
      if (row >= slices[j].begin && row < slices[j].end)
        return std::ranges::binary_search(blocks[j], static_cast<std::int32_t>(unit / layer.block));
    return false;
  }
};

/// A matrix with room between its rows, filled so that what should not be read or written shows.
struct Matrix {
  std::int64_t rows, width, stride;
  Floats data;
  Matrix(std::int64_t rows, std::int64_t width)
      : rows(rows),
        width(width),
        stride(width + 5),
        data(static_cast<std::size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN()) {}
  Matrix(Random& random, std::int64_t rows, std::int64_t width) : Matrix(rows, width) {
    const Floats numbers = normal(random, rows * width);
    for (std::int64_t r = 0; r < rows; ++r)
      std::copy_n(numbers.begin() + r * width, width, data.begin() + r * stride);
  }
  float& at(std::int64_t row, std::int64_t column) {
    return data[static_cast<std::size_t>(row * stride + column)];
  }
  operator Rows<float>() { return {data.data(), stride}; }
  operator Rows<const float>() { return {data.data(), stride}; }
};

/// All that a layer computes.
struct Results {
  Matrix y, dx, dw;
  Floats db;
};

struct Operands {
  Matrix x, weight, dy;
  Floats bias;
  Operands(Random& random, const Problem& problem)
      : x(random, problem.rows, problem.layer.in),
        weight(random, problem.layer.out, problem.layer.in),
        dy(random, problem.rows, problem.layer.out),
        bias(normal(random, problem.layer.out)) {}
};

Results run(MaskedGemm& gemm, const MaskedLinear& layer, std::int64_t rows, Operands& o) {
  Results r{{rows, layer.out}, {rows, layer.in}, {layer.out, layer.in}, Floats(o.bias.size(), NAN)};
  gemm.forward(layer, o.x, o.weight, o.bias.data(), r.y);
  gemm.input_gradient(layer, o.dy, r.y, o.weight, r.dx);
  gemm.weight_gradient(layer, o.dy, r.y, o.x, r.dw, r.db.data());
  return r;
}

/// Largest difference over largest value; what is 0 in the reference has to be 0.
double error(Matrix& found, const Doubles& expected) {
  double difference = 0, largest = 0;
  for (std::int64_t r = 0; r < found.rows; ++r)
    for (std::int64_t c = 0; c < found.width; ++c) {
      const double value = expected[static_cast<std::size_t>(r * found.width + c)];
      const double off = std::abs(found.at(r, c) - value);
      if (std::isnan(off) || (value == 0 && off != 0)) return std::numeric_limits<double>::infinity();
      difference = std::max(difference, off);
      largest = std::max(largest, std::abs(value));
    }
  for (std::int64_t r = 0; r < found.rows; ++r)
    for (std::int64_t c = found.width; c < found.stride; ++c)
      if (!std::isnan(found.at(r, c))) return std::numeric_limits<double>::infinity();
  return largest == 0 ? difference : difference / largest;
}

struct Expected {
  Doubles y, dx, dw, db;
};

/// The definition, element by element. Of sums next to 0 the sign is taken from y as it was found, which may
/// differ there.
Expected reference(const Problem& p, Operands& o, Matrix& found) {
  const auto [rows, in, out] = std::tuple(p.rows, p.layer.in, p.layer.out);
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  Expected e{Doubles(size(rows * out)), Doubles(size(rows * in)), Doubles(size(out * in)),
             Doubles(size(out))};
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<std::int64_t> live_in;
    for (std::int64_t i = 0; i < in; ++i)
      if (p.live(p.in, r, i)) live_in.push_back(i);
    for (std::int64_t u = 0; u < out; ++u) {
      if (!p.live(p.out, r, u)) continue;
      double sum = o.bias[size(u)];
      for (const std::int64_t i : live_in) sum += double{o.x.at(r, i)} * o.weight.at(u, i);
      if (p.layer.relu) sum = sum > 1e-5 ? sum : sum < -1e-5 ? 0.0 : found.at(r, u) / p.layer.scale;
      e.y[size(r * out + u)] = sum * p.layer.scale;
      if (p.layer.relu && found.at(r, u) <= 0) continue;
      const double dz = double{o.dy.at(r, u)} * p.layer.scale;
      e.db[size(u)] += dz;
      for (const std::int64_t i : live_in) {
        e.dx[size(r * in + i)] += dz * o.weight.at(u, i);
        e.dw[size(u * in + i)] += dz * o.x.at(r, i);
      }
    }
  }
  return e;
}

void compare(Isa isa, const Problem& problem, Random& random) {
  Operands operands(random, problem);
  MaskedGemm gemm(isa);
  Results found = run(gemm, problem.layer, problem.rows, operands);
  const Expected expected = reference(problem, operands, found.y);
  CAPTURE(static_cast<int>(isa), problem.rows, problem.layer.in, problem.layer.out, problem.layer.block,
          problem.slices.size(), problem.layer.relu);
  CHECK(error(found.y, expected.y) <= 1e-5);
  CHECK(error(found.dx, expected.dx) <= 1e-5);
  CHECK(error(found.dw, expected.dw) <= 1e-5);
  Matrix db(1, problem.layer.out);
  std::ranges::copy(found.db, db.data.begin());
  CHECK(error(db, expected.db) <= 1e-5);
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("masked products equal the dense ones of masked matrices") {
  Random random(7);
  for (const Isa isa : isas()) {
    for (const std::int64_t block : {8, 16, 24, 32, 40, 64, 128})
      compare(isa, Problem(random, 61, 200, 184, block, 4, 0.5, 0.5), random);
    for (int i = 0; i < 40; ++i) {
      const auto up_to = [&](std::uint64_t most) { return static_cast<std::int64_t>(1 + random() % most); };
      compare(isa, Problem(random, up_to(90), up_to(180), up_to(180), 8 * up_to(16), up_to(9), 0.5, 0.6),
              random);
    }
    compare(isa, Problem(random, 40, 1500, 70, 32, 2, 0.9, 0.5), random);  // deeper than a panel
    compare(isa, Problem(random, 300, 64, 64, 32, 1, 0.5, 0.5), random);   // more rows than a unit
  }
}

TEST_CASE("slices without rows or without live blocks") {
  Random random(8);
  for (const Isa isa : isas()) {
    compare(isa, Problem(random, 3, 96, 80, 16, 8, 0.5, 0.5), random);   // fewer rows than slices
    compare(isa, Problem(random, 20, 96, 80, 16, 4, 0.0, 0.5), random);  // y = activation(bias)
    compare(isa, Problem(random, 20, 96, 80, 16, 4, 0.5, 0.0), random);
    compare(isa, Problem(random, 20, 96, 80, 16, 4, 0.0, 0.0), random);
    compare(isa, Problem(random, 20, 96, 80, 16, 4, 1.0, 1.0), random);
    Problem one_dead(random, 20, 96, 80, 16, 4, 0.5, 0.5);
    one_dead.slices[1].in = {};
    one_dead.in[1] = {};
    one_dead.slices[2].out = {};
    one_dead.out[2] = {};
    one_dead.layer.slices = one_dead.slices;
    compare(isa, one_dead, random);
  }
}

TEST_CASE("what is dead is not looked at") {
  Random random(9);
  Problem problem(random, 24, 96, 96, 8, 3, 0.5, 0.5);
  Operands operands(random, problem);
  for (const Isa isa : isas()) {
    MaskedGemm gemm(isa);
    const Results before = run(gemm, problem.layer, problem.rows, operands);
    Operands spoilt = operands;
    for (std::int64_t row = 0; row < problem.rows; ++row) {
      for (std::int64_t i = 0; i < 96; ++i) {
        if (!problem.live(problem.in, row, i)) spoilt.x.at(row, i) = NAN;
        if (!problem.live(problem.out, row, i)) spoilt.dy.at(row, i) = NAN;
      }
    }
    const Results after = run(gemm, problem.layer, problem.rows, spoilt);
    CHECK(same_bits(before.y.data, after.y.data));
    CHECK(same_bits(before.dx.data, after.dx.data));
    CHECK(same_bits(before.dw.data, after.dw.data));
    CHECK(same_bits(before.db, after.db));
  }
}

TEST_CASE("rows outside all slices are left alone, and NaN goes through what is live") {
  Random random(10);
  Problem problem(random, 12, 32, 32, 8, 1, 1.0, 1.0);
  problem.slices[0].begin = 2;
  problem.slices[0].end = 9;
  problem.layer.slices = problem.slices;
  problem.layer.relu = true;
  Operands operands(random, problem);
  operands.x.at(4, 3) = NAN;
  for (const Isa isa : isas()) {
    MaskedGemm gemm(isa);
    Results results = run(gemm, problem.layer, problem.rows, operands);
    for (std::int64_t row = 0; row < 12; ++row)
      CHECK(std::isnan(results.y.at(row, 7)) == (row < 2 || row >= 9 || row == 4));
  }
}

TEST_CASE("a network of the live units alone gives the same bits") {
  Random random(11);
  const std::int64_t rows = 70, width = 1600, block = 16;
  Problem masked(random, rows, width, width, block, 1, 0.5, 0.5);
  const auto units = [&](const std::vector<std::int32_t>& blocks) {
    std::vector<std::int64_t> found;
    for (const std::int32_t number : blocks)
      for (std::int64_t i = 0; i < block; ++i) found.push_back(number * block + i);
    return found;
  };
  const std::vector<std::int64_t> in = units(masked.in[0]), out = units(masked.out[0]);
  const auto count = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  Problem pruned(random, rows, count(in), count(out), block, 1, 1.0, 1.0);
  pruned.layer.relu = masked.layer.relu;
  Operands large(random, masked), small(random, pruned);
  const auto pick = [](Matrix& to, Matrix& from, const auto& at_row, const auto& at_column) {
    for (std::int64_t r = 0; r < to.rows; ++r)
      for (std::int64_t c = 0; c < to.width; ++c) to.at(r, c) = from.at(at_row(r), at_column(c));
  };
  const auto all = [](std::int64_t i) { return i; };
  const auto live_in = [&](std::int64_t i) { return in[static_cast<std::size_t>(i)]; };
  const auto live_out = [&](std::int64_t i) { return out[static_cast<std::size_t>(i)]; };
  pick(small.x, large.x, all, live_in);
  pick(small.weight, large.weight, live_out, live_in);
  pick(small.dy, large.dy, all, live_out);
  for (std::size_t i = 0; i < out.size(); ++i) small.bias[i] = large.bias[static_cast<std::size_t>(out[i])];
  for (const Isa isa : isas()) {
    MaskedGemm gemm(isa);
    Results whole = run(gemm, masked.layer, rows, large), part = run(gemm, pruned.layer, rows, small);
    Results picked{{rows, count(out)}, {rows, count(in)}, {count(out), count(in)}, {}};
    pick(picked.y, whole.y, all, live_out);
    pick(picked.dx, whole.dx, all, live_in);
    pick(picked.dw, whole.dw, live_out, live_in);
    CHECK(same_bits(picked.y.data, part.y.data));
    CHECK(same_bits(picked.dx.data, part.dx.data));
    CHECK(same_bits(picked.dw.data, part.dw.data));
    for (std::size_t i = 0; i < out.size(); ++i)
      CHECK(whole.db[static_cast<std::size_t>(out[i])] == part.db[i]);
  }
}

TEST_CASE("threads change no bit") {
  Random random(12);
  Problem problem(random, 500, 160, 144, 16, 3, 0.5, 0.5);
  Operands operands(random, problem);
  const ParallelFor threads = [](std::int64_t count, const auto& range) {
    std::vector<std::jthread> running;
    for (std::int64_t i = 0; i < 5; ++i)
      running.emplace_back([&, i] { range(count * i / 5, count * (i + 1) / 5); });
  };
  MaskedGemm one, several(fastest_isa(), threads);
  const Results a = run(one, problem.layer, problem.rows, operands);
  const Results b = run(several, problem.layer, problem.rows, operands);
  CHECK(same_bits(a.y.data, b.y.data));
  CHECK(same_bits(a.dx.data, b.dx.data));
  CHECK(same_bits(a.dw.data, b.dw.data));
  CHECK(same_bits(a.db, b.db));
}

TEST_CASE("gradients equal finite differences") {
  Random random(13);
  Problem problem(random, 12, 48, 40, 8, 3, 0.5, 0.5);
  for (const bool relu : {false, true}) {
    problem.layer.relu = relu;
    Operands o(random, problem);
    MaskedGemm gemm;
    Results results = run(gemm, problem.layer, problem.rows, o);
    const auto loss = [&] {
      Matrix y(problem.rows, problem.layer.out);
      gemm.forward(problem.layer, o.x, o.weight, o.bias.data(), y);
      double sum = 0;
      for (std::int64_t r = 0; r < y.rows; ++r)
        for (std::int64_t c = 0; c < y.width; ++c) sum += double{y.at(r, c)} * o.dy.at(r, c);
      return sum;
    };
    const auto slope = [&](float& parameter) {
      const float before = parameter;
      constexpr float h = 1e-3f;  // few sums change sign within it
      parameter = before + h;
      const double up = loss();
      parameter = before - h;
      const double down = loss();
      parameter = before;
      return (up - down) / (2 * h);
    };
    int off = 0;
    for (int i = 0; i < 60; ++i) {
      const auto below = [&](std::int64_t width) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(width));
      };
      const std::int64_t row = below(12), in = below(48), out = below(40);
      const auto differs = [](double a, double b) { return std::abs(a - b) > 2e-2 + 1e-2 * std::abs(b); };
      off += differs(slope(o.x.at(row, in)), results.dx.at(row, in));
      off += differs(slope(o.weight.at(out, in)), results.dw.at(out, in));
      off += differs(slope(o.bias[static_cast<std::size_t>(out)]), results.db[static_cast<std::size_t>(out)]);
    }
    CHECK(off <= (relu ? 6 : 0));  // of 180: the kink of ReLU
  }
}

TEST_CASE("a layer that makes no sense is refused") {
  Random random(14);
  Problem good(random, 8, 32, 32, 8, 2, 1.0, 1.0);
  Operands o(random, good);
  MaskedGemm gemm;
  const auto refused = [&](auto&& spoil, const std::string& why) {
    Problem bad = good;
    bad.layer.slices = bad.slices;
    spoil(bad);
    Matrix y(8, 32);
    CHECK_THROWS_WITH(gemm.forward(bad.layer, o.x, o.weight, nullptr, y), Catch::Contains(why));
  };
  refused([](Problem& p) { p.layer.block = 12; }, "multiple of 8");
  refused([](Problem& p) { p.layer.block = 256; }, "multiple of 8");
  refused([](Problem& p) { p.layer.in = 0; }, "at least one unit");
  refused([](Problem& p) { p.slices[1].begin = 1; }, "without overlap");
  const std::vector<std::int32_t> beyond{4}, twice{1, 1};
  refused([&](Problem& p) { p.slices[0].in = beyond; }, "ascend");
  refused([&](Problem& p) { p.slices[0].out = twice; }, "ascend");
}

}  // namespace masked_gemm_tests
