// Attention of a head against its formula in double precision: sizes that no strip and no vector fits, rows that lie
// apart, in each instruction set. The gradients of the formula are those of its difference along random directions.
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/attention.hpp"
#include "tests/kernels/isas.hpp"

namespace attention_tests {

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Random = std::mt19937_64;

/// [time, width] with a gap behind each row, as heads lie beside each other; memory ends with the last row.
struct Rows {
  std::int64_t time, width, stride;
  Floats values;

  Rows(const AttentionShape& shape, std::int64_t gap, float fill = 0.0f)
      : time(shape.time),
        width(shape.width),
        stride(shape.width + gap),
        values(static_cast<std::size_t>(time * stride - gap), fill) {}
  AttentionRows view() { return {values.data(), stride}; }
  float& at(std::int64_t i, std::int64_t k) { return values[static_cast<std::size_t>(i * stride + k)]; }
  Doubles whole() {
    Doubles found;
    for (std::int64_t i = 0; i < time; ++i)
      for (std::int64_t k = 0; k < width; ++k) found.push_back(static_cast<double>(at(i, k)));
    return found;
  }
};

Rows drawn(const AttentionShape& shape, std::int64_t gap, Random& random) {
  std::normal_distribution<float> draw;
  Rows rows(shape, gap);
  for (float& each : rows.values) each = draw(random);
  return rows;
}

struct Inputs {
  Doubles query, key, value;
};

/// The output, [time, width], and the logarithms of the sums.
std::pair<Doubles, Doubles> exact(const AttentionShape& shape, const Inputs& in) {
  const auto t = static_cast<std::size_t>(shape.time), w = static_cast<std::size_t>(shape.width);
  Doubles output(t * w), logs(t);
  for (std::size_t i = 0; i < t; ++i) {
    const std::size_t count = shape.causal ? i + 1 : t;
    Doubles weights(count);
    double sum = 0.0;
    for (std::size_t j = 0; j < count; ++j) {
      double score = 0.0;
      for (std::size_t k = 0; k < w; ++k) score += in.query[i * w + k] * in.key[j * w + k];
      sum += weights[j] = std::exp(static_cast<double>(shape.factor) * score);
    }
    logs[i] = std::log(sum);
    for (std::size_t j = 0; j < count; ++j)
      for (std::size_t k = 0; k < w; ++k) output[i * w + k] += weights[j] / sum * in.value[j * w + k];
  }
  return {output, logs};
}

double inner(const Doubles& a, const Doubles& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

const std::vector<AttentionShape> shapes = [] {
  std::vector<AttentionShape> found;
  for (const std::int64_t time : {1, 5, 16, 31, 32, 33, 64, 100})
    for (const std::int64_t width : {1, 4, 15, 16, 32, 40})
      for (const bool causal : {false, true})
        found.push_back(
            {time, width, causal, static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)))});
  return found;
}();

TEST_CASE("attention: outputs and gradients are those of the formula", "[attention]") {
  Random random(5);
  for (const AttentionShape& shape : shapes) {
    const std::int64_t gap = shape.width * 2;
    Rows query = drawn(shape, gap, random), key = drawn(shape, gap, random),
         value = drawn(shape, gap, random);
    Rows given = drawn(shape, 3, random);
    const Inputs in{query.whole(), key.whole(), value.whole()};
    const auto [expected, expected_logs] = exact(shape, in);
    for (const Isa isa : isas()) {
      INFO("time " << shape.time << ", width " << shape.width << ", causal " << shape.causal << ", isa "
                   << static_cast<int>(isa));
      const AttentionKernels& kernels = attention_kernels(isa);
      Floats room(static_cast<std::size_t>(kernels.room(shape)), std::numeric_limits<float>::quiet_NaN());
      Floats logs(static_cast<std::size_t>(shape.time));
      Rows output(shape, 3, 7.0f), of_query(shape, gap, 7.0f), of_key(shape, gap, 7.0f),
          of_value(shape, gap, 7.0f);
      const AttentionInputs inputs{query.view(), key.view(), value.view()};
      kernels.forward(shape, inputs, output.view(), logs.data(), room.data());
      const Doubles found = output.whole();
      for (std::size_t i = 0; i < found.size(); ++i)
        REQUIRE(found[i] == Approx(expected[i]).epsilon(1e-5).margin(2e-6));
      for (std::size_t i = 0; i < logs.size(); ++i)
        REQUIRE(static_cast<double>(logs[i]) == Approx(expected_logs[i]).epsilon(1e-6).margin(2e-6));

      std::fill(room.begin(), room.end(), std::numeric_limits<float>::quiet_NaN());
      kernels.backward(shape, inputs, output.view(), logs.data(), given.view(),
                       {of_query.view(), of_key.view(), of_value.view()}, room.data());
      for (Rows* rows : {&output, &of_query, &of_key, &of_value})
        for (std::int64_t i = 0; i + 1 < shape.time; ++i)
          for (std::int64_t k = shape.width; k < rows->stride; ++k) REQUIRE(rows->at(i, k) == 7.0f);
      const Doubles given_whole = given.whole();
      for (const auto& [part, gradient] :
           {std::pair(&Inputs::query, &of_query), std::pair(&Inputs::key, &of_key),
            std::pair(&Inputs::value, &of_value)})
        for (int direction = 0; direction < 4; ++direction) {
          std::normal_distribution<double> draw;
          Doubles along(found.size());
          for (double& each : along) each = draw(random);
          const auto moved = [&](double by) {
            Inputs there = in;
            for (std::size_t i = 0; i < along.size(); ++i) (there.*part)[i] += by * along[i];
            return inner(exact(shape, there).first, given_whole);
          };
          constexpr double h = 1e-5;
          const double slope = (moved(h) - moved(-h)) / (2.0 * h);
          REQUIRE(inner(gradient->whole(), along) ==
                  Approx(slope).epsilon(1e-5).margin(1e-5 * std::sqrt(static_cast<double>(along.size()))));
        }
    }
  }
}

