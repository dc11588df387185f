// Reads the state of a run from outside: from its files, its lock and its socket.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/rundir/protocol.hpp"

namespace trainyard::cli {

enum class Life : std::uint8_t {
  running,      ///< a process holds its lock
  paused,       ///< running, but paused
  completed,    ///< reached its budget
  stopped,      ///< a plugin, early stopping or `ctl stop` ended it
  interrupted,  ///< a signal or its wall time ended it; it can be resumed
  failed,
  killed,  ///< no process, and no result.json of its last one
};
std::string_view name(Life life);
inline bool going(Life life) {
  return life == Life::running || life == Life::paused;
}

struct RunState {  // NOLINT(bugprone-exception-escape): what nlohmann's json moves does not throw
  std::string path;
  Life life = Life::killed;
  std::optional<control::Status> status;  ///< set if the run is going and answers
  control::Json result;                   ///< result.json, null where there is none
  std::int64_t steps = 0;
  std::int64_t total_steps = 0;           ///< 0: not known
  std::map<std::string, double> metrics;  ///< the last value of each
  std::filesystem::file_time_type changed = std::filesystem::file_time_type::min();  ///< its last write
};

/// Returns whether the folder holds a run: its config.toml and journal.jsonl.
bool holds_run(const std::string& path);

/// How long a run's answer is waited for; its loop may take longer between two safe points.
constexpr std::chrono::milliseconds loop_patience(300);

/// Returns the current state of a run, including the end of its metrics.jsonl. Waits at most `patience` for a
/// run that is going to answer. Throws ConfigError where the folder holds no run.
RunState look_at(const std::string& path, std::chrono::milliseconds patience);

/// The same without reading metrics.jsonl: life, status, result and time of the last write.
RunState life_of(const std::string& path, std::chrono::milliseconds patience);

using control::object_in;

/// Takes steps and metrics from a line of metrics.jsonl of any kind.
void take_record(const control::Json& record, RunState& run);

/// Takes steps and metrics from status and result. Call it after records, as these are newer.
void take_report(RunState& run);

/// Returns a run's directory, given as such or as the name of a run below runs/.
std::string find_run(const std::string& given);

/// Returns an error for a name that is neither a file nor a run: which runs there are, and which is near.
std::string runs_instead_of(const std::string& given);

/// Returns the config.toml of such a run; any other word unchanged.
std::string run_file_of(const std::string& given);

/// Explains to a user who wants a live run: "It was completed after 840 steps".
std::string how_it_ended(const RunState& run);

/// Formats a line of journal.jsonl for people: "step 40  rex: disabled: why"; empty where it is none.
std::string journal_text(const std::string& line);

constexpr std::size_t journal_lines = 5;  ///< how many of the journal's last lines are shown

/// Returns the last `count` whole lines of a file, searching its last 256 KiB; none where it cannot be read.
std::vector<std::string> last_lines(const std::string& file, std::size_t count);

/// Blanks control characters, which would move a terminal's cursor, in foreign text.
std::string printable(std::string_view text);

/// Returns "1 run", "2 runs".
std::string plural(std::int64_t count, const char* what);

/// Formats a duration for people: "1:23", "2:05:00", "3d 4h".
std::string span_text(double seconds);

}  // namespace trainyard::cli
