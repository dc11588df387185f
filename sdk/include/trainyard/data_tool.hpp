// A tool that works on the data of a run alone: nothing is opened, there are no weights, and the run need not
// have trained. The host finds it by its type: dynamic_cast<DataTool*>(tool).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/tool.hpp>

TRAINYARD_CONTRACT("data_tool.hpp");

namespace trainyard {

/// Gives a tool the data of a run that does not train. All calls are of the loop thread, and throw Error.
class DataWorkshop {
 public:
  virtual ~DataWorkshop() = default;

  /// Returns "train" and those of "val" and "test" that the run has.
  virtual std::vector<std::string> splits() const = 0;
  /// Returns a split's dataset with its options, as the run would open it: Dataset::open was not called.
  virtual Dataset& dataset(std::string_view split) = 0;
  /// Opens a split's dataset as the run does, "train" ahead of the others. Returns the samples that `take`
  /// gives the split, by their numbers in the dataset, ascending.
  virtual std::vector<std::int64_t> open(std::string_view split) = 0;

  /// These two are as in Workshop.
  virtual void progress(std::int64_t done, std::int64_t total) = 0;
  virtual bool stopping() const = 0;
};

class DataTool : public Tool {
 public:
  /// Called once, in the place of run().
  virtual Report run_on_data(DataWorkshop& shop) = 0;

  /// Never called.
  Report run(Workshop&) final { throw ConfigError("it works on data alone"); }
};

}  // namespace trainyard
