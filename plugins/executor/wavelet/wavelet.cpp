// Two waves of one training, half a cycle apart: while the one runs backward and lets go of its activations, the
// other runs forward and takes as much; or any number of them, in stages of the network that lie on several ranks (Wang et
// al., "Wavelet: Efficient DNN Training with Tick-Tock Scheduling", MLSys 2021).
#include <ATen/Parallel.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <trainyard/helpers/eager.hpp>
#include <trainyard/mixins/reads_rows.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/sharded.hpp>

#include "../layers.hpp"
#include "crew.hpp"
#include "in_turn.hpp"
#include "joint.hpp"
#include "meter.hpp"
#include "staged.hpp"
#include "timeline.hpp"

enum class WaveletSync : unsigned char { joint, stale1, replica, round, rolling };

template <>
struct trainyard::Words<WaveletSync> {
  static constexpr std::string_view words[] = {"joint", "stale1", "replica", "round", "rolling"};
};

namespace {

using namespace trainyard;

/// What the system says could be taken now; 0: it does not say.
std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, rest; file >> key && key != "MemAvailable:";) std::getline(file, rest);
  std::int64_t kilobytes = 0;
  return file >> kilobytes ? kilobytes * 1024 : 0;
}

std::string milliseconds(double seconds) {
  std::string text = std::to_string(seconds * 1e3);
  return text.substr(0, text.find('.') + 2) + " ms";
}

class Wavelet final : public Eager {
 public:
  using Sync = WaveletSync;
  struct Options {
    std::int64_t waves = 2;
    Sync sync = Sync::joint;
    std::int64_t sync_every = 1;
    double offset = 0.5;
    double peak = 1.44;
    double memory_budget = 0.9;
    std::int64_t profile_iterations = 10;
    bool timeline = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("wavelet").version("1.0.0").summary(
        "Two waves half a cycle apart, the one forward in the memory that the other lets go of backward; or "
        "several, through stages on several ranks.");
    for (const char* const need : {"distributed", "rows", "no model.dropout",
                                   "trainer.precision = fp32 | fp64", "executor.timeline = false"})
      m.needs(std::string(need) + " where sync = round | rolling");
    m.needs("trainer.precision != fp16-mixed where sync = stale1 | replica and waves != 1");
    for (const char* const need : {"graph", "run.device = cpu", "no lazy_rows", "no sharded_rows"})
      for (const char* const where : {" where waves != 1", " where sync = round | rolling"})
        m.needs(std::string(need) + where);
    m.provides("batch").provides("hyper").provides("divides_network where sync = round | rolling");
    m.provides("grads where sync = joint | stale1 | replica").provides("model where sync = joint");
    m.option("waves", &Options::waves,
             "that run at once, each on its own thread; 1: as eager. round, rolling: up to 64, through the "
             "stages")
        .range(1, 64);
    m.option(
        "sync", &Options::sync,
        "joint: the waves share out a step's micro-batches, and one update is made of both; stale1: they "
        "take steps in turn, on weights that lack at most one update; replica: the same, each with "
        "weights of its own, of which the mean is taken; round: each rank has a stage of the network, "
        "through "
        "which a micro-batch goes in as many waves, and one update is made of them all; rolling: the same, "
        "each step a wave, on weights that lack at most waves - 1 updates");
    m.option("sync_every", &Options::sync_every, "replica: steps of each wave from one mean to the next")
        .min(1);
    m.option("offset", &Options::offset,
             "how far a wave begins behind the other, as a part of a pass forward and backward; 0: together")
        .range(0.0, 0.95);
    m.option("peak", &Options::peak,
             "the most that passes of both waves may have together, in peaks of one: a wave waits where it "
             "would be more; 2: nobody waits")
        .range(1.0, 2.0);
    m.option("memory_budget", &Options::memory_budget,
             "what the waves may take together, in bytes, or, up to 1, as a part of what is free when the "
             "training begins; 0: any")
        .min(0.0);
    m.option("profile_iterations", &Options::profile_iterations,
             "passes over whose mean the cycle is measured at first; later it follows slowly")
        .min(1);
    m.option(
        "timeline", &Options::timeline,
        "writes timeline.csv to the run's folder: what the waves did when, and the memory that they had");
  }
  explicit Wavelet(const Options& options) : options_(options) {}
  ~Wavelet() override { rest(); }

