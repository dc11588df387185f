#include "runnable.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/error.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/random.hpp>

#include "primitives.hpp"

namespace ops {
namespace {

using namespace trainyard;

/// Fills an input with normal numbers, of which a large one has the same again and again: to draw them all takes longer
/// than to time the operator.
void fill_input(const at::Tensor& input) {
  constexpr std::int64_t drawn = 1 << 16;
  const at::Tensor numbers = input.view({-1});
  const std::int64_t count = numbers.numel();
  std::int64_t done = std::min(drawn, count);
  at::Tensor first = numbers.narrow(0, 0, done);
  fill_normal(first, RandomStream(1, "input"), 0.0, 1.0);
  for (std::int64_t part; done < count; done += part) {
    part = std::min(done, count - done);
    numbers.narrow(0, done, part).copy_(numbers.narrow(0, 0, part));
  }
}

/// The operator as a network of one node or a few, as the executor `eager` runs it.
struct Pass {
  Pass(Graph graph, const Operator& point) : network(std::move(graph)), training(point.phase != "forward") {
    const at::ScalarType type = point.type == "bf16" ? at::kBFloat16 : at::kFloat;
    std::vector<std::int64_t> shape = {point.batch, point.in};
    if (point.op != "linear") shape.insert(shape.end(), {point.size, point.size});
    const at::Tensor input = at::empty(shape, at::kFloat);
    fill_input(input);
    batch.inputs = {input.to(type)};
    batch.indices.resize(static_cast<std::size_t>(point.batch));
    if (!training) return;
    if (point.phase == "training") {
      batch.inputs[0].requires_grad_();
      wanted.push_back(batch.inputs[0]);
    }
    for (const NamedTensor& each : network.parameters()) wanted.push_back(each.tensor);
    direction = at::ones_like(network.forward(batch, {.training = true}));
  }

  void run() {
    if (!training) {
      const c10::NoGradGuard guard;
      output = network.forward(batch, {});
      return;
    }
    output = network.forward(batch, {.training = true});
    gradients = torch::autograd::grad({output}, wanted, {direction});
  }

  GraphNetwork network;
  Batch batch;
  bool training;
  std::vector<at::Tensor> wanted;
  at::Tensor direction;
  at::Tensor output;  ///< is kept, so that nobody finds out that it is not read
  std::vector<at::Tensor> gradients;
};

}  // namespace

Runnable prepare(const Operator& point) {
  if (point.library == "onednn") {
    Operator plain = point;
    plain.type = "fp32";
    return {primitive_of(point), work_of(graph_of(plain), point)};
  }
  Graph graph = graph_of(point);
  const Work work = work_of(graph, point);
  if (point.phase != "forward" && point.phase != "training" &&
      (point.phase != "first" || work.multiply_adds == 0.0))
    throw ConfigError("there is no phase " + point.phase + " of " + point.op);
  const auto pass = std::make_shared<Pass>(std::move(graph), point);
  return {[pass] { pass->run(); }, work};
}

bool onednn_has(const Operator& point) {
  return (point.op == "conv" || point.op == "linear") && point.phase == "forward";
}

}  // namespace ops
