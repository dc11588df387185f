#include "core/programs/study/study_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <thread>

#include "core/cli/run_state.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/runfile/suggest.hpp"
#include "lib/launch.hpp"
#include "lib/printed.hpp"
#include "lib/sha256.hpp"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using What = LedgerEntry::What;

std::string until_text(const std::optional<Duration>& until) {
  return until ? until->text() : "";
}

std::string named(const TrialKey& key) {
  return "\"" + key.trial + "\"" + (key.until.empty() ? "" : " to " + key.until);
}

/// Makes the folder and returns the path of its ledger.
std::string ledger_in(const std::string& folder) {
  fs::create_directories(folder);
  return folder + "/ledger.jsonl";
}

}  // namespace

StudyPlugin::StudyPlugin(const StudyFile& file)
    : who_("study " + file.plugin.manifest.name + " (" + file.plugin.path + "): "),
      study_(make_study(file)) {}

template <class Call>
auto StudyPlugin::call(const char* what, Call&& made) const {
  try {
    return made();
  } catch (const ConfigError& error) {
    throw ConfigError("study: " + std::string(error.what()));
  } catch (const std::exception& error) {
    throw PluginError(who_ + what + " threw: " + error.what());
  } catch (...) {
    throw PluginError(who_ + what + " threw something that is no std::exception");
  }
}

void StudyPlugin::open(const Study::Resolve& resolve) {
  call("open", [&] { study_->open(resolve); });
}

std::vector<StudyStage> StudyPlugin::stages() const {
  return call("stages", [&] { return study_->stages(); });
}

std::optional<StudyTrial> StudyPlugin::next(int running) {
  std::optional<StudyTrial> trial = call("next", [&] { return study_->next(running); });
  if (trial && trial->name.empty()) throw PluginError(who_ + "next gave a trial without a name");
  if (trial && trial->run.empty())
    throw ConfigError(
        "study: trial \"" + trial->name +
        "\" has no run file: say `run = \"FILE\"` in [study], or let the file be a run file itself");
  return trial;
}

std::optional<StudyTrial> StudyPlugin::adopt(const StudyTrial& trial, const TrialOutcome& outcome) {
  return call("adopt", [&] { return study_->adopt(trial, outcome); });
}

void StudyPlugin::report(const TrialOutcome& outcome) {
  call("report", [&] { study_->report(outcome); });
}

StudyResult StudyPlugin::result() const {
  return call("result", [&] { return study_->result(); });
}

std::vector<StudyTrial> first_trials(StudyPlugin& study, TrialConfigs& configs, std::size_t most) {
  std::vector<StudyTrial> trials;
  while (trials.size() < most) {
    std::optional<StudyTrial> trial = study.next(static_cast<int>(trials.size()));
    if (!trial) break;
    configs.resolved(*trial);
    trials.push_back(std::move(*trial));
  }
  return trials;
}

StudyRun::StudyRun(const StudyFile& file, const std::vector<std::string>& plugin_folders, std::string folder,
                   int jobs)
    : file_(file),
      folder_(std::move(folder)),
      jobs_(jobs),
      configs_(plugin_folders),
      ledger_(ledger_in(folder_)) {}

ExitCode StudyRun::run() {
  const control::HeldSignals signals;
  if (!replay()) take_over();
  before_ = elapsed_;
  if (jobs_ == 0 && !begun_.empty()) jobs_ = jobs_for(configs_.resolved(begun_.front().trial));
  Trials trials(signals, file_.common);
  for (const Begun& each : begun_) process(trials, each.trial);
  bool stopping = false;
  while (true) {
    if (!stopping) fill(trials);
    if (trials.running() == 0 && (lost_.empty() || stopping)) break;
    show_progress(trials.running());
    const int signal = signals.next(std::chrono::milliseconds(1000));
    if (signal != 0 && signal != SIGCHLD) {
      stopping = true;
      trials.interrupt();
    }
    collect(trials);
  }
  if (isatty(STDERR_FILENO) == 1) std::fputs("\r\x1b[K", stderr);
  if (stopping) return ExitCode::resumable;
  if (failed_ > 0 && failed_ == static_cast<std::int64_t>(finished_.size())) all_failed();
  return ExitCode::done;
}

