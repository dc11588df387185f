#include <trainyard/recorder.hpp>

#include "thrower.hpp"

class RecorderThrower final : public trainyard::Recorder {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"open", "attach"}, {"batch_end"});
    m.hook<&RecorderThrower::batch_end>(trainyard::Event::batch_end);
  }
  explicit RecorderThrower(const Options& options) : options_(options) {}

  void open(const trainyard::RunInfo&) override { options_.at("open"); }
  void attach(std::vector<trainyard::NamedRule>, const trainyard::RunScale&) override {
    options_.at("attach");
  }
  void batch_end(trainyard::StepContext&) { options_.at("batch_end"); }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(RecorderThrower)
