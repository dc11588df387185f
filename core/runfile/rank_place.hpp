// This process among the ranks of its run, as torchrun says it in the environment; `trainyard train --ranks`
// says the same. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <trainyard/value.hpp>

namespace trainyard::config {

struct RankPlace {
  int rank = 0;
  int size = 1;  ///< of the run
  int local_rank = 0;
  int local_size = 1;  ///< on this machine
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;
  bool serves = false;           ///< rank 0 is to hold the store at that address; else the launcher does
  std::optional<int> listening;  ///< the store's socket, which the launcher has opened already
  std::string start;             ///< tells one start of the ranks from those before it
  int replacement = 0;           ///< above 0: the launcher has started it in the place of one that was killed
  std::optional<int> launcher;   ///< a pipe: whoever writes its rank there is replaced when it is killed

  /// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_*. A run of one
  /// rank where there is no WORLD_SIZE. Throws Error where they contradict each other.
  static RankPlace of_process();
};

/// How many a run file says that it is for; a resolved one always does.
std::int64_t ranks_of(const Table& file, std::int64_t otherwise = 1);

}  // namespace trainyard::config
