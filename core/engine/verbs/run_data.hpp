// The data of a run as tools see it that work on nothing else.
#pragma once

#include <string>
#include <vector>

#include <trainyard/data_tool.hpp>

#include "core/engine/train/run.hpp"
#include "core/engine/verbs/progress.hpp"
#include "core/engine/verbs/signal_scope.hpp"

namespace trainyard::train {

/// The run, whose data is closed, outlives it. Signals are those of a SignalScope of the caller's.
class RunData final : public DataShop {
 public:
  RunData(Run& run, std::string tool) : run_(run), tool_(std::move(tool)) {}

  std::vector<std::string> splits() const override {
    std::vector<std::string> names;
    for (const char* name : {"train", "val", "test"})
      if (run_.config().split(name) != nullptr) names.emplace_back(name);
    return names;
  }
  Dataset& dataset(std::string_view split) override {
    return run_.live().layer.plugin("data." + std::string(split)).as<Dataset>();
  }
  void progress(std::int64_t done, std::int64_t total) override { show_progress(tool_, done, total); }
  bool stopping() const override { return SignalScope::caught() > 0; }

 private:
  Run& run_;
  const std::string tool_;
};

}  // namespace trainyard::train
