// The coefficient of determination: 1 minus the squared error by that of the targets' own mean. Of targets of several
// numbers it is the mean over these, each with its own. Batches and ranks are merged by mean and squared deviations
// (Chan, Golub and LeVeque, 1979), so that targets far from 0 lose no digits.
#include <limits>

#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/state.hpp>

namespace {

using namespace trainyard;

class R2 final : public Metric {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("r2").version("1.0.0").summary(
        "Coefficient of determination: 1 is perfect, 0 as good as the targets' mean.");
  }
  explicit R2(const Options&) {}

  std::vector<std::string> names() const override { return {"r2"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    check_elementwise("metric r2", output, schema);
  }

  void reset() override { sums_ = {}; }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    if (batch.target.size(0) == 0) return;
    const auto [values, target] = elementwise(output, batch.target);
    const at::Tensor truth = target.to(at::kDouble).reshape({target.size(0), -1});
    const at::Tensor mean = truth.mean(0);
    add({static_cast<double>(truth.size(0)), mean, truth.sub(mean).square().sum(0),
         values.to(at::kDouble).reshape(truth.sizes()).sub(truth).square().sum(0)});
  }

  /// Of targets that are all the same: 1 where they are met exactly, else 0.
  std::vector<double> compute() const override {
    if (sums_.count < 2.0) return {std::numeric_limits<double>::quiet_NaN()};
    const at::Tensor same = sums_.errors.mul(0.0).masked_fill(sums_.errors.eq(0.0), 1.0);
    const at::Tensor each =
        at::where(sums_.deviations.gt(0.0), at::rsub(sums_.errors.div(sums_.deviations), 1.0), same);
    return {each.mean().item<double>()};
  }

  void save(StateWriter& state) const override {
    state.scalar("count", sums_.count);
    if (sums_.count == 0.0) return;
    state.tensor("mean", sums_.mean.cpu());
    state.tensor("deviations", sums_.deviations.cpu());
    state.tensor("errors", sums_.errors.cpu());
  }
  void merge(const StateReader& other) override {
    const double count = other.number("count");
    if (count == 0.0) return;
    const at::Tensor& mean = other.tensor("mean");
    const at::Tensor& deviations = other.tensor("deviations");
    const at::Tensor& errors = other.tensor("errors");
    add({count, mean, deviations, errors});
  }

 private:
  struct Sums {
    double count = 0.0;
    at::Tensor mean, deviations, errors;  ///< of each number of a target; both sums of squares
  };

  void add(const Sums& more) {
    if (sums_.count == 0.0) {
      sums_ = {more.count, more.mean.clone(), more.deviations.clone(), more.errors.clone()};
      return;
    }
    const double count = sums_.count + more.count, share = more.count / count;
    const at::Device device = sums_.mean.device();
    const at::Tensor apart = more.mean.to(device).sub(sums_.mean);
    sums_.deviations.add_(more.deviations.to(device)).add_(apart.square(), sums_.count * share);
    sums_.mean.add_(apart, share);
    sums_.errors.add_(more.errors.to(device));
    sums_.count = count;
  }

  Sums sums_;
};

}  // namespace

TRAINYARD_PLUGIN(R2)
