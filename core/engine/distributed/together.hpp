// What the ranks make of values that each has: collectives that wait. All call them at the same point.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <trainyard/state.hpp>

#include "core/engine/distributed/world.hpp"

namespace trainyard::distributed {

using Values = std::map<std::string, double, std::less<>>;

/// Every bit that a rank has.
unsigned any(World& world, unsigned bits);
/// The sum over the ranks of each, added up in their order.
std::vector<double> sum(World& world, const std::vector<double>& values);
/// Those of rank 0.
Values from_first(World& world, const Values& own);
/// All become what rank 0 has, in place.
void take_from_first(World& world, const std::vector<at::Tensor>& tensors);
/// The states that each rank has, in the order of the ranks; tensors lie on the CPU.
std::vector<std::vector<State>> gather(World& world, const std::vector<State>& own);

/// States as bytes, and back. Throws DataError where they are not whole.
std::string to_bytes(const std::vector<State>& states);
std::vector<State> from_bytes(std::string_view bytes);

}  // namespace trainyard::distributed
