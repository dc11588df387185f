// AdamW (adam.hpp) with both averages in 8 bits (byte_optimizer.hpp).
#include <ATen/ops/_fused_adamw.h>

#include "kernels/cpu/adam.hpp"

#include "byte_optimizer.hpp"

namespace {

using namespace trainyard;
using namespace optimizers;

class AdamW8 final : public ByteOptimizer {
 public:
  struct Options {
    std::vector<double> betas{0.9, 0.999};
    double eps = 1e-8;
  };
  static void describe(Manifest<Options>& m) {
    m.name("adamw8").version("1.0.0").summary(
        "Adam with decoupled weight decay and a quarter of its state: averages in 8 bits.");
    m.needs("no sharded_rows").provides("momentum");
    m.option("betas", &Options::betas, "decay of the averages of the gradient and of its square")
        .count(2)
        .min(0.0)
        .below(1.0);
    m.option("eps", &Options::eps, "added to the denominator").above(0.0);
  }
  explicit AdamW8(const Options& options)
      : ByteOptimizer({{"exp_avg", true}, {"exp_avg_sq", false}}), options_(options) {}

  void open(std::vector<ParamGroup> groups) override {
    ByteOptimizer::open(std::move(groups));
    steps_.resize(groups_.size());
  }
  bool has_momentum() const override { return true; }

 protected:
  void update_whole(std::size_t group, UpdateLists& lists, std::int64_t updates) override {
    const ParamGroup& values = groups_[group];
    at::_fused_adamw_(lists.params, lists.grads, lists.slots[0], lists.slots[1], {},
                      steps_[group].list(lists, updates), values.lr, beta1(values), options_.betas[1],
                      values.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt,
                      std::nullopt);
  }

  BlockUpdate block_update(std::size_t group, std::int64_t updates) const override {
    const ParamGroup& values = groups_[group];
    const kernels::AdamStep step =
        kernels::adam_step({values.lr, beta1(values), options_.betas[1], options_.eps, values.weight_decay,
                            /*decouples=*/true},
                           updates);
    return [step](const BlockOfParameter& block) {
      kernels::adam_kernels().step({block.weight, block.slots[0], block.slots[1], block.width},
                                   block.gradient, step);
    };
  }

 private:
  double beta1(const ParamGroup& group) const { return group.momentum.value_or(options_.betas[0]); }

  Options options_;
  std::vector<StepTensors> steps_;
};

}  // namespace

TRAINYARD_PLUGIN(AdamW8)
