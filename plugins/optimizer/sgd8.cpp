// SGD with momentum (sgd.cpp) that stands in 8 bits (byte_optimizer.hpp).
#include <ATen/ops/_fused_sgd.h>

#include "byte_optimizer.hpp"

namespace {

using namespace trainyard;
using namespace optimizers;

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
    const bool first = updates == 1, nesterov = options_.nesterov;
    const auto kept = static_cast<float>(first ? 0.0 : momentum(values));
    const auto added = static_cast<float>(first ? 1.0 : 1.0 - options_.dampening);
    const auto ahead = static_cast<float>(momentum(values)), rate = static_cast<float>(values.lr),
               decay = static_cast<float>(values.weight_decay);
    return [=](const BlockOfParameter& block) {
      float* const w = block.weight;
      float* const b = block.slots[0];
      for (std::int64_t i = 0; i < block.width; ++i) {
        const float g = block.gradient[i] + decay * w[i];
        b[i] = kept * b[i] + added * g;
        w[i] -= rate * (nesterov ? g + ahead * b[i] : b[i]);
      }
    };
  }

 private:
  double momentum(const ParamGroup& group) const { return group.momentum.value_or(options_.momentum); }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Sgd8)
