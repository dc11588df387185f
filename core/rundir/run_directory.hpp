// What a run leaves behind: its resolved configuration, its journal and its result.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/formats/append_file.hpp>

namespace trainyard::report {

enum class Status : std::uint8_t {
  completed,    ///< reached its budget
  stopped,      ///< a plugin or a user ended it
  interrupted,  ///< a signal ended it
  failed,
};

/// Seconds by what they were spent on.
using NamedSeconds = std::vector<std::pair<std::string, double>>;

struct PluginUse {
  std::string name, kind, version;
  std::string digest;    ///< SHA-256 of the loaded file, as sealed
  double seconds = 0.0;  ///< spent in its calls; of a dataset, that the loop waited for it
  NamedSeconds events;   ///< of them, in its hooks, by event
};

struct SwapCounts {
  std::int64_t made = 0;  ///< that stand
  std::int64_t refused = 0, rolled_back = 0;
};

/// result.json, field by field. Digests are empty where the run had not come so far.
struct RunResult {
  Status status = Status::failed;
  ExitCode exit_code = ExitCode::internal;
  std::int64_t steps = 0, epochs = 0, samples = 0;
  double seconds = 0.0;
  std::vector<std::pair<std::string, double>> metrics;  ///< the last value of each
  std::int64_t weights_step = 0;  ///< that the weights, and values of evaluations, are of
  std::string model_digest, optimizer_digest;
  std::vector<PluginUse> plugins;
  NamedSeconds time;  ///< by phase of the training
  SwapCounts swaps;   ///< since the process began; the journal has each
  std::string error;  ///< of a failed run
};

/// A decision that somebody may ask about later: a stop, a skip, a swap, a plugin switched off.
struct JournalEntry {
  std::int64_t step = 0;
  std::string plugin;  ///< who asked; empty: the host
  std::string what;
  std::string why;
  std::string details;  ///< for programs: what a swap changed, as TOML; empty: none
};

/// One process writes a run's directory: it holds a lock while the object lives. Loop thread.
/// What cannot be written throws DataError with path and reason.
class RunDirectory {
 public:
  /// Makes the folder (and those above it) with config.toml and an empty journal.jsonl. A folder that holds a
  /// run is refused unless `overwrite`, or where it failed ahead of its first step: then all that is in it is removed;
  /// a folder that holds anything else, or a run that is still going, is refused always (ConfigError).
  static RunDirectory create(const std::string& path, std::string_view resolved_toml, bool overwrite);

  /// Goes on with the run that the folder holds: its journal is extended. Throws ConfigError where another
  /// process writes it now.
  static RunDirectory extend(const std::string& path);

  /// Begins the run that the folder holds anew: all that it left is removed but its journal, which is
  /// extended. Throws as extend() does.
  static RunDirectory restart(const std::string& path, std::string_view resolved_toml);

  /// Whether a run lies there, whatever became of it.
  static bool holds_run(const std::string& path);

  /// Its config.toml. Throws DataError.
  static std::string read_config(const std::string& path);

  /// What its journal holds so far, in order; `details` of each as well. Throws DataError.
  static std::vector<JournalEntry> read_journal(const std::string& path);

  /// The status in result.json of a run that ended in order; nothing for one that was killed or still goes.
  static std::optional<Status> status(const std::string& path);

  const std::string& path() const { return path_; }
  /// `name` inside the directory.
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// Any thread.
  void journal(const JournalEntry& entry);

  /// Throws DataError where somebody has removed the folder: what is written goes nowhere then.
  void check_there() const;

  /// Replaces config.toml, when a run goes on with changes.
  void set_config(std::string_view resolved_toml);

  /// Writes result.json: whole or not at all, on the disk when this returns. Ends the journal.
  void finish(const RunResult& result);

 private:
  RunDirectory(std::string path, AppendFile journal) : path_(std::move(path)), journal_(std::move(journal)) {}

  std::string path_;
  AppendFile journal_;
  std::unique_ptr<std::mutex> journal_mutex_ = std::make_unique<std::mutex>();
};

/// Waits until the names in a folder are on the disk. Throws DataError.
void sync_folder(const std::string& path);

/// Replaces the file in one step, on the disk when this returns: a reader sees the old text or the new one.
void write_atomically(const std::string& path, std::string_view text);

/// Now, as ISO 8601 in UTC with milliseconds.
std::string timestamp();

}  // namespace trainyard::report
