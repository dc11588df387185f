// Losses, their gradients and hits against their formulas in double precision, at widths with and without a
// rest, in each instruction set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "kernels/cpu/losses.hpp"
#include "tests/kernels/isas.hpp"

namespace losses_tests {

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Random = std::mt19937_64;

constexpr std::int64_t widths[] = {1, 2, 7, 8, 10, 15, 16, 17, 33, 64, 100, 1023, 1024, 1025, 4999};
constexpr std::int64_t ignored = -7;
constexpr float infinity = std::numeric_limits<float>::infinity();
const float not_a_number = std::numeric_limits<float>::quiet_NaN();

Floats normal(std::size_t count, float deviation, Random& random) {
  std::normal_distribution<float> draw(0.0f, deviation);
  Floats values(count);
  for (float& each : values) each = draw(random);
  return values;
}

/// Rows end where memory ends: what reads or writes beyond them is seen by the sanitizers.
struct Scores {
  std::int64_t rows, classes, stride;
  Floats values;
  std::vector<std::int64_t> target;

  Scores(std::int64_t count, std::int64_t width, std::int64_t gap, float deviation, Random& random)
      : rows(count),
        classes(width),
        stride(width + gap),
        values(normal(static_cast<std::size_t>(count * stride - gap), deviation, random)) {
    for (std::int64_t i = 0; i < count; ++i)
      target.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(width)));
  }
  ClassScores view() const { return {values.data(), stride, classes, target.data()}; }
  double at(std::int64_t row, std::int64_t c) const {
    return static_cast<double>(values[static_cast<std::size_t>(row * stride + c)]);
  }
};

/// q, the shares of the classes, and softmax p in double: the loss is -q . log p, its gradient p sum(q) - q.
struct Oracle {
  double loss = 0.0, whole = 0.0;
  Doubles gradient;

  Oracle(const Scores& scores, std::int64_t row, const Floats& weight, double smoothing) {
    const auto classes = static_cast<std::size_t>(scores.classes);
    Doubles share(classes), exponential(classes);
    double highest = -static_cast<double>(infinity), sum = 0.0;
    for (std::size_t c = 0; c < classes; ++c)
      highest = std::max(highest, scores.at(row, static_cast<std::int64_t>(c)));
    for (std::size_t c = 0; c < classes; ++c) {
      const double w = weight.empty() ? 1.0 : static_cast<double>(weight[c]);
      const bool hit = static_cast<std::int64_t>(c) == scores.target[static_cast<std::size_t>(row)];
      share[c] = w * (smoothing / static_cast<double>(classes) + (hit ? 1.0 - smoothing : 0.0));
      whole += share[c];
      sum += exponential[c] = std::exp(scores.at(row, static_cast<std::int64_t>(c)) - highest);
    }
    for (std::size_t c = 0; c < classes; ++c) {
      const double log = scores.at(row, static_cast<std::int64_t>(c)) - highest - std::log(sum);
      if (share[c] != 0.0) loss -= share[c] * log;
      gradient.push_back(exponential[c] / sum * whole - share[c]);
    }
  }
};

struct Found {
  Doubles loss;
  Floats gradient;
};

Found cross_entropy(Isa isa, const Scores& scores, const Floats& weight, double smoothing, double scale) {
  Found found{Doubles(scores.target.size(), -7.5),
              Floats(scores.target.size() * static_cast<std::size_t>(scores.classes), -7.5f)};
  CrossEntropy job{.of = scores.view(),
                   .ignored = ignored,
                   .smoothing = smoothing,
                   .scale = scale,
                   .loss = found.loss.data(),
                   .gradient = found.gradient.data()};
  if (!weight.empty()) {
    job.weight = weight.data();
    for (const float each : weight) job.weight_sum += static_cast<double>(each);
  }
  loss_kernels(isa).cross_entropy(job, 0, scores.rows);

  Doubles alone(scores.target.size(), -7.5);  // without a gradient, in two parts
  job.loss = alone.data();
  job.gradient = nullptr;
  loss_kernels(isa).cross_entropy(job, scores.rows / 2, scores.rows);
  loss_kernels(isa).cross_entropy(job, 0, scores.rows / 2);
  CHECK(std::memcmp(alone.data(), found.loss.data(), alone.size() * sizeof(double)) == 0);
  return found;
}

}  // namespace

