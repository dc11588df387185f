// RMSprop (Tieleman and Hinton, lecture 6.5, 2012; centred: Graves, arXiv 1308.0850, eq. 38 to 41), in the
// form of torch.optim.RMSprop:
//   g <- g + weight_decay * w;  s <- alpha s + (1 - alpha) g^2
//   d = sqrt(s) + eps, or centred: a <- alpha a + (1 - alpha) g, d = sqrt(s - a^2) + eps
//   w <- w - lr * g / d, or with momentum: b <- momentum b + g / d, w <- w - lr * b
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <trainyard/helpers/slot_optimizer.hpp>

namespace {

using namespace trainyard;

class RmsProp final : public SlotOptimizer {
 public:
  struct Options {
    double alpha = 0.99;
    double eps = 1e-8;
    double momentum = 0.0;
    bool centered = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("rmsprop").version("1.0.0").summary("Steps scaled by a running average of squared gradients.");
    m.provides("momentum where momentum != 0");
    m.option("alpha", &Options::alpha, "decay of the average of squares").min(0.0).below(1.0);
    m.option("eps", &Options::eps, "added to the denominator").above(0.0);
    m.option("momentum", &Options::momentum, "share of the last update kept in the next; 0: no momentum")
        .min(0.0)
        .below(1.0);
    m.option("centered", &Options::centered, "divide by the standard deviation, the average subtracted");
  }
  explicit RmsProp(const Options& options) : SlotOptimizer(slots(options)), options_(options) {}
  bool has_momentum() const override { return options_.momentum > 0.0; }

 protected:
  void update(std::size_t group, UpdateLists& lists, std::int64_t) override {
    const ParamGroup& values = groups_[group];
    const auto& squares = lists.slots[0];
    std::vector<at::Tensor> decayed;
    if (values.weight_decay != 0.0)
      decayed = at::_foreach_add(lists.grads, lists.params, values.weight_decay);
    const at::TensorList grads = decayed.empty() ? lists.grads : decayed;

    at::_foreach_mul_(squares, options_.alpha);
    at::_foreach_addcmul_(squares, grads, grads, 1.0 - options_.alpha);
    std::vector<at::Tensor> denominator;
    if (options_.centered) {
      const auto& averages = lists.slots[1];
      at::_foreach_lerp_(averages, grads, 1.0 - options_.alpha);
      denominator = at::_foreach_addcmul(squares, averages, averages, -1.0);
      at::_foreach_clamp_min_(denominator, 0.0);  // rounding may leave a variance below 0, its root NaN
      at::_foreach_sqrt_(denominator);
    } else {
      denominator = at::_foreach_sqrt(squares);
    }
    at::_foreach_add_(denominator, options_.eps);

    if (options_.momentum == 0.0) {
      at::_foreach_addcdiv_(lists.params, grads, denominator, -values.lr);
      return;
    }
    const auto& buffers = lists.slots.back();
    at::_foreach_mul_(buffers, values.momentum.value_or(options_.momentum));
    at::_foreach_addcdiv_(buffers, grads, denominator);
    at::_foreach_add_(lists.params, buffers, -values.lr);
  }

 private:
  static std::vector<Slot> slots(const Options& options) {
    std::vector<Slot> result{{"square_avg"}};
    if (options.centered) result.push_back({"grad_avg"});
    if (options.momentum > 0.0) result.push_back({"momentum_buffer"});
    return result;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(RmsProp)
