// Compares measured steps with the step that a plan predicted (tool srifty), and says when the prediction no longer
// holds. It changes nothing: times are of this process alone, and no part of the run's state.
#include <chrono>
#include <optional>
#include <string>

#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>

#include "lib/printed.hpp"
#include "watch.hpp"

namespace {

using namespace trainyard;

class Drift final : public Hook {
 public:
  struct Options {
    double predicted_ms = 0.0;
    double tolerance = 0.2;
    std::int64_t steps = 50, window = 11;
  };
  static void describe(Manifest<Options>& m) {
    m.name("drift").version("1.0.0").summary("Says when steps no longer take as long as was predicted.");
    m.option("predicted_ms", &Options::predicted_ms, "milliseconds of a step that were predicted")
        .above(0)
        .required();
    m.option("tolerance", &Options::tolerance, "share of the prediction that steps may be off by").above(0);
    m.option("steps", &Options::steps, "steps in a row that the running median has to be off")
        .range(1, 1'000'000);
    m.option("window", &Options::window, "last steps that the running median is of").range(1, 10'000);
    m.hook<&Drift::begin>(Event::before_fetch);
    m.hook<&Drift::end>(Event::batch_end);
  }
  explicit Drift(const Options& options)
      : options_(options),
        watch_(options.predicted_ms / 1e3, options.tolerance, options.steps, options.window) {}

  void begin(StepContext&) { began_ = Clock::now(); }

  void end(StepContext&) {
    if (!began_) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - *began_).count();
    began_.reset();
    if (first_) {  // it has what is made once: memory, kernels, connections
      first_ = false;
      return;
    }
    const drift::Watch::Finding finding = watch_.add(seconds);
    if (finding == drift::Watch::Finding::off)
      tell(LogLevel::warning, "prediction_failed", "the plan no longer holds: make a new one");
    if (finding == drift::Watch::Finding::back)
      tell(LogLevel::info, "prediction_holds", "the plan holds again");
  }

 private:
  using Clock = std::chrono::steady_clock;

  void tell(LogLevel level, const char* what, const char* advice) {
    const std::string text = lib::printed(
        "steps take %.3f ms (median of the last %lld), %+.0f %% of the %.3f ms that were predicted; %s",
        1e3 * watch_.median(), static_cast<long long>(options_.window), 100.0 * watch_.error(),
        options_.predicted_ms, advice);
    host().log(level, text);
    host().journal(what, text);
  }

  Options options_;
  drift::Watch watch_;
  std::optional<Clock::time_point> began_;
  bool first_ = true;
};

}  // namespace

TRAINYARD_PLUGIN(Drift)
