#include <trainyard/checkpointer.hpp>

#include "thrower.hpp"

class CheckpointerThrower final : public trainyard::Checkpointer {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {"open"}, {"take", "drain"}); }
  explicit CheckpointerThrower(const Options& options) : options_(options) {}
  void open(trainyard::CheckpointStore&) override { options_.at("open"); }
  void take(trainyard::Snapshot) override { options_.at("take"); }
  void drain() override { options_.at("drain"); }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(CheckpointerThrower)
