// Has a thread of its own, so that no copy of the process that it lives in is whole.
#include <thread>

#include <trainyard/study.hpp>

namespace {

using namespace trainyard;

class ThreadedStudy final : public Study {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("threaded").version("1.0.0").summary("One trial, beside a thread.");
  }
  explicit ThreadedStudy(const Options&)
      : thread_([](const std::stop_token& stop) {
          while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }) {}

  std::vector<StudyStage> stages() const override { return {{"", 1, {}, {}}}; }
  std::optional<StudyTrial> next(int) override {
    if (std::exchange(given_, true)) return std::nullopt;
    return StudyTrial{.name = "one",
                      .run = common.run,
                      .set = common.set,
                      .until = {},
                      .labels = {},
                      .panel = {},
                      .series = {}};
  }
  void report(const TrialOutcome&) override {}
  StudyResult result() const override { return {}; }

 private:
  bool given_ = false;
  std::jthread thread_;
};

}  // namespace

TRAINYARD_PLUGIN(ThreadedStudy)
