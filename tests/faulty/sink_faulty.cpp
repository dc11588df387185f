// Goes wrong on the sinks' thread.
#include <trainyard/sink.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class FaultySink final : public Sink {
 public:
  struct Options {
    std::string way = "nothing";
  };
  static void describe(Manifest<Options>& m) {
    m.name("faulty").version("1.0.0").summary("Goes wrong at its first record.");
    m.option("way", &Options::way, "how it goes wrong").one_of(faulty::ways);
  }
  explicit FaultySink(const Options& options) : options_(options) {}
  void open(const RunInfo&) override {}
  void record(const Record&) override { faulty::go_wrong(options_.way); }
  void close() override {}

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(FaultySink)
