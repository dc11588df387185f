// Bounds that certified_loss trains with, against those of the verifier gpupoly, which another program computes in
// double precision; its schedule, and what becomes of the loss.
#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/model.hpp>

#include "plugins/hook/certified_loss/bounds.hpp"
#include "plugins/hook/certified_loss/ramp.hpp"
#include "plugins/tool/gpupoly/bounds.hpp"
#include "tests/support/plugin.hpp"

namespace certified_loss_tests {

using namespace trainyard;
using Catch::Contains, Catch::StartsWith;

namespace {

using certified_loss::Box;

BatchSchema schema(std::vector<std::int64_t> shape) {
  BatchSchema result;
  result.inputs = {{"x", std::move(shape)}};
  result.classes = 3;
  return result;
}

Array numbers(std::initializer_list<std::int64_t> values) {
  Array all;
  for (const std::int64_t value : values) all.emplace_back(value);
  return all;
}

std::unique_ptr<Network> made(const char* model, const Table& options,
                              const std::vector<std::int64_t>& shape) {
  auto net = test::make<Model>(model, options)->build({schema(shape), 3});
  at::manual_seed(11);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : net->buffers())  // running statistics that do something
    if (tensor.is_floating_point())
      tensor.copy_(name.find("mean") != std::string::npos ? 0.2 * at::randn_like(tensor)
                                                          : at::rand_like(tensor) + 0.5);
  for (const auto& [name, tensor] : net->parameters()) tensor.add_(0.1 * at::randn_like(tensor));
  return net;
}

std::vector<double> ordered(const at::Tensor& sample, const std::vector<std::int64_t>& order) {
  const at::Tensor flat = sample.reshape({-1}).to(at::kDouble).contiguous();
  std::vector<double> all;
  for (const std::int64_t i : order) all.push_back(flat.data_ptr<double>()[i]);
  return all;
}

/// Bounds of f_target - f_j for each j, 0 for the target, by the verifier.
at::Tensor margins_of_verifier(const Graph& graph, const Box& box, const at::Tensor& target,
                               gpupoly::Method method) {
  const gpupoly::Layers layers = gpupoly::layers_of(graph);
  const auto order = gpupoly::order(layers.input_shape);
  const std::int64_t classes = layers.output().map.size();
  at::Tensor all = at::zeros({target.size(0), classes}, at::kDouble);
  for (std::int64_t i = 0; i < target.size(0); ++i) {
    gpupoly::Verifier verifier(
        layers, {.method = method, .soundness = 1, .best_of_depth = false, .early_termination = false});
    gpupoly::Forms forms;
    for (const double sign : {1.0, -1.0})  // both ways, so that it never has enough
      for (std::int64_t j = 0; j < classes; ++j) {
        std::vector<double> row(static_cast<std::size_t>(classes), 0.0);
        row[static_cast<std::size_t>(target[i].item<std::int64_t>())] += sign;
        row[static_cast<std::size_t>(j)] -= sign;
        forms.lower.insert(forms.lower.end(), row.begin(), row.end());
        forms.constants.push_back(0.0);
      }
    forms.upper = forms.lower;
    const std::vector<double> found =
        verifier.lower_bounds(ordered(box.lower[i], order), ordered(box.upper[i], order), forms);
    for (std::int64_t j = 0; j < classes; ++j) all[i][j] = found[static_cast<std::size_t>(j)];
  }
  return all;
}

struct Sample {
  std::unique_ptr<Network> net;
  std::vector<std::int64_t> shape;
};
std::vector<Sample> samples() {
  std::vector<Sample> all;
  all.push_back({made("mlp", test::table({{"layers", numbers({6, 20, 20, 3})}}), {6}), {6}});
  for (const char* shortcut : {"projection", "identity"})
    all.push_back(
        {made("resnet", test::table({{"depth", 8}, {"width", 4}, {"shortcut", shortcut}}), {2, 12, 12}),
         {2, 12, 12}});
  all.push_back({made("residual_mlp", test::table({{"width", 8}, {"blocks", 2}}), {6}), {6}});
  return all;
}

Box box_of(const std::vector<std::int64_t>& shape, double radius) {
  std::vector<std::int64_t> many = shape;
  many.insert(many.begin(), 4);
  at::manual_seed(3);
  const at::Tensor center = at::rand(many);
  return {center - radius, center + radius};
}

void check_equal(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  const double size = b.abs().max().item<double>();
  CHECK((a - b).abs().max().item<double>() <= 2e-5 * (1.0 + size));
}

}  // namespace

