// Takes its time for each record, and keeps the sinks after it waiting.
#include <chrono>
#include <thread>

#include <trainyard/sink.hpp>

namespace {

using namespace trainyard;

class SlowSink final : public Sink {
 public:
  struct Options {
    double seconds = 0.05;
  };
  static void describe(Manifest<Options>& m) {
    m.name("slow").version("1.0.0").summary("Sleeps at each record.");
    m.option("seconds", &Options::seconds, "how long").min(0.0);
  }
  explicit SlowSink(const Options& options) : options_(options) {}

  void open(const RunInfo&) override {}
  void record(const Record&) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
  }
  void close() override {}

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(SlowSink)
