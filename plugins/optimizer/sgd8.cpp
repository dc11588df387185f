// SGD with momentum (sgd.cpp) that stands in 8 bits (byte_optimizer.hpp).
#include <ATen/ops/_fused_sgd.h>

#include "byte_optimizer.hpp"
#include "kernels/cpu/for_each_isa.hpp"

namespace {

using namespace trainyard;
using namespace optimizers;

/// g = gradient + weight_decay w, buffer = kept buffer + added g, w -= rate (of_gradient g + of_buffer buffer).
struct SgdStep {
  float kept, added, of_gradient, of_buffer, rate, weight_decay;
};

/// Compiled once for each instruction set; the loader takes the best that the processor has.
TRAINYARD_FOR_EACH_ISA void sgd_step(float* __restrict weight, float* __restrict buffer,
                                     const float* __restrict gradient, std::int64_t width,
                                     const SgdStep& given) {
  const SgdStep step = given;
  for (std::int64_t i = 0; i < width; ++i) {
    const float g = gradient[i] + step.weight_decay * weight[i];
    buffer[i] = step.kept * buffer[i] + step.added * g;
    weight[i] -= step.rate * (step.of_gradient * g + step.of_buffer * buffer[i]);
  }
}

class Sgd8 final : public ByteOptimizer {
 public:
  struct Options {
    double momentum = 0.9;
    double dampening = 0.0;
    bool nesterov = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("sgd8").version("1.0.0").summary(
        "Stochastic gradient descent whose momentum, or Nesterov's form of it, stands in 8 bits.");
    m.needs("no sharded_rows").provides("momentum");
    m.option("momentum", &Options::momentum, "share of the last update kept in the next")
        .above(0.0)
        .below(1.0);
    m.option("dampening", &Options::dampening, "share of the gradient left out of the momentum")
        .range(0.0, 1.0);
    m.option("nesterov", &Options::nesterov, "look ahead along the momentum; needs no dampening");
  }
  explicit Sgd8(const Options& options) : ByteOptimizer({{"momentum_buffer", true}}), options_(options) {}

  void open(std::vector<ParamGroup> groups) override {
    if (options_.nesterov && options_.dampening != 0.0)
      throw ConfigError("optimizer.nesterov = true needs dampening = 0");
    ByteOptimizer::open(std::move(groups));
  }
  bool has_momentum() const override { return true; }

 protected:
  void update_whole(std::size_t group, UpdateLists& lists, std::int64_t updates) override {
    const ParamGroup& values = groups_[group];
    at::_fused_sgd_(lists.params, lists.grads, lists.slots[0], values.weight_decay, momentum(values),
                    values.lr, options_.dampening, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/updates == 1);
  }

  BlockUpdate block_update(std::size_t group, std::int64_t updates) const override {
    const ParamGroup& values = groups_[group];
    const bool first = updates == 1;
    const double kept = momentum(values);
    const SgdStep step{.kept = static_cast<float>(first ? 0.0 : kept),
                       .added = static_cast<float>(first ? 1.0 : 1.0 - options_.dampening),
                       .of_gradient = options_.nesterov ? 1.0f : 0.0f,
                       .of_buffer = static_cast<float>(options_.nesterov ? kept : 1.0),
                       .rate = static_cast<float>(values.lr),
                       .weight_decay = static_cast<float>(values.weight_decay)};
    return [step](const BlockOfParameter& block) {
      sgd_step(block.weight, block.slots[0], block.gradient, block.width, step);
    };
  }

 private:
  double momentum(const ParamGroup& group) const { return group.momentum.value_or(options_.momentum); }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Sgd8)
