// Stochastic gradient descent with momentum (Polyak, 1964) or Nesterov's (Sutskever et al., ICML 2013,
// section 2, in the form of torch.optim.SGD):
//   g <- g + weight_decay * w
//   b <- momentum * b + (1 - dampening) * g   (b <- g at the first update)
//   w <- w - lr * b, or with nesterov: w <- w - lr * (g + momentum * b)
// Without momentum a row without a gradient stays as it is, so that sparse gradients are dense ones with
// zeros.
#include <ATen/ops/_fused_sgd.h>

#include "sparse_rows.hpp"

namespace {

using namespace trainyard;

class Sgd final : public SlotOptimizer {
 public:
  struct Options {
    double momentum = 0.0;
    double dampening = 0.0;
    bool nesterov = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("sgd").version("1.0.0").summary("Stochastic gradient descent, with momentum and Nesterov's form.");
    m.provides("momentum where momentum != 0");
    m.provides("sparse_rows where momentum = 0 and weight_decay = 0");
    m.option("momentum", &Options::momentum, "share of the last update kept in the next; 0: no momentum")
        .min(0.0)
        .below(1.0);
    m.option("dampening", &Options::dampening, "share of the gradient left out of the momentum")
        .range(0.0, 1.0);
    m.option("nesterov", &Options::nesterov,
             "look ahead along the momentum; needs momentum and no dampening");
  }
  explicit Sgd(const Options& options)
      : SlotOptimizer(options.momentum > 0.0 ? std::vector<Slot>{{"momentum_buffer"}} : std::vector<Slot>{}),
        options_(options) {}

  void open(std::vector<ParamGroup> groups) override {
    if (options_.nesterov && (options_.momentum == 0.0 || options_.dampening != 0.0))
      throw ConfigError("optimizer.nesterov = true needs momentum above 0 and dampening = 0");
    SlotOptimizer::open(std::move(groups));
  }
  bool has_momentum() const override { return options_.momentum > 0.0; }

 protected:
  bool takes_sparse() const override { return options_.momentum == 0.0; }

  void update(std::size_t group, UpdateLists& lists, std::int64_t updates) override {
    if (!optimizers::any_sparse(lists)) return update_dense(group, lists, updates);
    UpdateLists dense =
        optimizers::update_rows(lists, [&](const at::Tensor& param, const std::vector<at::Tensor>&,
                                           const at::Tensor& rows, const at::Tensor& gradient) {
          optimizers::require_no_decay(groups_[group].weight_decay);
          param.index_add_(0, rows, gradient, -groups_[group].lr);
        });
    if (!dense.params.empty()) update_dense(group, dense, updates);
  }

 private:
  void update_dense(std::size_t group, const UpdateLists& lists, std::int64_t updates) {
    const ParamGroup& values = groups_[group];
    at::_fused_sgd_(lists.params, lists.grads, lists.slots.empty() ? at::TensorList() : lists.slots[0],
                    values.weight_decay, values.momentum.value_or(options_.momentum), values.lr,
                    options_.dampening, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/updates == 1);
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Sgd)
