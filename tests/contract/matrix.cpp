// Every executor in each of its modes, with every plugin of every other kind, in three precisions, on one rank and on
// two: validation refuses the run and names both sides, or six steps come to what those of `eager` come to, also where
// the run is killed and gone on with. The test draws some of each mode; tools/matrix has them all, and counts.
//   TRAINYARD_MATRIX=whole  all, or how many are drawn of each mode; TRAINYARD_SEED  which
//   TRAINYARD_MATRIX_ONLY="executor=hfta,kind=hook"  also mode, plugin, precision, ranks: a glance at some
//   TRAINYARD_MATRIX_RESULTS=FILE  a line for each that was tried; what has one is not tried again
//   TRAINYARD_MATRIX_SHARE=0/2  of two processes the first
//   TRAINYARD_MATRIX_DEVICE=cuda  all on that one, in fp16 as well; `eager` against `eager` on the CPU
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <set>

#include <ATen/ATen.h>
#include <trainyard/formats/safetensors.hpp>

#include "contract/executors.hpp"
#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "contract/records.hpp"
#include "core/plugins/kinds.hpp"
#include "support/folder.hpp"
#include "support/run.hpp"

namespace matrix_tests {

using namespace trainyard;
using namespace trainyard::contract;
using nlohmann::json;
using plugins::PluginFile;
using test::shipped;
using Sets = std::vector<std::string>;

namespace {

constexpr std::size_t drawn_by_the_test = 3;  ///< of each mode
constexpr std::uint64_t seed_of_the_test = 1;
constexpr int most_runs =
    64;  ///< that are tried where validation refuses the first for another plugin's sake
const std::string eager = "[executor]\ntype = \"eager\"\n";

/// How far six steps may lead from those of `eager`, as a part of the way that these go; of metrics, as a part of their
/// size. Another order of sums rounds otherwise, and fewer products a digit more; of bfloat16 that is the third digit.
const std::map<std::string, double> tolerances = {
    {"fp32", 1e-3}, {"bf16-mixed", 5e-2}, {"fp16-mixed", 1e-2}, {"fp64", 1e-9}};
/// Rounding alone leads some networks further (twenty layers that normalise over four samples): so many times as far as
/// `eager` itself comes to lie from where it comes to in the next finer precision.
constexpr double times_rounding = 4.0;

std::string environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

struct Case {
  const Mode* mode;
  const PluginFile* plugin;
  std::string precision;
  int ranks;
  const PluginFile* beside = nullptr;  ///< another plugin in the run of that one
  std::string device = environment("TRAINYARD_MATRIX_DEVICE");