/// Repeats the recorded calls on a new plugin object, and returns whether it gave the same answers.
bool StudyRun::replay() {
  open_study();
  for (const LedgerEntry& entry : ledger_.entries()) {
    if (entry.what == What::known) {
      remember(entry);
      continue;
    }
    if (entry.what == What::start) {
      const std::optional<StudyTrial> trial = study_->next(static_cast<int>(begun_.size()));
      if (!trial || trial->name != entry.key.trial || until_text(trial->until) != entry.key.until)
        return false;
      if (entry.key.digest != configs_.digest(*trial)) return false;
      take_known(entry.key);
      begun_.push_back({*trial, entry.key});
      continue;
    }
    const auto begun = std::ranges::find(begun_, entry.key, &Begun::key);
    if (begun == begun_.end()) return false;
    const StudyTrial trial = begun->trial;
    begun_.erase(begun);
    over(trial, entry.outcome);
  }
  return true;
}

/// Starts over after the study changed. Finished trials that it still has are not run again; failed ones are.
void StudyRun::take_over() {
  std::vector<LedgerEntry> kept, started;
  for (LedgerEntry entry : ledger_.entries()) {
    if (entry.what == What::start) {
      const std::string& name = entry.key.trial;
      const auto has_name = [&](const LedgerEntry& each) { return each.key.trial == name; };
      // Its run has taken the folder of what was known by that name, as in take_known.
      if (std::ranges::find(kept, entry.key, &LedgerEntry::key) == kept.end() &&
          std::ranges::none_of(started, has_name))
        std::erase_if(kept, has_name);
      started.push_back(entry);
    }
    if (entry.what == What::start || entry.outcome.end == TrialOutcome::End::failed) continue;
    const auto start = std::ranges::find(started, entry.key, &LedgerEntry::key);
    if (entry.what == What::end && start != started.end()) {
      entry.run = start->run;
      entry.set = start->set;
    }
    entry.what = What::known;
    kept.push_back(std::move(entry));
  }
  std::fprintf(stderr,
               "study: it has changed since %s was written: of %zu finished trials those are taken over that "
               "are still part of it\n",
               (folder_ + "/ledger.jsonl").c_str(), kept.size());
  ledger_.replace(kept);
  known_.clear();
  begun_.clear();
  finished_.clear();
  reached_.clear();
  failed_ = 0;
  elapsed_ = 0.0;  // its time is its own
  open_study();
  std::ranges::for_each(kept, [this](const LedgerEntry& each) { remember(each); });
}

void StudyRun::open_study() {
  study_ = std::make_unique<StudyPlugin>(file_);
  study_->open([this](const StudyTrial& trial) { return configs_.resolved(trial).resolved; });
}

/// Offers a finished trial to the study; one that it does not take counts once it asks for the same.
void StudyRun::remember(const LedgerEntry& entry) {
  const StudyTrial trial = entry.trial();
  const bool is_same = is_as_it_was(trial, entry.key.digest);
  const std::optional<StudyTrial> own = is_same ? study_->adopt(trial, entry.outcome) : std::nullopt;
  if (!own) return known_.push_back(entry);
  reached_[own->name] = own->until;
  finished_.push_back({*own, entry.outcome, folder_of(own->name)});
}

