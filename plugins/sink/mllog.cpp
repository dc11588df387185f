// mllog.txt: the lines of MLPerf's logging, by the rules of its compliance checker (mlperf_logging, training, open
// division): one JSON object a line behind ":::MLLOG". They carry the time at which the loop was there, so hooks of the
// loop write them, not the records, which come later.
//   :::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "INTERVAL_START", "key": "epoch_start", ...}
#include <chrono>
#include <mutex>
#include <optional>

#include <nlohmann/json.hpp>

#include <trainyard/context.hpp>
#include <trainyard/formats/append_file.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/sink.hpp>

namespace {

using namespace trainyard;
using Json = nlohmann::ordered_json;

class Mllog final : public Sink {
 public:
  struct Options {
    std::string file = "mllog.txt";
    std::string benchmark;
    std::string organization = "unknown";
    std::string platform = "unknown";
    std::string division = "open";
    std::string accuracy;
    std::vector<std::string> keys;
  };
  static void describe(Manifest<Options>& m) {
    m.name("mllog").version("1.0.0").summary(
        "MLPerf's log lines, as its compliance checker reads them: intervals of run, epochs and evaluations, "
        "accuracy.");
    m.option("file", &Options::file, "name of the file in the run's folder").output();
    m.option("benchmark", &Options::benchmark, "submission_benchmark; the run's name without one");
    m.option("organization", &Options::organization, "submission_org");
    m.option("platform", &Options::platform, "submission_platform");
    m.option("division", &Options::division, "submission_division").one_of({"open", "closed"});
    m.option("accuracy", &Options::accuracy, "what is eval_accuracy: \"val/accuracy\"").metric().required();
    m.option("keys", &Options::keys, "further lines ahead of the training, KEY=VALUE: \"opt_name=adamw\"");
    m.hook<&Mllog::fit_start>(Event::fit_start).sink();
    m.hook<&Mllog::epoch_start>(Event::epoch_start).sink();
    m.hook<&Mllog::epoch_end>(Event::epoch_end).sink();
    m.hook<&Mllog::eval_start>(Event::eval_start).sink();
    m.hook<&Mllog::eval_batch>(Event::eval_batch_end).sink();
    m.hook<&Mllog::eval_end>(Event::eval_end).sink();
    m.hook<&Mllog::fit_end>(Event::fit_end).sink();
    m.hook<&Mllog::failed>(Event::exception).sink();
  }
  explicit Mllog(const Options& options) : options_(options) { interval("init", true); }

  void open(const RunInfo& run) override {
    const std::scoped_lock lock(mutex_);
    file_.emplace(run.directory + "/" + options_.file,
                  run.resumed_at == 0 ? AppendFile::Mode::create : AppendFile::Mode::extend);
    name_ = run.name;
    file_->append(std::exchange(ahead_, {}));
  }
  void record(const Record&) override {}
  void close() override {
    const std::scoped_lock lock(mutex_);
    file_->sync();
    file_.reset();
  }

  void fit_start(StepContext& context) {
    point("submission_benchmark", options_.benchmark.empty() ? name() : options_.benchmark);
    point("submission_org", options_.organization);
    point("submission_platform", options_.platform);
    point("submission_division", options_.division);
    point("cache_clear", true);
    point("global_batch_size", context.scale().samples_per_step);
    point("train_samples", context.scale().samples_per_epoch);
    point("opt_base_learning_rate", context.optimizer().common.lr);
    for (const std::string& pair : options_.keys) {
      const std::size_t equals = pair.find('=');
      if (equals == std::string::npos || equals == 0)
        throw ConfigError("mllog: keys: \"" + pair + "\" is not KEY=VALUE: \"opt_name=adamw\"");
      const Json value = Json::parse(pair.substr(equals + 1), nullptr, false);
      point(pair.substr(0, equals), value.is_discarded() ? Json(pair.substr(equals + 1)) : value);
    }
    interval("init", false);
    interval("run", true);
  }
  void epoch_start(StepContext& context) { interval("epoch", true, at(context)); }
  void epoch_end(StepContext& context) { interval("epoch", false, at(context)); }
  void eval_start(StepContext& context) {
    if (context.split() != "val") return;
    samples_ = 0;
    interval("eval", true, at(context));
  }
  void eval_batch(StepContext& context) {
    if (context.split() == "val") samples_ += context.batch().size();
  }
  void eval_end(StepContext& context) {
    if (context.split() != "val") return;
    if (!std::exchange(evaluated_, true)) point("eval_samples", samples_);
    point("eval_accuracy", context.metric(options_.accuracy), at(context));
    interval("eval", false, at(context));
  }
  void fit_end(StepContext& context) {
    Json more = at(context);
    more["status"] = "success";
    interval("run", false, more);
  }
  void failed(StepContext& context) {
    Json more = at(context);
    more["status"] = "aborted";
    interval("run", false, more);
  }

 private:
  static Json at(const StepContext& context) {
    const Clock& clock = context.clock();
    return {{"epoch_num", clock.epoch + 1}, {"samples_count", clock.samples}, {"step_num", clock.step}};
  }

  void point(const std::string& key, const Json& value, const Json& more = Json::object()) {
    line("POINT_IN_TIME", key, value, more);
  }
  void interval(const std::string& what, bool begins, const Json& more = Json::object()) {
    line(begins ? "INTERVAL_START" : "INTERVAL_END", what + (begins ? "_start" : "_stop"), nullptr, more);
  }
  void line(const char* type, const std::string& key, const Json& value, const Json& more) {
    using namespace std::chrono;
    const auto now = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
    const Json json = {{"namespace", ""}, {"time_ms", now}, {"event_type", type},
                       {"key", key},      {"value", value}, {"metadata", more}};
    const std::string text = ":::MLLOG " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    const std::scoped_lock lock(mutex_);
    file_ ? file_->append(text) : void(ahead_ += text);
  }
  std::string name() {
    const std::scoped_lock lock(mutex_);
    return name_;
  }

  Options options_;
  std::mutex mutex_;  ///< hooks come from the loop's thread, open and close from that of sinks
  std::optional<AppendFile> file_;
  std::string ahead_, name_;  ///< lines from before it was opened
  std::int64_t samples_ = 0;
  bool evaluated_ = false;
};

}  // namespace

TRAINYARD_PLUGIN(Mllog)