TEST_CASE("certified_loss: margins of forms are those that gpupoly finds", "[certified]") {
  for (const Sample& sample : samples())
    for (const double radius : {0.0, 0.01, 0.1}) {
      const Box box = box_of(sample.shape, radius);
      const at::Tensor target = at::tensor({0, 2, 1, 2}, at::kLong);
      certified_loss::Bounds bounds(*sample.net->graph());
      const at::NoGradGuard no_grad;
      bounds.intervals(box);
      check_equal(bounds.margins(target).to(at::kDouble),
                  margins_of_verifier(*sample.net->graph(), box, target, gpupoly::Method::crown));
    }
}

TEST_CASE("certified_loss: intervals are those that gpupoly finds, of pools too", "[certified]") {
  auto all = samples();
  all.push_back(
      {made("lenet", test::table({{"channels", numbers({3, 4})}, {"hidden", numbers({12})}}), {1, 20, 20}),
       {1, 20, 20}});
  for (const Sample& sample : all) {
    const Box box = box_of(sample.shape, 0.02);
    certified_loss::Bounds bounds(*sample.net->graph());
    const Box found = bounds.intervals(box);
    const gpupoly::Layers layers = gpupoly::layers_of(*sample.net->graph());
    const auto order = gpupoly::order(layers.input_shape);
    for (std::int64_t i = 0; i < 4; ++i) {
      gpupoly::Verifier verifier(layers, {.method = gpupoly::Method::ibp, .soundness = 1});
      const auto classes = static_cast<std::size_t>(layers.output().map.size());
      gpupoly::Forms none{.lower = std::vector<double>(classes),
                          .upper = std::vector<double>(classes),
                          .constants = {0.0},
                          .groups = {}};
      verifier.lower_bounds(ordered(box.lower[i], order), ordered(box.upper[i], order), none);
      const gpupoly::Bounds& of = verifier.bounds(layers.all.size() - 1);
      check_equal(found.lower[i].detach().to(at::kDouble), -at::tensor(of.low, at::kDouble));
      check_equal(found.upper[i].detach().to(at::kDouble), at::tensor(of.up, at::kDouble));
    }
  }
}

TEST_CASE("certified_loss: margins hold where forms end in intervals on their way", "[certified]") {
  const Sample sample{
      made("lenet", test::table({{"channels", numbers({3, 4})}, {"hidden", numbers({12})}}), {1, 20, 20}),
      {1, 20, 20}};
  const Box box = box_of(sample.shape, 0.02);
  const at::Tensor target = at::tensor({0, 2, 1, 2}, at::kLong);
  const at::NoGradGuard no_grad;
  certified_loss::Bounds bounds(*sample.net->graph());
  bounds.intervals(box);
  const at::Tensor margins = bounds.margins(target);
  CHECK(margins.isfinite().all().item<bool>());
  for (int trial = 0; trial < 50; ++trial) {
    at::Tensor share = at::rand(box.lower.sizes());
    if (trial % 2 == 0) share = share.round();
    const at::Tensor x = box.lower + share * (box.upper - box.lower);
    const at::Tensor y = sample.net->forward({.inputs = {x}, .target = {}, .indices = {0, 1, 2, 3}}, {});
    CHECK((margins <= y.gather(1, target.unsqueeze(1)) - y + 1e-5).all().item<bool>());
  }
}

