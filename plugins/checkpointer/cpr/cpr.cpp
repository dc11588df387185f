// Goes on without a rank that is killed: partial recovery, as in Maeng et al., "Understanding and Improving
// Failure Tolerant Training for Deep Learning Recommendation with Partial Recovery" (CPR), MLSys 2021.
#include <trainyard/checkpointer.hpp>
#include <trainyard/host.hpp>

namespace {

using namespace trainyard;

/// What every rank has alike comes from a survivor, and nothing of it is lost. Checkpoints are for what takes all
/// ranks at once.
class Cpr final : public Checkpointer, ReplacesRanks {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("cpr").version("1.0.0").summary(
        "Goes on where a rank is killed: a new process takes its place, the others keep what they have.");
  }
  explicit Cpr(const Options&) {}

  void open(CheckpointStore& store) override { store_ = &store; }
  void take(Snapshot snapshot) override { store_->commit(snapshot); }
  void drain() override {}

  ReplacesRanks* replaces_ranks() override { return this; }
  void replaced(const Replacement& what, Network&, Optimizer&) override {
    host().metric("cpr/replaced",
                  static_cast<double>(replaced_ += static_cast<std::int64_t>(what.ranks.size())));
  }

 private:
  CheckpointStore* store_ = nullptr;
  std::int64_t replaced_ = 0;  ///< ranks, as far as this process knows
};

}  // namespace

TRAINYARD_PLUGIN(Cpr)
