// Block-wise dropout within networks, against the same masks multiplied, and against a network that has the
// live units only.
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/model.hpp>
#include <trainyard/network.hpp>
#include <trainyard/state.hpp>

#include "kernels/cpu/masked_gemm.hpp"
#include "tests/support/plugin.hpp"

namespace blockwise_tests {

using namespace trainyard;
using at::Tensor;

namespace {

using Tensors = std::vector<Tensor>;

/// The plugin at the start of a run of so many steps.
class Blockwise final : public StepContext {
 public:
  explicit Blockwise(const Table& options, std::int64_t steps = 100) : blockwise_("blockwise", options) {
    run_scale_.total_steps = steps;
    event_ = Event::fit_start;
    blockwise_.fire(*this);
  }
  Dropout& plugin() { return blockwise_.plugin(); }

 private:
  test::Subscribed<Dropout> blockwise_;
};

/// The same dropout, of which nobody asks that it takes over a layer.
class Elementwise final : public Dropout {
 public:
  explicit Elementwise(Dropout& inner) : inner_(inner) { common = inner.common; }
  void open(const DropoutPlaces&) override {}
  Tensor apply(const Tensor& x, std::size_t site, const DropoutCall& call) override {
    return inner_.apply(x, site, call);
  }

 private:
  Dropout& inner_;
};

Table options(std::int64_t sigma, std::int64_t tau, std::int64_t block, const char* scale = "nominal") {
  return test::table({{"p", Value(0.5)},
                      {"sigma", Value(sigma)},
                      {"tau", Value(tau)},
                      {"block", Value(block)},
                      {"scale", Value(std::string(scale))}});
}

std::unique_ptr<Network> mlp(const std::vector<std::int64_t>& widths) {
  Array layers;
  for (const std::int64_t width : widths) layers.emplace_back(width);
  BatchSchema schema;
  schema.inputs = {{"x", {widths.front()}}};
  schema.target = {"y", {}, at::kLong};
  schema.classes = widths.back();
  return test::make<Model>("mlp", test::table({{"layers", layers}}))->build({schema, 3});
}

Batch batch_of(Tensor x) {
  Batch batch;
  batch.inputs = {std::move(x)};
  return batch;
}

/// Output, and gradients of its product with `direction`, for the parameters and the input.
Tensors pass(Network& network, const Tensor& x, const Tensor& direction, std::uint64_t step = 0,
             const StepPart& part = {}) {
  for (const NamedTensor& each : network.parameters()) each.tensor.mutable_grad() = Tensor();
  const Tensor input = x.detach().clone().requires_grad_();
  const Tensor y = network.forward(batch_of(input), {.training = true, .step = step, .part = part});
  y.backward(direction);
  Tensors result = {y.detach(), input.grad()};
  for (const NamedTensor& each : network.parameters()) result.push_back(each.tensor.grad());
  return result;
}

double largest_error(const Tensors& found, const Tensors& expected) {
  REQUIRE(found.size() == expected.size());
  double error = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    error = std::max(error, ((found[i] - expected[i]).abs().max() / expected[i].abs().max()).item<double>());
  return error;
}

bool same(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return at::equal(x, y); });
}

}  // namespace

TEST_CASE("layers that skip blocks give what masks give that are multiplied") {
  at::manual_seed(5);
  for (const char* scale : {"nominal", "realised"})
    for (const auto& [widths, block, rows] :
         {std::tuple(std::vector<std::int64_t>{96, 160, 128, 10}, 32, 64),
          std::tuple(std::vector<std::int64_t>{70, 100, 108, 90}, 24, 37),  // nothing divides anything
          std::tuple(std::vector<std::int64_t>{96, 160, 128, 64}, 8, 3)}) {
      const std::unique_ptr<Network> network = mlp(widths);
      Blockwise blockwise(options(16, 4, block, scale));
      const DropoutPlan plan(blockwise.plugin(), network->dropout_places(), {});
      Elementwise elementwise(blockwise.plugin());
      const DropoutPlan unfused(elementwise, network->dropout_places(), {});
      const Tensor x = at::randn({rows, widths.front()}), direction = at::randn({rows, widths.back()});
      for (const std::uint64_t step : {0, 26, 99}) {
        network->set_dropout(&plan, 1);
        const Tensors skipped = pass(*network, x, direction, step);
        CHECK(same(skipped, pass(*network, x, direction, step)));
        network->set_dropout(&unfused, 1);
        CHECK(largest_error(skipped, pass(*network, x, direction, step)) <= 1e-5);
      }
    }
}

