// The hooks that live on dropout: rdrop and mc_dropout.
#include <cmath>
#include <map>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

#include "tests/support/plugin.hpp"

namespace dropout_hooks_tests {

using namespace trainyard;

namespace {

using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

/// Gives what a test says, pass by pass.
class Scripted final : public Network {
 public:
  at::Tensor forward(const Batch&, const ForwardContext& context) override {
    passes.push_back(context);
    return outputs[(passes.size() - 1) % outputs.size()];
  }
  std::vector<NamedTensor> parameters() const override { return {}; }
  std::vector<NamedTensor> buffers() const override { return {}; }
  std::vector<std::int64_t> output_shape() const override { return shape; }
  void to(at::Device) override {}

  std::vector<at::Tensor> outputs;
  std::vector<std::int64_t> shape = {3};
  std::vector<ForwardContext> passes;
};

class MetricHost final : public test::QuietHost {
 public:
  void log(LogLevel level, std::string_view) override { warnings += level == LogLevel::warning; }
  void metric(std::string_view name, double value) override { metrics[std::string(name)] = value; }

  std::map<std::string, double> metrics;
  int warnings = 0;
};

/// A loop's place around one hook.
struct Around final : StepContext {
  Around(const std::string& name, const Table& options) : hook(name, options) {
    hook.plugin().set_host(host);
    network_ = &network;
    batch_ = &batch;
    caller_ = &caller;
    clock_.step = 40;
  }
  void fire(Event event) {
    event_ = event;
    hook.fire(*this);
  }
  /// Everything of an evaluation of these batches, by their targets.
  void evaluate(const std::vector<at::Tensor>& targets) {
    split_ = "val";
    fire(Event::eval_start);
    for (const at::Tensor& target : targets) {
      batch = {.inputs = {at::zeros({target.size(0), 2})}, .target = target, .weight = 1.0};
      fire(Event::eval_batch_end);
    }
    fire(Event::eval_end);
  }
  using StepContext::loss_, StepContext::output_;

