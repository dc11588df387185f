// The tool audit_pruned's formulas: the card's examples, brute force, and the reference's example of sufficient input subsets.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch.hpp>

#include "plugins/tool/audit_pruned/back_select.hpp"
#include "plugins/tool/audit_pruned/outcome.hpp"
#include "plugins/tool/audit_pruned/summaries.hpp"

namespace audit_pruned_tests {

using namespace audit;

namespace {

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor held = tensor.to(at::kDouble).contiguous();
  return {held.const_data_ptr<double>(), held.const_data_ptr<double>() + held.numel()};
}

/// Not monotone, and different for every order: a sum of pairs.
double strange(const std::vector<double>& x) {
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j)
      sum +=
          std::sin(static_cast<double>(3 * i + 7 * j + 1)) * x[i] * x[j] + 0.1 * std::cos(5.0 * x[i] + x[j]);
  return sum;
}

/// A pixel at a time, with nothing kept between steps.
std::vector<std::int64_t> brute_force(const std::vector<double>& image, std::size_t channels,
                                      const std::function<double(const std::vector<double>&)>& score) {
  const std::size_t pixels = image.size() / channels;
  std::vector<std::int64_t> order;
  while (order.size() < pixels) {
    std::int64_t best = -1;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      if (std::ranges::count(order, static_cast<std::int64_t>(pixel)) > 0) continue;
      std::vector<double> left = image;
      for (std::size_t c = 0; c < channels; ++c) {
        for (const std::int64_t gone : order) left[c * pixels + static_cast<std::size_t>(gone)] = 0.0;
        left[c * pixels + pixel] = 0.0;
      }
      if (const double value = score(left); value > most) {
        most = value;
        best = static_cast<std::int64_t>(pixel);
      }
    }
    order.push_back(best);
  }
  return order;
}

Confidence each_by(const std::function<double(const std::vector<double>&)>& score) {
  return [score](const at::Tensor& images) {
    std::vector<double> all;
    for (std::int64_t i = 0; i < images.size(0); ++i) all.push_back(score(numbers(images[i])));
    return all;
  };
}

}  // namespace

TEST_CASE("the potential is the largest ratio without loss, whatever a smaller one did") {
  const std::vector<AtRatio> errors = {{.2, .079}, {.4, .082}, {.6, .086}, {.8, .084}, {.9, .10}};
  CHECK(potential(.08, .005, errors) == .8);
  CHECK(potential(.08, .0055, errors) == .8);
  CHECK(potential(.08, .02, errors) == .9);
  CHECK(potential(.07, .005, errors) == 0.0);
  CHECK(potential(.08, .005, {}) == 0.0);
  const std::vector<AtRatio> border = {{.3, .3}};  // .1 + .2 is more than .3 in double precision
  CHECK(potential(.1, .2, border) == .3);
}

TEST_CASE("the slope goes through the origin, with Student's interval") {
  const std::vector<AtRatio> points = {{.2, .004}, {.4, .009}, {.6, .011}, {.8, .018}};
  const Slope found = slope_through_origin(points);
  CHECK(found.slope == Approx(.0211667).epsilon(1e-5));
  // By hand: squares of the deviations sum up to 4.3667e-6, their mean over 3 is 1.4556e-6, t(3, .975) = 3.1824.
  const double reach = 3.182446 * std::sqrt(4.366667e-6 / 3 / 1.2);
  CHECK(found.high - found.slope == Approx(reach).epsilon(1e-4));
  CHECK(found.slope - found.low == Approx(reach).epsilon(1e-4));
  const std::vector<AtRatio> one = {{.5, .01}};
  CHECK(slope_through_origin(one).slope == Approx(.02));
  CHECK(std::isnan(slope_through_origin(one).low));
  CHECK(std::isnan(slope_through_origin({}).slope));
}

