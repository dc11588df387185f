// What a study asked and was told, as a file that only grows: ledger.jsonl in its folder, a line each. Torch-free.
//   {"start": {"trial", "until", "digest"}}                       a trial was begun
//   {"end": {"trial", "until", "digest", "end", "metrics", ...}}  it is over
//   {"known": {as of an end}}                                     one of the study as it was before it changed
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/formats/append_file.hpp>
#include <trainyard/study.hpp>

namespace trainyard::cli {

/// Which training: a trial's name, how far, and of what run file.
struct TrialKey {
  std::string trial, until, digest;

  bool operator==(const TrialKey&) const = default;
};

struct LedgerEntry {
  enum class What : std::uint8_t { start, end, known };

  What what = What::start;
  TrialKey key;
  TrialOutcome outcome;  ///< of an end
  double seconds = 0.0;  ///< that it took
};

/// One process writes it: it holds a lock while the object lives. Each entry is on the disk when the call returns.
class StudyLedger {
 public:
  /// Makes the file, or goes on with it; a line that a kill cut short is dropped. Throws ConfigError where another
  /// process runs the study now, DataError where a line is not as it was written.
  explicit StudyLedger(const std::string& path);

  /// Those that were there.
  const std::vector<LedgerEntry>& entries() const { return entries_; }

  void write(const LedgerEntry& entry);

  /// In place of all that was there, in one step.
  void replace(const std::vector<LedgerEntry>& entries);

  /// As if the study had never begun.
  void remove();

 private:
  std::optional<AppendFile> file_;
  std::vector<LedgerEntry> entries_;
};

}  // namespace trainyard::cli
