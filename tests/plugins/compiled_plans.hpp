// The check that plans of the CPU are the network: training and evaluations, in floats and with bfloat16.
#pragma once

#include "plugins/executor/compiled/plan.hpp"
#include "tests/plugins/compiled_networks.hpp"

namespace trainyard::test {

using compiled::Plan;
using compiled::PlanKey;

/// Of networks whose running statistics are somewhere in training, and stay there.
inline void check_evaluations(const std::function<Graph()>& make, const std::vector<at::Tensor>& inputs,
                              const compiled::Choices& choices, bool as_halves) {
  GraphNetwork network(make());
  for (const at::Tensor& x : inputs) network.forward(batch_of(x), training);
  GraphNetwork exact(in_double(*network.graph()));
  const std::vector<NamedTensor> statistics = network.buffers();
  std::vector<at::Tensor> before;
  for (const NamedTensor& each : statistics) before.push_back(each.tensor.clone());
  const auto plan = std::make_shared<Plan>(network,
                                           PlanKey{.inputs = {inputs[0].sizes().vec()},
                                                   .training = false,
                                                   .precision = as_halves ? at::kBFloat16 : at::kFloat},
                                           choices);
  const at::NoGradGuard off;
  for (const at::Tensor& x : inputs) {
    const at::Tensor exactly = exact.forward(batch_of(x.is_floating_point() ? x.to(at::kDouble) : x), {});
    std::optional<Autocast> halves;
    if (as_halves) halves.emplace();
    const at::Tensor found = plan->forward(batch_of(x), {}), eager = network.forward(batch_of(x), {});
    REQUIRE(!plan->is_busy());
    REQUIRE((as_halves ? is_near_as_halves : is_near)(found, eager, exactly));
  }
  for (std::size_t i = 0; i < before.size(); ++i) REQUIRE(statistics[i].tensor.equal(before[i]));
}

inline void check_same(const std::function<Graph()>& make, const std::vector<at::Tensor>& inputs,
                       const compiled::Choices& choices = {}) {
  compiled::Choices apart = choices;  // gradients are handed out one by one
  apart.message = 1;
  check_same(make, inputs, [&](GraphNetwork& network, const Batch& batch) {
    return std::make_shared<Plan>(network, PlanKey{.inputs = {batch.inputs[0].sizes().vec()}}, apart);
  });
  check_evaluations(make, inputs, choices, false);
  if (!compiled::has_halves()) return;
  check_evaluations(make, inputs, choices, true);
  check_halves(make, inputs, [&](GraphNetwork& network, const Batch& batch) {
    return std::make_shared<Plan>(
        network, PlanKey{.inputs = {batch.inputs[0].sizes().vec()}, .precision = at::kBFloat16}, apart);
  });
}

}  // namespace trainyard::test
