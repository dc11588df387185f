// sink/1: takes metrics out of the process (`[[logging.sinks]]`).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("sink.hpp");

namespace trainyard {

struct SinkCommon {
  Duration interval{0, Duration::Unit::steps};

  static void describe(Fields<SinkCommon>& m) {
    m.option("interval", &SinkCommon::interval,
             "how often training metrics are written, in steps; 0ba: at the run's logging.interval");
  }
};

struct RunInfo {
  std::string name;
  std::string directory;
  std::string started;  ///< ISO 8601, UTC
  std::int64_t total_steps = 0;
  std::int64_t steps_per_epoch = 0;
  int loader_workers = 0;  ///< threads that load data; 0: the loop's own
  bool terminal = false;   ///< standard output is a terminal and colours are wanted
  bool quiet = false;
  std::int64_t resumed_at = 0;  ///< step of the checkpoint that the run continues, else 0
};

/// Holds the numbers of one moment of a run.
struct Record {
  enum class What : std::uint8_t { train, eval, message, summary };
  What what = What::train;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double seconds = 0.0;                                ///< since the run began
  std::vector<std::pair<std::string, double>> values;  ///< "train/loss", "val/accuracy", "samples_per_second"
  std::string text;                                    ///< text of a message
};

/// All calls come from one thread that is not the loop's; `record` may be slow, the host's queue is bounded
/// and tells when it drops. A sink that throws is switched off with a message; the run goes on.
class Sink : public Plugin {
 public:
  static constexpr Kind kind{"sink", 1};
  using Common = SinkCommon;

  virtual void open(const RunInfo& run) = 0;
  virtual void record(const Record& record) = 0;
  virtual void close() = 0;

  Common common;
};

}  // namespace trainyard
