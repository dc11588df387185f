#include <trainyard/sink.hpp>

#include "thrower.hpp"

class SinkThrower final : public trainyard::Sink {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {}, {"open", "record", "close"});
  }
  explicit SinkThrower(const Options& options) : options_(options) {}
  void open(const trainyard::RunInfo&) override { options_.at("open"); }
  void record(const trainyard::Record&) override { options_.at("record"); }
  void close() override { options_.at("close"); }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(SinkThrower)
