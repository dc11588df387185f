// A training loop for a multilayer perceptron as somebody writes it who wants the fastest one that LibTorch has:
// functions of ATen and the fused optimizers.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tools/bench/ours.hpp"

namespace trainyard::bench {

constexpr double lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;

/// The next batch: one of those made before, or gathered.
using Next = std::function<Sample()>;

class ByHand {
 public:
  enum class Optimizer : std::uint8_t { sgd, adam, adamw };

  /// `weights`: weight and bias of each layer.
  ByHand(Optimizer optimizer, const std::vector<at::Tensor>& weights, Next next)
      : optimizer_(optimizer), next_(std::move(next)) {
    for (const at::Tensor& weight : weights) {
      params_.push_back(weight.detach().clone().requires_grad_());
      exp_avg_.push_back(at::zeros_like(weight));
      exp_avg_sq_.push_back(at::zeros_like(weight));
    }
    steps_.assign(params_.size(), at::zeros({}));  // one tensor, listed once a parameter
  }

  void operator()(int steps) {
    for (int i = 0; i < steps; ++i) step();
  }
  std::vector<at::Tensor> weights() { return params_; }

 private:
  void step() {
    const Sample batch = next_();
    for (at::Tensor& param : params_) param.mutable_grad() = at::Tensor();
    at::Tensor x = batch.input;
    for (std::size_t i = 0; i + 2 < params_.size(); i += 2)
      x = at::relu(at::linear(x, params_[i], params_[i + 1]));
    const std::size_t last = params_.size() - 2;
    at::cross_entropy_loss(at::linear(x, params_[last], params_[last + 1]), batch.target).backward();
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> grads;
    grads.reserve(params_.size());
    for (const at::Tensor& param : params_) grads.push_back(param.grad());
    if (optimizer_ == Optimizer::sgd) {
      at::_fused_sgd_(params_, grads, {}, 0.0, 0.0, lr, 0.0, false, false, false);
      return;
    }
    *steps_.front().mutable_data_ptr<float>() += 1.0F;
    if (optimizer_ == Optimizer::adam)
      at::_fused_adam_(params_, grads, exp_avg_, exp_avg_sq_, {}, steps_, lr, beta1, beta2, 0.0, eps, false,
                       false);
    else
      at::_fused_adamw_(params_, grads, exp_avg_, exp_avg_sq_, {}, steps_, lr, beta1, beta2, weight_decay,
                        eps, false, false);
  }

  Optimizer optimizer_;
  Next next_;
  std::vector<at::Tensor> params_, exp_avg_, exp_avg_sq_, steps_;
};

}  // namespace trainyard::bench