  void check_ranks(Workbench& bench, std::int64_t ranks) const override {
    if (!is_staged()) return;
    check(bench);
    const std::size_t layers = executors::layers_of(*bench.network().graph()).costs.size();
    if (static_cast<std::int64_t>(layers) < ranks)
      throw ConfigError("the model has " + std::to_string(layers) + " layers, and " + std::to_string(ranks) +
                        " ranks are to share them: take fewer ranks");
  }

  void open(Workbench& bench) override {
    if (is_plain()) return;
    rest();
    if (rule_ && rule_->in_flight())
      host().log(LogLevel::warning, "the step that was in flight is lost: no update comes of it");
    crew_.reset();  // its waves may still compute on the batches of the rule
    rule_.reset();
    check(bench);
    threads_ = at::get_num_threads();
    if (is_staged()) return open_stages(bench);
    budget_ = static_cast<std::int64_t>(options_.memory_budget);
    if (options_.memory_budget <= 1.0)
      budget_ = static_cast<std::int64_t>(options_.memory_budget * static_cast<double>(available_bytes()));
    const wavelet::Pace::Options pace = {.offset = options_.offset,
                                         .warm_up = options_.profile_iterations,
                                         .budget = budget_,
                                         .peaks = options_.peak < 2.0 ? options_.peak : 0.0};
    make_crew(bench, pace);
    if (options_.sync == Sync::joint) rule_ = std::make_unique<wavelet::Joint>(*crew_);
    if (options_.sync == Sync::stale1) rule_ = std::make_unique<wavelet::Stale>(*crew_);
    if (options_.sync == Sync::replica)
      rule_ = std::make_unique<wavelet::Replicas>(*crew_, options_.sync_every);
    if (timeline_) crew_->pace().record();
  }

  void step(Workbench& bench, StepWork& work) override {
    if (is_plain()) return Eager::step(bench, work);
    if (is_staged()) return rule_->step(work);
    say_of_single(work);
    work_on();
    rule_->step(work);
  }

  void settle(Workbench&, Pause pause) override {
    if (is_plain()) return;
    if (is_staged()) return settle_stages(pause);
    if (working_) {
      rule_->settle();
      crew_->join_statistics();
    }
    rest();
    if (timeline_) timeline_->add(crew_->pace().take_marks(), wavelet::Meter::take_changes());
    if (pause == Pause::end) say_at_end();
  }

  bool divides_network() const override { return is_staged(); }

 private:
  bool is_staged() const { return options_.sync == Sync::round || options_.sync == Sync::rolling; }
  bool is_plain() const { return options_.waves == 1 && !is_staged(); }
  std::string sync() const {
    return "sync = \"" + std::string(Words<Sync>::words[static_cast<std::size_t>(options_.sync)]) + "\"";
  }

  void check(Workbench& bench) const {
    const RunFacts& run = host().run();
    if (run.device != "cpu")
      throw ConfigError("runs its waves on the CPU, and this run is on " + run.device +
                        ": set run.device = \"cpu\", or waves = 1");
    const auto* const tables = dynamic_cast<ShardsTables*>(&bench.network());
    if (tables != nullptr && !tables->sharded().empty())
      throw ConfigError(
          "the tables of the model lie in parts on the ranks, which exchange rows in each pass, one at a "
          "time: set waves = 1");
    if (dynamic_cast<LeavesRows*>(&bench.optimizer()) != nullptr)
      throw ConfigError(
          "the optimizer leaves rows behind that a pass reads, and knows of one pass at a time: choose "
          "another, or set waves = 1");
    if (is_staged()) return check_stages(bench);
    if (options_.waves > wavelet::most_waves)
      throw ConfigError(sync() + " has two waves, and waves is " + std::to_string(options_.waves) +
                        ": set it to 2, or sync = \"round\"");
    if (options_.sync == Sync::joint) return;
    if (bench.loss_scale() != 1.0)
      throw ConfigError(
          sync() +
          " does not go with trainer.precision = \"fp16-mixed\", whose scale may change between "
          "a pass and its update: choose bf16-mixed, or sync = \"joint\"");
  }