/// Returns whether a trial would be the same training today.
bool StudyRun::is_as_it_was(const StudyTrial& trial, const std::string& digest) {
  try {
    return !trial.run.empty() && configs_.digest(trial) == digest;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Returns what is known of a trial. A new run takes the folder of known ones that have its name: they are
/// forgotten.
std::optional<TrialOutcome> StudyRun::take_known(const TrialKey& key) {
  const auto known = std::ranges::find(known_, key, &LedgerEntry::key);
  if (known == known_.end()) {
    if (!reached_.contains(key.trial))
      std::erase_if(known_, [&](const LedgerEntry& each) { return each.key.trial == key.trial; });
    return std::nullopt;
  }
  TrialOutcome outcome = known->outcome;
  known_.erase(known);
  return outcome;
}

/// Begins trials while the study has some and places are free.
void StudyRun::fill(Trials& trials) {
  std::erase_if(lost_, [&](const Lost& each) {
    if (each.at > Clock::now()) return false;
    process(trials, each.trial);
    return true;
  });
  while (jobs_ == 0 || trials.running() + std::ssize(lost_) < jobs_) {  // what is lost keeps its place
    const std::optional<StudyTrial> trial = study_->next(static_cast<int>(begun_.size()));
    if (!trial) return;
    begin(trials, *trial);
  }
}

void StudyRun::begin(Trials& trials, const StudyTrial& trial) {
  TrialKey key{trial.name, until_text(trial.until), ""};
  try {
    key.digest = configs_.digest(trial);
    if (jobs_ == 0) jobs_ = jobs_for(configs_.resolved(trial));
  } catch (const ConfigError& error) {
    ledger_.write({What::start, key, {}, trial.run, trial.set});
    begun_.push_back({trial, key});
    return end(key, {trial.name, trial.until, TrialOutcome::End::failed, {}, error.what()});
  }
  std::optional<TrialOutcome> known = take_known(key);
  if (!known && !reached_.contains(trial.name))
    fs::remove_all(folder_of(trial.name));  // left by another study of this name
  ledger_.write({What::start, key, {}, trial.run, trial.set});
  begun_.push_back({trial, key});
  if (!known) return process(trials, trial);
  known->elapsed = elapsed();
  end(key, *known);
}

void StudyRun::process(Trials& trials, const StudyTrial& trial) {
  const std::string folder = folder_of(trial.name);
  const std::string log = folder_ + "/logs" + folder.substr(folder_.size() + 5) + ".txt";
  StudyTrial placed = trial;
  const std::string runs = fs::absolute(folder_).lexically_normal().string() + "/runs";
  placed.start = lib::replaced(placed.start, "{runs}", runs);
  for (std::vector<std::string>& words : placed.before)
    for (std::string& word : words) word = lib::replaced(word, "{runs}", runs);
  if (!checkpoint::list(folder + "/checkpoints").empty())
    placed.before.clear();
  else if (!placed.start.empty())
    fs::remove_all(folder);  // where it was killed before its first checkpoint
  trials.start(placed, configs_.training(placed, folder), folder, log);
}

void StudyRun::collect(Trials& trials) {
  for (EndedTrial& each : trials.ended()) {
    if (each.interrupted) continue;  // it stays begun, for a later continuation
    each.outcome.elapsed = elapsed();
    const auto begun =
        std::ranges::find_if(begun_, [&](const Begun& one) { return one.trial.name == each.outcome.trial; });
    if (each.lost && is_given_again(begun->trial, each.outcome.error)) continue;
    if (each.outcome.end == TrialOutcome::End::done) check_metrics(each.outcome);
    if (each.outcome.end == TrialOutcome::End::failed && failed_ == 0 && each.code >= 1 && each.code <= 6)
      first_failure_ = static_cast<ExitCode>(each.code);
    const TrialKey key = begun->key;
    end(key, each.outcome);
  }
  const auto enough = static_cast<std::size_t>(std::max(8, 2 * jobs_));
  if (finished_.size() >= enough && failed_ == static_cast<std::int64_t>(finished_.size())) all_failed();
}

/// Has a trial that was lost begin once more, after a while that grows; not any more where it was lost too often.
bool StudyRun::is_given_again(const StudyTrial& trial, const std::string& why) {
  constexpr int most = 4;
  const int times = ++times_lost_[trial.name];
  if (times > most) return false;
  const std::chrono::seconds pause(1 << (times - 1));
  std::fprintf(stderr, "study: trial \"%s\" was lost by its launcher, and begins again in %lld s: %s\n",
               trial.name.c_str(), static_cast<long long>(pause.count()), why.c_str());
  lost_.push_back({trial, Clock::now() + pause});
  return true;
}

void StudyRun::end(const TrialKey& key, const TrialOutcome& outcome) {
  ledger_.write({What::end, key, outcome, {}, {}});
  const auto begun = std::ranges::find(begun_, key, &Begun::key);
  const StudyTrial trial = begun->trial;
  begun_.erase(begun);
  over(trial, outcome);
  if (outcome.end == TrialOutcome::End::failed)
    std::fprintf(stderr, "%sstudy: trial %s failed: %s\n", isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "",
                 named(key).c_str(), outcome.error.c_str());
}

double StudyRun::elapsed() const {
  return before_ + std::chrono::duration<double>(Clock::now() - began_).count();
}

void StudyRun::over(const StudyTrial& trial, const TrialOutcome& outcome) {
  study_->report(outcome);
  elapsed_ = std::max(elapsed_, outcome.elapsed);
  failed_ += outcome.end == TrialOutcome::End::failed;
  reached_[trial.name] = trial.until;
  finished_.push_back({trial, outcome, folder_of(trial.name)});
}

/// Throws ConfigError if a trial lacks a metric by which the study is judged, as it would be pointless.
void StudyRun::check_metrics(const TrialOutcome& outcome) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : outcome.metrics) names.push_back(name);
  std::vector<std::string> wanted = file_.common.also;
  wanted.insert(wanted.begin(), file_.common.metric);
  for (const std::string& metric : wanted)
    if (!outcome.metrics.contains(metric))
      throw ConfigError("study: trial \"" + outcome.trial + "\" gave no metric `" + metric +
                        "`: " + config::suggestion(metric, names, "it gave"));
}

