// Writes checkpoints, and keeps those that are to be kept.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/checkpointer.hpp>

namespace trainyard::checkpoint {

/// Which checkpoints stay, beside the newest.
struct Retention {
  std::int64_t keep_last = 1;
  std::int64_t keep_every = 0;  ///< those of steps that are a multiple of it; 0: none
  std::optional<KeepBest> keep_best;
};

class Store final : public CheckpointStore {
 public:
  /// Makes the folder if need be and sweeps it. Throws DataError.
  Store(std::string folder, Retention retention);

  void commit(const Snapshot& snapshot) override;

  /// Paths of what was committed since the last call. Any thread.
  std::vector<std::string> take_committed();

 private:
  std::string folder_;
  Retention retention_;
  std::mutex mutex_;
  std::vector<std::string> committed_;
};

}  // namespace trainyard::checkpoint