TEST_CASE("units are dropped in blocks, and the network sees that they are") {
  Blockwise blockwise(options(64, 8, 32));
  blockwise.plugin().open({.sites = {{.id = "site", .axis = 1, .width = 1000}}});
  const DropoutCall call{0.5, RandomStream(0, "unused"), {.training = true}};
  const Tensor y = blockwise.plugin().apply(at::ones({8, 1000}), 0, call);
  for (const Tensor& block : y.split(32, 1))
    CHECK(at::equal(block, block.select(1, 0).unsqueeze(1).expand_as(block)));
  CHECK(y.eq(2).any().item<bool>());
  CHECK(y.eq(0).any().item<bool>());
}

TEST_CASE("gradients of one batch are those of its micro-batches, layers taken over or not") {
  at::manual_seed(6);
  const std::unique_ptr<Network> network = mlp({96, 160, 128, 64});
  // Slices that end within micro-batches and with them, sizes that divide nothing, fewer rows than slices.
  using Sizes = std::vector<std::int64_t>;
  for (const auto& [tau, sizes] : {std::pair<std::int64_t, Sizes>{8, {32, 32, 32, 32}},
                                   {16, {40, 40, 40}},
                                   {16, {32, 15}},
                                   {16, {20, 20, 7}},
                                   {16, {2, 2, 2, 2}},
                                   {16, {8, 5}}}) {
    const std::int64_t rows = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    INFO("tau " << tau << ", " << rows << " rows, " << sizes.front() << " first");
    Blockwise blockwise(options(32, tau, 32));
    const DropoutPlan skipping(blockwise.plugin(), network->dropout_places(), {});
    Elementwise elementwise(blockwise.plugin());
    const DropoutPlan unfused(elementwise, network->dropout_places(), {});
    const Tensor x = at::randn({rows, 96}), direction = at::randn({rows, 64});
    for (const DropoutPlan* plan : {&skipping, &unfused}) {
      network->set_dropout(plan, 1);
      const Tensors whole = pass(*network, x, direction, 7);
      Tensors sum;
      StepPart here{.samples = rows, .before = 7 * rows};
      for (const std::int64_t size : sizes) {
        here.first += std::exchange(here.count, size);
        const auto part_of = [&](const Tensor& tensor) { return tensor.narrow(0, here.first, size); };
        const Tensors part = pass(*network, part_of(x), part_of(direction), 7, here);
        CHECK(largest_error({part[0], part[1]}, {part_of(whole[0]), part_of(whole[1])}) <= 1e-6);
        for (std::size_t i = 2; i < part.size(); ++i)
          here.first == 0 ? sum.push_back(part[i].clone()) : static_cast<void>(sum[i - 2].add_(part[i]));
      }
      CHECK(largest_error(sum, Tensors(whole.begin() + 2, whole.end())) <= 1e-6);
    }
  }
}

