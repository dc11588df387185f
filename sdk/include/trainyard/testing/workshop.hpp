// A workshop for the test of a tool.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

namespace trainyard::testing {

/// The tiny network of testing/run.hpp with a split "val", and whatever a test sets beside it.
class FakeWorkshop final : public Workshop {
 public:
  FakeWorkshop();
  ~FakeWorkshop() override;

  // A test sets these.

  std::string weights_of = "runs/test/model.safetensors";
  trainyard::Table run_file;  ///< result of config()
  std::string directory;      ///< result of folder(); empty: that of the process
  std::map<std::string, State, std::less<>> states;
  std::map<std::string, std::map<std::string, double>, std::less<>> metrics;  ///< metrics of each split
  std::map<std::string, Dataset*, std::less<>> datasets;  ///< dataset of each split; they outlive the object
  const Loss* loss_of = nullptr;                          ///< result of loss(); outlives the object
  bool stop = false;                                      ///< a signal has come

  /// Records the calls of progress.
  std::vector<std::pair<std::int64_t, std::int64_t>> progress_made;

  // Workshop.

  const trainyard::Table& config() const override { return run_file; }
  Network& network() override;
  std::vector<NamedTensor> weights() override;
  const std::string& source() const override { return weights_of; }
  const State* state(std::string_view owner) const override;
  std::vector<std::string> owners() const override;
  std::vector<std::string> splits() const override;
  std::map<std::string, double> evaluate(std::string_view split) override;
  /// Returns batches of "train" and the splits above, eight samples each.
  std::vector<Batch> batches(std::string_view split, std::int64_t count) override;
  Dataset& dataset(std::string_view split) override;
  std::vector<std::int64_t> samples(std::string_view split) override;  ///< all
  const Loss& loss() override { return *loss_of; }
  /// Takes real steps of plain SGD, and takes them back.
  void train(std::int64_t steps, const std::function<void()>& look) override;
  const std::string& folder() override;
  void progress(std::int64_t done, std::int64_t total) override { progress_made.emplace_back(done, total); }
  bool stopping() const override { return stop; }

 private:
  std::unique_ptr<Network> network_;
};

}  // namespace trainyard::testing
