// The mean over classes of the share of a class that is said to be of it: accuracy as if all classes were as large.
#include "class_counts.hpp"

namespace {

using namespace trainyard;

class BalancedAccuracy final : public metrics::ClassCounts {
 public:
  static void describe(Manifest<Options>& m) {
    m.name("balanced_accuracy")
        .version("1.0.0")
        .summary("Mean of the recalls of the classes that are a target: each class counts the same.");
    metrics::describe_ignore_index(m);
  }
  explicit BalancedAccuracy(const Options& options) : options_(options) {}

  std::vector<std::string> names() const override { return {"balanced_accuracy"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    metrics::require_class_scores("metric balanced_accuracy", output, schema);
  }

  std::vector<double> compute() const override {
    double sum = 0.0, classes = 0.0;
    for (const Count& each : counts()) {
      if (each.targets == 0.0) continue;
      sum += each.both / each.targets;
      ++classes;
    }
    return {classes > 0.0 ? sum / classes : std::numeric_limits<double>::quiet_NaN()};
  }

 private:
  std::optional<std::int64_t> ignored() const override { return options_.ignore_index; }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(BalancedAccuracy)
