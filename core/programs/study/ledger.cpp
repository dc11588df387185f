#include "core/programs/study/ledger.hpp"

#include <sys/file.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "core/rundir/run_directory.hpp"
#include "core/runfile/value_json.hpp"
#include "lib/read_file.hpp"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;
using What = LedgerEntry::What;

constexpr const char* whats[] = {"start", "end", "known"};

template <std::size_t Count>
std::size_t index_in(const char* const (&words)[Count], const std::string& word) {
  for (std::size_t i = 0; i < Count; ++i)
    if (word == words[i]) return i;
  throw DataError("\"" + word + "\" is none of its words");
}

double number(const Json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

std::string text(const LedgerEntry& entry) {
  Json told = {{"trial", entry.key.trial}, {"until", entry.key.until}, {"digest", entry.key.digest}};
  if (entry.what != What::end && !entry.run.empty()) {
    told["run"] = entry.run;
    told["set"] = entry.set;
  }
  if (entry.what != What::start) {
    told["end"] = ends_of_trials[static_cast<int>(entry.outcome.end)];
    told["seconds"] = config::json_of(entry.outcome.seconds);
    told["cpu_seconds"] = config::json_of(entry.outcome.cpu_seconds);
    told["steps"] = entry.outcome.steps;
    told["elapsed"] = config::json_of(entry.outcome.elapsed);
    told["rows"] = entry.outcome.rows;
    told["values"] = entry.outcome.values;
    told["metrics"] = Json::object();
    for (const auto& [name, value] : entry.outcome.metrics) told["metrics"][name] = config::json_of(value);
    told["curve"] = entry.outcome.curve;
    if (!entry.outcome.error.empty()) told["error"] = entry.outcome.error;
  }
  Json line = Json::object();
  line[whats[static_cast<int>(entry.what)]] = std::move(told);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

LedgerEntry parsed(const Json& line) {
  if (!line.is_object() || line.size() != 1) throw DataError("it is no object with one key");
  LedgerEntry entry;
  entry.what = static_cast<What>(index_in(whats, line.begin().key()));
  const Json& told = line.begin().value();
  entry.key = {told.at("trial").get<std::string>(), told.at("until").get<std::string>(),
               told.at("digest").get<std::string>()};
  entry.outcome.trial = entry.key.trial;
  entry.outcome.until = entry.until();
  entry.run = told.value("run", "");
  entry.set = told.value("set", std::vector<std::string>());
  if (entry.what == What::start) return entry;
  entry.outcome.end =
      static_cast<TrialOutcome::End>(index_in(ends_of_trials, told.at("end").get<std::string>()));
  entry.outcome.seconds = number(told.at("seconds"));
  entry.outcome.cpu_seconds =
      number(told.value("cpu_seconds", Json(0.0)));  // ledgers of older releases lack these
  entry.outcome.steps = told.value("steps", std::int64_t{0});
  entry.outcome.elapsed = number(told.value("elapsed", Json(0.0)));
  entry.outcome.rows = told.value("rows", std::int64_t{0});
  entry.outcome.values = told.value("values", std::int64_t{0});
  for (const auto& [name, value] : told.at("metrics").items()) entry.outcome.metrics[name] = number(value);
  entry.outcome.curve = told.value("curve", std::vector<double>());
  entry.outcome.error = told.value("error", "");
  return entry;
}

}  // namespace

StudyLedger::StudyLedger(const std::string& path) {
  file_.emplace(path, AppendFile::Mode::extend);
  if (::flock(file_->descriptor(), LOCK_EX | LOCK_NB) != 0)
    throw ConfigError("another process runs the study of " + path +
                      " now: wait for it, or give --out another folder");
  const std::string all = lib::read_file(path).value_or("");
  std::size_t begin = 0;
  for (std::size_t end; (end = all.find('\n', begin)) != std::string::npos; begin = end + 1) {
    try {
      entries_.push_back(parsed(Json::parse(all.substr(begin, end - begin))));
    } catch (const std::exception& error) {
      throw DataError(path + ": line " + std::to_string(entries_.size() + 1) + " is not as it was written: " +
                      error.what() + "; move the file away to begin the study anew");
    }
  }
  if (begin < all.size()) file_->cut(static_cast<std::int64_t>(begin));  // a kill cut off the last line
}

void StudyLedger::write(const LedgerEntry& entry) {
  file_->append(text(entry));
  file_->sync();
}

void StudyLedger::replace(const std::vector<LedgerEntry>& entries) {
  std::string all;
  for (const LedgerEntry& entry : entries) all += text(entry);
  const std::string path = file_->path();
  report::write_atomically(path, all);
  AppendFile next(path, AppendFile::Mode::extend);
  if (::flock(next.descriptor(), LOCK_EX | LOCK_NB) != 0)
    throw ConfigError("another process runs the study of " + path + " now: wait for it");
  file_.reset();
  file_.emplace(std::move(next));
  entries_ = entries;
}

void StudyLedger::remove() {
  std::remove(file_->path().c_str());
}

}  // namespace trainyard::cli
