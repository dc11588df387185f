// metric/1: computes a number over a stream of batches; it can be merged over ranks and over a resume.
#pragma once

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("metric.hpp");

namespace trainyard {

class Metric : public Plugin {
 public:
  static constexpr Kind kind{"metric", 1};

  /// Returns the names of its values, in the order of `compute`: usually one, {"accuracy"}.
  virtual std::vector<std::string> names() const = 0;

  /// Called once, before anything else. Throws ConfigError where the output shape does not suit it.
  virtual void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const = 0;

  virtual void reset() = 0;

  /// Adds a batch. `output` is detached and float, perhaps on a GPU: must not wait for it. `loss` is the mean
  /// over batch.weight items.
  virtual void update(const at::Tensor& output, const at::Tensor& loss, const Batch& batch) = 0;

  /// Returns the values so far; waits for the device. NaN where nothing was added.
  virtual std::vector<double> compute() const = 0;

  /// Adds the sums that another instance wrote in `save` (Plugin). `load` is reset and merge.
  virtual void merge(const StateReader& other) = 0;
  void load(const StateReader& state) final {
    reset();
    merge(state);
  }
};

}  // namespace trainyard