  MetricHost host;
  Scripted network;
  Batch batch;
  Caller caller{"hooks.test", Region::batch | Region::outputs};
  test::Subscribed<Hook> hook;
};

at::Tensor classes(const std::vector<std::int64_t>& values) {
  return at::tensor(values);
}

double kl(const at::Tensor& p, const at::Tensor& q) {
  return (p * (p / q).log()).sum().item<double>();
}

}  // namespace

TEST_CASE("R-Drop doubles the batch between micro_start and micro_end", "[rdrop]") {
  Around run("rdrop", {});
  const at::Tensor x = at::randn({2, 2}), y = classes({0, 2});
  run.batch = {.inputs = {x, x + 1}, .target = y, .indices = {7, 9}, .weight = 2.0};
  run.fire(Event::micro_start);
  CHECK(at::equal(run.batch.inputs[0], at::cat({x, x})));
  CHECK(at::equal(run.batch.inputs[1], at::cat({x, x}) + 1));
  CHECK(at::equal(run.batch.target, classes({0, 2, 0, 2})));
  CHECK(run.batch.indices == std::vector<std::int64_t>{7, 9, 7, 9});
  CHECK(run.batch.weight == 2.0);  // the items of the data: its share in the step stays
  run.fire(Event::micro_end);
  CHECK(run.batch.input().is_same(x));
  CHECK(run.batch.target.is_same(y));
  CHECK(run.batch.size() == 2);
  run.fire(Event::micro_end);
  CHECK(run.batch.input().is_same(x));
}

TEST_CASE("R-Drop adds alpha times the mean of both divergences", "[rdrop]") {
  const at::Tensor first = at::tensor({2.0, 0.0, -1.0}), second = at::tensor({1.0, 0.5, -1.0});
  const at::Tensor p = at::softmax(first, 0), q = at::softmax(second, 0);
  CHECK(kl(p, q) == Approx(0.171808).margin(1e-6));
  CHECK(kl(q, p) == Approx(0.214896).margin(1e-6));
  for (const double alpha : {1.0, 0.0, 5.0}) {
    Around run("rdrop", test::table({{"alpha", alpha}}));
    run.batch = {.inputs = {at::zeros({1, 2})}, .target = classes({1}), .indices = {0}};
    run.fire(Event::micro_start);
    run.output_ = at::stack({first, second}).requires_grad_();
    run.loss_ = at::cross_entropy_loss(run.output_, run.batch.target);
    const double losses = -(p.log()[1] + q.log()[1]).item<double>() / 2;
    run.fire(Event::after_loss);
    CHECK(run.loss_.item<double>() == Approx(losses + alpha * 0.193352).margin(1e-6 * (1 + alpha)));
    CHECK(run.loss_.requires_grad());
  }
}

TEST_CASE("R-Drop's divergence is a mean over samples and tokens; its gradient is that of the formula",
          "[rdrop]") {
  Around run("rdrop", test::table({{"alpha", 2.0}}));
  const std::int64_t samples = 4, time = 3, count = 5;
  run.network.shape = {time, count};
  run.batch = {.inputs = {at::zeros({samples, time})},
               .target = at::zeros({samples, time}, at::kLong),
               .indices = std::vector<std::int64_t>(samples)};
  run.fire(Event::micro_start);
  const at::Tensor output = at::randn({2 * samples, time, count}, at::kDouble).requires_grad_();
  run.output_ = output;
  run.loss_ = at::zeros({}, at::kDouble);
  run.fire(Event::after_loss);
  run.loss_.backward();
  const at::Tensor copy = output.detach().clone().requires_grad_();
  const at::Tensor p = at::softmax(copy.slice(0, 0, samples), -1),
                   q = at::softmax(copy.slice(0, samples), -1);
  const at::Tensor expected =
      ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / static_cast<double>(samples * time);
  expected.backward();
  CHECK(run.loss_.item<double>() == Approx(expected.item<double>()).epsilon(1e-6));
  CHECK(at::allclose(output.grad(), copy.grad(), 1e-5, 1e-7));
}

TEST_CASE("R-Drop and MC dropout refuse what they cannot compare", "[rdrop][mc_dropout]") {
  Around run("rdrop", {});
  run.batch = {.inputs = {at::zeros({2, 2})}, .target = at::zeros({2}), .indices = {0, 1}};
  CHECK_THROWS_WITH(run.fire(Event::micro_start), Contains("rdrop") && Contains("targets"));
  run.batch.target = classes({0, 1});
  run.network.shape = {1};
  CHECK_THROWS_WITH(run.fire(Event::micro_start), Contains("single score"));
  CHECK(run.batch.input().size(0) == 2);
  Around mc("mc_dropout", {});
  // The same as a run is built on such data.
  const auto build = [](Around& around, const at::Tensor& target) {
    around.host.data["train"] = {{.inputs = {at::zeros({2, 2})}, .target = target, .indices = {0, 1}}};
    around.fire(Event::model_ready);
  };
  CHECK_THROWS_WITH(build(run, classes({0, 1})), Contains("single score"));
  run.network.shape = {3};
  CHECK_THROWS_WITH(build(run, at::zeros({2})), Contains("rdrop") && Contains("targets"));
  CHECK_NOTHROW(build(run, classes({0, 1})));
  CHECK_THROWS_WITH(build(mc, at::zeros({2})), Contains("6 numbers for 2 targets"));
  CHECK_THROWS_WITH(build(mc, classes({0, 1, 2, -1}).view({2, 2})),
                    Contains("scores 2 items") && Contains("4 targets"));
  CHECK_NOTHROW(build(mc, classes({0, 1})));
  for (const std::vector<std::int64_t>& single : {std::vector<std::int64_t>{1}, {}}) {
    mc.network.shape = single;
    CHECK_NOTHROW(build(mc, classes({0, 1})));
    CHECK_NOTHROW(build(mc, at::zeros({2})));
  }
  mc.network.shape = {4, 3};  // sequences
  CHECK_NOTHROW(build(mc, at::zeros({2, 4}, at::kLong)));
  mc.network.outputs = {at::zeros({2, 3})};
  CHECK_THROWS_WITH(mc.evaluate({at::zeros({2})}), Contains("6 numbers for 2 targets"));
  CHECK_THROWS_WITH(mc.evaluate({classes({0, 1, 2, -1}).view({2, 2})}),
                    Contains("scores 2 items") && Contains("4 targets"));
}

TEST_CASE("MC dropout: metrics of the mean of the probabilities, by hand", "[mc_dropout]") {
  Around run("mc_dropout", test::table({{"samples", 2}}));
  const auto log = [](std::vector<std::vector<double>> rows) {
    std::vector<at::Tensor> result;
    for (const auto& row : rows) result.push_back(at::tensor(row).log() + 3);  // logits are up to a constant
    return at::stack(result);
  };
  // One batch of two samples, one of one; two passes of each.
  run.network.outputs = {log({{0.8, 0.1, 0.1}, {0.5, 0.4, 0.1}}), log({{0.2, 0.7, 0.1}, {0.1, 0.2, 0.7}}),
                         log({{0.1, 0.1, 0.8}}), log({{0.2, 0.2, 0.6}})};
  run.evaluate({classes({0, 1}), classes({2})});
  const std::vector<std::vector<double>> means = {{0.5, 0.4, 0.1}, {0.3, 0.3, 0.4}, {0.15, 0.15, 0.7}};
  const auto entropy = [](const std::vector<double>& p) {
    double sum = 0.0;
    for (const double each : p) sum -= each * std::log(each);
    return sum;
  };
  const double of_mean = (entropy(means[0]) + entropy(means[1]) + entropy(means[2])) / 3;
  const double within = (entropy({0.8, 0.1, 0.1}) + entropy({0.2, 0.7, 0.1}) + entropy({0.5, 0.4, 0.1}) +
                         entropy({0.1, 0.2, 0.7}) + entropy({0.1, 0.1, 0.8}) + entropy({0.2, 0.2, 0.6})) /
                        6;
  auto& metrics = run.host.metrics;
  REQUIRE(metrics.size() == 6);
  CHECK(metrics["val/mc_accuracy"] == Approx(2.0 / 3));         // the first and the last
  CHECK(metrics["val/mc_single_accuracy"] == Approx(3.0 / 6));  // the first once, the last twice
  CHECK(metrics["val/mc_gain"] == Approx(2.0 / 3 - 3.0 / 6));
  CHECK(metrics["val/mc_nll"] == Approx(-(std::log(0.5) + std::log(0.3) + std::log(0.7)) / 3));
  CHECK(metrics["val/mc_entropy"] == Approx(of_mean));
  CHECK(metrics["val/mc_mutual_information"] == Approx(of_mean - within));
  CHECK(run.host.warnings == 0);

  REQUIRE(run.network.passes.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(run.network.passes[i].sampling);
    CHECK_FALSE(run.network.passes[i].training);
    CHECK(run.network.passes[i].step == 40);
    CHECK(run.network.passes[i].micro == i % 2);
  }
  const auto before = metrics;
  run.network.passes.clear();
  run.evaluate({classes({0, 1}), classes({2})});  // begins anew
  CHECK(metrics == before);
}

TEST_CASE("MC dropout: sequences and single scores; passes that do not differ are told once",
          "[mc_dropout]") {
  Around run("mc_dropout", test::table({{"samples", 3}}));
  run.network.outputs = {at::randn({2, 4, 5})};
  const at::Tensor target = at::argmax(run.network.outputs[0], -1);
  run.evaluate({target});
  CHECK(run.host.metrics["val/mc_accuracy"] == 1.0);
  CHECK(
      run.host.metrics["val/mc_nll"] ==
      Approx(
          at::cross_entropy_loss(run.network.outputs[0].reshape({8, 5}), target.reshape({8})).item<double>())
          .epsilon(1e-5));
  CHECK(run.host.metrics["val/mc_mutual_information"] == Approx(0.0).margin(1e-12));
  run.evaluate({target});
  CHECK(run.host.warnings == 1);

  run.network.outputs = {at::tensor({2.0, -1.0}).unsqueeze(1)};
  run.evaluate({classes({1, 1})});
  CHECK(run.host.metrics["val/mc_accuracy"] == 0.5);
  CHECK(run.host.metrics["val/mc_nll"] ==
        Approx((std::log1p(std::exp(-2.0)) + std::log1p(std::exp(1.0))) / 2));
}

TEST_CASE("MC dropout: of numbers, the error of the mean and the variance over the passes", "[mc_dropout]") {
  Around run("mc_dropout", test::table({{"samples", 3}}));
  const at::Tensor passes = at::randn({3, 4, 1}, at::kDouble), target = at::randn({4}, at::kDouble);
  run.network.outputs = passes.unbind();
  run.evaluate({target});
  const double mse = (passes.mean(0).squeeze(1) - target).square().mean().item<double>();
  const double single = (passes.squeeze(2) - target).square().mean().item<double>();
  REQUIRE(run.host.metrics.size() == 2);
  CHECK(run.host.metrics["val/mc_mse"] == Approx(mse).epsilon(1e-12));
  CHECK(run.host.metrics["val/mc_variance"] == Approx(passes.var(0, 0).mean().item<double>()).epsilon(1e-12));
  CHECK(run.host.metrics["val/mc_mse"] + run.host.metrics["val/mc_variance"] ==
        Approx(single).epsilon(1e-12));
  CHECK(run.host.warnings == 0);
}

}  // namespace dropout_hooks_tests
