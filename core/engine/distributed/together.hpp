// Blocking collectives that combine values of all ranks. All ranks call them at the same point.
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

/// Returns each bit that any rank has set.
unsigned any(World& world, unsigned bits);
/// Returns the sum over the ranks of each value.
std::vector<double> sum(World& world, const std::vector<double>& values);
/// Returns the values of rank 0.
Values from_first(World& world, const Values& own);
/// Overwrites the tensors in place with those of rank 0.
void take_from_first(World& world, const std::vector<at::Tensor>& tensors);

}  // namespace trainyard::distributed
