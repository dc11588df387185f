#include <trainyard/metric.hpp>

#include "thrower.hpp"

class MetricThrower final : public trainyard::Metric {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"check"}, {"names", "reset", "update", "compute"});
  }
  explicit MetricThrower(const Options& options) : options_(options) {}
  std::vector<std::string> names() const override {
    options_.at("names");
    return {"thrower"};
  }
  void check(const std::vector<std::int64_t>&, const trainyard::BatchSchema&) const override {
    options_.at("check");
  }
  void reset() override { options_.at("reset"); }
  void update(const at::Tensor&, const at::Tensor&, const trainyard::Batch&) override {
    options_.at("update");
  }
  std::vector<double> compute() const override {
    options_.at("compute");
    return {0.0};
  }
  void merge(const trainyard::StateReader&) override {}
  void save(trainyard::StateWriter&) const override {}

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MetricThrower)
