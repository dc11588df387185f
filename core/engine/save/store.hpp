// Writes checkpoints, and keeps those that are to be kept.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/checkpointer.hpp>

namespace trainyard::checkpoint {

/// Which checkpoints stay, beside the one that was committed last. Those of later steps go: they belong to a
/// course that the run left when it went back to an older one.
struct Retention {
  std::int64_t keep_last = 1;
  std::int64_t keep_every = 0;  ///< the first at or after each multiple of it, whatever moved a save; 0: none
  std::optional<KeepBest> keep_best;
};

class Store final : public CheckpointStore {
 public:
  /// Makes the folder if need be and sweeps it. Throws DataError.
  Store(std::string folder, Retention retention);

  /// In this order: files and manifest in "step-N.tmp-*", all on the disk; its rename to "step-N" (where that
  /// exists the two change places at once), on the disk; `latest`; `best`; removal of what is not kept. A process or
  /// a machine that dies in between leaves every "step-*" whole.
  void commit(const Snapshot& snapshot) override;

  /// From the next commit on. Not while one is under way.
  void set_retention(Retention retention) { retention_ = std::move(retention); }

  /// Paths of what was committed since the last call. Any thread.
  std::vector<std::string> take_committed();

 private:
  std::string temporary_name(const std::string& path, const char* why);
  void retain(std::int64_t committed);
  void name_best(const std::string& name);

  std::string folder_;
  Retention retention_;
  std::int64_t temporaries_ = 0;
  std::mutex mutex_;
  std::vector<std::string> committed_;
};

}  // namespace trainyard::checkpoint
