// What the ranks make of values that each has: collectives that wait. All call them at the same point.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <trainyard/helpers/gather.hpp>
#include <trainyard/state.hpp>

#include "core/engine/distributed/world.hpp"

namespace trainyard::distributed {

using trainyard::from_bytes, trainyard::gather, trainyard::to_bytes;

using Values = std::map<std::string, double, std::less<>>;

/// Every bit that a rank has.
unsigned any(World& world, unsigned bits);
/// The sum over the ranks of each.
std::vector<double> sum(World& world, const std::vector<double>& values);
/// Those of rank 0.
Values from_first(World& world, const Values& own);
/// All become what rank 0 has, in place.
void take_from_first(World& world, const std::vector<at::Tensor>& tensors);

}  // namespace trainyard::distributed
