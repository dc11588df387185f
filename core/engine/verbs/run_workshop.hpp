// The view of a run that tools work on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/loss.hpp>
#include <trainyard/tool.hpp>

#include "core/engine/save/load.hpp"
#include "core/engine/train/run.hpp"

namespace trainyard::train {

/// The run and the tool's name outlive it. Signals are caught by the caller's SignalScope.
class RunWorkshop final : public Workshop, private LoopHost {
 public:
  /// Returns the path of the weights named on the command line; by default the run's folder.
  static std::string path_of(const std::string& weights, const config::RunConfig& config);

  /// Builds the run with the weights that `path` names. Throws Error.
  RunWorkshop(Run& run, const std::string& tool, const std::string& path);

  const Table& config() const override { return run_.config().resolved; }
  Network& network() override { return run_.network(); }
  std::vector<NamedTensor> weights() override { return run_.states().weights(); }
  const std::string& source() const override { return source_; }
  const State* state(std::string_view owner) const override;
  std::vector<std::string> owners() const override;
  std::vector<std::string> splits() const override;
  std::map<std::string, double> evaluate(std::string_view split) override;
  std::vector<Batch> batches(std::string_view split, std::int64_t count) override {
    return run_.first_batches(split, count);
  }
  Dataset& dataset(std::string_view split) override;
  std::vector<std::int64_t> samples(std::string_view split) override;
  const Loss& loss() override { return run_.live().layer.plugin("loss").as<Loss>(); }
  void train(std::int64_t steps, const std::function<void()>& look) override;
  const std::string& folder() override;
  void progress(std::int64_t done, std::int64_t total) override;
  bool stopping() const override;

 private:
  /// The state of a train() in progress; the loop's host is called within it.
  struct Excursion {
    std::int64_t steps = 0;
    const std::function<void()>* look = nullptr;
    std::vector<State> before;
    bool done = false;
  };

  void load_weights(const std::string& path);
  void at_safe_point() override;

  Run& run_;
  const std::string tool_;
  std::string source_, folder_;
  std::optional<checkpoint::Loaded> loaded_;  ///< none: the weights come from a file
  Excursion excursion_;
};

}  // namespace trainyard::train
