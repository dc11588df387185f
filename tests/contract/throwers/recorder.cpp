#include <trainyard/recorder.hpp>

#include "thrower.hpp"

class Thrower final : public trainyard::Recorder {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"open", "attach"}, {"batch_start"});
    m.hook<&Thrower::batch_start>(trainyard::Event::batch_start);
  }
  explicit Thrower(const Options& options) : options_(options) {}
  void open(const trainyard::RunInfo&) override { options_.at("open"); }
  void attach(const std::vector<trainyard::NamedRule>&, const trainyard::RunScale&) override {
    options_.at("attach");
  }
  void batch_start(trainyard::StepContext&) { options_.at("batch_start"); }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(Thrower)
