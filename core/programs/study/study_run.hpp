// Runs a study to its end, from its beginning or from where it was interrupted. Torch-free.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/programs/study/ledger.hpp"
#include "core/programs/study/study_file.hpp"
#include "core/programs/study/trial_config.hpp"
#include "core/programs/study/trials.hpp"

namespace trainyard::cli {

/// A trial that has ended.
struct Finished {
  StudyTrial trial;
  TrialOutcome outcome;
  std::string folder;  ///< folder of its run
};

/// A study's plugin; errors that it throws are reported with its name.
class StudyPlugin {
 public:
  explicit StudyPlugin(const StudyFile& file);

  void open(const Study::Resolve& resolve);
  std::vector<StudyStage> stages() const;
  /// Returns the next trial, checked to have a name and a run file.
  std::optional<StudyTrial> next(int running);
  void report(const TrialOutcome& outcome);
  std::optional<StudyTrial> adopt(const StudyTrial& trial, const TrialOutcome& outcome);
  StudyResult result() const;

 private:
  template <class Call>
  auto call(const char* what, Call&& made) const;

  std::string who_;
  std::unique_ptr<Study> study_;
};

/// Returns the first trials, at most `most`, that the study gives while nothing is reported; throws
/// ConfigError unless each is a valid run.
std::vector<StudyTrial> first_trials(StudyPlugin& study, TrialConfigs& configs, std::size_t most);

class StudyRun {
 public:
  /// `folder` is the study's. `jobs`: trials at a time; 0: as many as the cores of this machine allow.
  StudyRun(const StudyFile& file, const std::vector<std::string>& plugin_folders, std::string folder,
           int jobs);

  /// Returns the process's exit code: done, or resumable where a signal came.
  ExitCode run();

  /// Returns trials in the order in which they were reported.
  const std::vector<Finished>& finished() const { return finished_; }
  StudyResult result() const { return study_->result(); }
  std::int64_t failed() const { return failed_; }
  const std::string& folder() const { return folder_; }
  TrialConfigs& configs() { return configs_; }

 private:
  struct Begun {
    StudyTrial trial;
    TrialKey key;
  };

  using Clock = std::chrono::steady_clock;

  struct Lost {
    StudyTrial trial;
    Clock::time_point at;  ///< when it begins again
  };

  bool replay();
  void take_over();
  void open_study();
  void remember(const LedgerEntry& entry);
  bool is_as_it_was(const StudyTrial& trial, const std::string& digest);
  std::optional<TrialOutcome> take_known(const TrialKey& key);
  void fill(Trials& trials);
  void begin(Trials& trials, const StudyTrial& trial);
  void process(Trials& trials, const StudyTrial& trial);
  void end(const TrialKey& key, const TrialOutcome& outcome);
  void over(const StudyTrial& trial, const TrialOutcome& outcome);
  void collect(Trials& trials);
  bool is_given_again(const StudyTrial& trial, const std::string& why);
  double elapsed() const;
  void check_metrics(const TrialOutcome& outcome) const;
  void all_failed();
  int jobs_for(const config::RunConfig& run) const;
  std::string folder_of(const std::string& trial) const;
  void show_progress(int running) const;
  double left() const;

  const StudyFile& file_;
  std::string folder_;
  int jobs_;
  TrialConfigs configs_;
  StudyLedger ledger_;
  std::unique_ptr<StudyPlugin> study_;
  std::vector<Begun> begun_;  ///< not yet reported
  std::vector<Lost> lost_;    ///< of these, those that no process has
  std::map<std::string, int> times_lost_;
  std::vector<LedgerEntry> known_;  ///< ends from before the study changed, which it has not taken
  std::map<std::string, std::optional<Duration>> reached_;  ///< by name of the trial
  std::vector<Finished> finished_;
  std::int64_t failed_ = 0;
  const Clock::time_point began_ = Clock::now();
  double before_ = 0.0;   ///< seconds of earlier processes
  double elapsed_ = 0.0;  ///< of the study, when the last trial of the ledger ended
  ExitCode first_failure_ = ExitCode::config;
};

}  // namespace trainyard::cli