  using Keys = std::vector<std::pair<std::string, std::string>>;
  Keys keys() const {
    Keys all = {{"executor", mode->executor},    {"mode", mode->name},
                {"kind", plugin->manifest.kind}, {"plugin", plugin->manifest.name},
                {"precision", precision},        {"ranks", std::to_string(ranks)}};
    if (beside != nullptr) all.emplace_back("beside", title(*beside));
    return all;
  }
  /// As TRAINYARD_MATRIX_ONLY takes it.
  std::string name() const {
    std::string text;
    for (const auto& [key, value] : keys()) text += (text.empty() ? "" : ",") + key + "=" + value;
    return text;
  }
  Sets sets() const {
    Sets all = {
        "run.resume=auto",           "trainer.max_duration=6ba",
        "trainer.eval_interval=3ba", "trainer.precision=" + precision,
        "checkpoint.interval=2ba",   "logging.interval=1ba",
        "data.train.batch_size=8",   "data.train.micro_batch_size=" + std::string(mode->whole ? "8" : "4")};
    if (!device.empty()) all.push_back("run.device=" + device);
    // Deep networks double what rounding makes of them with each step, and more at a high rate.
    if (plugin->manifest.kind == "model") all.push_back("optimizer.lr=0.005");
    return all;
  }
};

/// Hooks of tests/faulty that do by the contract what no shipped one does: they write gradients, the learning rate and
/// the labels, and skip steps.
const std::vector<PluginFile>& probes() {
  static const std::vector<PluginFile> found = [] {
    std::vector<PluginFile> files;
    for (const char* name : {"halving", "braking", "permuted_labels", "skipping"})
      files.push_back(*all_plugins().find("hook", name).at(0));
    return files;
  }();
  return found;
}

/// With what begins after a while beginning soon: within the steps of a case.
HostRun hastened(HostRun run) {
  for (const OptionSpec& option : run.plugin.manifest.options) {
    if (option.type != OptionType::duration || option.list || option.common || !option.fallback) continue;
    HostRun other = run;
    other.options += option.name + " = \"2ba\"\n";
    if (Apart(other.text()).train({}, needs_ranks(run.plugin) ? 2 : 1) == 0) run = other;
  }
  return run;
}

const HostRun& run_of(const PluginFile& plugin) {
  static std::map<std::string, HostRun> found;
  if (const auto known = found.find(plugin.path); known != found.end()) return known->second;
  const bool probe = plugin.path.find("/tests/faulty/") != std::string::npos;
  HostRun run = probe ? HostRun{&check::surroundings().front(), plugin, {}} : hastened(host_run(plugin));
  return found.emplace(plugin.path, std::move(run)).first->second;
}

enum class Verdict { refused, beside, agrees, warned, late, alone, failed };
/// "warned": it agrees but for records that are not there, as validation has said with the executor's name. "beside":
/// validation refuses the run for the sake of another plugin that is in it, and no other run was found.
constexpr const char* verdict_names[] = {"refused",        "refused beside",        "agrees", "as warned",
                                         "late by design", "eager has no such run", "FAILED"};

/// What came of a case.
struct Finding {
  Verdict verdict = Verdict::failed;
  std::string why;        ///< of a refusal, what was said; of a failure, what was found
  double distance = 0.0;  ///< from the weights of `eager`
  std::string text;       ///< of the run file
};

std::string run_text(const HostRun& run, const Case& which, const std::string& executor,
                     const std::string& place) {
  std::string text = without_executor(run.text());
  // Sinks and records of tensors as by default: what they leave is compared, too.
  for (const std::string off : {"sinks = []\n", "save = false\n"})
    if (const std::size_t at = text.find(off); at != std::string::npos) text.erase(at, off.size());
  if (run.plugin.manifest.kind != "checkpointer") text += "[checkpoint]\ntype = \"full\"\n";
  if (which.beside != nullptr) text = with_plugin(text, run_of(*which.beside));
  return text + executor + "[[hooks]]\ntype = \"killer\"\nplace = \"" + place + "\"\n";
}

/// What a training came to.
struct Trained {
  int status = -1;
  std::string said;
  std::map<std::string, at::Tensor> weights;
  Remains remains;

  bool ended() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
  std::string end() const {
    return (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                : "exit " + std::to_string(WEXITSTATUS(status))) +
           ": " + said;
  }
};

Trained train(const Apart& run, const Case& which, const Sets& more = {}) {
  Sets sets = which.sets();
  sets.insert(sets.end(), more.begin(), more.end());
  Trained found;
  found.status = run.train(sets, which.ranks);
  found.said = run.said();
  if (!found.ended()) return found;
  for (const NamedTensor& each : read_safetensors(run.run() + "/model.safetensors"))
    if (each.tensor.is_floating_point()) found.weights[each.name] = each.tensor.to(at::kDouble);
  found.remains = remains_of(run.run());
  return found;
}

/// A run in a folder of its own.
class Folder {
 public:
  Folder(const HostRun& run, const Case& which, const std::string& executor) {
    apart_.write(run_text(run, which, executor, apart_.folder().path("place")));
  }
  const Apart& operator*() const { return apart_; }
  const Apart* operator->() const { return &apart_; }