TEST_CASE("losses: cross entropy and its gradient are those of double precision") {
  Random random(3);
  for (const std::int64_t width : widths)
    for (const float deviation : {0.3f, 3.0f, 40.0f})
      for (const double smoothing : {0.0, 0.1, 1.0})
        for (const bool weighted : {false, true}) {
          Scores scores(5, width, deviation > 1.0f ? 3 : 0, deviation, random);
          scores.target[1] = ignored;
          Floats weight;
          if (weighted) {
            weight = normal(static_cast<std::size_t>(width), 1.0f, random);
            for (float& each : weight) each = std::abs(each);
          }
          for (const Isa isa : isas()) {
            INFO("width " << width << ", deviation " << deviation << ", smoothing " << smoothing
                          << ", weights " << weighted << ", set " << static_cast<int>(isa));
            const Found found = cross_entropy(isa, scores, weight, smoothing, 0.125);
            double worst_loss = 0.0, worst = 0.0, of_ignored = std::abs(found.loss[1]);
            for (std::int64_t row = 0; row < scores.rows; ++row) {
              const auto first = static_cast<std::size_t>(row * width);
              if (row == 1) {
                for (std::size_t c = first; c < first + static_cast<std::size_t>(width); ++c)
                  of_ignored += static_cast<double>(std::abs(found.gradient[c]));
                continue;
              }
              const Oracle oracle(scores, row, weight, smoothing);
              worst_loss =
                  std::max(worst_loss, std::abs(found.loss[static_cast<std::size_t>(row)] - oracle.loss) /
                                           (oracle.whole + std::abs(oracle.loss)));
              for (std::size_t c = 0; c < oracle.gradient.size(); ++c)
                worst = std::max(worst, std::abs(static_cast<double>(found.gradient[first + c]) -
                                                 0.125 * oracle.gradient[c]));
            }
            CHECK(of_ignored == 0.0);
            CHECK(worst_loss < 5e-7);  // sums of floats, in blocks
            CHECK(worst < 1e-7);
          }
        }
}

TEST_CASE("losses: exponentials are within 2 ulp, and 0 where floats end") {
  // Of the scores 0 and -x with the target 0 the gradient of the other is 1 / (1 + e^x): with one more score of
  // the highest the rounding is that of exp, of the sum and of a product.
  for (const Isa isa : isas()) {
    INFO("set " << static_cast<int>(isa));
    constexpr std::int64_t count = 200'000;
    Floats scores, gradient(2 * count);
    for (std::int64_t i = 0; i < count; ++i) {
      scores.push_back(0.0f);
      scores.push_back(-87.33f * static_cast<float>(i) / count);
    }
    const std::vector<std::int64_t> target(count, 0);
    Doubles loss(count);
    const CrossEntropy job{
        .of = {scores.data(), 2, 2, target.data()}, .loss = loss.data(), .gradient = gradient.data()};
    loss_kernels(isa).cross_entropy(job, 0, count);
    double worst = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      const double exact = 1.0 / (1.0 + std::exp(-static_cast<double>(scores[2 * i + 1])));
      const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
      worst = std::max(worst, std::abs(static_cast<double>(gradient[2 * i + 1]) - exact) / ulp);
    }
    CHECK(worst < 3.0);  // 2, and a half for each of the other two
    const Floats far{0.0f, -88.0f};
    Floats of_far(2);
    loss_kernels(isa).cross_entropy(
        {.of = {far.data(), 2, 2, target.data()}, .loss = loss.data(), .gradient = of_far.data()}, 0, 1);
    CHECK(of_far[1] == 0.0f);
  }
}

