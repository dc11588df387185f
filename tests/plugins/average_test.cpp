#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/hook.hpp>
#include <trainyard/mixins/halves.hpp>
#include <trainyard/network.hpp>
#include <trainyard/state.hpp>

#include "golden.hpp"
#include "tests/support/plugin.hpp"

namespace average_tests {

using namespace trainyard;
using nlohmann::json;

namespace {

/// The weights of tests/golden/averages.py.
class Weights final : public Network {
 public:
  at::Tensor forward(const Batch& batch, const ForwardContext&) override { return batch.input(); }
  std::vector<NamedTensor> parameters() const override { return parameters_; }
  std::vector<NamedTensor> buffers() const override { return buffers_; }
  std::vector<std::int64_t> output_shape() const override { return {3}; }
  void to(at::Device) override {}

  void set(const json& values) {
    for (const auto& tensors : {parameters_, buffers_})
      for (const NamedTensor& entry : tensors)
        if (values.contains(entry.name)) entry.tensor.detach().copy_(test::tensor(values[entry.name], {3}));
    buffers_.back().tensor.add_(1);
  }

  at::Tensor find(const std::string& name) const {
    for (const auto& tensors : {parameters_, buffers_})
      for (const NamedTensor& entry : tensors)
        if (entry.name == name) return entry.tensor;
    throw std::runtime_error(name);
  }

  std::vector<at::Tensor> copies() const {
    std::vector<at::Tensor> result;
    for (const auto& tensors : {parameters_, buffers_})
      for (const NamedTensor& entry : tensors) result.push_back(entry.tensor.detach().clone());
    return result;
  }

 private:
  static at::Tensor zeros() { return at::zeros({3}, at::kDouble); }
  std::vector<NamedTensor> parameters_ = {{"weight", zeros().requires_grad_()},
                                          {"bias", zeros().requires_grad_()}};
  std::vector<NamedTensor> buffers_ = {
      {"running_mean", zeros()}, {"running_var", zeros()}, {"num_batches_tracked", at::zeros({}, at::kLong)}};
};

struct Context final : StepContext {
  explicit Context(Network& network) {
    network_ = &network;
    run_scale_ = {.steps_per_epoch = 2, .samples_per_epoch = 8, .samples_per_step = 4, .total_steps = 8};
  }
  Context& at(Event event) {
    event_ = event;
    return *this;
  }
  using StepContext::clock_, StepContext::run_scale_;
};

using Subscribed = test::Subscribed<Hook>;

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

void check_golden(Subscribed& hook, const char* kind) {
  Weights network;
  Context context(network);
  hook.fire(context.at(Event::model_ready));
  hook.fire(context.at(Event::fit_start));
  for (const json& step : test::golden("averages.json")) {
    network.set(step["weights"]);
    hook.fire(context.at(Event::after_step));
    ++context.clock_.step;
    const auto before = network.copies();
    hook.fire(context.at(Event::eval_start));
    for (const char* name : {"weight", "bias", "running_mean", "running_var"})
      CHECK(test::distance(network.find(name), test::tensor(step[kind][name], {3})) < 1e-14);
    CHECK(network.find("num_batches_tracked").item<std::int64_t>() == context.clock_.step);
    hook.fire(context.at(Event::eval_end));
    CHECK(same(network.copies(), before));
  }
}

}  // namespace

TEST_CASE("ema and swa equal torch's AveragedModel, and evaluation gives the weights back to the bit") {
  Subscribed ema("ema", test::table({{"decay", 0.9}, {"warmup", false}, {"buffers", "average"}}));
  check_golden(ema, "ema");
  Subscribed swa("swa", test::table({{"start", "0%"}}));
  check_golden(swa, "swa");
}

TEST_CASE("ema with warm-up follows min(decay, (1 + t) / (10 + t)), and leaves buffers alone by default") {
  Subscribed ema("ema", test::table({{"decay", 0.25}}));
  Weights network;
  Context context(network);
  ema.fire(context.at(Event::model_ready));
  at::Tensor expected;
  int t = 0;
  for (const json& step : test::golden("averages.json")) {
    network.set(step["weights"]);
    ema.fire(context.at(Event::after_step));
    const at::Tensor weight = network.find("weight").detach();
    const double decay = std::min(0.25, (1.0 + t) / (10.0 + t));
    expected = t++ == 0 ? weight.clone() : decay * expected + (1 - decay) * weight;
    const at::Tensor mean = network.find("running_mean").clone();
    ema.fire(context.at(Event::eval_start));
    CHECK(test::distance(network.find("weight"), expected) < 1e-14);
    CHECK(at::equal(network.find("running_mean"), mean));
    ema.fire(context.at(Event::eval_end));
  }
}

TEST_CASE("swa leaves out steps before its start and says which writes it does") {
  Subscribed swa("swa", test::table({{"start", "50%"}}));
  Weights network;
  Context context(network);
  swa.fire(context.at(Event::model_ready));
  swa.fire(context.at(Event::fit_start));
  at::Tensor sum = at::zeros({3}, at::kDouble);
  for (const json& step : test::golden("averages.json")) {
    network.set(step["weights"]);
    swa.fire(context.at(Event::after_step));
    if (context.clock_.step++ >= 4) sum += network.find("weight").detach();
    if (context.clock_.step == 4) {  // nothing to swap yet
      const auto before = network.copies();
      swa.fire(context.at(Event::eval_start));
      CHECK(same(network.copies(), before));
      swa.fire(context.at(Event::eval_end));
    }
  }
  swa.fire(context.at(Event::eval_start));
  CHECK(test::distance(network.find("weight"), sum / 4) < 1e-14);
  swa.fire(context.at(Event::eval_end));
  CHECK(swa.hook(Event::eval_start).writes == Regions(Region::model));
  CHECK(swa.hook(Event::eval_end).writes == Regions(Region::model));
  CHECK(swa.hook(Event::after_step).cadence.every == "1ep");

  Subscribed timed("swa", test::table({{"start", "90s"}}));
  CHECK_THROWS_WITH(timed.fire(context.at(Event::fit_start)), Catch::Contains("start = \"90s\""));
}

namespace {

/// One parameter in halves.
class InHalves final : public Network, public HoldsHalves {
 public:
  at::Tensor forward(const Batch& batch, const ForwardContext&) override { return batch.input(); }
  std::vector<NamedTensor> parameters() const override { return {{"weight", own.upper}}; }
  std::vector<NamedTensor> buffers() const override { return {{"lower", own.lower}}; }
  std::vector<std::int64_t> output_shape() const override { return {3}; }
  void to(at::Device) override {}
  std::vector<Halves> halves() const override { return {own}; }
  void set(const at::Tensor& values) {
    const at::Tensor bits = values.view(at::kInt);
    own.upper.detach().view(at::kShort).copy_(bits.bitwise_right_shift(16));
    own.lower.copy_(bits.bitwise_and(0xffff));
  }

