// The nodes of a network on several threads, each with a core and nodes of its own: the graph of a step is cut into clusters
// (Ma, Xiao, Willke, Ahmed, Nazarian and Bogdan, "A vertex cut based framework for load balancing and parallelism optimization
// in multi-core systems", MLSys 2021), or its nodes are scheduled one by one (HEFT). Bits are those of one thread.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/graph/network.hpp>
#include <trainyard/helpers/eager.hpp>
#include <trainyard/helpers/shape_text.hpp>
#include <trainyard/host.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/state.hpp>

#include "../../shared/samples_of_run.hpp"
#include "choice.hpp"
#include "crew.hpp"
#include "cut.hpp"
#include "lib/printed.hpp"
#include "lib/waits.hpp"
#include "overheads.hpp"
#include "plan.hpp"
#include "trial.hpp"

enum class WhenCut : unsigned char { gains, always };

template <>
struct trainyard::Words<WhenCut> {
  static constexpr std::string_view words[] = {"gains", "always"};
};
template <>
struct trainyard::Words<partition::Algorithm> {
  static constexpr const auto& words = partition::algorithm_words;
};
template <>
struct trainyard::Words<partition::Order> {
  static constexpr const auto& words = partition::order_words;
};
template <>
struct trainyard::Words<partitioned::Weights> {
  static constexpr std::string_view words[] = {"time", "bytes", "count"};
};

namespace {

using namespace trainyard;
using namespace partitioned;
using partition::Algorithm;

class PartitionedExecutor final : public Eager {
 public:
  struct Options {
    WhenCut when = WhenCut::gains;
    Algorithm algorithm = Algorithm::heft;
    std::size_t clusters = 2;
    Weights weights = Weights::time;
    partition::Order order = partition::Order::given;
    double lambda = 1.0;
    std::int64_t trace_steps = 3;
  };
  static void describe(Manifest<Options>& m);
  explicit PartitionedExecutor(const Options& options) : options_(options) {}
  ~PartitionedExecutor() override { rest(); }

  void open(Workbench& bench) override;
  void step(Workbench& bench, StepWork& work) override;
  void settle(Workbench&, Pause pause) override;
  void save(StateWriter& state) const override;
  void load(const StateReader& state) override;

 private:
  using Shapes = std::vector<std::vector<std::int64_t>>;

  std::size_t workers();
  void tell_plan(Workbench& bench);
  Way way_of(Workbench& bench, const StepWork& work);
  bool chooses_by_times() const;
  std::string key() const;
  std::string key_for(const Batch& batch) const;
  std::optional<Choice> choice_for(Workbench& bench, const Batch& batch, const ForwardContext& pass);
  Choice measured(Workbench& bench, const Batch& batch, const ForwardContext& pass);
  void go(const Choice& choice, const std::string& why);
  void tell_times(const Choice& choice);
  bool is_cut(const Batch& batch);
  bool may_gain(const Batch& batch) const;
  bool gains(const Batch& batch) const;
  void backward(Workbench& bench, StepWork& work, std::size_t micro);
  at::Tensor forward(Workbench& bench, const Batch& batch, const ForwardContext& pass);
  const char* reason_against(const Batch& batch, const ForwardContext& pass) const;
  void trace(const Batch& batch);
  void make_plan();
  void print_table(const StepGraph& step, const Times& times);
  void judge();
  std::vector<bool> apart() const;
  /// A way to run a step.
  struct Work {
    Cut cut;
    std::vector<Segment> segments;
    double predicted;
  };
  Work worked_out(Algorithm algorithm, const StepGraph& step, const Times& times,
                  const Overheads& overheads) const;
  void work_on();
  void rest();
  void log_once(LogLevel level, const std::string& text);

  const Options options_;
  GraphNetwork* network_ = nullptr;
  std::size_t workers_ = 1;
  int threads_ = 1;  ///< of the run
  bool working_ = false;
  std::map<Shapes, bool> is_cut_;  ///< whether steps of such batches are, by estimate
  /// By times: all steps go that way. With the key that it is for, also that of a checkpoint.
  std::optional<std::pair<std::string, Choice>> chosen_;
  std::set<std::string, std::less<>> said_;

