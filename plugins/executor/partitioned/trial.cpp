#include "trial.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/network.hpp>

namespace partitioned {

using namespace trainyard;
using Clock = std::chrono::steady_clock;

Trial::Trial(Workbench& bench, const Batch& batch, const ForwardContext& pass)
    : bench_(bench), batch_(batch), pass_(pass) {
  for (const NamedTensor& each : bench.network().parameters())
    if (each.tensor.requires_grad()) parameters_.push_back(each.tensor);  // others are frozen
  for (const NamedTensor& each : bench.network().buffers())
    buffers_.emplace_back(each.tensor, each.tensor.clone());
}

Trial::~Trial() {
  const at::NoGradGuard no_grad;
  for (const auto& [buffer, before] : buffers_) buffer.copy_(before);
}

double Trial::microseconds(const ForwardPass& forward) {
  const auto begin = Clock::now();
  {
    const at::AutoGradMode tracks(true);
    const Graded graded = bench_.grade(batch_, pass_, forward);
    if (!graded.loss.requires_grad())
      return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    const std::vector<at::Tensor> gradients =
        torch::autograd::grad({graded.loss}, parameters_, {}, /*retain_graph=*/false, /*create_graph=*/false,
                              /*allow_unused=*/true);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined() && !gradients[i].is_sparse()) at::add(parameters_[i], gradients[i]);
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

bool Trial::is_long() const {
  constexpr std::chrono::seconds enough(1);
  return Clock::now() - begin_ > enough;
}

}  // namespace partitioned
