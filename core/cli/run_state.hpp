// What a run's directory says about the run to one who stands outside: its files, its lock, its socket.
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
  paused,       ///< running, and says so
  completed,    ///< reached its budget
  stopped,      ///< a plugin, early stopping or `ctl stop` ended it
  interrupted,  ///< a signal or its wall time ended it: it can be resumed
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
  std::optional<control::Status> status;  ///< of a run that is going and answers
  control::Json result;                   ///< result.json, null where there is none
  std::int64_t steps = 0;
  std::int64_t total_steps = 0;           ///< 0: not known
  std::map<std::string, double> metrics;  ///< the last value of each
  std::filesystem::file_time_type changed = std::filesystem::file_time_type::min();  ///< when it wrote last
};

/// Whether the folder holds a run: its config.toml and journal.jsonl.
bool holds_run(const std::string& path);

/// What a run says now, with the end of its metrics.jsonl. Waits at most `patience` for a run that is going.
/// Throws ConfigError where the folder holds no run.
RunState look_at(const std::string& path, std::chrono::milliseconds patience);

/// The same without a look at metrics.jsonl: life, status, result and when it wrote last.
RunState life_of(const std::string& path, std::chrono::milliseconds patience);

using control::object_in;

/// One line of metrics.jsonl, whichever it is, into steps and metrics.
void take_record(const control::Json& record, RunState& run);

/// What status and result say is newer than any record: to be called after them.
void take_report(RunState& run);

/// A run's directory, or the name of one below runs/.
std::string find_run(const std::string& given);

/// The config.toml of such a run; any other word as it is.
std::string run_file_of(const std::string& given);

/// "It was completed after 840 steps", for one who wants it to be going.
std::string how_it_ended(const RunState& run);

/// A line of journal.jsonl for a person: "step 40  rex: disabled: why"; empty where it is none.
std::string journal_text(const std::string& line);

/// The last `count` whole lines of a file; none where it cannot be read. Looks at its last 256 KiB only.
std::vector<std::string> last_lines(const std::string& file, std::size_t count);

/// Text of others without the control characters that would move a terminal's cursor.
std::string printable(std::string_view text);

// Numbers for a person.
std::string number_text(double value);
std::string seconds_text(double seconds);  ///< "0.013"
std::string rate_text(double per_second);  ///< "12.3k"
std::string span_text(double seconds);     ///< "1:23", "2:05:00", "3d 4h"

}  // namespace trainyard::cli
