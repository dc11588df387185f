#include <chrono>
#include <trainyard/checkpointer.hpp>
#include <trainyard/host.hpp>

/// Writes while the run waits, and says where that took long.
class MyPlugin final : public trainyard::Checkpointer {
 public:
  struct Options {
    double slow = 10.0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Writes while the run waits, and says where it took long.");
    m.option("slow", &Options::slow, "seconds from which on a save is a warning").min(0.0);
  }
  explicit MyPlugin(const Options& options) : slow_(options.slow) {}

  void open(trainyard::CheckpointStore& store) override { store_ = &store; }
  void take(trainyard::Snapshot snapshot) override {
    const auto begun = std::chrono::steady_clock::now();
    store_->commit(snapshot);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    if (took > slow_) host().log(trainyard::LogLevel::warning, "a checkpoint took more than option slow");
  }
  void drain() override {}

 private:
  std::chrono::duration<double> slow_;
  trainyard::CheckpointStore* store_ = nullptr;
};
TRAINYARD_PLUGIN(MyPlugin)