 private:
  Apart apart_;
};

/// What `eager` comes to, and from where.
struct Reference {
  Trained begin, end;
};

/// Of one plugin at a time: its runs are few.
class References {
 public:
  const Reference& of(const HostRun& run, const Case& which) {
    if (run.plugin.path != plugin_) known_.clear();
    plugin_ = run.plugin.path;
    std::string key = std::to_string(which.ranks) + run.text();
    if (which.beside != nullptr) key += title(*which.beside);
    for (const std::string& each : which.sets()) key += each;
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    Reference made;
    made.end = train(*Folder(run, which, eager), which);
    if (made.end.ended()) made.begin = train(*Folder(run, which, eager), which, {"optimizer.lr=1e-30"});
    return known_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::string plugin_;
  std::map<std::string, Reference> known_;
};

/// A running statistic of normalisation.
bool is_statistic(const std::string& weight) {
  return weight.find("running_") != std::string::npos;
}

/// Where weights lie beside those of `eager`, seen from where both began.
struct Place {
  double distance = 0.0;   ///< in lengths of the way of `eager`
  double direction = 1.0;  ///< cosine of the angle between the ways
};

/// `own_statistics`: those of normalisation are other ones, by design.
Place place_of(const Trained& found, const Reference& reference, bool own_statistics) {
  double apart = 0.0, way = 0.0, own = 0.0, both = 0.0;
  for (const auto& [name, end] : reference.end.weights) {
    if (own_statistics && is_statistic(name)) continue;
    const at::Tensor& begin = reference.begin.weights.at(name);
    const at::Tensor moved = found.weights.at(name) - begin, expected = end - begin;
    apart += (moved - expected).square().sum().item<double>();
    way += expected.square().sum().item<double>();
    own += moved.square().sum().item<double>();
    both += (moved * expected).sum().item<double>();
  }
  if (way == 0.0) return {std::sqrt(apart), apart == 0.0 ? 1.0 : 0.0};
  return {std::sqrt(apart / way), own == 0.0 ? 0.0 : both / std::sqrt(way * own)};
}

std::map<std::string, double> numbers(const std::vector<std::string>& lines) {
  std::map<std::string, double> values;
  for (const std::string& line : lines) {
    const std::size_t space = line.rfind(' ');
    values[line.substr(0, space)] = std::strtod(line.c_str() + space, nullptr);
  }
  return values;
}

/// How far `eager` comes to lie from where it comes to in the next finer precision; 0 where it cannot be told.
double rounding(const HostRun& run, const Case& which, References& references) {
  const Reference& reference = references.of(run, which);
  Case finer = which;
  finer.precision = which.precision == "fp32" ? "fp64" : "fp32";
  const Trained& other = references.of(run, finer).end;
  if (which.precision == "fp64" || !other.ended()) return 0.0;
  return place_of(other, reference, false).distance;
}

/// What is other than with `eager`; empty where nothing is.
std::string disagreement(const Trained& found, const Reference& reference, const Case& which,
                         double tolerance, double& distance) {
  for (const auto& [name, weight] : reference.end.weights)
    if (const auto own = found.weights.find(name);
        own == found.weights.end() || own->second.sizes() != weight.sizes())
      return "the weight " + name + " is not there, or of another shape";
  const Place place = place_of(found, reference, which.mode->own_statistics);
  distance = place.distance;
  if (which.mode->late && !(place.direction > 0.0))
    return "the weights go another way than with eager: cosine " + std::to_string(place.direction);
  if (!which.mode->late && !(place.distance <= tolerance))
    return "the weights are " + std::to_string(place.distance) + " of eager's way apart from eager's, and " +
           "their way has the cosine " + std::to_string(place.direction);
  std::map<std::string, double> own = numbers(found.remains.at("last metrics"));
  const bool other_statistics =
      which.mode->own_statistics && std::ranges::any_of(reference.end.weights, is_statistic,
                                                        &std::pair<const std::string, at::Tensor>::first);
  for (const auto& [name, value] : numbers(reference.end.remains.at("last metrics"))) {
    if (other_statistics && name.starts_with("val/")) continue;  // evaluations go by them
    if (!own.contains(name)) return "there is no " + name;
    const bool near = std::abs(own[name] - value) <= tolerance * std::max(1.0, std::abs(value));
    if (!std::isfinite(own[name]) || !(near || which.mode->late))
      return name + " is " + std::to_string(own[name]) + ", with eager " + std::to_string(value);
  }
  return {};
}

/// Which records of the run, or of its tensors, are fewer than with `eager`; empty where none are. Where gradients come
/// late, some of the losses do, and those of the last steps never; of `pipelined` a step that is skipped is not computed.
std::string fewer_records(const Trained& found, const Reference& reference, const Case& which) {
  for (const auto& [name, lines] : reference.end.remains) {
    if (name.starts_with("state of ")) continue;
    const auto left = found.remains.find(name);
    const std::size_t count = left == found.remains.end() ? 0 : left->second.size();
    if (count < (which.mode->late || which.mode->whole ? (lines.size() + 1) / 2 : lines.size()))
      return name + " has " + std::to_string(count) + " lines, with eager " + std::to_string(lines.size());
  }
  return {};
}

/// What becomes of a run that is killed and gone on with and is not of the one that was left alone; empty: nothing.
std::string lost_by_a_kill(const Folder& folder, const Case& which, const Trained& whole) {
  std::filesystem::remove_all(folder->run());
  folder->folder().write("place", "batch_end 4");
  Trained killed;
  killed.status = folder->train(which.sets(), which.ranks);
  killed.said = folder->said();
  if (!WIFSIGNALED(killed.status) || WTERMSIG(killed.status) != SIGKILL)
    return "it was to be killed in its fourth step, " + killed.end();
  std::filesystem::remove(folder->folder().path("place"));
  const Trained again = train(*folder, which);
  if (!again.ended()) return "killed and gone on with, " + again.end();
  const std::string differs = difference(again.remains, whole.remains);
  return differs.empty() ? "" : "killed and gone on with, " + differs;
}

bool is_plugin(const std::string& name) {
  return std::ranges::any_of(all_plugins().files(),
                             [&](const PluginFile& file) { return file.manifest.name == name; });
}

/// Whom a message names: plugins of the run, its precision, its ranks.
std::set<std::string> sides_of(const std::string& said) {
  std::set<std::string> sides;
  // Lines of the run file that a message shows are no part of what it says.
  static const std::regex shown("(^|\n) *[0-9]* \\|[^\n]*"),
      side(
          "\"(\\w+)\"|\\[[a-z_.0-9]+\\] "
          "(\\w+)|\\brank|\\b(run|trainer|data|checkpoint|optimizer|schedule)\\.[a-z_.]+");
  const std::string told = std::regex_replace(said, shown, "");
  for (std::sregex_iterator each(told.begin(), told.end(), side), end; each != end; ++each) {
    const bool plugin = (*each)[1].matched || (*each)[2].matched;
    const std::string name = !plugin ? (*each)[0] : (*each)[1].matched ? (*each)[1] : (*each)[2];
    if (!plugin || is_plugin(name)) sides.insert(name);
  }
  return sides;
}

/// A refusal: of this plugin and another side, of two others, or one that does not say who cannot be with whom.
Finding refused(const std::string& said, const Case& which, const std::string& text) {
  const std::set<std::string> sides = sides_of(said);
  if (sides.size() < 2)
    return {Verdict::failed, "validation refuses it and does not name both sides: " + said, 0.0, text};
  const bool own = sides.contains(which.plugin->manifest.name) &&
                   (which.beside == nullptr || sides.contains(which.beside->manifest.name));
  return {own ? Verdict::refused : Verdict::beside, said, 0.0, text};
}

/// A run that validation takes; else why it takes none.
struct Accepted {
  std::optional<HostRun> run;
  Finding refusal;
  std::string warnings;  ///< of the run
};

Accepted accepted(const Case& which, References& references) {
  const auto resolved = [&](const HostRun& run) {
    return resolve(run_text(run, which, which.mode->table(), "place"), which.sets(), which.ranks);
  };
  const HostRun& first = run_of(*which.plugin);
  const config::Resolution resolution = resolved(first);
  if (resolution.config) return {first, {}, resolution.findings.text()};
  Finding refusal =
      refused(resolution.findings.text(), which, run_text(first, which, which.mode->table(), "place"));
  if (refusal.verdict != Verdict::beside || which.beside != nullptr) return {std::nullopt, refusal};
  std::string reasons;
  int left = most_runs;
  return {
      check::find_run(
          *which.plugin, materials(),
          [&](const HostRun& run) {
            if (--left < 0) return std::string("no");
            const bool trains =
                resolved(run).config &&
                (run.host->executor.empty()
                     ? references.of(run, which).end.ended()
                     : train(*Folder(run, which, which.mode->table()), which).ended());  // no other trains it
            return std::string(trains ? "" : "no");
          },
          reasons),
      refusal};
}

/// With what `eager` comes to.
void compare(Finding& finding, const Trained& whole, const Accepted& accepted, Case which,
             References& references) {
  if (which.mode->table() == eager) which.device.clear();
  if (!references.of(*accepted.run, which).begin.ended()) {
    finding.verdict = Verdict::alone;
    return;
  }
  double tolerance = tolerances.at(which.precision);
  const auto differs = [&] {
    return disagreement(whole, references.of(*accepted.run, which), which, tolerance, finding.distance);
  };
  finding.why = differs();
  if (!finding.why.empty()) {
    tolerance = std::max(tolerance, times_rounding * rounding(*accepted.run, which, references));
    finding.why = differs();
  }
  if (!finding.why.empty()) return;
  finding.why = fewer_records(whole, references.of(*accepted.run, which), which);
  if (finding.why.empty() || !sides_of(accepted.warnings).contains(which.mode->executor)) return;
  finding.verdict = Verdict::warned;
  finding.why.clear();
}

Finding tried(const Case& which, References& references) {
  const Accepted found = accepted(which, references);
  if (!found.run) return found.refusal;
  const HostRun& run = *found.run;
  Finding finding{
      .verdict = Verdict::failed, .why = {}, .text = run_text(run, which, which.mode->table(), "place")};
  const Folder folder(run, which, which.mode->table());
  const Trained whole = train(*folder, which);
  if (!whole.ended()) {
    const int status = folder->check(which.sets(), which.ranks);  // of what it builds validation says more
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) return refused(folder->said(), which, finding.text);
    finding.why = "validation accepts it, and " + whole.end();
    return finding;
  }
  finding.verdict = which.mode->late ? Verdict::late : Verdict::agrees;
  // Another device draws other random numbers for the same dropout.
  const bool drops = finding.text.find("dropout") != std::string::npos;
  if (which.mode->table() != eager || (!which.device.empty() && !drops))
    compare(finding, whole, found, which, references);
  if (finding.why.empty()) finding.why = lost_by_a_kill(folder, which, whole);
  if (!finding.why.empty()) finding.verdict = Verdict::failed;
  return finding;
}

/// Of what cannot be tried the others do not wait.
Finding tried_or_not(const Case& which, References& references) {
  try {
    return tried(which, references);
  } catch (const std::exception& error) {
    return {.verdict = Verdict::failed, .why = error.what(), .text = {}};
  } catch (const Catch::TestFailureException&) {
    return {.verdict = Verdict::failed, .why = "it could not be tried: the test has said why", .text = {}};
  }
}

/// All that a run may have beside its executor.
const std::vector<PluginFile>& plugins_of_runs() {
  static const std::vector<PluginFile> plugins = [] {
    std::vector<PluginFile> files = shipped().files();
    std::ranges::copy(probes(), std::back_inserter(files));
    std::erase_if(files, [](const PluginFile& file) {
      return file.manifest.kind == "executor" || plugins::find_kind(file.manifest.kind)->beside;
    });
    return files;
  }();
  return plugins;
}

/// Whether a plugin of this kind, in the run of another, may be in the way of it; whatever looks on may not.
bool takes_part(const PluginFile& file) {
  static const std::set<std::string> kinds = {"dropout",    "sampler",      "optimizer", "schedule",
                                              "compressor", "checkpointer", "hook"};
  return kinds.contains(file.manifest.kind);
}

/// Two plugins in a run of the executor `eager`.
std::vector<Case> pairs_of(const PluginFile& plugin, const Mode& mode) {
  std::vector<Case> all;
  const bool list = plugins::find_kind(plugin.manifest.kind)->place == plugins::KindRow::Place::list;
  for (const PluginFile& other : plugins_of_runs()) {
    if (!takes_part(other) || &other == &plugin || (!list && other.manifest.kind == plugin.manifest.kind))
      continue;
    if (takes_part(plugin) && &other < &plugin) continue;  // the other way round
    all.push_back({&mode, &plugin, "fp32", needs_ranks(plugin) || needs_ranks(other) ? 2 : 1, &other});
  }
  return all;
}

/// All there are, those of a plugin together.
std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const PluginFile& plugin : plugins_of_runs()) {
    std::vector<std::string> own(std::begin(precisions), std::end(precisions));
    if (!environment("TRAINYARD_MATRIX_DEVICE").empty()) own.push_back("fp16-mixed");
    for (const std::string& precision : own)
      for (const int ranks : {1, 2})
        for (const Mode& mode : modes()) all.push_back({&mode, &plugin, precision, ranks});
    for (const Mode& mode : modes())
      if (mode.table() == eager) std::ranges::copy(pairs_of(plugin, mode), std::back_inserter(all));
  }
  return all;
}

