// Metrics that are a mean: a sum over a weight, both kept on the device until somebody asks.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/metric.hpp>
#include <trainyard/state.hpp>

#include <trainyard/helpers/shape_text.hpp>

namespace trainyard {

/// A number that tensors of one element are added to, without waiting for them.
class DeviceSum {
 public:
  void add(double value) { host_ += value; }
  void add(const at::Tensor& value) {
    if (device_.defined())
      device_.add_(value);
    else
      device_ = value.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  }
  /// Returns the sum; waits for the device.
  double value() const { return host_ + (device_.defined() ? device_.item<double>() : 0.0); }

 private:
  double host_ = 0.0;
  at::Tensor device_;
};

/// The base of such metrics: they call `add` in `update`; the rest is here.
class MeanMetric : public Metric {
 public:
  void reset() override { sum_ = weight_ = DeviceSum(); }
  std::vector<double> compute() const override { return {mean()}; }
  void save(StateWriter& state) const override {
    state.scalar("sum", sum_.value());
    state.scalar("weight", weight_.value());
  }
  void merge(const StateReader& other) override {
    const double sum = other.number("sum"), weight = other.number("weight");
    sum_.add(sum);
    weight_.add(weight);
  }

 protected:
  /// Each is a number, or a tensor of one element.
  template <class Sum, class Weight>
  void add(const Sum& sum, const Weight& weight) {
    sum_.add(sum);
    weight_.add(weight);
  }
  /// Adds the hits (booleans, of the target's shape) at targets other than `ignored`.
  void add_hits(const at::Tensor& hits, const at::Tensor& target, std::optional<std::int64_t> ignored) {
    if (!ignored) return add(hits.sum(), static_cast<double>(target.numel()));
    const at::Tensor counts = target.ne(*ignored);
    add(hits.logical_and(counts).sum(), counts.sum());
  }
  /// Returns the mean; NaN where nothing was added.
  double mean() const {
    const double weight = weight_.value();
    return weight > 0.0 ? sum_.value() / weight : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  DeviceSum sum_, weight_;
};

/// Returns whether the output has, for each target, `count` scores or more, in one more dimension.
inline bool has_scores(const std::vector<std::int64_t>& output, const std::vector<std::int64_t>& target,
                       std::int64_t count) {
  return output.size() == target.size() + 1 && output.back() >= count &&
         std::equal(target.begin(), target.end(), output.begin());
}

/// Returns "the data has 10 classes and targets of shape [], the model gives [3]", for messages.
inline std::string shapes_text(const std::vector<std::int64_t>& output, const BatchSchema& schema) {
  return "the data has " + std::to_string(schema.classes) + " classes and targets of shape " +
         shape_text(schema.target.shape) + ", the model gives " + shape_text(output);
}

}  // namespace trainyard