void StudyRun::all_failed() {
  ledger_.remove();  // once mended, the study begins anew
  throw Error(first_failure_, "study: all of its first " + std::to_string(finished_.size()) +
                                  " trials failed; what each printed is in " + folder_ + "/logs");
}

int StudyRun::jobs_for(const config::RunConfig& run) const {
  if (run.run.device.starts_with("cuda")) return 1;
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::max(1, cores / std::max(1, run.threads.intra_op));
}

/// Returns a trial's folder: its name, with a digest added if it had to be changed into a plain path.
std::string StudyRun::folder_of(const std::string& trial) const {
  std::string safe;
  for (const char c : trial) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view(" ._,=+-/").find(c) != std::string_view::npos;
    safe += plain ? c : '_';
  }
  const bool odd = safe != trial || trial.find("..") != std::string::npos || trial.starts_with('/') ||
                   trial.ends_with('/') || trial.size() > 200;
  if (!odd) return folder_ + "/runs/" + trial;
  for (std::size_t at; (at = safe.find("..")) != std::string::npos;) safe.replace(at, 2, "__");
  while (safe.starts_with('/')) safe.erase(0, 1);
  while (safe.ends_with('/')) safe.pop_back();
  return folder_ + "/runs/" + safe.substr(0, 150) + "-" + lib::Sha256::of(trial).substr(0, 8);
}

/// Estimates the seconds left from what past trials took for their length.
double StudyRun::left() const {
  const auto cost = [](const std::optional<Duration>& from, const std::optional<Duration>& until) {
    return until ? until->count - (from ? from->count : 0.0) : 1.0;
  };
  double all = 0.0, done = 0.0, seconds = 0.0;
  for (const StudyStage& stage : study_->stages())
    all += static_cast<double>(stage.trials) * cost(stage.from, stage.until);
  std::map<std::string, Duration> reached;
  for (const Finished& each : finished_) {
    const auto before = reached.find(each.trial.name);
    done += cost(before == reached.end() ? std::nullopt : std::optional(before->second), each.trial.until);
    if (each.trial.until) reached[each.trial.name] = *each.trial.until;
    seconds += each.outcome.seconds;
  }
  return done > 0 ? std::max(0.0, all - done) * seconds / done / std::max(1, jobs_) : 0.0;
}

void StudyRun::show_progress(int running) const {
  if (isatty(STDERR_FILENO) != 1) return;
  std::int64_t all = 0;
  for (const StudyStage& stage : study_->stages()) all += stage.trials;
  std::string line = std::to_string(finished_.size()) + " of " + std::to_string(all) + " trials, " +
                     std::to_string(running) + " running";
  if (failed_ > 0) line += ", " + std::to_string(failed_) + " failed";
  const double sign = file_.common.goal == StudyGoal::max ? 1.0 : -1.0;
  double best = -std::numeric_limits<double>::infinity();
  for (const Finished& each : finished_)
    if (const auto found = each.outcome.metrics.find(file_.common.metric);
        found != each.outcome.metrics.end())
      if (!std::isnan(found->second)) best = std::max(best, sign * found->second);
  if (std::isfinite(best)) line += ", best " + file_.common.metric + " " + lib::metric_text(sign * best);
  if (!finished_.empty()) line += ", " + span_text(left()) + " left";
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
}

}  // namespace trainyard::cli