  std::unique_ptr<Crew> crew_;
  std::optional<Overheads> overheads_;
  /// Traced at first, then tried beside one thread, then settled.
  enum class Phase : std::uint8_t { none, traced, tried, crew, alone } phase_ = Phase::none;
  std::shared_ptr<Plan> plan_;
  std::int64_t samples_ = 0;  ///< of the passes that were traced
  std::int64_t passes_ = 0;   ///< of the phase
  bool tried_in_vain_ = false;
  bool took_plan_ = false;  ///< in the pass under way
  double predicted_ = 0.0, alone_ = 0.0;
  std::array<double, 2> least_{};  ///< microseconds of a pass in the trial: by the crew, by one thread
};

void PartitionedExecutor::describe(Manifest<Options>& m) {
  m.name("partitioned")
      .version("1.0.0")
      .summary(
          "The nodes of the network on several threads, each with a core: the graph of a step is cut into "
          "clusters.");
  Eager::offer_all(m);
  m.needs("graph").needs("run.device = cpu").needs("trainer.precision = fp32 | fp64");
  m.option("when", &Options::when,
           "gains: at the first step clusters, one thread and the run's threads are tried, and the fastest "
           "stays, for "
           "later runs on the machine, too; where the run has one thread or several ranks, estimates decide. "
           "always: steps are cut whatever is faster");
  m.option(
      "algorithm", &Options::algorithm,
      "how the graph of a step is cut: by a rule of the verb partition, or metis, which balance clusters; "
      "or "
      "heft, which schedules each node where it is done first");
  m.option("clusters", &Options::clusters, "threads that share the nodes out; no more than there are cores")
      .range(1, 64);
  m.option("weights", &Options::weights,
           "of the graph's edges: the measured time of the node that they lead to, bytes of the tensor, or 1 "
           "each; heft "
           "goes by times alone");
  m.option("order", &Options::order,
           "in which a rule sees the edges: as the nodes come, shuffled, as a walk does, or ascending by the "
           "degrees of "
           "their ends");
  m.option("lambda", &Options::lambda,
           "the bound of algorithms whose names begin with wb_, in means of the clusters' weight; below 1 it "
           "is as 1")
      .min(0);
  m.option("trace_steps", &Options::trace_steps,
           "passes, of one thread, by which the nodes are timed; the least time of each counts")
      .min(1);
}

/// Each rank has as many cores as its machine has for it.
std::size_t PartitionedExecutor::workers() {
  const Ranks* const ranks = host().run().ranks;
  const std::size_t local = ranks == nullptr ? 1 : static_cast<std::size_t>(ranks->local_size());
  const std::size_t cores = std::max<std::size_t>(own_cores().size() / local, 1);
  if (options_.clusters <= cores) return options_.clusters;
  log_once(LogLevel::warning, "executor.clusters is " + std::to_string(options_.clusters) + ", and there " +
                                  (cores == 1 ? "is 1 core" : "are " + std::to_string(cores) + " cores") +
                                  (local > 1 ? " for each rank" : "") + ": the step has as many clusters");
  return cores;
}

void PartitionedExecutor::open(Workbench& bench) {
  rest();
  plan_.reset();
  is_cut_.clear();
  tried_in_vain_ = false;
  phase_ = Phase::none;
  network_ = dynamic_cast<GraphNetwork*>(&bench.network());
  if (network_ == nullptr)
    throw ConfigError(
        "the model has no graph, and its nodes are to be shared out: set executor.type = \"eager\"");
  if (network_->graph()->outputs.size() != 1)
    throw ConfigError(
        "the model has several outputs, and a step in clusters has one: set executor.type = \"eager\"");
  if (bench.autocasts())
    throw ConfigError("runs in the precision of the weights: set trainer.precision = \"fp32\"");
  if (host().run().device != "cpu")
    throw ConfigError("shares nodes out to cores, and this run is on " + host().run().device +
                      ": set run.device = \"cpu\", or executor.type = \"eager\"");
  threads_ = at::get_num_threads();
  workers_ = workers();
  if (chosen_ && chosen_->first != key()) chosen_.reset();
  tell_plan(bench);
}

/// A run and whoever goes on with it go one way.
void PartitionedExecutor::save(StateWriter& state) const {
  if (!chosen_) return;
  state.scalar("key", chosen_->first);
  state.scalar("choice", text_of(chosen_->second));
}

void PartitionedExecutor::load(const StateReader& state) {
  chosen_.reset();
  if (!state.has_scalar("choice")) return;
  if (const auto choice = read_choice(state.text("choice"))) chosen_ = std::pair(state.text("key"), *choice);
}

/// How a step of the run would be cut, by estimate, for the log and for `trainyard plan`.
void PartitionedExecutor::tell_plan(Workbench& bench) {
  const std::int64_t samples = run_file::samples_of_run(bench);
  if (samples < 1) return;
  const Graph& graph = *network_->graph();
  const Times one = estimated(graph, samples, 1);
  const StepGraph step(graph, one, samples, options_.weights);
  const Work made = worked_out(options_.algorithm, step, one, assumed);
  std::string text = lib::printed(
      "a step of %lld samples has %zu nodes and %zu tasks; estimated, %.0f us on one thread, %.0f us on the "
      "run's "
      "%d; cut by ",
      static_cast<long long>(samples), step.nodes(), 2 * made.segments.size() + 1, one.total(),
      estimated(graph, samples, threads_).total(), threads_);
  text += described(options_.algorithm, made.cut, made.segments, work_of(made.segments, step, one, workers_),
                    made.predicted, one.total());
  if (options_.when == WhenCut::always)
    text += ": every step is cut";
  else if (chosen_)
    text += ": the run goes on with " + described(chosen_->second, threads_);
  else if (chooses_by_times())
    text += ": the first step tries what is faster, where no earlier run on this machine did";
  else
    text += ": estimates decide";
  log_once(LogLevel::info, text);
}

void PartitionedExecutor::step(Workbench& bench, StepWork& work) {
  if (work.micros.empty() || way_of(bench, work) == Way::threads) {
    rest();
    return Eager::step(bench, work);
  }
  work_on();
  do
    for (std::size_t i = 0; i < work.micros.size(); ++i) backward(bench, work, i);
  while (bench.update() == Update::repeat);
}

void PartitionedExecutor::settle(Workbench&, Pause pause) {
  rest();
  if (pause != Pause::end) return;
  if (chosen_ && chosen_->second.way == Way::threads)
    return host().log(LogLevel::info,
                      "the last steps ran on the run's " + std::to_string(threads_) + " threads");
  if (phase_ == Phase::crew || phase_ == Phase::alone)
    host().log(LogLevel::info, std::string("the last steps ran ") +
                                   (phase_ == Phase::crew ? "in clusters" : "on one thread"));
}

Way PartitionedExecutor::way_of(Workbench& bench, const StepWork& work) {
  const Batch& batch = work.micros.front();
  if (!chosen_ && chooses_by_times()) {
    if (const auto choice = choice_for(bench, batch, work.pass(0))) chosen_ = std::pair(key(), *choice);
  }
  if (chosen_ && options_.when == WhenCut::gains) {
    if (chosen_->second.way == Way::alone) phase_ = Phase::alone;
    return chosen_->second.way;
  }
  return is_cut(batch) ? Way::clusters : Way::threads;
}

/// With one thread all ways have the same bits, and ranks would have to agree on a choice.
bool PartitionedExecutor::chooses_by_times() const {
  return options_.when == WhenCut::gains && threads_ > 1 && host().run().ranks == nullptr && !tried_in_vain_;
}

/// What a choice of the run is for; a batch of another size changes nothing of it.
std::string PartitionedExecutor::key() const {
  return lib::printed("graph %s, %d threads, %s, %zu clusters, lambda %.17g, order %d, weights %d",
                      outline_of(*network_->graph()).c_str(), threads_,
                      std::string(partition::word_of(options_.algorithm)).c_str(), workers_, options_.lambda,
                      static_cast<int>(options_.order), static_cast<int>(options_.weights));
}

std::string PartitionedExecutor::key_for(const Batch& batch) const {
  std::string text = key() + lib::printed(", %zu cores", own_cores().size());
  for (const at::Tensor& input : batch.inputs) text += ", " + shape_text(input.sizes().vec());
  return text;
}

/// Returns none where the ways cannot be tried, or the choice could not be kept: estimates decide then, as two runs of a file are to
/// have the same bits.
std::optional<Choice> PartitionedExecutor::choice_for(Workbench& bench, const Batch& batch,
                                                      const ForwardContext& pass) {
  const ChoiceFolder folder;
  const std::string key = key_for(batch);
  if (const auto known = folder.find(key)) {
    go(*known, "an earlier run on this machine chose " + described(*known, threads_) + ", in " +
                   folder.file_of(key) + ", which may be removed to try again");
    return known;
  }
  tried_in_vain_ = true;
  if (const char* const why = reason_against(batch, pass)) {
    log_once(LogLevel::warning, std::string(why) + ": nothing is tried, and estimates decide");
    return std::nullopt;
  }
  const auto kept = folder.keep(key, measured(bench, batch, pass));
  if (!kept) {
    plan_.reset();
    phase_ = Phase::none;
    log_once(LogLevel::warning, folder.file_of(key) +
                                    " cannot be written, so that the next run could not go the "
                                    "way of this one: estimates decide");
    return std::nullopt;
  }
  tried_in_vain_ = false;
  go(*kept,
     "chose " + described(*kept, threads_) + ", for later runs on this machine, too: " + folder.file_of(key));
  return kept;
}

/// Tries passes of the ways at a batch, with no effect on the run.
Choice PartitionedExecutor::measured(Workbench& bench, const Batch& batch, const ForwardContext& pass) {
  Trial trial(bench, batch, pass);
  work_on();
  const ForwardPass by_crew = [&](const Batch& its, const ForwardContext& context) {
    return forward(bench, its, context);
  };
  if (workers_ > 1 && may_gain(batch)) {
    for (std::int64_t i = 0; i < options_.trace_steps; ++i) trial.microseconds(by_crew);
    make_plan();
  }
  const bool has_crew = plan_ != nullptr && phase_ != Phase::alone;
  std::array<double, ways> least = Choice().microseconds;
  const auto take = [&](Way way, int threads, const ForwardPass& forward) {
    at::set_num_threads(threads);
    double& its = least[static_cast<std::size_t>(way)];
    constexpr int turns = 5, fewest = 2;  // whoever had the cores before leaves threads awake, and caches
    for (int i = 0; i < turns && !(i >= fewest && trial.is_long()); ++i)
      its = std::min(its, trial.microseconds(forward));
  };
  const auto try_all = [&] {
    least = Choice().microseconds;
    trial.restart();
    constexpr int rounds = 4;
    for (int round = 0; round < rounds && !(round > 0 && trial.is_long()); ++round) {
      if (has_crew) take(Way::clusters, 1, by_crew);
      take(Way::alone, 1, {});
      take(Way::threads, threads_, {});
    }
  };
  const lib::Disturbance found = lib::measure_undisturbed(try_all, [] { return lib::seconds_waited(); });
  at::set_num_threads(1);
  rest();
  if (found.attempts > 1)
    host().log(found.is_quiet ? LogLevel::info : LogLevel::warning,
               lib::printed("other programs had the cores during the trial, which was made %d times: threads "
                            "waited for one in %.0f %% of the last one's time",
                            found.attempts, 100.0 * found.share) +
                   (found.is_quiet ? "" : ": estimates decide"));
  if (!found.is_quiet) {
    plan_.reset();
    phase_ = Phase::none;
    return {.way = gains(batch) ? Way::clusters : Way::threads, .microseconds = Choice().microseconds};
  }
  const Choice choice = fastest(least);
  if (choice.way == Way::clusters)
    phase_ = Phase::crew;
  else
    plan_.reset();
  return choice;
}

void PartitionedExecutor::go(const Choice& choice, const std::string& why) {
  constexpr const char* done[ways] = {"runs in clusters", "runs on one thread", "left to eager"};
  if (choice.way != Way::clusters) {
    plan_.reset();
    crew_.reset();
  }
  const std::string bits = choice.way == Way::threads
                               ? ": steps run as eager does, to its bits"
                               : ": steps have the bits of eager with run.threads.intra_op = 1";
  host().log(LogLevel::info, why + bits);
  host().journal(done[static_cast<std::size_t>(choice.way)], why + bits);
  tell_times(choice);
}

/// For metrics.jsonl and result.json.
void PartitionedExecutor::tell_times(const Choice& choice) {
  constexpr const char* names[ways] = {"partitioned/clusters_us", "partitioned/one_thread_us",
                                       "partitioned/run_threads_us"};
  for (std::size_t i = 0; i < ways; ++i)
    if (std::isfinite(choice.microseconds[i])) host().metric(names[i], choice.microseconds[i]);
  host().metric("partitioned/way", static_cast<double>(choice.way));
}

/// By counts alone, and not by measured times: the run's threads may give other bits than one.
bool PartitionedExecutor::is_cut(const Batch& batch) {
  Shapes shapes;
  for (const at::Tensor& input : batch.inputs) shapes.push_back(input.sizes().vec());
  const auto known = is_cut_.find(shapes);
  if (known != is_cut_.end()) return known->second;
  const bool cut =
      !shapes.empty() && !shapes.front().empty() && (options_.when == WhenCut::always || gains(batch));
  return is_cut_[shapes] = cut;
}

/// Whether clusters are worth a trial beside one thread.
bool PartitionedExecutor::may_gain(const Batch& batch) const {
  const Graph& graph = *network_->graph();
  const std::int64_t samples = batch.inputs.front().size(0);
  const Times one = estimated(graph, samples, 1);
  const StepGraph step(graph, one, samples, options_.weights);
  return worked_out(options_.algorithm, step, one, assumed).predicted < one.total();
}

bool PartitionedExecutor::gains(const Batch& batch) const {
  const Graph& graph = *network_->graph();
  const std::int64_t samples = batch.inputs.front().size(0);
  const Times one = estimated(graph, samples, 1);
  const double many = estimated(graph, samples, threads_).total();
  const StepGraph step(graph, one, samples, options_.weights);
  const double found = worked_out(options_.algorithm, step, one, assumed).predicted;
  constexpr double enough = 0.95;
  const bool gain = found < enough * std::min(one.total(), many);
  std::string text = lib::printed(
      "a step of %s samples: estimated %.0f us in %zu clusters by %s, %.0f us on one thread, %.0f us on the "
      "run's %d",
      std::to_string(samples).c_str(), found, workers_,
      std::string(partition::word_of(options_.algorithm)).c_str(), one.total(), many, threads_);
  text += gain ? ": it is cut, and its bits are those of eager with run.threads.intra_op = 1"
               : ": it runs as eager does (executor.when = \"always\" cuts it)";
  host().log(LogLevel::info, text);
  host().journal(gain ? "cut" : "left to eager", text);
  return gain;
}

PartitionedExecutor::Work PartitionedExecutor::worked_out(Algorithm algorithm, const StepGraph& step,
                                                          const Times& times,
                                                          const Overheads& overheads) const {
  const Graph& graph = *network_->graph();
  const std::vector<bool> apart = this->apart();
  Work made{
      cut({graph, step, times, apart, overheads}, {algorithm, workers_, options_.lambda, options_.order}),
      {},
      0.0};
  made.segments = segments_of(graph, step.dependences(), made.cut.placement, apart);
  made.predicted = predicted(made.segments, step, times, overheads, workers_);
  return made;
}

void PartitionedExecutor::backward(Workbench& bench, StepWork& work, std::size_t micro) {
  const bool by_crew = phase_ != Phase::alone && !(phase_ == Phase::tried && passes_ % 2 == 1);
  if (phase_ == Phase::alone) return bench.backward(work, micro);
  took_plan_ = false;
  const auto begin = std::chrono::steady_clock::now();
  if (by_crew)
    bench.backward(work, micro, [this, &bench](const Batch& batch, const ForwardContext& pass) {
      return forward(bench, batch, pass);
    });
  else
    bench.backward(work, micro);
  if (phase_ == Phase::crew || (by_crew && !took_plan_)) return;
  const double took =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  ++passes_;
  if (phase_ == Phase::traced && passes_ == options_.trace_steps) return make_plan();
  if (phase_ != Phase::tried) return;
  double& least = least_[by_crew ? 0 : 1];
  least = std::min(least, took);
  constexpr std::int64_t trial = 24;
  if (passes_ == trial) judge();
}

at::Tensor PartitionedExecutor::forward(Workbench& bench, const Batch& batch, const ForwardContext& pass) {
  if (const char* const why = reason_against(batch, pass)) {
    log_once(LogLevel::info, why);
    return bench.network().forward(batch, pass);
  }
  if (plan_ == nullptr || !plan_->fits()) trace(batch);
  took_plan_ = true;
  return plan_->forward(batch, pass);
}

/// Why a pass runs on one thread by itself, or null.
const char* PartitionedExecutor::reason_against(const Batch& batch, const ForwardContext& pass) const {
  if (!pass.training || !at::GradMode::is_enabled())
    return "gradients are off in a pass of training: it runs on one thread";
  if (!network_->runs_by_nodes(pass))
    return "a rule, a recorder or a hook looks at nodes, or a dropout masks weights or computes layers: such "
           "passes run "
           "on one thread";
  for (const at::Tensor& input : batch.inputs)
    if (input.requires_grad()) return "a hook wants the gradient of an input: such passes run on one thread";
  return nullptr;
}

/// Nodes at which a dropout may act, which serves one call at a time.
std::vector<bool> PartitionedExecutor::apart() const {
  std::vector<bool> found;
  for (const Node& node : network_->graph()->nodes)
    found.push_back(network_->has_dropout() &&
                    (node.op == "Dropout" || node.op == "Attention" || node.op == "LSTM"));
  return found;
}

/// Begins to time each node by itself, on this thread.
void PartitionedExecutor::trace(const Batch& batch) {
  if (!overheads_) overheads_ = measured_overheads(*crew_);
  const Graph& graph = *network_->graph();
  samples_ = batch.inputs.front().size(0);
  const Times times = estimated(graph, samples_, 1);
  const StepGraph step(graph, times, samples_, options_.weights);
  const std::vector<partition::Cluster> first(graph.nodes.size(), 0);
  const std::vector<bool> all(graph.nodes.size(), true);
  plan_ = std::make_shared<Plan>(
      *network_, *crew_,
      Plan::Setup{.segments = segments_of(graph, step.dependences(), {first, first}, all),
                  .apart = apart(),
                  .step = &step,
                  .latency = overheads_->latency,
                  .traced = std::nullopt});
  plan_->measure();
  phase_ = Phase::traced;
  passes_ = 0;
}

void PartitionedExecutor::make_plan() {
  const Graph& graph = *network_->graph();
  constexpr double least = 0.5;  // a call is not less
  Times times;
  for (const double each : plan_->forward_times())
    times.forward.push_back(std::max(least, each - overheads_->forward));
  for (const double each : plan_->backward_times())
    times.backward.push_back(each < 1e12 ? std::max(least, each - overheads_->backward) : 0.0);
  times.loss = plan_->loss_time() < 1e12 ? plan_->loss_time() : 0.0;
  const StepGraph step(graph, times, samples_, options_.weights);
  const auto begin = std::chrono::steady_clock::now();
  Work chosen = worked_out(options_.algorithm, step, times, *overheads_);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  host().log(LogLevel::info,
             lib::printed("cut by %s in %.1f ms", std::string(partition::word_of(options_.algorithm)).c_str(),
                          took.count()));
  predicted_ = chosen.predicted;
  alone_ = times.total();
  print_table(step, times);
  Traced traced = plan_->traced();
  constexpr double enough = 0.98;
  if (options_.when == WhenCut::gains && predicted_ > enough * alone_) {
    plan_.reset();
    phase_ = Phase::alone;
    const std::string text = lib::printed(
        "measured, the cut by %s is predicted to take %.0f us, and one thread %.0f us: steps run on one "
        "thread, to the same "
        "bits; another executor.algorithm may gain",
        std::string(partition::word_of(options_.algorithm)).c_str(), predicted_, alone_);
    host().log(LogLevel::warning, text);
    host().journal("runs on one thread", text);
    return;
  }
  plan_ = std::make_shared<Plan>(*network_, *crew_,
                                 Plan::Setup{.segments = std::move(chosen.segments),
                                             .apart = apart(),
                                             .step = &step,
                                             .latency = overheads_->latency,
                                             .traced = std::move(traced)});
  phase_ = options_.when == WhenCut::always ? Phase::crew : Phase::tried;
  passes_ = 0;
  least_.fill(std::numeric_limits<double>::infinity());
}

/// That which was chosen, and always METIS, HEFT and random beside it.
void PartitionedExecutor::print_table(const StepGraph& step, const Times& times) {
  host().log(
      LogLevel::info,
      lib::printed(
          "a step of %lld samples, %zu nodes, %zu clusters: measured %.0f us on one thread by its nodes; a "
          "segment costs %.1f us forward and %.1f us backward, another worker %.1f us",
          static_cast<long long>(samples_), step.nodes(), workers_, alone_, overheads_->forward,
          overheads_->backward, overheads_->latency));
  std::vector<Algorithm> rows = {options_.algorithm};
  for (const Algorithm each : {Algorithm::metis, Algorithm::heft, Algorithm::random})
    if (each != options_.algorithm) rows.push_back(each);
  for (const Algorithm each : rows) {
    std::string text;
    try {
      const Work made = worked_out(each, step, times, *overheads_);
      text = described(each, made.cut, made.segments, work_of(made.segments, step, times, workers_),
                       made.predicted, alone_);
    } catch (const Error& error) {
      text = std::string(partition::word_of(each)) + ": " + error.what();
    }
    host().log(LogLevel::info, text);
    host().journal(each == options_.algorithm ? "clusters" : "clusters beside them", text);
  }
}

/// After a trial of both, which give the same bits.
void PartitionedExecutor::judge() {
  const bool faster = least_[0] <= least_[1];
  phase_ = faster ? Phase::crew : Phase::alone;
  std::string text = lib::printed(
      "tried: a pass took %.0f us in clusters, and %.0f us on one thread (predicted %.0f and %.0f us)",
      least_[0], least_[1], predicted_, alone_);
  text += faster ? "" : ": steps run on one thread, to the same bits";
  if (!faster) plan_.reset();
  host().log(faster ? LogLevel::info : LogLevel::warning, text);
  host().journal(faster ? "runs in clusters" : "runs on one thread", text);
  Choice choice{.way = faster ? Way::clusters : Way::alone};
  std::ranges::copy(least_, choice.microseconds.begin());
  tell_times(choice);
}

/// Ahead of passes that are cut: this thread has one thread within operators, and so have those that begin now.
void PartitionedExecutor::work_on() {
  if (!std::exchange(working_, true) && threads_ != 1) at::set_num_threads(1);
  if (phase_ == Phase::alone || (crew_ && crew_->size() == workers_)) return;
  const Ranks* const ranks = host().run().ranks;
  const auto rank = static_cast<std::size_t>(ranks == nullptr ? 0 : ranks->local_rank());
  const auto local = static_cast<std::size_t>(ranks == nullptr ? 1 : ranks->local_size());
  crew_ = std::make_unique<Crew>(host(), workers_, cores_of_rank(own_cores(), workers_, rank, local));
}

/// Behind them: whoever is next has the run's threads.
void PartitionedExecutor::rest() {
  if (std::exchange(working_, false) && threads_ != 1) at::set_num_threads(threads_);
}

void PartitionedExecutor::log_once(LogLevel level, const std::string& text) {
  if (said_.insert(text).second) host().log(level, text);
}

}  // namespace

TRAINYARD_PLUGIN(PartitionedExecutor)