  Halves own{"weight", at::zeros({3}, at::kBFloat16).requires_grad_(), at::zeros({3}, at::kShort)};
};

}  // namespace

TEST_CASE(
    "averages of weights in halves are those of the whole floats, and evaluations have both halves back") {
  InHalves network;
  Context context(network);
  Subscribed hook("swa", test::table({{"start", "0ba"}}));
  hook.fire(context.at(Event::model_ready));
  hook.fire(context.at(Event::fit_start));
  // Numbers that differ in their lower halves alone.
  const at::Tensor first = at::tensor({1.0001f, -2.0003f, 0.30001f}), second = first + 1e-4;
  for (const at::Tensor& values : {first, second}) {
    network.set(values);
    CHECK(at::equal(joined(network.own), values));
    hook.fire(context.at(Event::after_step));
  }
  const State saved = hook.saved();
  const at::Tensor average = StateReader(saved).tensor("average/weight");
  CHECK(average.scalar_type() == at::kFloat);
  CHECK(at::allclose(average, (first + second) / 2, 1e-6, 0.0));
  hook.fire(context.at(Event::eval_start));
  CHECK(at::equal(network.own.upper, average.to(at::kBFloat16)));
  hook.fire(context.at(Event::eval_end));
  CHECK(at::equal(joined(network.own), second));
  Subscribed other("swa", test::table({{"start", "0ba"}}));
  other.fire(context.at(Event::model_ready));
  other.plugin().load(StateReader(saved));
  CHECK(at::equal(StateReader(other.saved()).tensor("average/weight"), average));
}

TEST_CASE("averages are saved and loaded by name, and other shapes are refused") {
  for (const char* name : {"ema", "swa"}) {
    const Table options = name == std::string("swa") ? test::table({{"start", "0ba"}}) : Table{};
    Weights network, other;
    Context context(network), other_context(other);
    Subscribed straight(name, options), resumed(name, options);
    for (Subscribed* hook : {&straight, &resumed}) {
      Context& own = hook == &straight ? context : other_context;
      hook->fire(own.at(Event::model_ready));
      hook->fire(own.at(Event::fit_start));
    }
    resumed.plugin().load(StateReader(straight.saved()));  // of nothing yet
    const json golden = test::golden("averages.json");
    for (std::size_t i = 0; i < 5; ++i) {
      network.set(golden[i]["weights"]);
      straight.fire(context.at(Event::after_step));
    }
    const State state = straight.saved();
    CHECK(state.tensors.contains("average/weight"));
    resumed.plugin().load(StateReader(state));
    CHECK(digest(resumed.saved()) == digest(state));
    for (std::size_t i = 5; i < 8; ++i) {
      network.set(golden[i]["weights"]);
      other.set(golden[i]["weights"]);
      straight.fire(context.at(Event::after_step));
      resumed.fire(other_context.at(Event::after_step));
    }
    CHECK(digest(resumed.saved()) == digest(straight.saved()));

    State broken = state;
    broken.tensors["average/bias"] = at::zeros({4}, at::kDouble);
    CHECK_THROWS_WITH(resumed.plugin().load(StateReader(broken)),
                      Catch::Contains("average/bias") && Catch::Contains("[4]") && Catch::Contains("[3]"));
    CHECK(digest(resumed.saved()) == digest(straight.saved()));
  }
}

}  // namespace average_tests
