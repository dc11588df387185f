// Adam (Kingma and Ba, ICLR 2015, algorithm 1) and AdamW (Loshchilov and Hutter, ICLR 2019, algorithm 2),
// which differ in weight decay only; AMSGrad (Reddi et al., ICLR 2018, algorithm 2). With t the updates so
// far:
//   Adam:  g <- g + weight_decay * w          AdamW: w <- w - lr * weight_decay * w
//   m <- beta1 m + (1 - beta1) g              v <- beta2 v + (1 - beta2) g^2
//   w <- w - lr / (1 - beta1^t) * m / (sqrt(v') / sqrt(1 - beta2^t) + eps)
// with v' = v, or with amsgrad the largest v so far.
#pragma once

#include <ATen/Parallel.h>

#include <trainyard/helpers/slot_optimizer.hpp>

#include "kernels/cpu/adam.hpp"

namespace optimizers {

using namespace trainyard;

struct AdamOptions {
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  bool amsgrad = false;

  static void describe(Fields<AdamOptions>& m) {
    m.option("betas", &AdamOptions::betas, "decay of the averages of the gradient and of its square")
        .count(2)
        .min(0.0)
        .below(1.0);
    m.option("eps", &AdamOptions::eps, "added to the denominator").above(0.0);
    m.option("amsgrad", &AdamOptions::amsgrad, "divide by the largest average of the square so far");
  }
};

/// On the CPU the kernel of the house updates float parameters, in less than half of the time of ATen's, which is for
/// the rest.
class AdamFamily : public SlotOptimizer {
 public:
  using Fused = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                         at::TensorList, double, double, double, double, double, bool, bool,
                         const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);

  /// `fused`: at::_fused_adam_ or at::_fused_adamw_, `decouples` for the latter.
  AdamFamily(const AdamOptions& options, Fused fused, bool decouples)
      : SlotOptimizer(options.amsgrad ? std::vector<Slot>{{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq"}}
                                      : std::vector<Slot>{{"exp_avg"}, {"exp_avg_sq"}}),
        options_(options),
        fused_(fused),
        decouples_(decouples) {}

  void open(std::vector<ParamGroup> groups) override {
    SlotOptimizer::open(std::move(groups));
    steps_.resize(groups_.size());
  }
  bool has_momentum() const override { return true; }

 protected:
  void update(std::size_t group, UpdateLists& lists, std::int64_t updates) override {
    const ParamGroup& values = groups_[group];
    const double beta1 = values.momentum.value_or(options_.betas[0]);
    const at::Tensor& first = lists.params.front();
    if (first.is_cpu() && first.scalar_type() == at::kFloat && !options_.amsgrad)
      return by_kernel(values, beta1, lists, updates);
    fused_(lists.params, lists.grads, lists.slots[0], lists.slots[1],
           options_.amsgrad ? at::TensorList(lists.slots[2]) : at::TensorList(),
           steps_[group].list(lists, updates), values.lr, beta1, options_.betas[1], values.weight_decay,
           options_.eps, options_.amsgrad, /*maximize=*/false, std::nullopt, std::nullopt);
  }

 private:
  void by_kernel(const ParamGroup& values, double beta1, UpdateLists& lists, std::int64_t updates) const {
    static const kernels::AdamKernels& kernels = kernels::adam_kernels();
    const kernels::AdamStep step = kernels::adam_step(
        {values.lr, beta1, options_.betas[1], options_.eps, values.weight_decay, decouples_}, updates);
    for (std::size_t i = 0; i < lists.params.size(); ++i) {
      const at::Tensor gradient = lists.grads[i].contiguous();
      const auto* gradients = gradient.const_data_ptr<float>();
      auto* weights = lists.params[i].mutable_data_ptr<float>();
      auto* means = lists.slots[0][i].mutable_data_ptr<float>();
      auto* squares = lists.slots[1][i].mutable_data_ptr<float>();
      const auto part = [&](std::int64_t begin, std::int64_t end) {
        kernels.step({weights + begin, means + begin, squares + begin, end - begin}, gradients + begin, step);
      };
      constexpr std::int64_t grain = 1 << 15;
      if (gradient.numel() <= grain)
        part(0, gradient.numel());
      else
        at::parallel_for(0, gradient.numel(), grain, part);
    }
  }

  AdamOptions options_;
  Fused fused_;
  bool decouples_;
  std::vector<StepTensors> steps_;
};

}  // namespace optimizers
