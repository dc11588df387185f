// LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", arXiv 1708.03888,
// algorithm 1) as the MLPerf training reference does it. For each parameter:
//   ratio = trust * |w| / (|g| + weight_decay * |w| + eps), or 1 where |w| or |g| is 0 or the parameter is
//   not adapted u = ratio * lr * (g + weight_decay * w) b <- momentum * b + u w <- w - b, or with nesterov: w
//   <- w - (momentum * b + u)
// The learning rate is inside the buffer ("classic" momentum), unlike in sgd. The reference leaves biases and
// normalisation out of both ratio and decay: adapt = "matrices" (the default) and decay = "matrices" do so.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>

#include <trainyard/helpers/slot_optimizer.hpp>
#include <trainyard/host.hpp>
#include "trust_ratio.hpp"

namespace {

using namespace trainyard;
using namespace optimizers;

class Lars final : public SlotOptimizer {
 public:
  struct Options {
    double momentum = 0.9;
    bool nesterov = false;
    double trust = 0.001;
    double eps = 0.0;
    std::string adapt = "matrices";
    bool pto = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("lars").version("1.0.0").summary(
        "SGD with a learning rate for each layer: for very large batches.");
    m.provides("momentum");
    m.option("momentum", &Options::momentum, "share of the last update kept in the next").min(0.0).below(1.0);
    m.option("nesterov", &Options::nesterov, "look ahead along the momentum");
    m.option("trust", &Options::trust, "the step of a layer as a share of its norm (eta in the paper)")
        .above(0.0);
    m.option("eps", &Options::eps, "added to the denominator of the ratio").min(0.0);
    describe_adapt(m, &Options::adapt);
    describe_pto(m, &Options::pto);
  }
  explicit Lars(const Options& options) : SlotOptimizer({{"momentum_buffer"}}), options_(options) {}
  bool has_momentum() const override { return true; }

 protected:
  void update(std::size_t group, UpdateLists& lists, std::int64_t) override {
    const ParamGroup& values = groups_[group];
    const double momentum = values.momentum.value_or(options_.momentum);
    const auto& buffers = lists.slots[0];
    std::vector<at::Tensor> updates = at::_foreach_mul(lists.grads, values.lr);
    if (values.weight_decay != 0.0) at::_foreach_add_(updates, lists.params, values.lr * values.weight_decay);
    scale_by_trust(updates, lists.params, lists.grads, least_adapted_dim(options_.adapt),
                   options_.pto ? host().run().ranks : nullptr, options_.trust, values.weight_decay,
                   options_.eps);
    at::_foreach_mul_(buffers, momentum);
    at::_foreach_add_(buffers, updates);
    if (!options_.nesterov) {
      at::_foreach_sub_(lists.params, buffers);
      return;
    }
    at::_foreach_add_(updates, buffers, momentum);
    at::_foreach_sub_(lists.params, updates);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Lars)
