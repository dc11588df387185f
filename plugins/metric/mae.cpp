// The mean absolute error, over all elements.
#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/helpers/mean_metric.hpp>

namespace {

using namespace trainyard;

class Mae final : public MeanMetric {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("mae").version("1.0.0").summary("Mean absolute error.");
  }
  explicit Mae(const Options&) {}

  std::vector<std::string> names() const override { return {"mae"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    check_elementwise("metric mae", output, schema);
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const auto [values, target] = elementwise(output, batch.target);
    add(values.sub(target).abs_().sum(at::kDouble), static_cast<double>(target.numel()));
  }
};

}  // namespace

TRAINYARD_PLUGIN(Mae)
