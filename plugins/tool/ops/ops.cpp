// Says how operators behave on this machine as each dimension of them changes, which width of a network is worth
// changing, and how long a network takes. After Tang, Han, Zhang, Cao and Liu, "To Bridge Neural Network Design and
// Real-World Performance: A Behaviour Study for Neural Networks", MLSys 2021, of which the abstract and the introduction
// could be read; the latency model is after nn-Meter (Zhang et al., MobiSys 2021).
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include <trainyard/dataset.hpp>
#include <trainyard/host.hpp>
#include <trainyard/tool.hpp>

#include "advice.hpp"
#include "applied.hpp"
#include "findings.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"
#include "lib/read_file.hpp"
#include "lib/words.hpp"
#include "page.hpp"

namespace ops {
enum class Apply : std::uint8_t { none, faster, free, narrower };
}

template <>
struct trainyard::Words<ops::Apply> {
  static constexpr std::string_view words[] = {"none", "faster", "free", "narrower"};
};

namespace {

using namespace trainyard;
using namespace ops;

constexpr double most_work = 1e9;  ///< of a point at random: some 10 ms

Advice::Kind kind_of(Apply apply) {
  return apply == Apply::faster ? Advice::Kind::faster
         : apply == Apply::free ? Advice::Kind::free
                                : Advice::Kind::narrower;
}

class Ops final : public Tool {
 public:
  struct Options {
    std::vector<std::string> sweeps;
    std::string database;
    bool again = false;
    bool cold = false;
    std::int64_t rounds = 9;
    double round_ms = 2.0;
    double jump_threshold = 0.1;
    std::int64_t samples = 1200, held_out = 300, adaptive_rounds = 0, network_samples = 0;
    bool network = true;
    Apply apply = Apply::none;
  };
  static void describe(Manifest<Options>& m);
  explicit Ops(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override;

 private:
  bool asked_for(const std::string& sweep) const;
  void measure_sweeps(Workshop& shop, Report& report);
  void measure_one(Workshop& shop, const Sweep& sweep);
  void measure_samples(Workshop& shop, Report& report);
  void draw(Workshop& shop, const std::string& name, const Operator& like, std::int64_t count);
  void predict_the_network(Workshop& shop, Report& report);
  std::vector<Sample> samples_of(const std::string& sweep) const;
  void time_the_network(Workshop& shop, Report& report);
  void add_findings(Workshop& shop, Report& report);
  void save();
  void write(const std::string& path, const std::string& text) const;
  std::int64_t width() const;

  Rounds rounds() const { return {static_cast<int>(options_.rounds), 1e-3 * options_.round_ms, {}}; }

  Options options_;
  std::string path_;
  std::optional<Database> database_;
  std::vector<Sweep> sweeps_;
  Quality worst_;
  std::vector<std::string> without_;  ///< what this processor does not have
  PageInput page_;
};

void Ops::describe(Manifest<Options>& m) {
  m.name("ops").version("1.0.0").summary(
      "Measures how operators behave on this machine over each of their dimensions, and says which widths of "
      "the network to change.");
  m.option("sweeps", &Options::sweeps,
           "sweeps to measure, as [\"cout\", \"kernel\"]; \"samples\": points at random, for a latency "
           "model; \"all\": all of them");
  m.option("database", &Options::database,
           "CSV file of measurements, read where it is there, and added to; empty: operators.csv in the "
           "tool's folder");
  m.option("again", &Options::again, "measures anew what the database has of this machine");
  m.option("cold", &Options::cold,
           "fills the caches with other data before each call of a dimension's sweep");
  m.option("rounds", &Options::rounds, "visits of each point; the least time counts").range(2, 1000);
  m.option("round_ms", &Options::round_ms, "milliseconds of calls in a visit").range(0.01, 1000);
  m.option("jump_threshold", &Options::jump_threshold, "rise from one point to the next that is a jump")
      .range(0.02, 1);
  m.option("samples", &Options::samples, "convolutions at random that the latency model is fitted to")
      .range(100, 100000);
  m.option("held_out", &Options::held_out, "convolutions at random that the model is judged by")
      .range(1, 10000);
  m.option("adaptive_rounds", &Options::adaptive_rounds,
           "times that points near badly predicted ones are added")
      .range(0, 10);
  m.option("network", &Options::network, "times the run's network, and gives advice");
  m.option("network_samples", &Options::network_samples,
           "points at random of each kind of operator that the network has, at its batch, from which it is "
           "predicted; 0: "
           "it is not")
      .range(0, 10000);
  m.option("apply", &Options::apply,
           "advice that is written as a file to lay over the run file: wider layers that are faster, that "
           "cost no more, or narrower ones");
}

void Ops::write(const std::string& path, const std::string& text) const {
  lib::NewFile made(path);
  std::ofstream file(made.temporary(), std::ios::binary);
  file << text;
  file.close();
  if (!file || made.put_in_place()) throw DataError(path + ": cannot be written");
}

void Ops::save() {
  write(path_, database_->text());
}

/// The width that the sweep over output channels has, 1 where there is none.
std::int64_t Ops::width() const {
  return fit_staircase(curve_of(*database_, {"cout", "cout", {}, {}})).width();
}

void Ops::measure_one(Workshop& shop, const Sweep& sweep) {
  const Quality quality = measure(
      *database_, sweep, rounds(), options_.again, host().random("sweep " + sweep.name),
      [&] { return shop.stopping(); },
      [&](const std::string& reason) {
        if (std::find(without_.begin(), without_.end(), reason) == without_.end()) without_.push_back(reason);
      });
  if (!quality.whole) return;
  save();
  worst_.moved = std::max(worst_.moved, quality.moved);
  worst_.share = std::max(worst_.share, quality.share);
  worst_.noisy = worst_.noisy || quality.noisy;
  if (quality.noisy || quality.moved > 0.05)
    host().log(
        LogLevel::warning,
        "sweep " + sweep.name + ": the machine was busy or changed its speed" +
            (quality.moved > 0.05 ? lib::printed(" (a point that is timed with each sweep moved by %.0f %%)",
                                                 100.0 * quality.moved)
                                  : "") +
            ": its times are worth less");
}

bool Ops::asked_for(const std::string& sweep) const {
  return std::any_of(options_.sweeps.begin(), options_.sweeps.end(),
                     [&](const std::string& each) { return each == sweep || each == "all"; });
}

void Ops::measure_sweeps(Workshop& shop, Report& report) {
  std::vector<std::string> names = {"all", "samples"};
  for (const Sweep& each : sweeps_) names.push_back(each.name);
  for (const std::string& name : options_.sweeps)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw ConfigError("sweeps has \"" + name + "\": expected some of " + lib::join(names));
  std::vector<const Sweep*> wanted;
  for (const Sweep& each : sweeps_)
    if (asked_for(each.name)) wanted.push_back(&each);
  for (std::size_t i = 0; i < wanted.size() && !shop.stopping(); ++i) {
    shop.progress(static_cast<std::int64_t>(i), std::ssize(wanted));
    measure_one(shop, *wanted[i]);
  }
  report.columns = {"sweep", "points", "least us", "most us", "pattern"};
  for (const Sweep* each : wanted) {
    const auto rows = database_->of_sweep(each->name);
    if (rows.empty()) continue;
    const auto [least, most] = std::minmax_element(rows.begin(), rows.end(), [](const Row* a, const Row* b) {
      return a->timing.least < b->timing.least;
    });
    const Curve curve = curve_of(*database_, *each);
    report.rows.push_back({each->name, static_cast<std::int64_t>(rows.size()), 1e6 * (*least)->timing.least,
                           1e6 * (*most)->timing.least,
                           curve.empty() ? "" : pattern_text(curve, options_.jump_threshold)});
  }
}

std::vector<Sample> Ops::samples_of(const std::string& sweep) const {
  std::vector<Sample> samples;
  for (const Row* row : database_->of_sweep(sweep)) samples.push_back({row->point, row->timing.least});
  return samples;
}

/// Draws and times points at random that are like one but for their shape.
void Ops::draw(Workshop& shop, const std::string& name, const Operator& like, std::int64_t count) {
  constexpr std::int64_t together =
      100;  // so many are timed in the same rounds, and kept when a signal comes
  const std::string op = like.depthwise() ? "depthwise" : like.op;
  const RandomStream random = host().random(name + " " + op + " " + like.phase);
  std::uint64_t number = 0;
  for (std::int64_t first = 0; first < count && !shop.stopping(); first += together) {
    Sweep sweep{name, "", {}, {}};
    while (std::ssize(sweep.points) < std::min(count - first, together)) {
      Operator point = drawn(op, random, number++);
      point.phase = like.phase;
      point.batch = like.batch;
      if (like.phase == "first" && op != "linear") point.in = number % 2 == 0 ? 1 : 3;
      if (work_like(point) <= most_work) sweep.points.push_back(point);
    }
    shop.progress(first, count);
    measure_one(shop, sweep);
  }
}

void Ops::measure_samples(Workshop& shop, Report& report) {
  draw(shop, "samples", {}, options_.samples);
  draw(shop, "held_out", {}, options_.held_out);
  for (std::int64_t round = 0; round < options_.adaptive_rounds && !shop.stopping(); ++round) {
    const std::vector<Operator> hard = hard_points(samples_of("samples"), width(), 1);
    const RandomStream random = host().random("near").at(static_cast<std::uint64_t>(round));
    Sweep sweep{"samples", "", {}, {}};
    for (std::size_t i = 0; i < hard.size(); ++i) {
      for (std::uint64_t n = 0; n < 2; ++n) sweep.points.push_back(near(hard[i], random, 2 * i + n));
      if (sweep.points.size() < 100 && i + 1 < hard.size()) continue;
      measure_one(shop, sweep);
      sweep.points.clear();
      if (shop.stopping()) break;
    }
  }
  const std::vector<Sample> fitted = samples_of("samples"), held_out = samples_of("held_out");
  if (fitted.size() < 100 || held_out.empty()) return;
  shop.progress(0, 0);
  const Accuracy accuracy = accuracy_of(LatencyModel(fitted, width(), 1), fitted, held_out);
  report.facts.emplace_back("model, samples", static_cast<std::int64_t>(fitted.size()));
  report.facts.emplace_back("model, held out", static_cast<std::int64_t>(held_out.size()));
  report.facts.emplace_back("model, within 5 %", accuracy.within_5);
  report.facts.emplace_back("model, within 10 %", accuracy.within_10);
  report.facts.emplace_back("model, within 15 %", accuracy.within_15);
  report.facts.emplace_back("model, rmspe", accuracy.rmspe);
  report.facts.emplace_back("multiply-adds alone, within 10 %", accuracy.flops_within_10);
}

/// Times operators of the kinds that the network has, at its batch, and sums up what models of them say of its nodes.
void Ops::predict_the_network(Workshop& shop, Report& report) {
  NetworkTimes& times = page_.network;
  std::map<std::string, Operator> families;
  for (const NodeTimes& each : times.nodes) {
    if (!each.point) continue;
    const Operator training = in_training(each);
    families.emplace(family_of(*each.point), *each.point);
    families.emplace(family_of(training), training);
  }
  for (const auto& [family, like] : families) draw(shop, "network", like, options_.network_samples);
  if (shop.stopping()) return;
  std::vector<Sample> samples = samples_of("network");
  std::erase_if(samples, [&](const Sample& each) { return !families.contains(family_of(each.point)); });
  Latencies latencies;
  latencies.fit(samples, width(), 1);
  predict(times, latencies);
  report.facts.emplace_back("network, nodes without a prediction",
                            static_cast<std::int64_t>(times.without_prediction));
  report.facts.emplace_back("network, predicted / measured forward",
                            times.predicted.forward / times.measured.forward);
  report.facts.emplace_back("network, predicted / measured training",
                            times.predicted.training / times.measured.training);
}

void Ops::time_the_network(Workshop& shop, Report& report) {
  auto* const own = dynamic_cast<GraphNetwork*>(&shop.network());
  if (own == nullptr) {
    report.facts.emplace_back("network", "not timed: it has no graph");
    return;
  }
  // A dropout may compute layers itself; the twin, on the same weights, has none.
  const std::unique_ptr<Network> twin = own->twin();
  auto* const network = dynamic_cast<GraphNetwork*>(twin.get());
  if (own->has_dropout()) report.facts.emplace_back("network", "timed without its dropout");
  const Batch batch = shop.batches("train", 1).front();
  page_.network =
      time_network(*network, batch, rounds(), host().random("network"), [&] { return shop.stopping(); });
  if (page_.network.nodes.empty()) return;
  NetworkTimes& times = page_.network;
  report.facts.emplace_back("network, batch", batch.size());
  report.facts.emplace_back("network, forward us", 1e6 * times.measured.forward);
  report.facts.emplace_back("network, training us", 1e6 * times.measured.training);
  report.facts.emplace_back("network, nodes by themselves / forward",
                            times.sum.forward / times.measured.forward);
  report.facts.emplace_back("network, nodes by themselves / training",
                            times.sum.training / times.measured.training);
  if (options_.network_samples > 0) predict_the_network(shop, report);
  const Advised advised =
      advise(*network->graph(), times, rounds(), host().random("advice"), [&] { return shop.stopping(); });
  page_.advice = advised.advice;
  if (times.noisy || advised.noisy) {
    worst_.noisy = true;
    host().log(LogLevel::warning, "the network: the machine was busy: its times are worth less");
  }
  report.facts.emplace_back("widths timed", static_cast<std::int64_t>(advised.widths));
  report.facts.emplace_back("layers in bf16 save", advised.bf16_gain);
  Array advice;
  for (const Advice& each : advised.advice) advice.emplace_back(text_of(each));
  report.facts.emplace_back("advice", std::move(advice));
  if (options_.apply == Apply::none) return;
  const Applied applied =
      ops::apply(shop.config(), widths_of(*network->graph()), advised.advice, kind_of(options_.apply));
  Array changes, without;
  for (const std::string& each : applied.changes) changes.emplace_back(each);
  for (const std::string& each : applied.without) without.emplace_back(each);
  report.facts.emplace_back("applied", std::move(changes));
  report.facts.emplace_back("not applied", std::move(without));
  if (applied.text.empty()) return;
  const std::string path = shop.folder() + "/advice.toml";
  write(path, applied.text);
  report.facts.emplace_back("run file", path);
}

/// Says what can be decided, and writes all with their queries.
void Ops::add_findings(Workshop& shop, Report& report) {
  page_.findings = findings_of(*database_);
  Array findings;
  for (const Finding& each : page_.findings)
    if (each.decided)
      findings.emplace_back(each.name + (each.holds ? " holds: " : " does not hold: ") + each.statement +
                            lib::printed(" (%.3g, bound %.3g)", each.value, each.bound));
  report.facts.emplace_back("findings", std::move(findings));
  const std::string path = shop.folder() + "/findings.json";
  write(path, json_of(page_.findings));
  report.facts.emplace_back("findings with their queries", path);
}

Report Ops::run(Workshop& shop) {
  if (host().run().device != "cpu")
    throw ConfigError("operators are timed on the processor, and the run is on " + host().run().device +
                      ": set run.device = \"cpu\"");
  path_ = options_.database.empty() ? shop.folder() + "/operators.csv" : options_.database;
  database_.emplace(this_machine());
  if (const std::optional<std::string> text = lib::read_file(path_))
    database_->read(*text, path_);
  else if (!options_.database.empty())
    host().log(LogLevel::warning, path_ + " is not there: a new database is made");
  sweeps_ = dimension_sweeps(at::get_num_threads(), options_.cold);
  page_.jump_threshold = options_.jump_threshold;

  Report report;
  report.facts = {{"database", path_}, {"machine", database_->machine().id}};
  for (const auto& [name, value] : database_->machine().facts) report.facts.emplace_back(name, value);
  report.facts.emplace_back("rows of other machines", static_cast<std::int64_t>(database_->others()));
  keep_pages(true);
  measure_sweeps(shop, report);
  if (asked_for("samples") && !shop.stopping()) measure_samples(shop, report);
  if (options_.network && !shop.stopping()) {
    const Threads one(1);
    time_the_network(shop, report);
  }
  keep_pages(false);
  add_findings(shop, report);
  report.facts.emplace_back("processor time / wall time, one thread", worst_.share);
  report.facts.emplace_back("most that a sentinel moved", worst_.moved);
  report.facts.emplace_back("quiet", !worst_.noisy && worst_.moved <= 0.05);
  Array without;
  for (const std::string& each : without_) without.emplace_back(each);
  report.facts.emplace_back("not on this processor", std::move(without));
  for (const auto& [name, value] : database_->machine().facts) page_.facts.emplace_back(name, value);
  const std::string page = shop.folder() + "/report.html";
  write(page, page_of(*database_, sweeps_, page_));
  report.facts.emplace_back("page", page);
  return report;
}

}  // namespace

TRAINYARD_PLUGIN(Ops)
