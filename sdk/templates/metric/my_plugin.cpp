#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/helpers/mean_metric.hpp>

/// The share of predictions that are no further than `tolerance` from their target.
class MyPlugin final : public trainyard::MeanMetric {
 public:
  struct Options {
    double tolerance = 0.1;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Share of predictions within a tolerance.");
    m.option("tolerance", &Options::tolerance, "largest error that counts as right").min(0.0);
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  std::vector<std::string> names() const override { return {"my_plugin"}; }
  void check(const std::vector<std::int64_t>& output, const trainyard::BatchSchema& schema) const override {
    trainyard::check_elementwise("metric my_plugin", output, schema);
  }
  void update(const at::Tensor& output, const at::Tensor&, const trainyard::Batch& batch) override {
    const auto [values, target] = trainyard::elementwise(output, batch.target);
    add_hits(values.sub(target).abs().le(options_.tolerance), target, {});
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)
