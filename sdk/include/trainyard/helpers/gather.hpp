// What each rank has of its own, for all of them: texts and states, which may differ in length from rank to rank.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <trainyard/ranks.hpp>
#include <trainyard/state.hpp>

namespace trainyard {

/// What each rank gives, in their order. A collective that waits.
std::vector<std::string> gather(RankGroup& ranks, std::string_view own);
/// The states that each rank has, in the order of the ranks; tensors lie on the CPU. A collective that waits.
std::vector<std::vector<State>> gather(RankGroup& ranks, const std::vector<State>& own);

/// States as bytes, for ranks of the same build, and back. Throws DataError where they are not whole.
std::string to_bytes(const std::vector<State>& states);
std::vector<State> from_bytes(std::string_view bytes);

}  // namespace trainyard
