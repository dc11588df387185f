// Applies swaps to a run file: other plugins, or other options, in some slots, checked like any file.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// Events that a running training is past, and that a plugin expects to have seen.
inline constexpr Event set_up[] = {Event::init, Event::model_ready, Event::optimizer_ready, Event::fit_start};

/// Returns the resolved file with the swaps made in it, not yet checked. A slot's present table keeps the
/// options that every plugin of the kind has, the host's own keys and, if the type stays, the plugin's
/// options; options of the swap override them. A slot that the run lacks becomes a finding at `at`.
Document with_swaps(const Table& resolved, const std::vector<SwapRequest>& swaps,
                    const plugins::Registry& registry, const Origin& at = {});

/// Returns whether a swap of `address` replaces the plugin of a slot: the slot itself, or one within it.
bool replaces(const std::string& address, const SlotConfig& slot);

/// Checks swaps against what a running training cannot change: its slots and their names, the size of its
/// batches, its loader's threads; and rejects plugins that write at events which a running training is
/// already past. Findings have the place `at`.
void check_swaps(const RunConfig& now, const RunConfig& then, const std::vector<SwapRequest>& swaps,
                 const plugins::Registry& registry, const Origin& at, Findings& findings);

/// Returns assignments such as "optimizer.lr=3e-4" (as after --set) as swaps, one request per slot. Throws
/// ConfigError for a key that lies in no slot of the run.
std::vector<SwapRequest> swaps_of(const Table& resolved, const std::vector<std::string>& assignments);

/// Puts an assignment of a plugin's option, "min_factor=0.1", into `options`. Throws ConfigError.
void assign(Table& options, const std::string& assignment);

/// Returns the Carry for one of the words of the schema's `carry`; throws ConfigError for others.
Carry carry_of(std::string_view word);

/// Prints swaps in a line, for the journal: `schedule = cosine (min_factor = 0.1)`.
std::string text(const std::vector<SwapRequest>& swaps);

/// Convert a swap to a table like that of [[swap]] without its time, and back: the form in which the journal
/// and checkpoints keep swaps. Options lie in a table of their own.
Table table_of(const SwapRequest& swap);
SwapRequest swap_of(const Table& table);

}  // namespace trainyard::config
