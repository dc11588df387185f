// Runs several ranks in one process, each on a thread, for code that exchanges tensors.
#pragma once

#include <functional>

#include <trainyard/ranks.hpp>

namespace trainyard::testing {

/// Calls `body` on a thread for each of so many ranks of one machine, and rethrows the first exception of
/// one. Sums are made in the order of the ranks, so that all have the same bits. Where a rank throws, those
/// that wait for it get a DistributedError. A collective that not all ranks call within 20 seconds, or with
/// as many numbers, throws as well.
void on_ranks(int count, const std::function<void(Ranks& ranks)>& body);

}  // namespace trainyard::testing
