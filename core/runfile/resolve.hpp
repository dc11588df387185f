// From a loaded run file to a RunConfig, its planned swaps and the swaps of its rules tried on it.
//
//   Document document = load({"run.toml"}, {"optimizer.lr=0.1"}, Environment::of_process("../shared/data"));
//   Registry registry = Registry::scan(folders + plugin_paths(document));
//   Resolution run = resolve(std::move(document), registry);
//   if (!run.config) { std::cerr << run.findings.text(); return 2; }
#pragma once

#include "core/runfile/live_config.hpp"

namespace trainyard::config {

Resolution resolve(Document document, const plugins::Registry& registry);

}  // namespace trainyard::config