TEST_CASE("BackSelect takes pixels out as brute force does, in as many evaluations as there are") {
  at::Tensor drawn = at::randn({4, 24});
  for (std::int64_t trial = 0; trial < 4; ++trial)
    for (std::int64_t channels : {1, 3})
      for (std::int64_t pixels = 1; pixels <= 8; ++pixels) {
        const at::Tensor image = drawn[trial].slice(0, 0, channels * pixels).reshape({channels, pixels});
        for (std::int64_t at_once : {1, 3, 100}) {
          std::int64_t seen = 0, calls = 0;
          const Selection found = back_select(
              image,
              [&](const at::Tensor& images) {
                seen += images.size(0);
                ++calls;
                CHECK(images.size(0) <= at_once);
                return each_by(strange)(images);
              },
              at_once);
          CHECK((found.order == brute_force(numbers(image), static_cast<std::size_t>(channels), strange)));
          CHECK(found.evaluations == pixels * (pixels + 1) / 2);
          CHECK(seen == found.evaluations);
          if (at_once == 100) CHECK(calls == pixels);
        }
      }
}

TEST_CASE("of pixels that say equally much the first one goes") {
  const Selection found = back_select(at::linspace(1, 6, 6).reshape({1, 6}),
                                      each_by([](const std::vector<double>&) { return 0.5; }), 4);
  CHECK((found.order == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_CASE("subsets that suffice are those of the reference's example") {
  // The l2 norm of [.1, 10, 5] is at least 1 by pixel 1 alone, and of what is left by pixel 2 alone.
  const auto norm = [](const std::vector<double>& x) {
    double sum = 0.0;
    for (const double each : x) sum += each * each;
    return std::sqrt(sum);
  };
  at::Tensor image = at::tensor({.1f, 10.0f, 5.0f}).reshape({1, 3});
  for (const std::int64_t expected : {1, 2}) {
    const Selection found = back_select(image, each_by(norm), 10);
    std::int64_t kept = 1;
    while (norm(numbers(with_last(image, found.order, kept))) < 1.0) ++kept;
    CHECK(kept == 1);
    CHECK(found.order.back() == expected);
    image = image.clone();
    image.select(1, expected).zero_();
  }
  CHECK(norm(numbers(image)) < 1.0);  // there is no third
}

TEST_CASE("it stops when asked to") {
  int left = 3;
  const Selection found =
      back_select(at::linspace(1, 6, 6).reshape({1, 6}), each_by(strange), 10, [&] { return left-- == 0; });
  CHECK(found.order.size() == 3);
}

TEST_CASE("what networks say is compared sample by sample") {
  // Probabilities .5 and .8 for the second class: logits 0 and ln 4.
  const float four = std::log(4.0f);
  const at::Tensor parents = at::tensor({0.0f, 0.5f, 0.0f, -1.0f}).reshape({2, 2}),
                   mine = at::tensor({0.0f, four, 0.0f, four}).reshape({2, 2});
  const at::Tensor labels = at::tensor({std::int64_t{1}, std::int64_t{0}}, at::kLong);
  Outcome outcome(2);
  outcome.add(mine, parents, labels);
  CHECK(outcome.samples() == 2);
  CHECK(outcome.error() == .5);
  CHECK(outcome.match() == .5);
  const double first = .8 - 1 / (1 + std::exp(-.5)), second = .8 - 1 / (1 + std::exp(1.0));
  CHECK(outcome.largest() == Approx((first + second) / 2).epsilon(1e-6));
  CHECK(outcome.distance() == Approx(std::sqrt(2.0) * (first + second) / 2).epsilon(1e-6));
  CHECK(outcome.logit_distance() == Approx((four - .5 + four + 1) / 2).epsilon(1e-6));
  CHECK(outcome.error_of_class(0) == 1.0);
  CHECK(outcome.error_of_class(1) == 0.0);
  // Two samples in the range of .8, one of them right: |.8 - .5|.
  CHECK(outcome.calibration_error() == Approx(.3).epsilon(1e-5));
}

TEST_CASE("calibration is counted in fifteen ranges") {
  Calibration calibration;
  CHECK(calibration.error() == 0.0);
  for (int i = 0; i < 10; ++i) calibration.add(.9, i < 9);  // right as often as it is sure
  CHECK(calibration.error() == Approx(0.0).margin(1e-12));
  // Too sure in one range, too little in another: together they would be right.
  Calibration both;
  for (int i = 0; i < 10; ++i) both.add(.9, i < 5);
  for (int i = 0; i < 10; ++i) both.add(.6, true);
  CHECK(both.error() == Approx(.4));
}

}  // namespace audit_pruned_tests
