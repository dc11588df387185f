// Adagrad (Duchi, Hazan and Singer, JMLR 2011, figure 1) with a decaying rate. With t the updates so far:
//   g <- g + weight_decay * w;  s <- s + g^2;  w <- w - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)
// A row without a gradient stays as it is, so that sparse gradients are dense ones with zeros.
#include <ATen/ops/_fused_adagrad.h>

#include "sparse_rows.hpp"

namespace {

using namespace trainyard;

class Adagrad final : public SlotOptimizer {
 public:
  struct Options {
    double lr_decay = 0.0;
    double initial_accumulator = 0.0;
    double eps = 1e-10;
  };
  static void describe(Manifest<Options>& m) {
    m.name("adagrad").version("1.0.0").summary(
        "Steps scaled by the sum of squared gradients: for sparse features.");
    m.provides("sparse_rows where weight_decay = 0");
    m.option("lr_decay", &Options::lr_decay, "the rate of update t is divided by 1 + (t - 1) lr_decay")
        .min(0.0);
    m.option("initial_accumulator", &Options::initial_accumulator, "the sum of squares at the start")
        .min(0.0);
    m.option("eps", &Options::eps, "added to the denominator").above(0.0);
  }
  explicit Adagrad(const Options& options)
      : SlotOptimizer({{"sum", options.initial_accumulator}}), options_(options) {}

  void open(std::vector<ParamGroup> groups) override {
    SlotOptimizer::open(std::move(groups));
    steps_.resize(groups_.size());
  }

 protected:
  bool takes_sparse() const override { return true; }

  void update(std::size_t group, UpdateLists& lists, std::int64_t updates) override {
    if (!optimizers::any_sparse(lists)) return update_dense(group, lists, updates);
    const double rate = groups_[group].lr / (1.0 + static_cast<double>(updates - 1) * options_.lr_decay);
    UpdateLists dense =
        optimizers::update_rows(lists, [&](const at::Tensor& param, const std::vector<at::Tensor>& slots,
                                           const at::Tensor& rows, const at::Tensor& gradient) {
          optimizers::require_no_decay(groups_[group].weight_decay);
          optimizers::adagrad_rows(param, slots[0], rows, gradient, rate, options_.eps);
        });
    if (!dense.params.empty()) update_dense(group, dense, updates);
  }

 private:
  void update_dense(std::size_t group, UpdateLists& lists, std::int64_t updates) {
    const ParamGroup& values = groups_[group];
    at::_fused_adagrad_(lists.params, lists.grads, lists.slots[0], steps_[group].list(lists, updates),
                        values.lr, options_.lr_decay, values.weight_decay, options_.eps, /*maximize=*/false);
  }

  Options options_;
  std::vector<StepTensors> steps_;
};

}  // namespace

TRAINYARD_PLUGIN(Adagrad)
