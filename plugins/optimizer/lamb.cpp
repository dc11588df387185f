// LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020,
// algorithm 2, phi the identity). With t the updates so far, for each parameter:
//   m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2
//   r = m' / (sqrt(v') + eps) + weight_decay * w,  m' = m / (1 - beta1^t), v' = v / (1 - beta2^t) where
//   debiased w <- w - lr * |w| / |r| * r   (the ratio is 1 where |w| or |r| is 0)
#include <cmath>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <trainyard/helpers/slot_optimizer.hpp>
#include <trainyard/host.hpp>
#include "trust_ratio.hpp"

namespace {

using namespace trainyard;
using namespace optimizers;

class Lamb final : public SlotOptimizer {
 public:
  struct Options {
    std::vector<double> betas{0.9, 0.999};
    double eps = 1e-6;
    bool debias = true;
    std::string adapt = "all";
    bool pto = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("lamb").version("1.0.0").summary(
        "Adam with a learning rate for each layer: for very large batches.");
    m.provides("momentum");
    m.option("betas", &Options::betas, "decay of the averages of the gradient and of its square")
        .count(2)
        .min(0.0)
        .below(1.0);
    m.option("eps", &Options::eps, "added to the denominator").above(0.0);
    m.option("debias", &Options::debias, "correct the averages for their start at 0");
    describe_adapt(m, &Options::adapt);
    describe_pto(m, &Options::pto);
  }
  explicit Lamb(const Options& options) : SlotOptimizer({{"exp_avg"}, {"exp_avg_sq"}}), options_(options) {}

  bool has_momentum() const override { return true; }

 protected:
  void update(std::size_t group, UpdateLists& lists, std::int64_t updates) override {
    const ParamGroup& values = groups_[group];
    const double beta1 = values.momentum.value_or(options_.betas[0]), beta2 = options_.betas[1];
    const auto& averages = lists.slots[0];
    const auto& squares = lists.slots[1];
    at::_foreach_lerp_(averages, lists.grads, 1.0 - beta1);
    at::_foreach_mul_(squares, beta2);
    at::_foreach_addcmul_(squares, lists.grads, lists.grads, 1.0 - beta2);

    const double t = static_cast<double>(updates);
    const double correction1 = options_.debias ? 1.0 - std::pow(beta1, t) : 1.0;
    const double correction2 = options_.debias ? 1.0 - std::pow(beta2, t) : 1.0;
    std::vector<at::Tensor> denominators = at::_foreach_sqrt(squares);
    at::_foreach_mul_(denominators, correction1 / std::sqrt(correction2));
    at::_foreach_add_(denominators, correction1 * options_.eps);
    std::vector<at::Tensor> directions = at::_foreach_div(averages, denominators);
    if (values.weight_decay != 0.0) at::_foreach_add_(directions, lists.params, values.weight_decay);
    scale_by_trust(directions, lists.params, directions, least_adapted_dim(options_.adapt),
                   options_.pto ? host().run().ranks : nullptr);
    at::_foreach_add_(lists.params, directions, -values.lr);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Lamb)
