// Never fires: tells now and then how machine and phases were used, in percentiles.
#include <trainyard/host.hpp>

#include "memory.hpp"
#include "quantiles.hpp"
#include "samples.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class OverallReport final : public Rule {
 public:
  struct Options {
    double interval = 60.0;
    std::int64_t window = 10000;
  };
  static void describe(Manifest<Options>& m) {
    m.name("overall_report")
        .version("1.0.0")
        .summary("Tells how the machine and the phases of a run are used.");
    m.option("interval", &Options::interval, "seconds between two reports").above(0.0);
    m.option("window", &Options::window, "newest samples that percentiles are of").min(1);
  }
  explicit OverallReport(const Options& options) : options_(options), next_(options.interval) {}

  std::vector<Watch> watches() const override { return {{"^(system|profile)/", true}}; }
  std::vector<Mode> modes() const override { return {Mode::global}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    for (const TensorRecord& tensor : now.tensors)
      for (const double number : samples(now, tensor.name))
        append(windows_[tensor.name], number, options_.window);
    if (now.seconds < next_) return std::nullopt;
    next_ = now.seconds + options_.interval;
    host().log(LogLevel::info, text());
    return std::nullopt;
  }

  void remember(StateWriter& state) const override {
    state.scalar("next", next_);
    rules::remember(state, "windows", windows_);
  }
  void recall(const StateReader& state) override {
    next_ = state.number("next");
    windows_ = recall_series(state, "windows");
  }

 private:
  std::string text() const {
    std::string text = "percentiles 5, 50, 95:";
    for (const auto& [name, window] : windows_) {
      const std::vector<double> numbers = sorted(window);
      text += (text.back() == ':' ? " " : "; ") + name;
      for (const double share : {0.05, 0.5, 0.95}) text += " " + five_digits(quantile(numbers, share));
    }
    return text;
  }

  Options options_;
  double next_;  ///< seconds of the run
  ByTensor<std::deque<double>> windows_;
};

}  // namespace

TRAINYARD_PLUGIN(OverallReport)
