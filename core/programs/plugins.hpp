// trainyard plugins list | inspect | events: shows what a run can use, from sealed manifests alone.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <trainyard/error.hpp>

#include "core/cli/columns.hpp"
#include "core/plugins/registry.hpp"

namespace trainyard::cli {

/// Prints a table of all plugins by kind, or of one kind, and every refused file with its reason. Returns
/// `plugin` where files were refused.
ExitCode plugins_list(const plugins::Registry& registry, const std::string& kind, Format format,
                      std::ostream& out);

/// Prints everything in a manifest. `what` is a name, "kind/name", or a file (anything that ends with ".so").
/// Returns `plugin`, with the reason in `errors`, where there is none, or the file was refused.
ExitCode plugins_inspect(const plugins::Registry& registry, const std::string& what, Format format,
                         std::ostream& out, std::ostream& errors);

}  // namespace trainyard::cli
