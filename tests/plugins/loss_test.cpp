#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <catch2/catch.hpp>

#include <trainyard/loss.hpp>

#include "golden.hpp"
#include "tests/support/plugin.hpp"

namespace loss_tests {

using namespace trainyard;
using Catch::Contains;
using nlohmann::json;
using Shape = std::vector<std::int64_t>;

namespace {

Batch with_target(const at::Tensor& target) {
  Batch batch;
  batch.target = target;
  batch.indices.resize(static_cast<std::size_t>(target.size(0)));
  return batch;
}

BatchSchema schema(Shape target, std::int64_t classes) {
  BatchSchema result;
  result.target = {.name = "target", .shape = std::move(target)};
  result.classes = classes;
  return result;
}

/// A loss on floats of the CPU, and what torch makes of the same in double precision.
struct Case {
  std::string what;
  std::shared_ptr<Loss> loss;
  at::Tensor output, target;
  std::function<at::Tensor(const at::Tensor& output)> torch{};
};

Case entropy_case(const Shape& shape, const Table& options, double smoothing,
                  std::optional<std::int64_t> ignored, const at::Tensor& weights) {
  Case made{.what = "cross_entropy, smoothing " + std::to_string(smoothing) + ", classes " +
                    std::to_string(shape.back()),
            .loss = test::make<Loss>("cross_entropy", options),
            .output = at::randn(shape).mul(3.0),
            .target = at::randint(shape.back(), Shape(shape.begin(), shape.end() - 1), at::kLong)};
  made.torch = [=, target = made.target](const at::Tensor& output) {
    const at::Tensor rows = output.reshape({-1, shape.back()});
    std::optional<at::Tensor> weight;
    if (weights.defined()) weight = weights.to(at::kDouble);
    return at::cross_entropy_loss(rows, target.reshape(-1), weight, at::Reduction::Mean,
                                  ignored.value_or(-100), smoothing);
  };
  return made;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  at::manual_seed(3);
  for (const double smoothing : {0.0, 0.1})
    for (const Shape& shape : {Shape{6, 5}, Shape{3, 4, 10}, Shape{70, 700}}) {
      Table options = test::table({{"label_smoothing", smoothing}});
      all.push_back(entropy_case(shape, options, smoothing, {}, {}));
      options.set("ignore_index", 2);
      all.push_back(entropy_case(shape, options, smoothing, 2, {}));
      const at::Tensor weights = at::rand({shape.back()});
      Array listed;
      for (std::int64_t c = 0; c < weights.numel(); ++c) listed.emplace_back(weights[c].item<double>());
      options.set("class_weights", listed);
      all.push_back(entropy_case(shape, options, smoothing, 2, weights));
    }
  for (const std::optional<double> positive : {std::optional<double>(), std::optional(3.0)})
    for (const Shape& shape : {Shape{7}, Shape{40, 1000}}) {
      Case made{.what = "bce_with_logits",
                .loss = test::make<Loss>("bce_with_logits",
                                         positive ? test::table({{"pos_weight", *positive}}) : Table()),
                .output = at::randn(shape).mul(3.0),
                .target = at::rand(shape)};
      made.torch = [=, target = made.target.to(at::kDouble)](const at::Tensor& output) {
        std::optional<at::Tensor> weight;
        if (positive) weight = at::full({}, *positive, at::kDouble);
        return at::binary_cross_entropy_with_logits(output, target, {}, weight, at::Reduction::Mean);
      };
      all.push_back(made);
    }
  return all;
}

at::Tensor leaf(const at::Tensor& of) {
  return of.detach().clone().requires_grad_();
}

double largest(const at::Tensor& of) {
  return of.detach().abs().max().item<double>();
}

}  // namespace

TEST_CASE("losses and their gradients equal torch's") {
  for (const json& golden : test::golden("losses.json")) {
    INFO(golden["plugin"] << " " << golden["options"] << " " << golden["shape"]);
    const auto loss = test::make<Loss>(golden["plugin"].get<std::string>(), test::options(golden["options"]));
    const at::Tensor target = test::tensor(golden["target"], golden["target_shape"].get<Shape>());
    const Batch batch = with_target(golden["integers"].get<bool>() ? target.to(at::kLong) : target);
    const at::Tensor output = test::tensor(golden["output"], golden["shape"].get<Shape>()).requires_grad_();

    const at::Tensor value = loss->forward(output, batch);
    CHECK(value.dim() == 0);
    CHECK(value.item<double>() == Approx(golden["loss"].get<double>()).epsilon(1e-12));
    value.backward();
    CHECK(test::distance(output.grad(), test::tensor(golden["gradient"], output.sizes().vec())) < 1e-12);

    const at::Tensor single = loss->forward(output.detach().to(at::kFloat), batch);
    CHECK(single.scalar_type() == at::kFloat);
    CHECK(single.item<double>() == Approx(golden["loss"].get<double>()).epsilon(1e-6));
    const at::Tensor half = loss->forward(output.detach().to(at::kBFloat16), batch);
    CHECK(half.scalar_type() == at::kFloat);
    CHECK(half.item<double>() == Approx(golden["loss"].get<double>()).epsilon(0.02));
  }
}

TEST_CASE("losses of micro-batches, weighted, add up to the loss of the batch") {
  for (const json& golden : test::golden("losses.json")) {
    INFO(golden["plugin"] << " " << golden["options"] << " " << golden["shape"]);
    const auto loss = test::make<Loss>(golden["plugin"].get<std::string>(), test::options(golden["options"]));
    at::Tensor target = test::tensor(golden["target"], golden["target_shape"].get<Shape>());
    if (golden["integers"].get<bool>()) target = target.to(at::kLong);
    const at::Tensor output = test::tensor(golden["output"], golden["shape"].get<Shape>());
    const Batch whole = with_target(target);
    double sum = 0.0, weights = 0.0;
    for (const auto& [first, last] :
         {std::pair{0, 1}, std::pair{1, static_cast<int>(target.size(0))}}) {  // ragged
      const Batch part = with_target(target.slice(0, first, last));
      sum += loss->forward(output.slice(0, first, last), part).item<double>() * loss->weight(part);
      weights += loss->weight(part);
    }
    CHECK(weights == loss->weight(whole));
    CHECK(sum / weights == Approx(golden["loss"].get<double>()).epsilon(1e-12));
  }
}

TEST_CASE("cross_entropy counts targets, tokens included, but not ignored ones") {
  const at::Tensor target = at::tensor({0, 1, 2, 2, 2, 1}, at::kLong).view({2, 3});
  CHECK(test::make<Loss>("cross_entropy")->weight(with_target(target)) == 6.0);
  const auto ignoring = test::make<Loss>("cross_entropy", test::table({{"ignore_index", 2}}));
  CHECK(ignoring->weight(with_target(target)) == 3.0);
  CHECK(test::make<Loss>("mse")->weight(with_target(target)) == 2.0);
}

TEST_CASE("a micro-batch of ignored targets only has loss 0 and gradient 0") {
  const auto loss = test::make<Loss>("cross_entropy", test::table({{"ignore_index", 2}}));
  const Batch batch = with_target(at::full({2, 3}, 2, at::kLong));
  const at::Tensor output = at::randn({2, 3, 4}).requires_grad_();
  const at::Tensor value = loss->forward(output, batch);
  CHECK(value.item<float>() == 0.0f);
  value.backward();
  CHECK(output.grad().abs().sum().item<float>() == 0.0f);
}

TEST_CASE("an output with one more dimension of length 1 fits a scalar target") {
  for (const char* name : {"bce_with_logits", "mse"}) {
    const auto loss = test::make<Loss>(name);
    const at::Tensor output = at::randn({4, 1});
    const Batch batch = with_target(at::tensor({0.0f, 1.0f, 1.0f, 0.0f}));
    CHECK(loss->forward(output, batch).item<float>() == loss->forward(output.view(4), batch).item<float>());
    CHECK_NOTHROW(loss->check({1}, schema({}, 2)));
  }
}

TEST_CASE("outputs that do not fit the target are refused with both shapes") {
  const auto entropy = test::make<Loss>("cross_entropy");
  CHECK_NOTHROW(entropy->check({10}, schema({}, 10)));
  CHECK_NOTHROW(entropy->check({64, 30}, schema({64}, 27)));  // a padded vocabulary
  CHECK_THROWS_AS(entropy->check({9}, schema({}, 10)), ConfigError);
  CHECK_THROWS_WITH(entropy->check({9}, schema({}, 10)), Contains("[10]") && Contains("[9]"));
  CHECK_THROWS_WITH(entropy->check({32, 27}, schema({64}, 27)), Contains("[64, 27]") && Contains("[32, 27]"));
  CHECK_THROWS_WITH(entropy->check({}, schema({}, 10)), Contains("[]"));
  CHECK_THROWS_WITH(entropy->check({1}, schema({}, 0)), Contains("mse"));
  for (const char* name : {"bce_with_logits", "mse"}) {
    const auto loss = test::make<Loss>(name);
    CHECK_NOTHROW(loss->check({3}, schema({3}, 0)));
    CHECK_THROWS_WITH(loss->check({10}, schema({}, 10)), Contains("10 classes") && Contains("cross_entropy"));
    CHECK_THROWS_WITH(loss->check({2}, schema({3}, 0)), Contains("[3]") && Contains("[2]"));
  }
}

TEST_CASE("a class outside the scores is an error, not a crash") {
  const auto loss = test::make<Loss>("cross_entropy");
  for (const int wrong : {3, -1}) {
    const Batch batch = with_target(at::tensor({0, wrong}, at::kLong));
    CHECK_THROWS_WITH(loss->forward(at::randn({2, 3}), batch), Contains("class " + std::to_string(wrong)));
    CHECK_THROWS(loss->forward(at::randn({2, 3}, at::kDouble), batch));
  }
}

TEST_CASE("losses of floats on the CPU, and their gradients, are torch's in double precision") {
  for (const Case& each : cases()) {
    INFO(each.what << " " << each.output.sizes());
    const at::Tensor exact = leaf(each.output.to(at::kDouble)), expected = each.torch(exact);
    expected.backward(at::full({}, 0.37, at::kDouble));
    const double bound = 1e-6 * largest(exact.grad());
    // In a piece; with gaps between rows, as scores of a padded vocabulary are; and transposed.
    const at::Tensor wide = at::cat({each.output, at::zeros_like(each.output)}, -1);
    const at::Tensor layouts[] = {leaf(each.output), leaf(wide),
                                  leaf(each.output.transpose(0, -1).contiguous())};
    for (int i = 0; i < 3; ++i) {
      const at::Tensor& given = layouts[i];
      const at::Tensor output = i == 0   ? given
                                : i == 1 ? given.narrow(-1, 0, each.output.size(-1))
                                         : given.transpose(0, -1);
      const at::Tensor value = each.loss->forward(output, with_target(each.target));
      CHECK(value.item<double>() == Approx(expected.item<double>()).epsilon(1e-6));
      const auto gradient =
          torch::autograd::grad({value}, {output}, {at::full({}, 0.37F)}, /*retain_graph=*/true)
              .front()
              .clone();
      CHECK(largest(gradient.to(at::kDouble) - exact.grad()) < bound);
      value.backward(at::full({}, 0.37F));  // once more, and through to what the output is of
      const at::Tensor all = given.grad();
      const at::Tensor part = i == 0   ? all
                              : i == 1 ? all.narrow(-1, 0, each.output.size(-1))
                                       : all.transpose(0, -1);
      CHECK(at::equal(part, gradient));
    }
  }
}

TEST_CASE("losses have the same bits on one thread and on several") {
  const int threads = at::get_num_threads();
  for (const Case& each : cases()) {
    INFO(each.what << " " << each.output.sizes());
    std::vector<at::Tensor> found;
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      const at::Tensor output = leaf(each.output),
                       value = each.loss->forward(output, with_target(each.target));
      value.backward();
      found.push_back(at::cat({value.detach().view(1), output.grad().view(-1)}));
    }
    at::set_num_threads(threads);
    CHECK(at::equal(found[0], found[1]));
    CHECK(at::equal(found[0], found[2]));
  }
}

