#include "core/rundir/run_directory.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/file.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include "core/rundir/protocol.hpp"
#include "lib/printed.hpp"
#include "lib/read_file.hpp"

namespace trainyard::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* config_name = "config.toml";
constexpr const char* journal_name = "journal.jsonl";
constexpr const char* result_name = "result.json";
constexpr const char* status_names[] = {"completed", "stopped", "interrupted", "failed"};

/// Returns JSON as text. Bytes of other programs (a path, a message) that are not UTF-8 are replaced.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Locks a run's journal for the writer. Readers that only test the lock share it for microseconds, so
/// retries outlast them.
bool lock(int descriptor) {
  constexpr int attempts = 20;
  for (int i = 0; ::flock(descriptor, LOCK_EX | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK || i == attempts) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Creates the folder and its parents and syncs their names to the disk. False where it exists.
bool make_folders(const fs::path& path) {
  if (path.empty() || fs::is_directory(path)) return false;
  make_folders(path.parent_path());
  const bool made = fs::create_directory(path);
  sync_folder(path / "..");
  return made;
}

bool going(const std::string& journal) {
  const AppendFile file(journal, AppendFile::Mode::extend);
  return !lock(file.descriptor());
}

void remove_results(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path() != folder / journal_name && entry.path() != folder / config_name)
      fs::remove_all(entry.path());
}

/// Removes the files that make the folder a run last, in reverse order of creation: a kill meanwhile leaves a
/// run, or a half-made one.
void remove_contents(const fs::path& folder) {
  const fs::path journal = folder / journal_name, config = folder / config_name;
  remove_results(folder);
  if (fs::exists(journal)) fs::resize_file(journal, 0);
  fs::remove(config);
  fs::remove(journal);
}

/// Returns whether a kill while the folder was made, or emptied, left nothing in it but an empty journal.
bool half_made(const fs::path& folder) {
  std::error_code absent;
  if (fs::file_size(folder / journal_name, absent) != 0) return false;
  const auto part = [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return name == journal_name || name == std::string(config_name) + ".tmp" || name == "tools";
  };
  return std::all_of(fs::directory_iterator(folder), fs::directory_iterator(), part);
}

/// Returns a member of the run's result, null where there is none. It is moved out of JSON whose members are
/// unordered: any other way copies it, and copying deeply nested text of others would overflow the stack.
nlohmann::json of_result(const std::string& path, const char* key) {
  std::ifstream file(path + "/" + result_name);
  nlohmann::json result = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  return result.is_object() && result.contains(key) ? std::move(result[key]) : nlohmann::json();
}

/// Returns whether the run failed before its first step: its output can go, as the mended file is run again.
bool failed_at_once(const std::string& path) {
  return RunDirectory::status(path) == Status::failed && of_result(path, "steps") == 0 &&
         !fs::exists(path + "/checkpoints/latest");
}

/// Returns whether nothing lies in a folder but what tools wrote, which looked at the run before it was trained.
bool is_free(const fs::path& folder) {
  return std::all_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [](const fs::directory_entry& entry) { return entry.path().filename() == "tools"; });
}

void check_free(const std::string& path, bool overwrite) {
  const bool half = half_made(path);
  if (!half && !RunDirectory::holds_run(path))
    throw ConfigError("run.output_dir '" + path +
                      "' is not empty and holds no run: name another folder, or empty it yourself");
  if (going(path + "/" + journal_name))
    throw ConfigError("another process is writing the run in '" + path +
                      "' now: wait for it, or set run.output_dir (or run.name) to another folder");
  if (!overwrite && !half && !failed_at_once(path))
    throw ConfigError("'" + path +
                      "' holds a run already: go on with it by run.resume = \"auto\", add --overwrite to "
                      "replace it, or set "
                      "run.output_dir (or run.name) to another folder");
}

}  // namespace

