// The trials that a study asked for, and their outcomes, in a file that only grows: ledger.jsonl in its
// folder, one line per entry. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/formats/append_file.hpp>
#include <trainyard/study.hpp>

namespace trainyard::cli {

/// Identifies a training: name and length of the trial, and the digest of its run file.
struct TrialKey {
  std::string trial, until, digest;

  bool operator==(const TrialKey&) const = default;
};

/// The words of TrialOutcome::End in files.
constexpr const char* ends_of_trials[] = {"done", "diverged", "failed"};

struct LedgerEntry {
  enum class What : std::uint8_t { start, end, known };

  What what = What::start;
  TrialKey key;
  TrialOutcome outcome;          ///< set for an end, and what is known
  std::string run;               ///< of a start, and what is known; empty in ledgers of older releases
  std::vector<std::string> set;  ///< the same

  /// Returns the trial, without labels.
  StudyTrial trial() const {
    return {
        .name = key.trial, .run = run, .set = set, .until = until(), .labels = {}, .panel = {}, .series = {}};
  }
  std::optional<Duration> until() const {
    return key.until.empty() ? std::nullopt : Duration::parse(key.until);
  }
};

/// The ledger, written by one process, which holds a lock while the object lives. Each entry is on the disk
/// when the call returns.
class StudyLedger {
 public:
  /// Creates the file, or continues it; a line that a kill cut short is dropped. Throws ConfigError where
  /// another process runs the study now, DataError where a line is not as it was written.
  explicit StudyLedger(const std::string& path);

  /// Returns the entries that the file had when it was opened.
  const std::vector<LedgerEntry>& entries() const { return entries_; }

  void write(const LedgerEntry& entry);

  /// Replaces all entries in one step.
  void replace(const std::vector<LedgerEntry>& entries);

  /// Removes the file, as if the study had never begun.
  void remove();

 private:
  std::optional<AppendFile> file_;
  std::vector<LedgerEntry> entries_;
};

}  // namespace trainyard::cli
