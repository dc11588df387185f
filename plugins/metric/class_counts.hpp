// What metrics of classes share: how often each class was the target, was said, and was both. Whole numbers, so that
// batches and ranks in any order give the same value.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/mean_metric.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/state.hpp>

#include "ignore_index.hpp"

namespace metrics {

using namespace trainyard;

/// Throws ConfigError where the output has neither a score for each class nor one for two.
inline void require_class_scores(const std::string& who, const std::vector<std::int64_t>& output,
                                 const BatchSchema& schema) {
  refuse_several_labels(who, schema, "take metric precision_at_k");
  const std::vector<std::int64_t>& target = schema.target.shape;
  const bool many = schema.classes > 0 && has_scores(output, target, schema.classes);
  const bool one =
      schema.classes == 2 && (output == target || (has_scores(output, target, 1) && output.back() == 1));
  if (!many && !one)
    throw ConfigError(who + " needs a score for each class, or one for two classes; " +
                      shapes_text(output, schema) +
                      (schema.classes > 0 ? "" : "; for numbers take metrics such as r2, rmse and mae"));
}

/// Whether an output has one score a target, of the second of two classes.
inline bool has_one_score(const at::Tensor& output, const at::Tensor& target) {
  return output.dim() == target.dim() || output.size(-1) == 1;
}

/// [targets], int64: 1, and 0 for those that are ignored.
inline at::Tensor counts_of(const at::Tensor& target, std::optional<std::int64_t> ignored) {
  const at::Tensor all = target.reshape(-1);
  return ignored ? all.ne(*ignored).to(at::kLong) : at::ones_like(all, at::kLong);
}

/// Classes as they are and as the network says them, [targets] both; `counts` is 0 where a target is ignored.
struct Said {
  std::int64_t classes;
  at::Tensor target, said, counts;
};

inline Said said_of(const at::Tensor& output, const at::Tensor& target, std::optional<std::int64_t> ignored) {
  const bool one = has_one_score(output, target);
  const at::Tensor said = one ? output.reshape(-1).gt(0).to(at::kLong) : output.argmax(-1).reshape(-1);
  const at::Tensor counts = counts_of(target, ignored);
  return {one ? 2 : output.size(-1), target.reshape(-1).to(at::kLong).masked_fill(counts.eq(0), 0), said,
          counts};
}

/// Tables of counts that are kept on the device; its value is NaN where nothing was counted.
class ClassCounts : public Metric {
 public:
  struct Options {
    std::optional<std::int64_t> ignore_index;
  };

  void reset() override { counts_.reset(); }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const Said all = said_of(output, batch.target, ignored());
    const auto count = [&](const at::Tensor& of, const at::Tensor& weight) {
      return at::zeros({all.classes}, all.counts.options()).scatter_add_(0, of, weight);
    };
    add(at::stack({count(all.target, all.counts), count(all.said, all.counts),
                   count(all.target, all.counts.mul(all.said.eq(all.target)))}));
  }

  void save(StateWriter& state) const override {
    if (counts_.defined()) state.tensor("counts", counts_.cpu());
  }
  void merge(const StateReader& other) override {
    if (other.has_tensor("counts")) add(other.tensor("counts"));
  }

 protected:
  virtual std::optional<std::int64_t> ignored() const = 0;

  void add(const at::Tensor& counts) {
    if (counts_.defined())
      counts_.add_(counts.to(counts_.device()));
    else
      counts_ = counts.clone();
  }

  /// Of a class.
  struct Count {
    double targets = 0.0, said = 0.0, both = 0.0;
  };
  /// Waits for the device; empty where nothing was added.
  std::vector<Count> counts() const {
    std::vector<Count> all;
    if (!counts_.defined()) return all;
    const at::Tensor table = counts_.to(at::kDouble).cpu().t().contiguous();  // [classes, 3]
    const auto* each = table.const_data_ptr<double>();
    for (std::int64_t c = 0; c < table.size(0); ++c, each += 3) all.push_back({each[0], each[1], each[2]});
    return all;
  }

 private:
  at::Tensor counts_;  ///< [3, classes], int64
};

/// The base of precision, recall and F1: a share of each class, and a mean over classes.
class ClassShares : public ClassCounts {
 public:
  struct Options {
    std::string average = "macro";
    std::optional<std::int64_t> ignore_index;
  };
  static void describe_options(Manifest<Options>& m) {
    m.option("average", &Options::average,
             "macro: the mean over the classes that are a target or said; micro: all targets counted "
             "together; weighted: the mean by how often a class is a target; positive: that of the second of "
             "two classes")
        .one_of({"macro", "micro", "weighted", "positive"});
    describe_ignore_index(m);
  }
  ClassShares(const Options& options, std::string name) : options_(options), name_(std::move(name)) {}

  std::vector<std::string> names() const override { return {name_}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    require_class_scores("metric " + name_, output, schema);
    if (options_.average == "positive" && schema.classes != 2)
      throw ConfigError("metric " + name_ +
                        " has average = \"positive\", which is of 2 classes, and the data has " +
                        std::to_string(schema.classes) + ": take macro, micro or weighted");
  }

  std::vector<double> compute() const override {
    const std::vector<Count> all = counts();
    Count whole;
    for (const Count& each : all) {
      whole.targets += each.targets;
      whole.said += each.said;
      whole.both += each.both;
    }
    if (whole.targets == 0.0) return {std::numeric_limits<double>::quiet_NaN()};
    if (options_.average == "micro") return {share(whole)};
    if (options_.average == "positive") return {share(all.at(1))};
    double sum = 0.0, weight = 0.0;
    for (const Count& each : all) {
      const double counts = options_.average == "weighted" ? each.targets : each.targets + each.said > 0.0;
      sum += counts * share(each);
      weight += counts;
    }
    return {sum / weight};
  }

 protected:
  /// `part` by `of`, and 0 for a class that none was, or was said to be.
  static double ratio(double part, double of) { return of > 0.0 ? part / of : 0.0; }
  virtual double share(const Count& of) const = 0;

 private:
  std::optional<std::int64_t> ignored() const override { return options_.ignore_index; }

  Options options_;
  std::string name_;
};

}  // namespace metrics
