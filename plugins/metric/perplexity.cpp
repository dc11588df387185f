// exp of the mean cross entropy over tokens: exp(sum(loss * weight) / sum(weight)), in natural logarithms.
#include <cmath>

#include <trainyard/helpers/mean_metric.hpp>

namespace {

using namespace trainyard;

class Perplexity final : public MeanMetric {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("perplexity")
        .version("1.0.0")
        .summary("exp of the mean loss over all tokens; for loss cross_entropy without label smoothing.");
  }
  explicit Perplexity(const Options&) {}

  std::vector<std::string> names() const override { return {"perplexity"}; }

  void check(const std::vector<std::int64_t>&, const BatchSchema& schema) const override {
    if (schema.classes <= 0)
      throw ConfigError("metric perplexity needs classes, but the data has a regression target; use mae");
  }

  void update(const at::Tensor&, const at::Tensor& loss, const Batch& batch) override {
    if (batch.weight <= 0.0) return;  // the loss is a mean over nothing
    if (loss.is_cpu())
      add(loss.item<double>() * batch.weight, batch.weight);
    else
      add(loss.to(at::kDouble).mul(batch.weight), batch.weight);
  }

  std::vector<double> compute() const override { return {std::exp(mean())}; }
};

}  // namespace

TRAINYARD_PLUGIN(Perplexity)
