// The mean of Huber's function of the differences d, over all elements: d^2 / 2 up to delta, then delta (|d| - delta / 2)
// (Huber, "Robust Estimation of a Location Parameter", Annals of Mathematical Statistics 1964).
#include <ATen/ops/huber_loss.h>

#include <trainyard/loss.hpp>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/mixins/grades_members.hpp>

namespace {

using namespace trainyard;

class Huber final : public Loss, public GradesMembers {
 public:
  struct Options {
    double delta = 1.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("huber").version("1.0.0").summary(
        "Half the squared error where it is small, linear beyond delta: outliers do not rule.");
    m.option("delta", &Options::delta,
             "difference from which on it is linear, in the units of the targets as the network has them")
        .above(0.0);
  }
  explicit Huber(const Options& options) : options_(options) {}

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    check_elementwise("loss huber", output, schema);
  }

  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    const auto [values, target] = elementwise(output, batch.target);
    return at::huber_loss(values, target, at::Reduction::Mean, options_.delta);
  }

  at::Tensor forward_members(const at::Tensor& output, const Batch& batch) const override {
    const auto [values, target] = elementwise_of_members(output, batch.target);
    return at::huber_loss(values, target.expand_as(values), at::Reduction::None, options_.delta)
        .flatten(1)
        .mean(1);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Huber)