  void check_stages(Workbench& bench) const {
    if (options_.sync == Sync::rolling && bench.accumulation() > 1)
      throw ConfigError("with sync = \"rolling\" a step is one wave, and this run has " +
                        std::to_string(bench.accumulation()) +
                        " micro-batches in a step of each rank: leave data.train.micro_batch_size and "
                        "accumulation out, or set sync = \"round\"");
    if (bench.network().graph() == nullptr)
      throw ConfigError(sync() + " cuts the graph of the network, and it has none: set sync = \"joint\"");
    if (bench.autocasts())
      throw ConfigError(sync() + " runs in the precision of the weights: set trainer.precision = \"fp32\"");
    if (bench.drops())
      throw ConfigError(
          sync() + " has stages, which know no dropout: leave [model.dropout] out, or set sync = \"joint\"");
    if (options_.timeline)
      throw ConfigError("timeline is of two waves of the whole network: leave it out with " + sync());
  }

  void open_stages(Workbench& bench) {
    if (host().run().ranks == nullptr)
      throw ConfigError(
          sync() +
          " has a stage of the network on each of several ranks, and this run has one: start it with "
          "--ranks 2, or set sync = \"joint\"");
    const wavelet::StagedOptions staged = {.waves = options_.waves, .threads = threads_};
    Ranks& ranks = *host().run().ranks;
    if (options_.sync == Sync::round)
      rule_ = std::make_unique<wavelet::Round>(host(), ranks, bench, staged);
    else
      rule_ = std::make_unique<wavelet::Rolling>(host(), ranks, bench, staged);
  }

  void settle_stages(Pause pause) {
    if (!rule_) return;
    rule_->settle();
    const auto* const rolling = dynamic_cast<const wavelet::Rolling*>(rule_.get());
    if (pause == Pause::end && rolling != nullptr)
      host().log(LogLevel::info, "waves read weights that lacked at most " +
                                     std::to_string(rolling->most_behind()) + " updates");
  }

  void make_crew(Workbench& bench, const wavelet::Pace::Options& pace) {
    try {
      crew_ = std::make_unique<wavelet::Crew>(host(), bench, pace, share_of_threads());
    } catch (const PluginError& error) {
      throw ConfigError(std::string("each wave needs a twin of the network: ") + error.what() +
                        "; set waves = 1");
    }
  }

  /// Whether memory is of interest to anyone.
  bool counts() const { return budget_ > 0 || options_.peak < 2.0 || timeline_; }

  int share_of_threads() const { return std::max(1, threads_ / wavelet::most_waves); }

  /// Ahead of passes of waves.
  void work_on() {
    if (std::exchange(working_, true)) return;
    at::set_num_threads(share_of_threads());
    if (counts()) meter_.emplace();
    wavelet::Meter::record(timeline_.has_value());
  }

  /// Behind them: the host has threads and allocator as they were.
  void rest() {
    if (!std::exchange(working_, false)) return;
    meter_.reset();
    at::set_num_threads(threads_);
  }

  void say_of_single(const StepWork& work) {
    if (options_.sync != Sync::joint || work.micros.size() != 1 || std::exchange(said_, true)) return;
    host().log(LogLevel::warning,
               "a step has one micro-batch, which one wave takes while the other has nothing to do: set "
               "data.train.micro_batch_size to half of batch_size or less, or sync = \"stale1\"");
  }

  void say_at_end() {
    const wavelet::Profile profile = crew_->pace().profile();
    if (profile.empty()) return;
    std::string text = "a pass took " + milliseconds(profile.cycle()) + ", forward " +
                       milliseconds(profile.forward()) + " of it; waves began " +
                       milliseconds(options_.offset * profile.cycle()) + " apart";
    if (counts()) {
      const wavelet::Pace::Held held = crew_->pace().held();
      text += " and had at most " + std::to_string(wavelet::Meter::take_peak()) +
              " bytes together; they waited " + std::to_string(held.times) + " times for memory, " +
              milliseconds(held.seconds);
      if (held.over > 0)
        host().log(LogLevel::warning, "memory_budget of " + std::to_string(budget_) +
                                          " bytes was not enough for one wave by itself " +
                                          std::to_string(held.over) + " times");
    }
    host().log(LogLevel::info, text);
    if (timeline_) timeline_->write(host().run().directory + "/timeline.csv");
  }

  const Options options_;
  std::int64_t budget_ = 0;
  int threads_ = 1;  ///< of the run
  std::optional<wavelet::Timeline> timeline_ =
      options_.timeline ? std::optional<wavelet::Timeline>(std::in_place) : std::nullopt;
  std::optional<wavelet::Meter> meter_;
  bool working_ = false, said_ = false;
  std::unique_ptr<wavelet::Rule> rule_;
  std::unique_ptr<wavelet::Crew> crew_;  ///< its threads end before what they work on goes
};

}  // namespace

TRAINYARD_PLUGIN(Wavelet)
