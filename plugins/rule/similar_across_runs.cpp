// Tensors that differ from those of another run at the same step; the name is SageMaker's, and says the
// reverse. Held against each other are their statistics, so that neither run need keep values.
#include <filesystem>

#include <trainyard/formats/trial_files.hpp>

#include "findings.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class SimilarAcrossRuns final : public Rule {
 public:
  struct Options {
    std::string other;
    std::string tensors = "losses";
    double rtol = 1e-5;
    double atol = 1e-8;
  };
  static void describe(Manifest<Options>& m) {
    m.name("similar_across_runs").version("1.0.0").summary("A tensor differs from that of another run.");
    m.needs("grads where tensors = gradients").needs("prefers losses where tensors = losses");
    m.option("other", &Options::other, "folder of the other run, or of its trial").file().required();
    m.option("tensors", &Options::tensors, "collection or expression; what the other run lacks is let pass");
    m.option("rtol", &Options::rtol, "numbers may differ by atol + rtol times those of the other run")
        .min(0.0);
    m.option("atol", &Options::atol, "see rtol").min(0.0);
  }
  explicit SimilarAcrossRuns(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors}}; }
  std::vector<Mode> modes() const override { return {Mode::train, Mode::eval}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    const std::shared_ptr<const StepRecord> there = other(now);
    if (!there) return std::nullopt;
    Offenders offenders;
    for (const TensorRecord* tensor : trial.tensors(now, options_.tensors))
      if (const TensorRecord* twin = there->find(tensor->name)) compare(*tensor, *twin, offenders);
    return offenders.finding({{"rtol", options_.rtol}, {"atol", options_.atol}});
  }

 private:
  /// The other run's record of the step, where it has one.
  std::shared_ptr<const StepRecord> other(const StepRecord& now) {
    const std::string trial = options_.other + "/trial";
    if (!reader_) reader_.emplace(std::filesystem::is_directory(trial) ? trial : options_.other);
    reader_->refresh();
    if (reader_->has_passed_step(now.mode_step, now.mode) != StepState::available) return nullptr;
    return reader_->record(now.mode, now.mode_step);
  }

  void compare(const TensorRecord& here, const TensorRecord& there, Offenders& offenders) const {
    if (here.shape != there.shape)
      return offenders.add(here.name, std::numeric_limits<double>::infinity(), 0.0,
                           "its shape differs from that of " + options_.other);
    const Statistics a = here.numbers(), b = there.numbers();
    for (const char* name : {"mean", "abs_mean", "l2", "min", "max"}) {
      const double x = reduction(a, name), y = reduction(b, name);
      const double apart = std::abs(x - y);
      const bool same =
          x == y || (std::isnan(x) && std::isnan(y)) || apart <= options_.atol + options_.rtol * std::abs(y);
      if (same) continue;
      return offenders.add(here.name, apart / std::abs(y), apart,
                           std::string("its ") + name + " is " + five_digits(x) + ", and " + five_digits(y) +
                               " in " + options_.other);
    }
  }

  Options options_;
  std::optional<TrialReader> reader_;
};

}  // namespace

TRAINYARD_PLUGIN(SimilarAcrossRuns)