TEST_CASE("the gradient of a loss can be differentiated, as a gradient penalty does") {
  const auto penalty = [](const at::Tensor& loss, const at::Tensor& output) {
    const auto gradient =
        torch::autograd::grad({loss}, {output}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    (loss + gradient.front().square().sum()).backward();
  };
  for (const Case& each : cases()) {
    INFO(each.what << " " << each.output.sizes());
    const at::Tensor exact = leaf(each.output.to(at::kDouble)), output = leaf(each.output);
    penalty(each.torch(exact), exact);
    penalty(each.loss->forward(output, with_target(each.target)), output);
    CHECK(largest(output.grad().to(at::kDouble) - exact.grad()) < 1e-5 * largest(exact.grad()));
  }
}

TEST_CASE("backward does not need the output again, and says so where it is asked for twice") {
  for (const Case& each : cases()) {
    INFO(each.what << " " << each.output.sizes());
    const at::Tensor first = leaf(each.output), second = leaf(each.output);
    each.loss->forward(first, with_target(each.target)).backward();
    const at::Tensor output = second.mul(1.0);
    const at::Tensor value = each.loss->forward(output, with_target(each.target));
    output.detach().zero_();  // as a hook may write into it
    value.backward();
    CHECK(at::equal(first.grad(), second.grad()));
    CHECK_THROWS_WITH(value.backward(), Contains("second time"));

    const at::NoGradGuard no_grad;
    const at::Tensor graded = each.loss->forward(first, with_target(each.target));
    CHECK_FALSE(graded.requires_grad());
    CHECK(graded.item<float>() == value.item<float>());
  }
}

TEST_CASE("class weights have to be one for each score") {
  const auto weighted =
      test::make<Loss>("cross_entropy", test::table({{"class_weights", Array{1.0, 0.0, 2.5}}}));
  CHECK_NOTHROW(weighted->check({3}, schema({}, 3)));
  CHECK_THROWS_WITH(weighted->check({4}, schema({}, 3)), Contains("3 weights") && Contains("4 scores"));
  const at::Tensor target = at::tensor({2, 0, 1, 2}, at::kLong);
  CHECK(weighted->weight(with_target(target)) == 6.0);
  CHECK_THROWS_WITH(weighted->weight(with_target(at::tensor({3}, at::kLong))), Contains("class 3"));

  const at::Tensor output = at::randn({4, 3});
  double sum = 0.0;
  for (int i = 0; i < 4; ++i) {
    const Batch part = with_target(target.slice(0, i, i + 1));
    if (weighted->weight(part) > 0.0)
      sum += weighted->forward(output.slice(0, i, i + 1), part).item<double>() * weighted->weight(part);
  }
  CHECK(sum / 6.0 == Approx(weighted->forward(output, with_target(target)).item<double>()).epsilon(1e-6));
}

namespace {
/// What the family's formula says, by LibTorch's operators and autograd.
at::Tensor likelihood(const std::string& family, const at::Tensor& output, const at::Tensor& target) {
  if (family == "poisson")
    return at::poisson_nll_loss(output.squeeze(-1), target, true, false, 1e-8, at::Reduction::Mean) +
           at::lgamma(target + 1).mean();
  const at::Tensor log_scale = output.select(-1, 1),
                   distance = (target - output.select(-1, 0)) / log_scale.exp();
  if (family == "laplace") return (distance.abs() + log_scale + std::log(2.0)).mean();
  if (family == "gaussian") return (distance.square() / 2 + log_scale + std::log(2 * M_PI) / 2).mean();
  const at::Tensor freedom = at::full({}, 4.0, at::kDouble);
  return ((freedom + 1) / 2 * at::log1p(distance.square() / freedom) + log_scale).mean() +
         at::lgamma(freedom / 2) - at::lgamma((freedom + 1) / 2) + at::log(freedom * M_PI) / 2;
}
}  // namespace

TEST_CASE("nll, its first and its second derivatives equal those of LibTorch's operators") {
  at::manual_seed(5);
  for (const std::string family : {"gaussian", "laplace", "student", "poisson"}) {
    INFO(family);
    const std::int64_t parameters = family == "poisson" ? 1 : 2;
    const auto loss = test::make<Loss>("nll", test::table({{"family", family}}));
    const at::Tensor target =
        family == "poisson" ? at::randint(0, 9, {6, 3}, at::kDouble) : at::randn({6, 3}, at::kDouble);
    const at::Tensor output = at::randn({6, 3, parameters}, at::kDouble).requires_grad_();
    const at::Tensor along = at::randn({6, 3, parameters}, at::kDouble);
    const auto derivatives = [&](const at::Tensor& value) {
      const at::Tensor first = torch::autograd::grad({value * value}, {output}, {}, true, true).front();
      const at::Tensor second = torch::autograd::grad({(first * along).sum()}, {output}).front();
      return std::tuple(value.detach(), first.detach(), second);
    };
    const auto found = derivatives(loss->forward(output, with_target(target)));
    const auto expected = derivatives(likelihood(family, output, target));
    CHECK(test::distance(std::get<0>(found), std::get<0>(expected)) < 1e-12);
    CHECK(test::distance(std::get<1>(found), std::get<1>(expected)) < 1e-12);
    CHECK(test::distance(std::get<2>(found), std::get<2>(expected)) < 1e-11);

    const at::NoGradGuard no_grad;
    const at::Tensor single = loss->forward(output.to(at::kFloat), with_target(target.to(at::kFloat)));
    CHECK(single.scalar_type() == at::kFloat);
    CHECK(single.item<double>() == Approx(std::get<0>(expected).item<double>()).epsilon(1e-6));
  }
  const auto loss = test::make<Loss>("nll");
  CHECK_THROWS_WITH(loss->check({1}, schema({}, 0)), Contains("needs a model output of shape [2]"));
  CHECK_THROWS_WITH(loss->check({2}, schema({}, 3)), Contains("take loss cross_entropy"));
  CHECK_THROWS_WITH(test::make<Loss>("nll", test::table({{"family", "poisson"}}))
                        ->forward(at::zeros({1, 1}), with_target(at::full({1}, -1.0))),
                    Contains("below 0"));
  const at::Tensor output = at::randn({2, 2}, at::kDouble).requires_grad_();
  const at::Tensor value = loss->forward(output, with_target(at::zeros({2}, at::kDouble)));
  const at::Tensor first = torch::autograd::grad({value}, {output}, {}, true, true).front();
  CHECK_THROWS_WITH(torch::autograd::grad({first.sum()}, {output}, {}, true, true),
                    Contains("third derivative"));
}

}  // namespace loss_tests
