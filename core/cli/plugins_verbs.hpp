// trainyard plugins list | inspect | events: what can be used in a run, from sealed manifests alone.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <trainyard/error.hpp>

#include "core/plugins/registry.hpp"

namespace trainyard::cli {

enum class Format : std::uint8_t { text, json };

/// A table of all plugins by kind, or of one kind, and every refused file with its reason. `plugin` where files were
/// refused.
ExitCode plugins_list(const plugins::Registry& registry, const std::string& kind, Format format,
                      std::ostream& out);
std::vector<std::string> kinds_of_plugins();

/// What a hook may write at each event and ask of the loop there (event.hpp).
void plugins_events(Format format, std::ostream& out);

/// Everything that a manifest says. `what`: a name, "kind/name", or a file (anything with ".so" at its end).
/// `plugin` where there is none, or the file was refused; the reason then stands in `errors`.
ExitCode plugins_inspect(const plugins::Registry& registry, const std::string& what, Format format,
                         std::ostream& out, std::ostream& errors);

}  // namespace trainyard::cli
