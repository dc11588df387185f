// A trial: the records of a run, step by step, as rules read it. It is the same while the run is going (from
// a recorder) and afterwards (from its files, trial_files.hpp).
//
// Names of tensors: a parameter's own, before the step ("fc1.weight"); "gradient/" and a parameter's name,
// before clipping; NODE_output_0, NODE_input_0 of a node of the model, of the step's first micro-batch
// ("relu1_output_0", "fc1_input_0"); "input_0" and "label" of the batch, "output_0" of the network;
// "loss_output_0"; "metric/NAME"; "optimizer/NAME" of the optimizer's state; "system/..." and "profile/..."
// of the machine and of the run's phases, at Mode::global (recorder.hpp lists them).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/statistics.hpp>

TRAINYARD_CONTRACT("trial.hpp");

namespace trainyard {

/// The kind of a step; each kind counts its own steps from 0. Predict is not used by the loop.
enum class Mode : std::uint8_t { train, eval, predict, global };
inline constexpr std::array<std::string_view, 4> mode_names = {"TRAIN", "EVAL", "PREDICT", "GLOBAL"};

struct TensorRecord {
  std::string name;
  std::vector<std::int64_t> shape;
  std::optional<Statistics> statistics;  ///< absent where only the values were saved
  at::Tensor value;                      ///< on the CPU; undefined unless values were asked for

  /// Returns the statistics, or else computes them from the value. Throws PluginError where there is neither.
  Statistics numbers() const;
  /// Returns the number in a tensor of one element.
  double scalar() const { return numbers().sum; }
};

struct StepRecord {
  Mode mode = Mode::train;
  std::int64_t mode_step = 0;
  std::int64_t step = 0;              ///< counts the steps of training and the evaluations, together
  double seconds = 0.0;               ///< since the run began
  int worker = 0;                     ///< rank
  std::vector<TensorRecord> tensors;  ///< sorted by name

  const TensorRecord* find(std::string_view name) const;
};

/// A named set of tensors: those in whose names one of the expressions (ECMAScript) finds a match.
struct Collection {
  std::string name;
  std::vector<std::string> include;
};
/// Returns all, weights, biases, gradients, losses, inputs, outputs, metrics, optimizer_variables.
const std::vector<Collection>& default_collections();

/// Holds the records of a run. Not for several threads at once.
class Trial {
 public:
  explicit Trial(std::vector<Collection> collections = default_collections());

  /// Appends a record; records older than the newest `window` of its mode are dropped. Steps of a mode must
  /// rise, else PluginError: a run that goes back says so first (go_back).
  void add(std::shared_ptr<const StepRecord> record);
  void keep(std::int64_t window) { window_ = window; }
  /// Forgets the records at and after a step, as StepRecord::step counts.
  void go_back(std::int64_t step);

  const std::deque<std::shared_ptr<const StepRecord>>& records() const { return records_; }
  const StepRecord* find(Mode mode, std::int64_t mode_step) const;
  /// Returns the newest record of the same mode before `record` that holds the tensor, or null.
  const StepRecord* previous(const StepRecord& record, std::string_view tensor) const;

  /// Returns the tensors of a record that belong to collection `what` or, where none has that name, in whose
  /// name the expression `what` finds a match. Throws PluginError for an invalid expression.
  std::vector<const TensorRecord*> tensors(const StepRecord& record, const std::string& what) const;
  bool belongs(std::string_view tensor, const std::string& what) const;

  const std::vector<Collection>& collections() const { return collections_; }

 private:
  std::vector<Collection> collections_;
  std::deque<std::shared_ptr<const StepRecord>> records_;
  std::int64_t window_ = 1000;
  mutable std::map<std::string, std::map<std::string, bool, std::less<>>, std::less<>> known_;  ///< answers
};

}  // namespace trainyard
