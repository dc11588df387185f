// A run file with other plugins, or other options, in some slots: what a swap asks for, checked like any
// file.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// The resolved file with the swaps made in it, not yet checked. Of a slot's present table stay: the options
/// that every plugin of the kind has, the host's own keys, and, where the type is the same, the plugin's
/// options; what the swap gives goes on top. A slot that the run does not have becomes a finding at `at`.
Document with_swaps(const Table& resolved, const std::vector<SwapRequest>& swaps,
                    const plugins::Registry& registry, const Origin& at = {});

/// Whether a swap of `address` replaces the plugin of a slot: its own, and those within it.
bool replaces(const std::string& address, const SlotConfig& slot);

/// What a running training keeps, whatever is asked of it: its slots and their names, the size of its
/// batches, its loader's threads. And what came too late to come in: plugins that write at events which a
/// running training has behind it. Findings at `at`.
void check_swaps(const RunConfig& now, const RunConfig& then, const std::vector<SwapRequest>& swaps,
                 const plugins::Registry& registry, const Origin& at, Findings& findings);

/// "optimizer.lr=3e-4", as after --set, as changes of slots: one request a slot. Throws ConfigError for a key
/// that lies in no slot of the run.
std::vector<SwapRequest> swaps_of(const Table& resolved, const std::vector<std::string>& assignments);

/// "min_factor=0.1": an option of a plugin, put into `options`. Throws ConfigError.
void assign(Table& options, const std::string& assignment);

/// `word` is one of the schema's for `carry`.
Carry carry_of(std::string_view word);

/// Swaps in a line, for the journal: `schedule = cosine (min_factor = 0.1)`.
std::string text(const std::vector<SwapRequest>& swaps);

/// As a table of [[swap]] without its time, and back: how the journal and checkpoints keep swaps. Options lie
/// in a table of their own.
Table table_of(const SwapRequest& swap);
SwapRequest swap_of(const Table& table);

}  // namespace trainyard::config
