// Writes checkpoints, and keeps those that are to be kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/checkpointer.hpp>
#include <trainyard/ranks.hpp>

#include "core/rundir/manifest.hpp"

namespace trainyard::checkpoint {

/// Which checkpoints stay, beside the one that was committed last. Those of later steps go: they belong to a
/// course that the run left when it went back to an older one.
struct Retention {
  std::int64_t keep_last = 1;
  std::int64_t keep_every = 0;  ///< the first at or after each multiple of it, whatever moved a save; 0: none
  std::optional<KeepBest> keep_best;
};

/// A tensor on its way into a file; of a table in parts on the ranks, own rows of so many.
struct Item {
  std::string owner, name;
  at::Tensor tensor;
  std::optional<std::int64_t> rows;
};

/// Files of a checkpoint as they lie in a folder.
struct Written {
  std::string folder;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;
};

/// The file in which a checkpoint has the tensors of an owner.
std::string file_of(std::string_view owner);

/// `ranks`: all of them write the file together.
void write_file(const std::string& name, std::vector<Item> items, RankGroup* ranks, Written& to);

class Store final : public CheckpointStore {
 public:
  /// Makes the folder if need be and sweeps it. Throws DataError.
  Store(std::string folder, Retention retention);

  /// In this order: files and manifest in "step-N.tmp-*", all on the disk; its rename to "step-N" (where that
  /// exists the two change places at once), on the disk; `latest`; `best`; removal of what is not kept. A process or
  /// a machine that dies in between leaves every "step-*" whole.
  void commit(const Snapshot& snapshot) override;

  /// An empty folder for what is written ahead of the commit of a step; and what has come of it, which that commit
  /// takes. A commit may run meanwhile, of another step.
  std::string folder_ahead(std::int64_t step);
  void take(std::int64_t step, Written written);

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
  std::atomic<std::int64_t> temporaries_ = 0;
  std::mutex mutex_;
  std::vector<std::string> committed_;
  std::map<std::int64_t, Written> written_;  ///< by step, of commits to come
};

}  // namespace trainyard::checkpoint
