// Tells where the ranks of a run have their files.
#pragma once

#include <string>

#include <trainyard/contract.hpp>
#include <trainyard/host.hpp>
#include <trainyard/ranks.hpp>

TRAINYARD_CONTRACT("helpers/rank_folder.hpp");

namespace trainyard {

/// Returns the folder of any rank of a run of several. Rank 0 has that of the run, and the others lie in it.
/// Ranks on another machine see it only if it is on a disk that the machines share.
inline std::string rank_folder(const RunFacts& run, int rank) {
  const std::string home = run.directory + (run.ranks->rank() == 0 ? "" : "/../..");
  return rank == 0 ? home : home + "/ranks/" + std::to_string(rank);
}

}  // namespace trainyard
