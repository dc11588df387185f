// A checkpoint store for the test of a checkpointer.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include <trainyard/checkpointer.hpp>

namespace trainyard::testing {

/// Returns a weight of 4 x 4 and the count of steps, as a run at that step has them.
Snapshot tiny_snapshot(std::int64_t step);

/// Keeps copies of committed snapshots, in memory.
class FakeStore final : public CheckpointStore {
 public:
  bool full = false;  ///< a commit throws DataError, as on a full disk

  void commit(const Snapshot& snapshot) override;
  std::vector<Snapshot> committed() const;
  std::vector<std::int64_t> steps() const;  ///< steps of those snapshots

 private:
  mutable std::mutex mutex_;
  std::vector<Snapshot> committed_;
};

}  // namespace trainyard::testing
