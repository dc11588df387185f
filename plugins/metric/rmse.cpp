// The root of the mean squared error, over all elements.
#include <cmath>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/helpers/mean_metric.hpp>

#include "target_units.hpp"

namespace {

using namespace trainyard;

class Rmse final : public MeanMetric, public metrics::InTargetUnits {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("rmse").version("1.0.0").summary(
        "Root of the mean squared error, in the units of the data's files.");
  }
  explicit Rmse(const Options&) {}

  std::vector<std::string> names() const override { return {"rmse"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    check_elementwise("metric rmse", output, schema);
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const auto [values, target] = elementwise(output, batch.target);
    add(values.to(at::kDouble).sub(target).square().sum(), static_cast<double>(target.numel()));
  }

  std::vector<double> compute() const override { return {unit() * std::sqrt(mean())}; }
};

}  // namespace

TRAINYARD_PLUGIN(Rmse)