std::uint16_t half(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>(bits >> 16);
}
double wide(std::uint16_t half) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
}

/// Of `rows` from `first` on, with the scores that nobody may look at not numbers.
TEST_CASE("attention: weights of bfloat16, and gradients of scores, are those of the formula",
          "[attention]") {
  Random random(7);
  std::normal_distribution<double> draw;
  constexpr std::int64_t stride = 48, first = 9, count = 21, width = 5, gap = 3;
  constexpr auto size = static_cast<std::size_t>(stride * count);
  for (const bool causal : {true, false}) {
    const AttentionShape shape{37, width, causal, 0.7f};
    Floats scores(size, std::numeric_limits<float>::quiet_NaN()), of_weights(scores);
    Doubles weights(size), of_scores(size), logs(37);
    std::vector<std::uint16_t> output(37 * (width + gap)), given(output);
    for (std::size_t i = 0; i < output.size(); ++i) {
      output[i] = half(draw(random));
      given[i] = half(draw(random));
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t row = first + r, seen = causal ? row + 1 : 37;
      const auto at = static_cast<std::size_t>(r * stride);
      double sum = 0.0, inside = 0.0;
      for (std::size_t j = at; j < at + static_cast<std::size_t>(seen); ++j) {
        scores[j] = static_cast<float>(3.0 * draw(random));
        of_weights[j] = static_cast<float>(draw(random));
        sum += weights[j] = std::exp(static_cast<double>(shape.factor) * static_cast<double>(scores[j]));
      }
      for (std::int64_t k = row * (width + gap); k < row * (width + gap) + width; ++k)
        inside += wide(output[static_cast<std::size_t>(k)]) * wide(given[static_cast<std::size_t>(k)]);
      logs[static_cast<std::size_t>(row)] = std::log(sum);
      for (std::size_t j = at; j < at + static_cast<std::size_t>(seen); ++j) {
        weights[j] /= sum;
        of_scores[j] =
            weights[j] * static_cast<double>(shape.factor) * (static_cast<double>(of_weights[j]) - inside);
      }
    }
    for (const Isa isa : isas()) {
      INFO("causal " << causal << ", isa " << static_cast<int>(isa));
      const AttentionKernels& kernels = attention_kernels(isa);
      const ScoreRows rows{first, count, stride};
      std::vector<std::uint16_t> made(size, 0x7fff), again(made), gradients(made);
      Floats spoilt = scores, found_logs(37);
      kernels.weigh(shape, rows, spoilt.data(), made.data(), found_logs.data());
      kernels.weigh_again(shape, rows, scores.data(), of_weights.data(), found_logs.data(),
                          {output.data(), width + gap}, {given.data(), width + gap}, again.data(),
                          gradients.data());
      for (std::size_t row = first; row < first + count; ++row)
        REQUIRE(static_cast<double>(found_logs[row]) == Approx(logs[row]).epsilon(1e-6).margin(2e-6));
      for (std::size_t i = 0; i < size; ++i) {
        REQUIRE(wide(made[i]) == Approx(weights[i]).epsilon(1.0 / 250.0));
        REQUIRE(wide(again[i]) == Approx(weights[i]).epsilon(1.0 / 250.0));
        REQUIRE(wide(gradients[i]) == Approx(of_scores[i]).epsilon(1.0 / 250.0).margin(1e-6));
      }
    }
  }
}

TEST_CASE("attention: large scores do not overflow", "[attention]") {
  const AttentionShape shape{40, 8, true, 1.0f};
  Random random(6);
  Rows query = drawn(shape, 0, random), key = drawn(shape, 0, random), value = drawn(shape, 0, random);
  for (float& each : query.values) each *= 1000.0f;
  for (const Isa isa : isas()) {
    const AttentionKernels& kernels = attention_kernels(isa);
    Floats room(static_cast<std::size_t>(kernels.room(shape))), logs(40);
    Rows output(shape, 0);
    kernels.forward(shape, {query.view(), key.view(), value.view()}, output.view(), logs.data(), room.data());
    for (const float each : output.values) REQUIRE(std::isfinite(each));
  }
}

}  // namespace

}  // namespace attention_tests
