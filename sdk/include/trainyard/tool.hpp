// tool/1: a job beside training, with a report. A tool is a verb: `trainyard NAME run.toml`; an entry of
// `[[tools]]` in the run file gives its options.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/error.hpp>
#include <trainyard/named_tensor.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/state.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("tool.hpp");

namespace trainyard {

class Dataset;
class Loss;
class Network;

/// The findings of a tool; the host prints them as text or JSON. In JSON a number that is not finite is the
/// string "nan", "inf" or "-inf".
struct Report {
  ExitCode code =
      ExitCode::done;  ///< of the process: what the tool looked for is wrong, and the report says how
  std::vector<std::pair<std::string, Value>> facts;  ///< name and value, in this order
  std::vector<std::string> columns;                  ///< columns of the table behind them; none: no table
  std::vector<std::vector<Value>> rows;              ///< each as long as the columns
};

/// The host's side of a tool: a run that does not train, with the weights that were asked for. A single rank.
/// All calls are of the loop thread, and throw Error.
class Workshop {
 public:
  virtual ~Workshop() = default;

  /// Returns the run file with all defaults filled in, as `trainyard config show` prints it.
  virtual const Table& config() const = 0;
  /// Returns the network, on the run's device. Its tensors are the run's weights: evaluations see changes.
  virtual Network& network() = 0;
  /// Returns parameters, then buffers, in model order; handles, on the run's device.
  virtual std::vector<NamedTensor> weights() = 0;
  /// Returns the file or checkpoint that the weights came from.
  virtual const std::string& source() const = 0;
  /// Returns the state that the checkpoint holds of a plugin, "hooks.ema"; null where it holds none, or the
  /// weights come from a file.
  virtual const State* state(std::string_view owner) const = 0;
  /// Returns the owners of all states in the checkpoint; empty where the weights come from a file.
  virtual std::vector<std::string> owners() const = 0;

  /// Returns the splits that the run has, but that of training: "val", "test".
  virtual std::vector<std::string> splits() const = 0;
  /// Returns the metrics of an evaluation pass over one of them, by name: "val/loss". Throws ConfigError for
  /// another; empty where a signal came.
  virtual std::map<std::string, double> evaluate(std::string_view split) = 0;
  /// Does the same as Host::batches.
  virtual std::vector<Batch> batches(std::string_view split, std::int64_t count) = 0;

  /// Returns the dataset of a split, open: for what it can do beside being read (new_data.hpp). Throws
  /// ConfigError where the run does not have it.
  virtual Dataset& dataset(std::string_view split) = 0;
  /// Returns the samples that `take` gives a split, by their numbers in its dataset, ascending. Throws
  /// ConfigError where the run does not have the split.
  virtual std::vector<std::int64_t> samples(std::string_view split) = 0;
  /// Returns the run's loss, open.
  virtual const Loss& loss() = 0;

  /// Trains `steps` steps from these weights on, as a run that begins with them, at step 0 with the optimizer
  /// as new; calls `look` to see the result; then restores everything that the run saves, to the bit. Hooks
  /// take part; rules, recorder and sinks do not. Throws ConfigError where the budget has fewer steps. `look`
  /// is not called where a signal came.
  virtual void train(std::int64_t steps, const std::function<void()>& look) = 0;

  /// Returns a folder of the tool's own below that of the run, made at the first call: RUN/tools/NAME.
  virtual const std::string& folder() = 0;
  /// Says how far the tool has come, of a total in whatever unit (0: nobody knows); shown where standard
  /// error is a terminal.
  virtual void progress(std::int64_t done, std::int64_t total) = 0;
  /// Returns whether a signal asks for an end: return soon; the process then exits as if interrupted.
  virtual bool stopping() const = 0;
};

/// A job with a report. Its option `data`, if it has one, a list of strings, takes the words of the command
/// line that follow the run: `trainyard predict RUN a.csv b.csv`. Files among them are relative to the folder
/// of the command; "-" is standard input.
class Tool : public Plugin {
 public:
  static constexpr Kind kind{"tool", 1};

  /// Called once. A file that it writes appears at its place only when it is whole.
  virtual Report run(Workshop& workshop) = 0;
};

}  // namespace trainyard
