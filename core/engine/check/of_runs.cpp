// run.*, events.*, memory.*, faults.*, time.*: tests that train one run, or a few.
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/engine/check/built.hpp"
#include "core/engine/check/groups.hpp"
#include "core/engine/train/run.hpp"
#include "core/plugins/kinds.hpp"

namespace trainyard::check {
namespace {

/// Returns settings for 60 steps, or fewer if time is short (65,536 classes take a second a step).
std::vector<std::string> many_steps(const Subject& subject) {
  constexpr double seconds = 25.0;
  constexpr std::int64_t most = 60;
  return {"trainer.max_duration=" + std::to_string(subject.steps_within(seconds, most)) + "ba"};
}

/// Reads, between steps, how many bytes of heap this process uses.
class Meter final : public train::LoopHost {
 public:
  explicit Meter(std::int64_t every) : every_(every) {}
  void at_safe_point() override {
    if (++step_ % every_ != 0) return;
    const struct mallinfo2 heap = mallinfo2();
    readings_.push_back(static_cast<std::int64_t>(heap.uordblks + heap.hblkhd));
  }
  /// Returns bytes per step in the interval of least growth: memory that is filled once is no leak.
  double growth() const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 2; i < readings_.size(); ++i)
      least = std::min(least, readings_[i] - readings_[i - 1]);
    return readings_.size() < 3 ? 0.0 : static_cast<double>(least) / static_cast<double>(every_);
  }

 private:
  const std::int64_t every_;  ///< steps between readings
  std::int64_t step_ = 0;
  std::vector<std::int64_t> readings_;
};

/// Returns true if a step is the plugin's own work, so that there is nothing to compare its time with.
bool is_the_step(const std::string& kind) {
  return plugins::find_kind(kind)->place == plugins::KindRow::Place::needed || kind == "executor";
}

}  // namespace

Outcome trains(const Subject& subject) {
  std::optional<Outcome> fatal;
  std::string reasons;
  double step_seconds = 0.0;
  const std::optional<SmallRun> run = find_run(
      subject.file, subject.materials,
      [&](const SmallRun& tried) -> std::string {
        doing("a run trains, of " + tried.host->name + ", with the options " + tried.options);
        try {
          valid(subject, tried.text(), {});
        } catch (const ConfigError& error) {
          return error.what();
        }
        const Trained trained = train(subject, {tried.text()});
        const std::optional<Outcome> bad = bad_end(trained);
        if (!bad) {
          step_seconds = trained.result["seconds"].get<double>() / trained.result["steps"].get<double>();
          return {};
        }
        // A message may be about parts that do not fit together; any other end is the plugin's fault.
        const bool told = trained.code() > static_cast<int>(ExitCode::internal) || trained.result.is_object();
        if (bad->verdict == Verdict::crash || !told) {
          fatal = bad;
          return {};
        }
        return bad->what;
      },
      reasons);
  if (fatal) return *fatal;
  constexpr std::size_t enough = 2000;
  if (reasons.size() > enough) reasons = reasons.substr(0, reasons.rfind('\n', enough)) + "\nand so on";
  const std::string file = missing_file(subject.file, subject.materials);
  if (!run && !file.empty())
    return {Verdict::skip,
            "no file that the check makes suits it: give one with --set " + file + "=FILE\n" + reasons,
            {}};
  if (!run) return failed("no run trains with it:\n" + reasons);
  const auto& all = surroundings();
  return {Verdict::pass,
          {},
          std::to_string(run->host - all.data()) + "\n" + std::to_string(step_seconds) + "\n" + run->options};
}

void take_run(Subject& subject, const Outcome& outcome) {
  subject.run.reset();
  if (outcome.verdict != Verdict::pass) return;
  std::istringstream handed(outcome.handed);
  std::string host, seconds, options;
  std::getline(handed, host);
  std::getline(handed, seconds);
  std::getline(handed, options, '\0');
  subject.run = SmallRun{&surroundings().at(std::stoul(host)), subject.file, options};
  subject.step_seconds = std::stod(seconds);
}

