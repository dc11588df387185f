// The directory that a run writes: its resolved configuration, its journal and its result.
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

#include "lib/new_file.hpp"

namespace trainyard::report {

enum class Status : std::uint8_t {
  completed,    ///< reached its budget
  stopped,      ///< a plugin or a user ended it
  interrupted,  ///< a signal ended it
  failed,
};

/// Seconds by the name of what they were spent on.
using NamedSeconds = std::vector<std::pair<std::string, double>>;

struct PluginUse {
  std::string name, kind, version;
  std::string digest;    ///< SHA-256 of the loaded file, as sealed
  double seconds = 0.0;  ///< spent in its calls; for a dataset: in waits of the loop for it
  NamedSeconds events;   ///< the part spent in its hooks, by event
};

struct SwapCounts {
  std::int64_t made = 0;  ///< swaps that were not rolled back
  std::int64_t refused = 0, rolled_back = 0;
};

/// The fields of result.json. Digests are empty if the run ended before they could be computed.
struct RunResult {
  Status status = Status::failed;
  ExitCode exit_code = ExitCode::internal;
  std::int64_t steps = 0, epochs = 0, samples = 0;
  std::int64_t rows = 0, values = 0;  ///< of the training data, whatever `take` says; of a sample's inputs
  double seconds = 0.0;
  std::vector<std::pair<std::string, double>> metrics;  ///< the last value of each
  std::int64_t weights_step = 0;                        ///< step of the weights and of the evaluated metrics
  std::string model_digest, optimizer_digest;
  std::vector<PluginUse> plugins;
  NamedSeconds time;  ///< by phase of training
  SwapCounts swaps;   ///< since the process began; the journal lists each
  std::string error;  ///< empty unless the run failed
};

/// A decision that someone may ask about later: a stop, a skip, a swap, a plugin switched off.
struct JournalEntry {
  std::int64_t step = 0;
  std::string plugin;  ///< who asked; empty: the host
  std::string what;
  std::string why;
  std::string details;  ///< for programs: the change by a swap, as TOML; empty: none
};

/// A run's directory, written by one process: it holds a lock while the object lives. Used on the loop
/// thread. Failed writes throw DataError with path and reason.
class RunDirectory {
 public:
  /// Creates the folder (and parents) with config.toml and an empty journal.jsonl. A folder with a run is
  /// refused unless `overwrite` is set or the run failed before its first step: then its contents are
  /// removed. A folder with anything else, or a run that is still going, is always refused (ConfigError).
  static RunDirectory create(const std::string& path, std::string_view resolved_toml, bool overwrite);

  /// Opens the run in the folder to continue it: its journal is extended. Throws ConfigError where another
  /// process is writing it.
  static RunDirectory extend(const std::string& path);

  /// Starts the run in the folder anew: removes all that it left but its journal, which is extended. Throws
  /// as extend() does.
  static RunDirectory restart(const std::string& path, std::string_view resolved_toml);

  /// Returns whether the folder holds a run, whatever its state.
  static bool holds_run(const std::string& path);

  /// Returns the text of its config.toml. Throws DataError.
  static std::string read_config(const std::string& path);

  /// Returns the entries of its journal so far, in order and with their `details`. Throws DataError.
  static std::vector<JournalEntry> read_journal(const std::string& path);

  /// Returns the status in result.json of a run that ended in order; nothing if it was killed or still goes.
  static std::optional<Status> status(const std::string& path);

  const std::string& path() const { return path_; }
  /// Returns the path of `name` inside the directory.
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// Appends an entry to the journal. May be called from any thread.
  void journal(const JournalEntry& entry);

  /// Throws DataError if someone has removed the folder, as writes would then be lost.
  void check_there() const;

  /// Replaces config.toml when a run continues with changes.
  void set_config(std::string_view resolved_toml);

  /// Writes result.json whole or not at all; it is on the disk on return. Ends the journal.
  void finish(const RunResult& result);

 private:
  RunDirectory(std::string path, AppendFile journal) : path_(std::move(path)), journal_(std::move(journal)) {}

  std::string path_;
  AppendFile journal_;
  std::unique_ptr<std::mutex> journal_mutex_ = std::make_unique<std::mutex>();
};

/// Waits until the names in a folder are on the disk. Throws DataError.
void sync_folder(const std::string& path);

/// Puts a new file in place. Throws DataError.
void put_in_place(lib::NewFile& file);

/// Replaces the file atomically: readers see the old text or the new one, which is on the disk on return.
void write_atomically(const std::string& path, std::string_view text);

/// Returns the current time as ISO 8601 in UTC with milliseconds.
std::string timestamp();

}  // namespace trainyard::report
