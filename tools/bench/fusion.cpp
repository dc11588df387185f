// What one look at the data is worth, on one thread: chains of operators element by element in the executor compiled
// against LibTorch one after another, and an update of Adam against one in passes and LibTorch's fused one.
//   trainyard bench fusion [--quick] [chain | adam]
#include <malloc.h>

#include <cmath>
#include <memory>

#include <torch/torch.h>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/optimizer.hpp>

#include "plugins/executor/compiled/plan.hpp"
#include "tests/support/plugin.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

using at::Tensor;

/// Eight operators between two tensors of one shape, x and w, of which w is a parameter.
Graph chain_graph(std::int64_t size) {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = {size}}};
  GraphBuilder b(schema, 1);
  const ValueId x = b.input(), w = b.parameter("w", at::randn({1, size}));
  const auto number = [&](const char* name, float value) {
    return b.constant(name, at::scalar_tensor(value));
  };
  ValueId y = b.mul(x, w);
  y = b.relu(b.add(y, number("half", 0.5f)));
  y = b.mul(y, number("most", 0.9f));
  y = b.node("Abs", "abs", {b.node("Sub", "sub", {y, w})});
  y = b.mul(y, x);
  return b.finish(b.node("Clip", "clip", {y, number("low", -1.0f), number("high", 1.0f)}));
}
/// The same by hand.
Tensor chain(const Tensor& x, const Tensor& w) {
  const Tensor y = at::mul(at::relu(at::add(at::mul(x, w), 0.5f)), 0.9f);
  return at::clamp(at::mul(at::abs(at::sub(y, w)), x), -1.0f, 1.0f);
}

void compare_chains(std::int64_t size, int passes, int rounds) {
  GraphNetwork network(chain_graph(size));
  const auto plan = std::make_shared<compiled::Plan>(network, compiled::PlanKey{.inputs = {{1, size}}},
                                                     compiled::Choices{});
  Batch batch;
  batch.inputs = {at::randn({1, size})};
  batch.indices = {0};
  const Tensor x = batch.inputs[0], w = network.parameters()[0].tensor, ones = at::ones({1, size});
  const auto compiled = [&] { return plan->forward(batch, {.training = true}); };
  const auto by_hand = [&] { return chain(x, w); };
  if (!at::allclose(compiled(), by_hand(), 1e-5, 1e-6)) {
    std::fprintf(stderr, "the chains differ\n");
    std::exit(1);
  }
  const auto times = [&](const auto& pass) {
    return [&pass, passes] {
      for (int i = 0; i < passes; ++i) pass();
    };
  };
  const auto forward = [&](const auto& pass) {
    return [&pass, passes] {
      const at::NoGradGuard untracked;
      for (int i = 0; i < passes; ++i) pass();
    };
  };
  const std::string title = "8 operators, " + std::to_string(size) + " elements";
  std::vector<Contender> contenders = {{"compiled", forward(compiled)}, {"LibTorch", forward(by_hand)}};
  print((title + ", forward").c_str(), "us", 1e-6, passes, contenders, contest(contenders, rounds));
  const auto both = [&](const auto& pass) { return [&] { torch::autograd::grad({pass()}, {w}, {ones}); }; };
  const auto our_both = both(compiled);
  const auto their_both = both(by_hand);
  contenders = {{"compiled", times(our_both)}, {"LibTorch", times(their_both)}};
  print((title + ", forward and backward").c_str(), "us", 1e-6, passes, contenders,
        contest(contenders, rounds));
}

struct Parameters {
  std::vector<Tensor> weights, means, squares, gradients;
  Parameters(std::int64_t size, const Tensor& gradient) {
    weights = {at::ones({size})};
    means = {at::zeros({size})};
    squares = {at::zeros({size})};
    gradients = {gradient};
  }
};

/// Algorithm 1 of Kingma and Ba as a user writes it.
void in_passes(Parameters& p, int step) {
  Tensor &w = p.weights[0], &m = p.means[0], &v = p.squares[0], &g = p.gradients[0];
  m.mul_(0.9).add_(g, 0.1);
  v.mul_(0.999).addcmul_(g, g, 0.001);
  const Tensor root = v.sqrt().div_(std::sqrt(1.0 - std::pow(0.999, step))).add_(1e-8);
  w.addcdiv_(m, root, -1e-3 / (1.0 - std::pow(0.9, step)));
}

void compare_adam(std::int64_t size, int rounds) {
  const Tensor gradient = at::randn({size});
  Parameters passes(size, gradient), fused(size, gradient), ours(size, gradient);
  const auto plugin = test::make<Optimizer>("adam", Table{});
  ours.weights[0].set_requires_grad(true).mutable_grad() = gradient;
  plugin->open(make_groups({{"w", ours.weights[0]}}, plugin->common));
  for (ParamGroup& group : plugin->groups()) group.lr = 1e-3;
  int of_passes = 0;
  std::vector<Tensor> steps = {at::zeros({})};
  const std::vector<Contender> contenders = {
      {"plugin adam", [&] { plugin->step(); }},
      {"pass by pass", [&] { in_passes(passes, ++of_passes); }},
      {"at::_fused_adam_", [&] {
         steps[0].add_(1.0);
         at::_fused_adam_(fused.weights, fused.gradients, fused.means, fused.squares, {}, steps, 1e-3, 0.9,
                          0.999, 0.0, 1e-8, false, false, std::nullopt, std::nullopt);
       }}};
  print(("Adam, " + std::to_string(size) + " parameters").c_str(), "us", 1e-6, 1, contenders,
        contest(contenders, rounds));
  const double apart = (ours.weights[0].detach() - fused.weights[0]).abs().max().item<double>();
  if (apart > 1e-4) {  // weights near 1 are rounded by 6e-8 in each of 300 steps
    std::fprintf(stderr, "the updates differ by %g\n", apart);
    std::exit(1);
  }
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const Arguments arguments(argc, argv);
  at::set_num_threads(1);
  // LibTorch's blocks stay mapped: else it would be measured by what the system takes to map them anew.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const int rounds = arguments.quick ? 3 : 300;
  if (arguments.wants("chain"))
    for (const std::int64_t size : {64, 4096, 65536, 1 << 20})
      compare_chains(size, size < 10000 ? 100 : 1, rounds);
  if (arguments.wants("adam"))
    for (const std::int64_t size : {100'000, 1'000'000, arguments.quick ? 2'000'000 : 20'000'000})
      compare_adam(size, size > 10'000'000 ? rounds / 10 : rounds);
}
