// The share of targets that the largest score names; for one score a target (binary), those on its right side
// of 0.
#include <limits>

#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/ne.h>

#include <trainyard/metric.hpp>
#include <trainyard/state.hpp>

#include "metric_sum.hpp"
#include "shape_text.hpp"

namespace {

using namespace trainyard;

class Accuracy final : public Metric {
 public:
  struct Options {
    std::optional<std::int64_t> ignore_index;
  };
  static void describe(Manifest<Options>& m) {
    m.name("accuracy")
        .version("1.0.0")
        .summary("Share of samples (or tokens) whose class has the largest score.");
    m.option("ignore_index", &Options::ignore_index,
             "targets of this value do not count (padding); by default every target counts");
  }
  explicit Accuracy(const Options& options) : options_(options) {}

  std::vector<std::string> names() const override { return {"accuracy"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    const std::vector<std::int64_t>& target = schema.target.shape;
    const bool positions =
        output.size() >= target.size() && std::equal(target.begin(), target.end(), output.begin());
    const bool one_per_class =
        positions && output.size() == target.size() + 1 && output.back() >= schema.classes;
    const bool one_per_target =
        positions && schema.classes == 2 &&
        (output.size() == target.size() || (output.size() == target.size() + 1 && output.back() == 1));
    if (schema.classes > 0 && (one_per_class || one_per_target)) return;
    throw ConfigError("metric accuracy needs classes and scores for each of them; the data has " +
                      std::to_string(schema.classes) + " classes and targets of shape " + shape_text(target) +
                      ", the model gives " + shape_text(output));
  }

  void reset() override {
    correct_.reset();
    total_.reset();
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const at::Tensor& target = batch.target;
    const bool binary = output.dim() == target.dim() || output.size(-1) == 1;
    const at::Tensor found = binary ? output.reshape(target.sizes()).gt(0) : output.argmax(-1);
    at::Tensor right = found.eq(target);
    if (options_.ignore_index) {
      const at::Tensor counts = target.ne(*options_.ignore_index);
      right = right.logical_and(counts);
      total_.add(counts.sum());
    } else {
      total_.add(static_cast<double>(target.numel()));
    }
    correct_.add(right.sum());
  }

  std::vector<double> compute() const override {
    const double total = total_.value();
    return {total > 0.0 ? correct_.value() / total : std::numeric_limits<double>::quiet_NaN()};
  }

  void save(StateWriter& state) const override {
    state.scalar("correct", correct_.value());
    state.scalar("total", total_.value());
  }
  void merge(const StateReader& other) override {
    correct_.add(other.number("correct"));
    total_.add(other.number("total"));
  }

 private:
  Options options_;
  MetricSum correct_, total_;
};

}  // namespace

TRAINYARD_PLUGIN(Accuracy)
