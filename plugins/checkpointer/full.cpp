// Commits every checkpoint before training goes on: nothing is copied, the run waits for the disk.
#include <trainyard/checkpointer.hpp>

namespace {

using namespace trainyard;

class Full final : public Checkpointer {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("full").version("1.0.0").summary("Writes checkpoints while the run waits.");
  }
  explicit Full(const Options&) {}

  void open(CheckpointStore& store) override { store_ = &store; }
  void take(Snapshot snapshot) override { store_->commit(snapshot); }
  void drain() override {}

 private:
  CheckpointStore* store_ = nullptr;
};

}  // namespace

TRAINYARD_PLUGIN(Full)