TEST_CASE("losses: masked scores have no share, and NaN and infinity are not hidden") {
  for (const Isa isa : isas())
    for (const std::int64_t width : {3, 16, 19, 40}) {
      INFO("set " << static_cast<int>(isa) << ", width " << width);
      Random random(5);
      Scores scores(1, width, 0, 1.0f, random);
      scores.target[0] = 1;
      scores.values[2] = -infinity;
      const Found masked = cross_entropy(isa, scores, {}, 0.0, 1.0);
      CHECK(masked.loss[0] == Approx(Oracle(scores, 0, {}, 0.0).loss).epsilon(1e-6));
      CHECK(masked.gradient[2] == 0.0f);
      CHECK(cross_entropy(isa, scores, {}, 0.1, 1.0).loss[0] == static_cast<double>(infinity));
      scores.target[0] = 2;
      CHECK(cross_entropy(isa, scores, {}, 0.0, 1.0).loss[0] == static_cast<double>(infinity));
      for (const float bad : {not_a_number, infinity})
        for (const std::int64_t place : {std::int64_t{0}, width - 1}) {
          scores.target[0] = 1;
          scores.values[static_cast<std::size_t>(place)] = bad;
          CHECK(std::isnan(cross_entropy(isa, scores, {}, 0.0, 1.0).loss[0]));
          scores.values[static_cast<std::size_t>(place)] = 0.0f;
        }
      std::fill(scores.values.begin(), scores.values.end(), -infinity);
      CHECK(std::isnan(cross_entropy(isa, scores, {}, 0.0, 1.0).loss[0]));
    }
}

TEST_CASE("losses: binary cross entropy and its gradient are those of double precision") {
  Random random(7);
  for (const std::int64_t size : {1, 15, 16, 100, 1024, 1025, 5000})
    for (const float deviation : {0.01f, 2.0f, 60.0f})
      for (const float positive : {1.0f, 3.0f})
        for (const Isa isa : isas()) {
          INFO("size " << size << ", deviation " << deviation << ", set " << static_cast<int>(isa));
          const auto count = static_cast<std::size_t>(size);
          const Floats x = normal(count, deviation, random);
          Floats t(count), gradient(count, -7.5f);
          for (std::size_t i = 0; i < count; ++i)
            t[i] = i % 3 == 0 ? 1.0f : i % 3 == 1 ? 0.0f : static_cast<float>(random() % 1000) / 1000.0f;
          const std::int64_t blocks = (size + loss_block - 1) / loss_block;
          Doubles sums(static_cast<std::size_t>(blocks));
          const BinaryCrossEntropy job{x.data(), t.data(),    size,           positive,
                                       0.5f,     sums.data(), gradient.data()};
          loss_kernels(isa).binary_cross_entropy(job, 0, blocks);
          Doubles oracle(sums.size());
          double worst = 0.0;
          for (std::size_t i = 0; i < count; ++i) {
            const double logit = static_cast<double>(x[i]), target = static_cast<double>(t[i]);
            const double p = static_cast<double>(positive);
            oracle[i / loss_block] +=
                p * target * std::log1p(std::exp(-logit)) + (1.0 - target) * std::log1p(std::exp(logit));
            const double exact =
                0.5 * ((1.0 - target) / (1.0 + std::exp(-logit)) - p * target / (1.0 + std::exp(logit)));
            worst = std::max(worst, std::abs(static_cast<double>(gradient[i]) - exact));
          }
          CHECK(worst < 3e-7);
          for (std::size_t block = 0; block < sums.size(); ++block)
            CHECK(sums[block] == Approx(oracle[block]).epsilon(2e-6).margin(1e-37));
        }
}

