// Restores the configuration that a run had after its swaps, for resumes, evaluations and tools. Torch-free.
#pragma once

#include <functional>
#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::control {

/// The resolved run file of a run: as it was given, and as swaps had changed it when it was written.
struct SwappedFile {
  Table given, live;
  std::string source;  ///< the place in which both were found
};

/// The name of the file with the live configuration, beside the final weights of a run with swaps.
inline constexpr const char* live_name = "swapped.toml";

/// Returns a resolved run file from its text; `source` names it in errors. Throws ConfigError.
Table resolved_table(const std::string& source, const std::string& text);

/// Returns `config`, a later file of the same run, with the changes that swaps have made to the run. `trains`
/// is that of Document::trains. Throws ConfigError.
config::RunConfig as_left(const SwappedFile& file, const config::RunConfig& config,
                          const plugins::Registry& registry, bool trains = true);

/// The same for a verb that does not train and reads the weights at `path`, a file or a checkpoint's folder.
/// Returns `config` unchanged if they do not lie in its run.output_dir, and then calls `warn` if swaps of the
/// run that wrote them set keys that `config` has otherwise.
config::RunConfig as_left(const std::string& path, const config::RunConfig& config,
                          const plugins::Registry& registry,
                          const std::function<void(const std::string&)>& warn);

}  // namespace trainyard::control