TEST_CASE("certified_loss: gradients of the margins are those that differences of them give", "[certified]") {
  const std::size_t index = GENERATE(1, 3);
  const Sample sample = std::move(samples()[index]);
  const Box box = box_of(sample.shape, 0.01);
  const at::Tensor target = at::tensor({0, 2, 1, 2}, at::kLong);
  const int parameters = static_cast<int>(sample.net->parameters().size());
  // In double precision, for the differences.
  Graph graph = *sample.net->graph();
  for (GraphValue& value : graph.values) {
    if (value.dtype == at::kFloat) value.dtype = at::kDouble;
    if (value.initializer.defined() && value.initializer.is_floating_point())
      value.initializer = value.initializer.detach().to(at::kDouble).requires_grad_(value.trainable);
  }
  graph.infer_shapes();
  const Box wide{box.lower.to(at::kDouble), box.upper.to(at::kDouble)};
  certified_loss::Bounds bounds(graph);
  at::manual_seed(8);
  const at::Tensor weights = at::randn({4, 3}, at::kDouble);
  const auto value = [&](bool forms) {
    const Box output = bounds.intervals(wide);
    return ((forms ? bounds.margins(target) : output.lower - 2 * output.upper) * weights).sum();
  };
  int checked = 0;
  for (const bool forms : {true, false})
    for (GraphValue& parameter : graph.values) {
      if (!parameter.trainable) continue;
      at::Tensor& w = parameter.initializer;
      const at::Tensor gradient =
          torch::autograd::grad({value(forms)}, {w}, {}, std::nullopt, false, true)[0];
      const at::Tensor direction = at::randn_like(w).detach();
      const double slope = gradient.defined() ? (gradient * direction).sum().item<double>() : 0.0;
      const at::NoGradGuard no_grad;
      constexpr double step = 1e-6;
      w.add_(direction, step);
      const double ahead = value(forms).item<double>();
      w.sub_(direction, 2 * step);
      const double behind = value(forms).item<double>();
      w.add_(direction, step);
      INFO(parameter.name << (forms ? ", forms" : ", intervals"));
      CHECK((ahead - behind) / (2 * step) == Approx(slope).epsilon(2e-3).margin(1e-4));
      ++checked;
    }
  CHECK(checked == 2 * parameters);
}

TEST_CASE("certified_loss: eps grows as auto_LiRPA's smoothed schedule has it", "[certified]") {
  const certified_loss::Ramp ramp{.start = 10, .length = 100, .mid = 0.3};
  const std::pair<int, double> oracle[] = {{0, 0.0},         {10, 0.0},        {20, 1.1947e-4},
                                           {39, 8.45019e-3}, {40, 9.67742e-3}, {75, 5.483871e-2},
                                           {110, 0.1},       {500, 0.1}};
  for (const auto& [step, eps] : oracle) CHECK(0.1 * ramp.at(step) == Approx(eps).epsilon(1e-4));
  for (const double mid : {0.01, 0.4, 1.0})
    for (std::int64_t length = 1; length < 6; ++length) {
      double last = 0.0;
      for (std::int64_t step = 0; step <= length; ++step) {
        const double now = certified_loss::Ramp{.length = length, .mid = mid}.at(step);
        CHECK((now >= last && now <= 1.0));
        last = now;
      }
    }
}

namespace {

class MetricHost final : public test::QuietHost {
 public:
  void metric(std::string_view name, double value) override { metrics[std::string(name)] = value; }
  std::map<std::string, double> metrics;
};

/// A loop's place around the hook, for a small network.
struct Around final : StepContext {
  explicit Around(const Table& options) : hook("certified_loss", options) {
    hook.plugin().set_host(host);
    network_ = net.get();
    batch_ = &batch;
    caller_ = &caller;
    run_scale_ = {.steps_per_epoch = 10, .samples_per_epoch = 40, .samples_per_step = 4, .total_steps = 100};
    at::manual_seed(9);
    batch = {.inputs = {at::rand({4, 6})}, .target = at::tensor({0, 2, 1, 2}, at::kLong), .weight = 4.0};
    output_ = net->forward(batch, {.training = true});
  }
  void fire(Event event) {
    event_ = event;
    hook.fire(*this);
  }
  /// As a run is built on data of which `batch` is the first.
  void build() {
    host.data["train"] = {batch};
    fire(Event::model_ready);
  }
  at::Tensor loss_at(std::int64_t step, const at::Tensor& own) {
    clock_.step = step;
    loss_ = own;
    fire(Event::after_loss);
    return loss_;
  }
  using StepContext::batch_, StepContext::network_, StepContext::output_;

  std::unique_ptr<Network> net = made("mlp", test::table({{"layers", numbers({6, 20, 20, 3})}}), {6});
  MetricHost host;
  Batch batch;
  Caller caller{"hooks.test", Region::outputs};
  test::Subscribed<Hook> hook;
};

/// Of log probabilities of the target, where its logit is that much above each other's.
double worst(const at::Tensor& margins, const at::Tensor& target) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < target.size(0); ++i) {
    double others = 0.0;
    for (std::int64_t j = 0; j < margins.size(1); ++j)
      if (j != target[i].item<std::int64_t>()) others += std::exp(-margins[i][j].item<double>());
    sum += std::log1p(others);
  }
  return sum / static_cast<double>(target.size(0));
}

const Table ibp = test::table({{"eps", 0.05}, {"kappa", 0.25}, {"start", "10ba"}, {"length", "20ba"}});

}  // namespace