TEST_CASE("losses: log(1 + exp(-x)) is within 2 ulp, also where it is small") {
  for (const Isa isa : isas()) {
    INFO("set " << static_cast<int>(isa));
    const float positive = 1.0f;
    double worst = 0.0;
    for (int i = 0; i < 20'000; ++i) {
      const float x = 80.0f * static_cast<float>(i) / 20'000.0f;  // target 1: the loss is log(1 + exp(-x))
      double sum = 0.0;
      loss_kernels(isa).binary_cross_entropy({.logits = &x, .target = &positive, .size = 1, .loss = &sum}, 0,
                                             1);
      const double exact = std::log1p(std::exp(-static_cast<double>(x)));
      worst = std::max(worst, std::abs(sum - exact) / std::ldexp(1.0, std::ilogb(exact) - 23));
    }
    CHECK(worst < 3.0);
  }
}

TEST_CASE("losses: an infinite logit against its target is an infinite loss, NaN is NaN") {
  for (const Isa isa : isas()) {
    const auto loss = [&](float x, float t) {
      double sum = 0.0;
      loss_kernels(isa).binary_cross_entropy({.logits = &x, .target = &t, .size = 1, .loss = &sum}, 0, 1);
      return sum;
    };
    CHECK(loss(infinity, 0.0f) == static_cast<double>(infinity));
    CHECK(loss(-infinity, 1.0f) == static_cast<double>(infinity));
    CHECK(std::isnan(loss(not_a_number, 1.0f)));
  }
}

TEST_CASE("losses: absolute errors are those of double precision") {
  Random random(9);
  for (const std::int64_t size : {1, 15, 16, 17, 1024, 3000})
    for (const Isa isa : isas()) {
      INFO("size " << size << ", set " << static_cast<int>(isa));
      const auto count = static_cast<std::size_t>(size);
      const Floats a = normal(count, 2.0f, random), b = normal(count, 2.0f, random);
      const std::int64_t blocks = (size + loss_block - 1) / loss_block;
      Doubles sums(static_cast<std::size_t>(blocks)), oracle(sums.size());
      loss_kernels(isa).absolute_error({a.data(), b.data(), size, sums.data()}, 0, blocks);
      for (std::size_t i = 0; i < count; ++i)
        oracle[i / loss_block] += std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      for (std::size_t block = 0; block < sums.size(); ++block)
        CHECK(sums[block] == Approx(oracle[block]).epsilon(1e-6));
    }
}

TEST_CASE("losses: a hit is a target among the first of a stable sort, NaN first") {
  Random random(11);
  for (const std::int64_t width : widths)
    for (const std::int64_t most : {1, 2, 5})
      for (const Isa isa : isas()) {
        INFO("width " << width << ", most " << most << ", set " << static_cast<int>(isa));
        Scores scores(40, width, 2, 2.0f, random);
        for (float& each : scores.values) each = std::round(each * 2.0f);  // with ties
        for (std::size_t i = 0; i < 4 && i < scores.values.size(); ++i)
          scores.values[random() % scores.values.size()] = not_a_number;
        scores.target[3] = ignored;
        scores.target[4] = width;
        scores.target[5] = -1;
        std::int64_t expected = 0;
        for (std::int64_t row = 0; row < scores.rows; ++row) {
          std::vector<std::int64_t> order;
          for (std::int64_t c = 0; c < width; ++c) order.push_back(c);
          std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
            const double x = scores.at(row, a), y = scores.at(row, b);
            if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && !std::isnan(y);
            return x > y;
          });
          const auto end = order.begin() + std::min(most, width);
          expected += std::find(order.begin(), end, scores.target[static_cast<std::size_t>(row)]) != end;
        }
        CHECK(loss_kernels(isa).hits(scores.view(), ignored, most, 0, 40) == expected);
        CHECK(loss_kernels(isa).hits(scores.view(), ignored, most, 0, 17) +
                  loss_kernels(isa).hits(scores.view(), ignored, most, 17, 40) ==
              expected);
      }
}

}  // namespace losses_tests
