// A rule that does as it is told: fires, throws, sleeps, hangs; and writes down every record that it is
// shown.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <trainyard/host.hpp>
#include <trainyard/rule.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

/// Tells the trace of a call that hangs when the statics of this library go, with the call still in it.
struct Floor {
  std::string trace;
  ~Floor() {
    if (!trace.empty()) std::ofstream(trace, std::ios::app) << "taken down\n";
  }
};

class Probe final : public Rule {
 public:
  struct Options {
    std::string watch = "losses";
    bool values = false;
    std::string mode = "train";
    std::int64_t fire_at = -1, throw_at = -1, sleep_at = -1, hang_at = -1;
    double seconds = 0.0;
    std::string trace, release;
    std::int64_t window = 3, refused_by = -2;
  };
  static void describe(Manifest<Options>& m) {
    m.name("probe").version("1.0.0").summary("Fires, throws, sleeps or hangs where it is told.");
    m.option("watch", &Options::watch, "tensors");
    m.option("values", &Options::values, "their values, too");
    m.option("mode", &Options::mode, "whose steps").one_of({"train", "eval", "global"});
    m.option("fire_at", &Options::fire_at, "step of the mode from which on it fires");
    m.option("throw_at", &Options::throw_at, "step from which on it throws");
    m.option("sleep_at", &Options::sleep_at, "step at which it sleeps");
    m.option("seconds", &Options::seconds, "for how long");
    m.option("hang_at", &Options::hang_at, "step at which it does not return, until `release` is there");
    m.option("release", &Options::release, "a file; empty: never");
    m.option("trace", &Options::trace, "file of what it saw: step, records before it, tensors");
    m.option("window", &Options::window, "records that it looks back");
    m.option("refused_by", &Options::refused_by, "rank on which it throws when it is swapped in; -1: all");
    m.hook<&Probe::swap_in>(Event::swap_in);
  }
  explicit Probe(const Options& options) : options_(options) {}
  ~Probe() override {
    if (hung_) write("gone");
  }

  void swap_in(StepContext&) {
    if (options_.refused_by > -2 && faulty::on_rank(options_.refused_by)) faulty::go_wrong("throw");
  }

  std::vector<Watch> watches() const override { return {{options_.watch, options_.values}}; }
  std::vector<Mode> modes() const override {
    return {options_.mode == "eval" ? Mode::eval : options_.mode == "global" ? Mode::global : Mode::train};
  }
  std::int64_t window() const override { return options_.window; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    ++seen_;
    if (!options_.trace.empty()) {
      std::ostringstream file;
      file << now.mode_step << ' ' << trial.records().size() << ' ' << seen_;
      for (const TensorRecord* tensor : trial.tensors(now, options_.watch))
        file << ' ' << tensor->name << (tensor->value.defined() && tensor->value.numel() > 1 ? "=" : "");
      write(file.str());
    }
    if (now.mode_step == options_.hang_at) hang();
    if (now.mode_step == options_.sleep_at)
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
    if (options_.throw_at >= 0 && now.mode_step >= options_.throw_at)
      throw std::runtime_error("thrown at step " + std::to_string(now.mode_step));
    if (options_.fire_at < 0 || now.mode_step < options_.fire_at) return std::nullopt;
    const auto tensors = trial.tensors(now, options_.watch);
    return Finding{"fires as it was told", {tensors.front()->name}, {{"seen", static_cast<double>(seen_)}}};
  }

  void remember(StateWriter& state) const override { state.scalar("seen", seen_); }
  void recall(const StateReader& state) override { seen_ = state.integer("seen"); }

 private:
  void write(const std::string& line) const { std::ofstream(options_.trace, std::ios::app) << line << '\n'; }
  void hang() {
    hung_ = true;
    static Floor floor;
    floor.trace = options_.trace;
    write("hangs");
    while (options_.release.empty() || !std::filesystem::exists(options_.release))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    floor.trace.clear();
    host().log(LogLevel::warning, "it came back");
    write("back");
  }

  Options options_;
  bool hung_ = false;
  std::int64_t seen_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Probe)
