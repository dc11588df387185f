// mllog.txt: the lines of MLPerf's logging, by the rules of its compliance checker (mlperf_logging, training, open
// division): one JSON object a line behind ":::MLLOG". They carry the time at which the loop was there, so hooks of the
// loop write them, not the records, which come later. A resumed run goes on in the file as if it had never stopped: what
// lies behind its checkpoint goes, and what stands there already, the lines ahead of the training among them, is not
// written again. The pause lies in its times.
//   :::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "INTERVAL_START", "key": "epoch_start", ...}
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include <sink/resumed_file.hpp>
#include <trainyard/context.hpp>
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
    m.hook<&Mllog::signal>(Event::signal).sink();
    m.hook<&Mllog::failed>(Event::exception).sink();
  }
  explicit Mllog(const Options& options) : options_(options) { interval("init", true); }

  void open(const RunInfo& run) override {
    const std::scoped_lock lock(mutex_);
    resumed_at_ = run.resumed_at;
    file_.emplace(run, options_.file, [this](const std::string& text) { return said(text); });
    name_ = run.name;
    for (const Line& line : std::exchange(ahead_, {})) write(line);
  }
  void record(const Record&) override {}
  void close() override {
    const std::scoped_lock lock(mutex_);
    file_->file().sync();
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
  void epoch_end(StepContext& context) {
    cut_short_ = context.clock().step_in_epoch < context.scale().steps_per_epoch;
    if (!cut_short_) interval("epoch", false, at(context));
  }
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
    const double accuracy = context.metric(options_.accuracy);  // none of an evaluation that was cut short
    if (!std::isnan(accuracy)) point("eval_accuracy", accuracy, at(context));
    interval("eval", false, at(context));
  }
  void fit_end(StepContext& context) {
    Json more = at(context);
    if (cut_short_) {  // a resumed run takes it back
      Json partial = more;
      partial["partial"] = true;
      interval("epoch", false, partial);
    }
    more["status"] = interrupted_ ? "aborted" : "success";
    interval("run", false, more);
  }
  void signal(StepContext&) { interrupted_ = true; }
  void failed(StepContext& context) {
    Json more = at(context);
    more["status"] = "aborted";
    interval("run", false, more);
  }

 private:
  struct Line {
    std::string key;
    std::int64_t step;  ///< none: of the run as a whole
    std::string text;
  };
  static constexpr std::int64_t none = -1, never = std::numeric_limits<std::int64_t>::max();
  static constexpr std::string_view mark = ":::MLLOG ";

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
    const std::string text =
        std::string(mark) + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    const std::scoped_lock lock(mutex_);
    const Line line{key, more.value("step_num", none), text};
    file_ ? write(line) : ahead_.push_back(line);
  }
  /// But what a resumed run found in the file.
  void write(const Line& line) {
    const bool once = line.step == none || line.step == resumed_at_;
    if (!once || !found_.contains(line.key)) file_->file().append(line.text);
  }
  /// Of a line of the file that is resumed; the end of the run that was is none any more.
  std::optional<sinks::Said> said(const std::string& text) {
    const Json json = Json::parse(text.substr(std::min(mark.size(), text.size())), nullptr, false);
    if (!json.is_object()) return std::nullopt;
    const std::string key = json.value("key", "");
    const Json more = json.value("metadata", Json::object());
    const bool of_the_end = key == "run_stop" || more.contains("partial");
    const std::int64_t step = of_the_end ? never : more.value("step_num", none);
    if (step == none || step == resumed_at_) found_.insert(key);
    return sinks::Said{.step = step, .names = {key}};
  }
  std::string name() {
    const std::scoped_lock lock(mutex_);
    return name_;
  }

  Options options_;
  std::mutex mutex_;  ///< hooks come from the loop's thread, open and close from that of sinks
  std::optional<sinks::ResumedFile> file_;
  std::vector<Line> ahead_;  ///< from before it was opened
  std::set<std::string>
      found_;  ///< keys that stood in it when the run was resumed: of the run, or of that step
  std::string name_;
  std::int64_t resumed_at_ = 0;
  std::int64_t samples_ = 0;
  bool evaluated_ = false, interrupted_ = false, cut_short_ = false;
};

}  // namespace

TRAINYARD_PLUGIN(Mllog)