TEST_CASE("one mask for good trains as the pruned network, to the bit") {
  at::manual_seed(7);
  const std::vector<std::int64_t> widths = {96, 256, 192, 64};
  const std::unique_ptr<Network> network = mlp(widths);
  Blockwise blockwise(options(1, 1, 32));
  const DropoutPlan plan(blockwise.plugin(), network->dropout_places(), {});
  network->set_dropout(&plan, 1);

  // The live units of each layer: all of the input and the output.
  Tensors units = {at::arange(widths.front())};
  for (std::size_t site = 0; site < 2; ++site) {
    const DropoutCall call{0.5, RandomStream(0, "unused"), {.training = true}};
    units.push_back(
        blockwise.plugin().apply(at::ones({1, widths[site + 1]}), site, call)[0].nonzero().flatten());
    CHECK(units.back().numel() < widths[site + 1]);
    CHECK(units.back().numel() > 0);
  }
  units.push_back(at::arange(widths.back()));

  // The pruned network: the same products, of live units only.
  std::vector<NamedTensor> parameters = network->parameters();
  Tensors weights, biases;
  const auto picked = [&](std::size_t layer, const Tensor& weight, const Tensor& bias) {
    return std::pair(weight.detach().index_select(0, units[layer + 1]).index_select(1, units[layer]),
                     bias.detach().index_select(0, units[layer + 1]));
  };
  for (std::size_t layer = 0; layer < 3; ++layer) {
    const auto [weight, bias] = picked(layer, parameters[2 * layer].tensor, parameters[2 * layer + 1].tensor);
    weights.push_back(weight);
    biases.push_back(bias);
  }
  using kernels::Rows;
  const auto matrix = [](const Tensor& t) {
    return Rows<const float>{t.const_data_ptr<float>(), t.stride(0)};
  };
  const auto target = [](const Tensor& t) { return Rows<float>{t.mutable_data_ptr<float>(), t.stride(0)}; };
  kernels::MaskedGemm gemm;
  constexpr std::int64_t rows = 50;
  constexpr float rate = 0.01f;
  for (int step = 0; step < 20; ++step) {
    const Tensor x = at::randn({rows, widths.front()}), wanted = at::randn({rows, widths.back()});

    for (const NamedTensor& each : parameters) each.tensor.mutable_grad() = Tensor();
    const Tensor y =
        network->forward(batch_of(x), {.training = true, .step = static_cast<std::uint64_t>(step)});
    y.backward(y.detach() - wanted);
    {
      const c10::NoGradGuard untracked;
      for (const NamedTensor& each : parameters) at::Tensor(each.tensor).sub_(each.tensor.grad() * rate);
    }

    Tensors values = {x};
    std::vector<std::vector<std::int32_t>> blocks;
    for (const Tensor& each : units) {
      blocks.emplace_back(static_cast<std::size_t>((each.numel() + 31) / 32));
      std::iota(blocks.back().begin(), blocks.back().end(), 0);
    }
    std::vector<kernels::Slice> slices(3);
    const auto layer_of = [&](std::size_t i) {
      slices[i] = {.begin = 0, .end = rows, .in = blocks[i], .out = blocks[i + 1]};
      const bool hidden = i < 2;
      return kernels::MaskedLinear{.in = units[i].numel(),
                                   .out = units[i + 1].numel(),
                                   .slices = {&slices[i], 1},
                                   .relu = hidden,
                                   .scale = hidden ? 2.0f : 1.0f};
    };
    for (std::size_t i = 0; i < 3; ++i) {
      values.push_back(at::empty({rows, units[i + 1].numel()}));
      gemm.forward(layer_of(i), matrix(values[i]), matrix(weights[i]), biases[i].const_data_ptr<float>(),
                   target(values[i + 1]));
    }
    CHECK(at::equal(values[3], y));
    Tensor dy = values[3] - wanted;
    for (std::size_t i = 3; i-- > 0;) {
      Tensor dx = at::empty_like(values[i]), dw = at::empty_like(weights[i]), db = at::empty_like(biases[i]);
      gemm.input_gradient(layer_of(i), matrix(dy), matrix(values[i + 1]), matrix(weights[i]), target(dx));
      gemm.weight_gradient(layer_of(i), matrix(dy), matrix(values[i + 1]), matrix(values[i]), target(dw),
                           db.mutable_data_ptr<float>());
      weights[i].sub_(dw * rate);
      biases[i].sub_(db * rate);
      dy = dx;
    }
  }
  for (std::size_t layer = 0; layer < 3; ++layer) {
    const auto [weight, bias] = picked(layer, parameters[2 * layer].tensor, parameters[2 * layer + 1].tensor);
    CHECK(at::equal(weight, weights[layer]));
    CHECK(at::equal(bias, biases[layer]));
  }
}

TEST_CASE("threads change nothing; other types; inputs that lie otherwise") {
  at::manual_seed(8);
  const std::unique_ptr<Network> network = mlp({96, 160, 128, 64});
  Blockwise blockwise(options(16, 4, 32));
  const DropoutPlan plan(blockwise.plugin(), network->dropout_places(), {});
  network->set_dropout(&plan, 1);
  const Tensor x = at::randn({200, 96}), direction = at::randn({200, 64});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors one = pass(*network, x, direction);
  at::set_num_threads(3);
  CHECK(same(one, pass(*network, x, direction)));
  at::set_num_threads(before);
  CHECK(same(one, pass(*network, x.t().contiguous().t(), direction.t().contiguous().t())));

  const std::vector<DropoutLinear> linears = network->dropout_places().linears;
  REQUIRE(linears.size() == 3);
  const DropoutCall call{0.5, RandomStream(0, "unused"), {.training = true}};
  const Tensor weight = at::randn({160, 96}), bias = at::randn({160});
  const Tensor expected = blockwise.plugin().fuses_linears()->masked_linear(x, weight, bias, 0, call);
  const Tensor half = blockwise.plugin().fuses_linears()->masked_linear(
      x.to(at::kBFloat16), weight.to(at::kBFloat16), bias.to(at::kBFloat16), 0, call);
  CHECK(half.scalar_type() == at::kBFloat16);
  CHECK(largest_error({half.to(at::kFloat)}, {expected}) <= 1e-2);
}

TEST_CASE("a second derivative, and blocks of an odd width, are refused") {
  const std::unique_ptr<Network> network = mlp({96, 160, 128, 64});
  Blockwise blockwise(options(16, 4, 32));
  const DropoutPlan plan(blockwise.plugin(), network->dropout_places(), {});
  network->set_dropout(&plan, 1);
  const Tensor y = network->forward(batch_of(at::randn({8, 96})), {.training = true});
  CHECK_THROWS_WITH(y.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true),
                    Catch::Contains("differentiated once"));
  CHECK_THROWS_WITH(Blockwise(options(16, 4, 12)), Catch::Contains("multiple of 8; take 16"));
  CHECK_THROWS_WITH(Blockwise(options(16, 4, 68)), Catch::Contains("multiple of 8; take 72"));
}

}  // namespace blockwise_tests
