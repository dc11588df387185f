// The place of this process among the ranks of its run, as torchrun and `trainyard train --ranks` state it in
// the environment. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/value.hpp>

namespace trainyard::config {

struct RankPlace {
  int rank = 0;
  int size = 1;  ///< number of ranks in the run
  int local_rank = 0;
  int local_size = 1;  ///< number of ranks on this machine
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;
  bool serves = false;  ///< rank 0 holds the rendezvous store at that address; else the launcher does
  std::optional<int> listening;  ///< the store's socket, if the launcher has opened it already
  std::string start;             ///< distinguishes this start of the ranks from earlier ones
  int replacement = 0;           ///< above 0: the launcher started it in place of a rank that was killed
  std::optional<int> launcher;  ///< a pipe: a rank that writes its number there is replaced when it is killed

  /// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_*. Without
  /// WORLD_SIZE the run has one rank. Throws Error where they contradict each other.
  static RankPlace of_process();
};

/// Returns the number of ranks that a run file is for, which a resolved one always states.
std::int64_t ranks_of(const Table& file, std::int64_t otherwise = 1);

/// Returns the shares of the ranks in a batch that a run file gives; none where one of them is no positive number.
std::vector<std::int64_t> shares_of(const Table& file);

}  // namespace trainyard::config
