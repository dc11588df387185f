// Gathers texts and states of all ranks on each of them; these may differ in length from rank to rank.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <trainyard/ranks.hpp>
#include <trainyard/state.hpp>

namespace trainyard {

/// Returns the `own` of all ranks, in their order. A collective that waits.
std::vector<std::string> gather(RankGroup& ranks, std::string_view own);
/// Returns the states of all ranks, in their order; tensors lie on the CPU. A collective that waits.
std::vector<std::vector<State>> gather(RankGroup& ranks, const std::vector<State>& own);

/// Convert states to bytes, for ranks of the same build, and back. Throws DataError for incomplete bytes.
std::string to_bytes(const std::vector<State>& states);
std::vector<State> from_bytes(std::string_view bytes);

}  // namespace trainyard