RunDirectory RunDirectory::create(const std::string& path, std::string_view resolved_toml, bool overwrite) {
  bool made = false;
  try {
    made = make_folders(path);
    if (!is_free(path)) {
      check_free(path, overwrite);
      remove_contents(path);
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError("cannot make the run's folder '" + path + "': " + error.code().message() +
                    "; set run.output_dir to a folder that can be written");
  }
  try {
    AppendFile journal(path + "/" + journal_name, AppendFile::Mode::create);
    if (!lock(journal.descriptor()))
      throw DataError("cannot lock '" + journal.path() + "': " + std::strerror(errno));
    sync_folder(path);  // a folder with a journal is ours, whatever else of it is lost
    write_atomically(path + "/" + config_name, resolved_toml);
    return RunDirectory(path, std::move(journal));
  } catch (const DataError&) {
    std::error_code ignored;
    fs::remove(path + "/" + journal_name, ignored);
    if (made) fs::remove(path, ignored);
    throw;
  }
}

RunDirectory RunDirectory::extend(const std::string& path) {
  AppendFile journal(path + "/" + journal_name, AppendFile::Mode::extend);
  if (!lock(journal.descriptor()))
    throw ConfigError("another process is writing the run in '" + path +
                      "' now: wait for it, or set run.output_dir (or run.name) to another folder");
  if (fs::remove(path + "/" + result_name))
    sync_folder(path);  // before anything is written that the result does not cover
  std::ifstream written(path + "/" + journal_name);
  written.seekg(-1, std::ios::end);
  if (written && written.get() != '\n') journal.append("\n");  // a kill cut off the last line
  return RunDirectory(path, std::move(journal));
}

RunDirectory RunDirectory::restart(const std::string& path, std::string_view resolved_toml) {
  RunDirectory directory = extend(path);
  remove_results(path);
  directory.set_config(resolved_toml);
  return directory;
}

bool RunDirectory::holds_run(const std::string& path) {
  return fs::exists(path + "/" + journal_name) && fs::exists(path + "/" + config_name);
}

std::string RunDirectory::read_config(const std::string& path) {
  if (auto text = lib::read_file(path + "/" + config_name)) return *std::move(text);
  throw DataError("cannot read '" + path + "/" + config_name + "'");
}

std::optional<Status> RunDirectory::status(const std::string& path) {
  const auto* found = std::find(std::begin(status_names), std::end(status_names), of_result(path, "status"));
  if (found == std::end(status_names)) return std::nullopt;
  return static_cast<Status>(found - std::begin(status_names));
}

void RunDirectory::journal(const JournalEntry& entry) {
  Json line = {{"time", timestamp()},
               {"step", entry.step},
               {"plugin", entry.plugin},
               {"what", entry.what},
               {"why", entry.why}};
  if (!entry.details.empty()) line["details"] = entry.details;
  const std::string text = text_of(line, -1) + "\n";
  {
    const std::lock_guard lock(*journal_mutex_);
    journal_.append(text);
  }
  if (!entry.details.empty()) journal_.sync();  // a resume needs it
}

void RunDirectory::check_there() const {
  struct stat status {};
  if (::fstat(journal_.descriptor(), &status) == 0 && status.st_nlink > 0) return;
  throw DataError("the run's folder '" + path_ +
                  "' was removed while the run went on: nothing of it can be kept, so it ends here");
}

std::vector<JournalEntry> RunDirectory::read_journal(const std::string& path) {
  const std::string name = path + "/" + journal_name;
  std::vector<JournalEntry> entries;
  std::ifstream file(name);
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) continue;  // a kill cut it short
    try {
      entries.push_back({line.value("step", std::int64_t{0}), line.value("plugin", ""),
                         line.value("what", ""), line.value("why", ""), line.value("details", "")});
    } catch (const Json::exception&) {
      throw DataError(name + ": a line is not as it was written: " + text.substr(0, 200) +
                      "; `step` is a number, all else is text: mend the line, or begin anew");
    }
  }
  return entries;
}

void RunDirectory::set_config(std::string_view resolved_toml) {
  write_atomically(file(config_name), resolved_toml);
}

void RunDirectory::finish(const RunResult& result) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json plugins = Json::array();
  for (const PluginUse& plugin : result.plugins) {
    plugins.push_back({{"name", plugin.name},
                       {"kind", plugin.kind},
                       {"version", plugin.version},
                       {"digest", plugin.digest},
                       {"seconds", plugin.seconds}});
    if (!plugin.events.empty()) plugins.back()["events"] = control::named(plugin.events);
  }
  const Json json = {
      {"status", status_names[static_cast<int>(result.status)]},
      {"exit_code", static_cast<int>(result.exit_code)},
      {"steps", result.steps},
      {"epochs", result.epochs},
      {"samples", result.samples},
      {"data", {{"rows", result.rows}, {"values", result.values}}},
      {"seconds", result.seconds},
      {"metrics", control::named(result.metrics)},
      {"weights_step", result.model_digest.empty() ? Json() : Json(result.weights_step)},
      {"digest",
       {{"model", text_or_null(result.model_digest)}, {"optimizer", text_or_null(result.optimizer_digest)}}},
      {"plugins", std::move(plugins)},
      {"time", control::named(result.time)},
      {"swaps",
       {{"made", result.swaps.made},
        {"refused", result.swaps.refused},
        {"rolled_back", result.swaps.rolled_back}}},
      {"error", text_or_null(result.error)},
  };
  write_atomically(file(result_name), text_of(json, 2) + "\n");
  journal_.sync();
}

void sync_folder(const std::string& path) {
  if (const auto failure = lib::sync_folder(path)) throw DataError(failure->what);
}

void put_in_place(lib::NewFile& file) {
  const auto failure = file.put_in_place();
  if (!failure) return;
  const bool full = failure->reason == ENOSPC || failure->reason == EDQUOT;
  throw DataError(failure->what + (full ? "; free some space, or set run.output_dir to another disk" : ""));
}

void write_atomically(const std::string& path, std::string_view text) {
  if (fs::is_other(path)) return AppendFile(path, AppendFile::Mode::extend).append(text);  // a device, a pipe
  lib::NewFile file(path);
  AppendFile(file.temporary(), AppendFile::Mode::replace).append(text);
  put_in_place(file);
}

std::string timestamp() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts)) +
         lib::printed(".%03dZ", static_cast<int>(milliseconds % 1000));
}

}  // namespace trainyard::report
