// From a loaded run file to a RunConfig: every rule of the run file is checked here, before any tensor is
// made and without running code of a plugin.
//
//   Document document = load({"run.toml"}, {"optimizer.lr=0.1"}, Environment::of_process("../shared/data"));
//   Registry registry = Registry::scan(folders + plugin_paths(document));
//   Resolution run = resolve(std::move(document), registry);
//   if (!run.config) { std::cerr << run.findings.text(); return 2; }
#pragma once

#include <optional>

#include "core/config/findings.hpp"
#include "core/config/load.hpp"
#include "core/config/run_config.hpp"
#include "core/plugins/registry.hpp"

namespace trainyard::config {

struct Resolution {
  std::optional<RunConfig> config;  ///< exactly when there is no error among the findings
  Findings findings;
};

Resolution resolve(Document document, const plugins::Registry& registry);

}  // namespace trainyard::config