Outcome long_run(const Subject& subject) {
  const Trained trained = train(subject, {subject.run->text(), many_steps(subject)});
  return bad_end(trained).value_or(Outcome{});
}

Outcome quiet(const Subject& subject) {
  if (subject.file.manifest.kind == "sink") return {Verdict::skip, "a sink may print records", {}};
  // Trains without the layers that a run puts between a plugin and the terminal.
  const std::string said = subject.folder + "/printed";
  forked(said, [&] {
    Built(subject).fit();
    return 0;
  });
  std::ifstream lines(said);
  std::string first;
  // LibTorch's own warnings begin so: "[W1125 06:06:40...".
  while (first.empty() || first.starts_with("[W"))
    if (!std::getline(lines, first)) return {};
  return failed("printed: " + first + "\nsay it with host().log(), which the run's log has, too");
}

Outcome writes(const Subject& subject) {
  if (subject.file.manifest.hooks.empty()) return {Verdict::skip, "it declares no hooks", {}};
  return bad_end(train(subject, {subject.run->text(), {"guard.strict_state=true"}})).value_or(Outcome{});
}

Outcome memory(const Subject& subject) {
  if (!subject.run->host->executor.empty())
    return {Verdict::skip, "it trains in a run whose ensemble grows by a member a step", {}};
  constexpr std::int64_t most = 420, least = 70, readings = 7;
  const std::int64_t steps = subject.steps_within(/*seconds=*/25.0, most);
  if (steps < least) return {Verdict::skip, "a step of its run takes too long for many of them", {}};
  Meter meter(steps / readings);
  Built(subject, {"trainer.max_duration=" + std::to_string(steps) + "ba"}, meter).fit();
  if (meter.growth() < 48.0) return {};  // bytes: less than a number and its block a step
  return failed("memory grows by " + std::to_string(std::lround(meter.growth())) +
                " bytes a step, and goes on growing");
}

Outcome one_sample(const Subject& subject) {
  doing("the last batch of an epoch has one sample");
  const Trained trained = train(subject, {subject.run->text(), {"data.train.batch_size=23"}});
  if (auto bad = bad_end(trained, Allow::messages)) return *bad;
  Outcome outcome = bad_end(trained).value_or(Outcome{});
  // The data may have too few samples for such a batch; some plugins need more than one sample, and say so.
  const bool too_few = trained.code() == static_cast<int>(ExitCode::config);
  if (outcome.verdict == Verdict::fail) outcome.verdict = too_few ? Verdict::skip : Verdict::warn;
  return outcome;
}

Outcome diverging(const Subject& subject) {
  // From a large rate, over one whose sum of squares overflows, to one whose next loss does.
  for (const char* lr : {"1e9", "1e18", "1e30"}) {
    const std::string set = std::string("optimizer.lr=") + lr;
    doing("values overflow, with " + set);
    if (auto bad = bad_end(train(subject, {subject.run->text(), {set, "guard.nan=off"}}), Allow::messages))
      return *bad;
  }
  return {};
}

Outcome slow_hooks(const Subject& subject) {
  if (is_the_step(subject.file.manifest.kind)) return {Verdict::skip, "a step is what it does", {}};
  const Trained trained = train(subject, {subject.run->text(), many_steps(subject)});
  if (auto bad = bad_end(trained)) return *bad;
  double own = 0.0;
  for (const auto& plugin : trained.result["plugins"])
    if (plugin["kind"] == subject.file.manifest.kind && plugin["name"] == subject.file.manifest.name)
      own += plugin["seconds"].get<double>();
  const double rest = trained.result["seconds"].get<double>() - own;
  const auto steps =
      static_cast<double>(std::max<std::int64_t>(1, trained.result["steps"].get<std::int64_t>()));
  constexpr double noticed = 1e-3;  // seconds a step; the model is a small one
  if (own < rest || own < noticed * steps) return {};
  std::ostringstream text;
  text.precision(3);
  text << own / steps * 1e3 << " ms a step in its calls, " << rest / steps * 1e3
       << " ms in all the rest of a small run: do less, less often (a cadence), or on a thread "
          "(host().thread)";
  return {Verdict::warn, text.str(), {}};
}

}  // namespace trainyard::check