TEST_CASE("certified_loss mixes the loss with the worst that bounds leave", "[certified]") {
  const at::Tensor own = at::scalar_tensor(7.0);
  for (const bool forms : {false, true}) {
    Table options = ibp;
    if (forms) options.set("method", "crown_ibp");
    Around run(options);
    run.build();
    CHECK(run.loss_at(10, own).is_same(own));
    for (const std::int64_t step : {20, 30, 60}) {
      const double share = certified_loss::Ramp{.start = 10, .length = 20, .mid = 0.4}.at(step);
      const at::Tensor x = run.batch.input(), y = run.batch.target;
      const Box box{(x - 0.05 * share).clamp_min(0), (x + 0.05 * share).clamp_max(1)};
      certified_loss::Bounds bounds(*run.net->graph());
      const Box out = bounds.intervals(box);
      at::Tensor margins = out.lower.gather(1, y.unsqueeze(1)) - out.upper;
      if (forms) margins = share * margins + (1 - share) * bounds.margins(y);
      const double kappa = 1 - 0.75 * share;
      CHECK(run.loss_at(step, own).item<double>() ==
            Approx(kappa * 7.0 + (1 - kappa) * worst(margins, y)).epsilon(1e-5));
      run.fire(Event::batch_end);
      CHECK(run.host.metrics.at("certified_eps") == Approx(0.05 * share));
      CHECK(run.host.metrics.at("certified_kappa") == Approx(kappa));
    }
  }
}

TEST_CASE("certified_loss follows a network that takes the place of another", "[certified]") {
  Around run(ibp);
  run.build();
  const at::Tensor own = at::scalar_tensor(7.0);
  const at::Tensor before = run.loss_at(50, own);
  const auto other = made("mlp", test::table({{"layers", numbers({6, 9, 3})}}), {6});
  run.network_ = other.get();
  CHECK(run.loss_at(50, own).item<double>() != before.item<double>());
  run.network_ = run.net.get();
  CHECK(run.loss_at(50, own).item<double>() == before.item<double>());
}

TEST_CASE("certified_loss refuses what it cannot bound", "[certified]") {
  const auto refused = [](const Table& options, const auto& change) {
    Around run(options);
    change(run);
    try {
      run.build();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    try {
      run.loss_at(50, at::scalar_tensor(1.0));
    } catch (const ConfigError& error) {
      return "in a step: " + std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto nothing = [](Around&) {};
  const auto with = [](const char* name, const Value& value) {
    Table options = ibp;
    options.set(name, value);
    return options;
  };
  CHECK(refused(ibp, nothing) == "accepted");
  CHECK_THAT(
      refused(with("std", Array{1.0, 1.0}), nothing),
      StartsWith("hook certified_loss") && Contains("std has 2 numbers, needs 1 or one a channel (6)"));
  CHECK_THAT(refused(with("start", "3s"), nothing), Contains("start = \"3s\" cannot be converted"));
  CHECK_THAT(refused(ibp, [](Around& run) { run.batch.target = at::rand({4}); }),
             StartsWith("hook certified_loss") && Contains("no class a sample"));
  CHECK_THAT(refused(ibp,
                     [](Around& run) {
                       run.batch.inputs.push_back(at::rand({4, 1}));
                     }),
             StartsWith("hook certified_loss") && Contains("numbers that change a little"));
  CHECK_THAT(refused(ibp,
                     [](Around& run) {
                       run.output_ = at::rand({4, 1});
                     }),
             StartsWith("in a step") && Contains("an output for each class"));
  GraphBuilder b(schema({6}), 1);
  GraphNetwork one(b.finish(b.linear(b.input(), "fc", 1)));
  CHECK_THAT(refused(ibp, [&](Around& run) { run.network_ = &one; }),
             StartsWith("hook certified_loss") && Contains("needs an output for each class"));
  const auto gpt = made("mlp", test::table({{"layers", numbers({6, 9, 3})}, {"activation", "gelu"}}), {6});
  CHECK_THAT(refused(ibp, [&](Around& run) { run.network_ = gpt.get(); }),
             StartsWith("hook certified_loss") && Contains("(Gelu)"));
  CHECK_THAT(refused(with("std", Array{0.0}), nothing), Contains("std has to be above 0"));
  CHECK_THAT(refused(with("clip", Array{1.0, 0.0}), nothing),
             Contains("clip is the smallest and the largest"));
}

}  // namespace certified_loss_tests
