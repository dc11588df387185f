// The requests of a run that are not settled: swaps that its file plans or that clients and plugins asked
// for, and swaps that may still be rolled back. Part of every checkpoint; settled ones stand in the journal.
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

/// The words of the journal for the ways in which an entry ends.
inline constexpr std::string_view swap_made = "swap", swap_refused = "swap_refused",
                                  swap_rolled_back = "swap_rolled_back";
/// The word of the journal for a pause in which the executor finished its work in flight, without a swap.
inline constexpr std::string_view paused = "executor_paused";
/// The values of Entry::who for the run file and for clients.
inline constexpr std::string_view run_file = "config", client = "ctl";

/// Swaps that are made together or not at all; no swap if the executor only pauses.
struct Entry {
  std::int64_t number = 0;           ///< unique in a run; 0: not numbered yet
  std::string who;                   ///< run_file, client, or the id of a plugin
  std::optional<std::int64_t> step;  ///< the step at whose safe point they are made; nothing: once prepared
  std::vector<config::SwapRequest> swaps;

  bool operator==(const Entry& other) const { return number == other.number; }
};

/// A request that was made but is not settled: the run may be rolled back to before it, or to before an
/// earlier one.
struct MadeSwap {
  Entry entry;                        ///< includes the step at which it was made
  std::optional<std::int64_t> until;  ///< the step at which its watch ends; nothing: it is not watched itself
};

struct Ledger {
  std::int64_t next = 1;       ///< number of the next request
  std::vector<Entry> open;     ///< in the order in which they will be made
  std::vector<MadeSwap> made;  ///< oldest first; the oldest is watched

  /// Numbers a request and inserts it behind those that are due with it or earlier.
  void add(Entry entry);

  /// Replaces the planned swaps where the plan of the run file changed since the ledger was written.
  void replan(const std::vector<Entry>& before, const std::vector<Entry>& now);

  /// Applies what the journal says of the time after this ledger was written: requests made then, and pauses,
  /// are to be made again at their steps; those that ended otherwise are dropped, and so are those of clients
  /// that were not made. Returns the number of the oldest one in `made` that was rolled back: the run stands
  /// where it was before that one. Throws DataError that names the entry.
  std::optional<std::int64_t> follow(const std::vector<report::JournalEntry>& journal);

  std::string text() const;
  /// Throws DataError that names `source`.
  static Ledger from_text(const std::string& text, const std::string& source);
};

/// Returns the planned entries whose end the journal tells: made, refused or rolled back. A run that begins
/// anew does not take them for new.
std::vector<Entry> ended_of_plan(const std::vector<report::JournalEntry>& journal);

/// Returns a request as the journal keeps it: its number and its swaps, as TOML.
std::string details(const Entry& entry);

/// The owner of the ledger's state in a checkpoint. before_owner() names the owner of the state that `owner`
/// had before a swap that is still watched.
inline constexpr const char* ledger_owner = "ledger";
std::string before_owner(std::int64_t number, const std::string& owner);
/// Returns the number and the owner in such a name; nothing for any other name.
std::optional<std::pair<std::int64_t, std::string>> owner_before(const std::string& name);

}  // namespace trainyard::control
