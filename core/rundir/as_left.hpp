// A run as its swaps have left it: what a resume, an evaluation and the tools go by. Torch-free.
#pragma once

#include <functional>
#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::control {

/// The run file of a run, resolved: as it was given, and as swaps had left it by then.
struct SwappedFile {
  Table given, live;
  std::string source;  ///< where both were found
};

/// The file that keeps the live one beside the weights with which a run with swaps ended.
inline constexpr const char* live_name = "swapped.toml";

/// A resolved run file, from its text; `source` stands for it in errors. Throws ConfigError.
Table resolved_table(const std::string& source, const std::string& text);

/// `config`, a later file of the same run, on top of what swaps have made of the run. `trains`: as Document::trains.
/// Throws ConfigError.
config::RunConfig as_left(const SwappedFile& file, const config::RunConfig& config,
                          const plugins::Registry& registry, bool trains = true);

/// The same for a verb that does not train, and the run that wrote the weights at `path`, a file or a checkpoint's
/// folder. Returns `config` as it is where they do not lie in its run.output_dir, and calls `warn` if swaps of their run
/// set keys that `config` has otherwise.
config::RunConfig as_left(const std::string& path, const config::RunConfig& config,
                          const plugins::Registry& registry,
                          const std::function<void(const std::string&)>& warn);

}  // namespace trainyard::control
