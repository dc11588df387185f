// A run file with another plugin, or other options, in one slot: what a swap asks for, checked like any file.
#pragma once

#include <string>

#include "core/config/resolve.hpp"
#include "core/config/run_config.hpp"

namespace trainyard::config {

/// The resolved file with the swap made in it, not yet checked. Of the slot's present table stay: the options
/// that every plugin of the kind has, the host's own keys, and, where the type is the same, the plugin's
/// options; what the swap gives goes on top. A slot that the run does not have becomes a finding at `at`.
Document with_swap(const Table& resolved, const SwapRequest& swap, const plugins::Registry& registry,
                   const Origin& at = {});

/// "optimizer.lr=3e-4", as after --set, as changes of slots: one request a slot. Throws ConfigError for a key
/// that lies in no slot of the run.
std::vector<SwapRequest> swaps_of(const Table& resolved, const std::vector<std::string>& assignments);

/// "min_factor=0.1": an option of a plugin, put into `options`. Throws ConfigError.
void assign(Table& options, const std::string& assignment);

/// `word` is one of the schema's for `carry`.
Carry carry_of(std::string_view word);

/// The swap in a line, for the journal: `schedule = cosine (min_factor = 0.1)`.
std::string text(const SwapRequest& swap);

/// As a table of [[swap]], and back: how the journal keeps swaps.
std::string toml(const SwapRequest& swap);
SwapRequest swap_from_toml(const std::string& text);
/// `number = N` of the same text: which swap of the run it was.
std::int64_t swap_number(const std::string& text);

}  // namespace trainyard::config
