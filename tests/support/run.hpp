// Runs from TOML text in this process, with the shipped plugins and those of the tests.
#pragma once

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/engine/train/run.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/resolve.hpp"
#include "support/files.hpp"

namespace trainyard::test {

/// Every shipped plugin, scanned once.
inline const plugins::Registry& shipped() {
  static const plugins::Registry registry = plugins::Registry::scan({TRAINYARD_PLUGIN_DIR});
  return registry;
}

/// `text` with `sets` on top ("optimizer.lr=0.1"), against a registry.
inline config::Resolution resolve(const std::string& text, const std::vector<std::string>& sets = {},
                                  const plugins::Registry& registry = shipped()) {
  static const TempFolder folder;
  return config::resolve(config::load({folder.write("run.toml", text)}, sets, {folder.path("")}), registry);
}

/// The same where it must be valid.
inline config::RunConfig valid(const std::string& text, const std::vector<std::string>& sets = {},
                               const plugins::Registry& registry = shipped()) {
  config::Resolution resolution = resolve(text, sets, registry);
  if (!resolution.config) FAIL(resolution.findings.text() << "\n" << text);
  return std::move(*resolution.config);
}

/// A run that is built; `config` is its own.
class BuiltRun {
 public:
  explicit BuiltRun(config::RunConfig config, train::LoopParts parts = {})
      : config_(std::move(config)), run_(config_, shipped()) {
    run_.build_model();
    run_.build_loop(std::move(parts));
  }
  train::Run& operator*() { return run_; }
  train::Run* operator->() { return &run_; }

 private:
  config::RunConfig config_;
  train::Run run_;
};

}  // namespace trainyard::test
