// What was asked of a run and is not settled: swaps that its file plans, that clients and plugins asked for,
// and those that may still be taken back. Part of every checkpoint; what is settled stands in the journal.
// Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rundir/run_directory.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::control {

/// What the journal calls the ends of a entry.
inline constexpr std::string_view swap_made = "swap", swap_refused = "swap_refused",
                                  swap_rolled_back = "swap_rolled_back";
/// What the journal calls a moment at which the executor had to finish what it had in flight, and no swap was made.
inline constexpr std::string_view paused = "executor_paused";
/// Who asks where it is the run file, or a client.
inline constexpr std::string_view run_file = "config", client = "ctl";

/// Swaps that are made together, or not at all; or none, where the executor pauses only.
struct Entry {
  std::int64_t number = 0;           ///< never used twice in a run; 0: not numbered yet
  std::string who;                   ///< run_file, client, or the id of a plugin
  std::optional<std::int64_t> step;  ///< at whose safe point; nothing: as soon as they are prepared
  std::vector<config::SwapRequest> swaps;

  bool operator==(const Entry& other) const { return number == other.number; }
};

/// A request that is part of the run, and not settled: the run may go back to before it, or to before one
/// that was made earlier.
struct Made {
  Entry entry;                        ///< with the step at which it was made
  std::optional<std::int64_t> until;  ///< the step at which its watch ends; nothing: it is not watched itself
};

struct Ledger {
  std::int64_t next = 1;    ///< number of the request to come
  std::vector<Entry> open;  ///< in the order in which they come
  std::vector<Made> made;   ///< oldest first; the oldest is watched

  /// Numbers a request and puts it behind those that come with it or earlier.
  void add(Entry entry);

  /// The plan of the run file is another one since the ledger was written.
  void replan(const std::vector<Entry>& before, const std::vector<Entry>& now);

  /// Goes through what the journal of the run has of the time after this ledger was written: requests made
  /// then, and pauses, come again at their steps, those that ended are dropped, and so are those of clients that
  /// were not made. Of those in `made` that were taken back it gives the oldest one's number: the run stands where it
  /// was before that. Throws DataError that names the entry.
  std::optional<std::int64_t> follow(const std::vector<report::JournalEntry>& journal);

  std::string text() const;
  /// Throws DataError that names `source`.
  static Ledger from_text(const std::string& text, const std::string& source);
};

/// What the run file planned and the journal tells the end of: made, refused or taken back. To a run that
/// begins anew it is nothing new.
std::vector<Entry> ended_of_plan(const std::vector<report::JournalEntry>& journal);

/// A request as the journal keeps it: its number and its swaps, as TOML.
std::string details(const Entry& entry);

/// In a checkpoint the ledger is the state of this owner, and so is, of every owner, what the run was before
/// a swap that is watched.
inline constexpr const char* ledger_owner = "ledger";
std::string before_owner(std::int64_t number, const std::string& owner);
/// The number, and the owner; nothing for one that has another name.
std::optional<std::pair<std::int64_t, std::string>> owner_before(const std::string& name);

}  // namespace trainyard::control