/// "executor=hfta,ranks=2": those of which all of this is so.
void keep(std::vector<Case>& cases, const std::string& only) {
  static const std::regex assignment("([^=,]+)=([^,]+)");
  for (std::sregex_iterator each(only.begin(), only.end(), assignment), end; each != end; ++each)
    std::erase_if(cases, [&](const Case& which) {
      return std::ranges::none_of(
          which.keys(), [&](const auto& key) { return key.first == (*each)[1] && key.second == (*each)[2]; });
    });
}

/// Leaves `count` cases of each mode, or all where it has fewer; those of a plugin stay together.
void draw(std::vector<Case>& cases, std::size_t count, std::uint64_t seed) {
  std::vector<Case> drawn;
  std::mt19937_64 engine(seed);
  for (const Mode& mode : modes()) {
    std::vector<Case> own;
    std::ranges::copy_if(cases, std::back_inserter(own),
                         [&](const Case& which) { return which.mode == &mode; });
    std::ranges::sample(own, std::back_inserter(drawn), static_cast<std::ptrdiff_t>(count), engine);
  }
  std::ranges::stable_sort(drawn, {}, &Case::plugin);
  cases = std::move(drawn);
}

/// Of those who share the work, the part of this one: of a plugin, all of a precision and a number of ranks, which have
/// runs of `eager` in common.
void share_out(std::vector<Case>& cases, const std::string& share) {
  if (share.empty()) return;
  const std::size_t slash = share.find('/'), own = std::stoul(share),
                    of = std::stoul(share.substr(slash + 1));
  const auto part = [](const Case& which) {
    return std::hash<std::string>()(which.plugin->path + which.precision + std::to_string(which.ranks));
  };
  std::erase_if(cases, [&](const Case& which) { return part(which) % of != own; });
}

