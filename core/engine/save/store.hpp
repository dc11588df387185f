// Writes checkpoints and removes those that need not be kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/checkpointer.hpp>
#include <trainyard/codec.hpp>
#include <trainyard/ranks.hpp>

#include "core/rundir/manifest.hpp"

namespace trainyard::checkpoint {

/// Which checkpoints stay, beside the last one committed. Those of later steps are removed: they belong to a
/// course that the run left when it went back to an older one.
struct Retention {
  std::int64_t keep_last = 1;
  std::int64_t keep_every = 0;  ///< keeps the first at or after each multiple of it; 0: none
  std::optional<KeepBest> keep_best;
};

/// A tensor on its way into a file. For a sharded table: this rank's rows, and `rows` of the whole.
struct Item {
  std::string owner, name;
  at::Tensor tensor;
  std::optional<std::int64_t> rows;
  std::optional<TensorEntry> coded = {};  ///< where `tensor` is the code of one: what that one is
};

/// Files of a checkpoint that lie in a folder.
struct Written {
  std::string folder;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;
};

/// A codec by which tensors are stored; null: as they are.
struct StoredBy {
  std::string name;
  std::shared_ptr<const Codec> codec;
};

/// Returns the name of the file in which a checkpoint keeps the tensors of an owner.
std::string file_of(std::string_view owner);

/// If `ranks` is not null, all of its ranks write the file together.
void write_file(const std::string& name, std::vector<Item> items, RankGroup* ranks, Written& to);

class Store final : public CheckpointStore {
 public:
  /// Makes the folder if necessary, and removes what interrupted saves left. Throws DataError.
  Store(std::string folder, Retention retention);

  /// Works in this order: files and manifest in "step-N.tmp-*", synced; its rename to "step-N" (or exchange
  /// with an existing one, at once), synced; `latest`; `best`; removal of old ones. A process or a machine
  /// that dies in between leaves every "step-*" whole.
  void commit(const Snapshot& snapshot) override;

  /// Makes an empty folder for files written before the commit of a step; take() hands over what was written,
  /// for that commit. A commit of another step may run meanwhile.
  std::string folder_ahead(std::int64_t step);
  void take(std::int64_t step, Written written);

  /// Applies from the next commit on. Not to be called during one.
  void set_retention(Retention retention) { retention_ = std::move(retention); }

  /// Tensors of the commits from here on are stored by this codec where that is shorter. Not to be called during
  /// a commit.
  void set_codec(StoredBy codec) { codec_ = std::move(codec); }

  /// Returns the paths committed since the last call. Any thread.
  std::vector<std::string> take_committed();

 private:
  std::string temporary_name(const std::string& path, const char* why);
  void retain(std::int64_t committed);
  void name_best(const std::string& name);

  std::string folder_;
  Retention retention_;
  StoredBy codec_;
  std::atomic<std::int64_t> temporaries_ = 0;
  std::mutex mutex_;
  std::vector<std::string> committed_;
  std::map<std::int64_t, Written> written_;  ///< by step, for commits to come
};

}  // namespace trainyard::checkpoint