/// The lines of earlier starts, and of this one.
class Results {
 public:
  explicit Results(const std::string& path) {
    if (path.empty()) return;
    for (const std::string& line : test::lines(path))
      if (const json known = json::parse(line, nullptr, false); known.is_object())
        known_.insert(known["case"]);
    file_.open(path, std::ios::app);
  }
  bool contains(const Case& which) const { return known_.contains(which.name()); }
  void add(const Case& which, const Finding& finding) {
    if (!file_.is_open()) return;
    json line = {{"case", which.name()},
                 {"verdict", verdict_names[static_cast<std::size_t>(finding.verdict)]},
                 {"distance", finding.distance},
                 {"why", finding.why}};
    if (finding.verdict == Verdict::failed) line.update({{"text", finding.text}, {"sets", which.sets()}});
    file_ << line.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }

 private:
  std::set<std::string> known_;
  std::ofstream file_;
};

}  // namespace

TEST_CASE("every executor with every other plugin is refused with both names, or does what eager does") {
  const std::string many = environment("TRAINYARD_MATRIX"), seed_given = environment("TRAINYARD_SEED");
  std::vector<Case> cases = all_cases();
  keep(cases, environment("TRAINYARD_MATRIX_ONLY"));
  const std::uint64_t seed = seed_given.empty() ? seed_of_the_test : std::stoull(seed_given);
  if (many != "whole") draw(cases, many.empty() ? drawn_by_the_test : std::stoul(many), seed);
  share_out(cases, environment("TRAINYARD_MATRIX_SHARE"));
  Results results(environment("TRAINYARD_MATRIX_RESULTS"));
  References references;
  std::map<Verdict, int> counts;
  for (const Case& which : cases) {
    if (results.contains(which)) continue;
    const Finding finding = tried_or_not(which, references);
    results.add(which, finding);
    ++counts[finding.verdict];
    if (finding.verdict != Verdict::failed) continue;
    FAIL_CHECK("tools/matrix --only " << which.name() << "\n" << finding.text << finding.why);
  }
  std::string told = many == "whole" ? "" : "drawn with TRAINYARD_SEED=" + std::to_string(seed) + ": ";
  for (const auto& [verdict, count] : counts)
    told +=
        std::string(verdict_names[static_cast<std::size_t>(verdict)]) + " " + std::to_string(count) + "; ";
  WARN(told);
}

}  // namespace matrix_tests
