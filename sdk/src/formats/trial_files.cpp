#include <trainyard/formats/trial_files.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <thread>

#include <ATen/ops/full.h>
#include <stdio.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>
#include <trainyard/formats/append_file.hpp>
#include <trainyard/formats/event_file.hpp>

#include "lib/read_file.hpp"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* end_mark = "training_job_end.ts";
constexpr std::string_view temporary = ".tmp";
/// A step that a worker has not written is given up when so many later ones are there.
constexpr std::int64_t incomplete_window = 1000;
constexpr std::int64_t steps_in_folder = 1000;

std::string padded(std::int64_t number, int width) {
  std::string digits = std::to_string(number);
  return digits.size() >= static_cast<std::size_t>(width)
             ? digits
             : std::string(static_cast<std::size_t>(width) - digits.size(), '0') + digits;
}

/// Debugger's numbers of modes begin at 1.
int number_of(Mode mode) {
  return static_cast<int>(mode) + 1;
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw DataError("cannot make the folder '" + path.string() + "': " + error.message() +
                    "; free some space, or make the place writable");
}

/// Writes the whole file, or nothing.
void write_file(const std::string& path, std::string_view content) {
  make_folder(fs::path(path).parent_path());
  const std::string beside = path + std::string(temporary);
  try {
    AppendFile(beside, AppendFile::Mode::replace).append(content);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  if (::rename(beside.c_str(), path.c_str()) != 0)
    throw DataError("cannot rename '" + beside + "': " + std::strerror(errno));
}

std::string read_file(const std::string& path) {
  if (auto bytes = lib::read_file(path)) return *std::move(bytes);
  throw DataError("cannot read '" + path + "'");
}

Json parsed(const std::string& text, const std::string& path) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw DataError("'" + path + "' is no JSON: it is not a trial's, or damaged");
  return json;
}

/// JSON has no number for what is not finite.
Json json_of(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const std::string text = json.get<std::string>();
  return text == "inf"    ? std::numeric_limits<double>::infinity()
         : text == "-inf" ? -std::numeric_limits<double>::infinity()
                          : Statistics::nan();
}

/// Visits the members in the order of the file.
template <class S, class Visit>
void each_number(S& s, Visit&& visit) {
  for (auto* member : {&s.count, &s.zeros, &s.nans, &s.infinities}) visit(*member);
  for (auto* member : {&s.minimum, &s.maximum, &s.abs_minimum, &s.abs_maximum, &s.sum, &s.l1, &s.squares,
                       &s.product, &s.deviation, &s.abs_deviation})
    visit(*member);
}

Json json_of(const Statistics& statistics) {
  Json numbers = Json::array();
  each_number(statistics,
              [&](const auto& member) { numbers.push_back(json_of(static_cast<double>(member))); });
  return numbers;
}

Statistics statistics_of(const Json& numbers) {
  Statistics statistics;
  std::size_t i = 0;
  each_number(statistics, [&](auto& member) {
    member = static_cast<std::remove_reference_t<decltype(member)>>(number_of(numbers.at(i++)));
  });
  return statistics;
}

/// The reductions that Debugger knows, as its collections list them.
std::string their_names(const std::vector<std::string>& reductions) {
  constexpr std::string_view known[] = {"min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2"};
  std::string names;
  for (const std::string& each : reductions) {
    const std::string_view plain = std::string_view(each).substr(each.starts_with("abs_") ? 4 : 0);
    if (std::find(std::begin(known), std::end(known), plain) == std::end(known)) continue;
    names += (names.empty() ? "" : ",") + each + (plain == "l1" || plain == "l2" ? "_norm" : "");
  }
  return names;
}

std::string description(const std::vector<SavedCollection>& collections, int workers) {
  Json all = Json::object();
  for (const SavedCollection& each : collections) {
    const Json steps = {{"start_step", each.save.start_step},
                        {"save_interval", each.save.save_interval},
                        {"save_steps", each.save.save_steps},
                        {"end_step", each.save.end_step ? Json(*each.save.end_step) : Json(nullptr)}};
    Json modes = Json::object();
    for (const std::string_view mode : mode_names) modes[std::string(mode)] = steps;
    all[each.name] = {{"name", each.name},
                      {"include_regex", each.include},
                      {"tensor_names", Json::array()},
                      {"reduction_config",
                       {{"reductions", their_names(each.reductions)},
                        {"save_raw_tensor", each.values},
                        {"save_shape", true}}},
                      {"save_config", std::move(modes)},
                      {"save_histogram", each.histogram}};
  }
  return Json({{"collections", std::move(all)}, {"_meta", {{"num_workers", workers}}}}).dump(1);
}

/// Reads step and worker from a name: "000000000010_worker_0.json".
std::optional<std::pair<std::int64_t, int>> parse_name(std::string_view name, std::string_view suffix) {
  constexpr std::string_view middle = "_worker_";
  const std::size_t at = name.find(middle);
  if (at == std::string_view::npos || !name.ends_with(suffix)) return std::nullopt;
  const auto number = [](std::string_view digits) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return value;
  };
  const auto step = number(name.substr(0, at));
  const auto worker =
      number(name.substr(at + middle.size(), name.size() - at - middle.size() - suffix.size()));
  if (!step || !worker) return std::nullopt;
  return std::pair(*step, static_cast<int>(*worker));
}

std::vector<std::int64_t> shape_of(const Json& json) {
  return json.get<std::vector<std::int64_t>>();
}

}  // namespace

bool SaveConfig::due(std::int64_t step) const {
  if (std::find(save_steps.begin(), save_steps.end(), step) != save_steps.end()) return true;
  return step >= start_step && (!end_step || step < *end_step) && step % save_interval == 0;
}

std::int64_t SaveConfig::next(std::int64_t step) const {
  const std::int64_t from = std::max(step, start_step);
  std::int64_t next = (from + save_interval - 1) / save_interval * save_interval;
  if (end_step && next >= *end_step) next = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t listed : save_steps)
    if (listed >= step) next = std::min(next, listed);
  return next;
}

TrialWriter::TrialWriter(std::string folder, const std::vector<SavedCollection>& collections, int worker,
                         int workers)
    : folder_(std::move(folder)), worker_("worker_" + std::to_string(worker)) {
  write_file(folder_ + "/collections/000000000/" + worker_ + "_collections.json",
             description(collections, workers));
}

std::string TrialWriter::event_name(std::int64_t step) const {
  const std::string number = padded(step, 12);
  return "events/" + number + "/" + number + "_" + worker_ + ".tfevents";
}

std::string TrialWriter::index_name(std::int64_t step) const {
  return "index/" + padded(step / steps_in_folder, 9) + "/" + padded(step, 12) + "_" + worker_ + ".json";
}

void TrialWriter::write(const StepRecord& record, const std::function<Stored(const TensorRecord&)>& stored) {
  if (record.mode == Mode::global) return write_line(record);
  const double now = event_file::wall_time();
  const int mode = number_of(record.mode);
  std::string events;
  Json places = Json::array(), shapes = Json::array(), numbers = Json::array();
  const auto put = [&](const std::string& name, const at::Tensor& value) {
    const std::string framed =
        event_file::tensor_record(now, record.step, name, value, mode, record.mode_step);
    places.push_back({{"tensorname", name}, {"start_idx", events.size()}, {"length", framed.size()}});
    events += framed;
  };
  for (const TensorRecord& tensor : record.tensors) {
    const Stored what = stored(tensor);
    const bool value = tensor.value.defined() && (what.value || tensor.value.numel() == 1);
    if (value)
      put(tensor.name, tensor.value);
    else
      shapes.push_back({{"tensorname", tensor.name}, {"originalname", tensor.name}, {"shape", tensor.shape}});
    if (!tensor.statistics) continue;
    for (const std::string& name : what.reductions)
      put("smdebug/reductions/" + name + "/" + tensor.name,
          at::full({}, reduction(*tensor.statistics, name), at::kDouble));
    numbers.push_back(
        {{"tensorname", tensor.name}, {"shape", tensor.shape}, {"numbers", json_of(*tensor.statistics)}});
  }
  Json meta = {{"mode", mode_names[static_cast<std::size_t>(record.mode)]}, {"mode_step", record.mode_step}};
  if (!events.empty()) {
    const std::string name = event_name(record.step);
    write_file(folder_ + "/" + name, events);
    meta["event_file_name"] = name;
  }
  write_file(folder_ + "/" + index_name(record.step), Json({{"meta", std::move(meta)},
                                                            {"tensor_payload", std::move(places)},
                                                            {"shape_payload", std::move(shapes)},
                                                            {"seconds", record.seconds},
                                                            {"statistics", std::move(numbers)}})
                                                          .dump());
}

void TrialWriter::write_line(const StepRecord& record) {
  Json values = Json::object();
  for (const TensorRecord& tensor : record.tensors) {
    Json numbers = Json::array();
    if (tensor.value.defined()) {
      const at::Tensor value = tensor.value.to(at::kDouble).contiguous();
      const double* x = value.const_data_ptr<double>();
      for (std::int64_t i = 0; i < value.numel(); ++i) numbers.push_back(json_of(x[i]));
    } else {
      numbers.push_back(json_of(tensor.scalar()));
    }
    values[tensor.name] = std::move(numbers);
  }
  const std::string path = folder_ + "/system/" + worker_ + ".jsonl";
  make_folder(folder_ + "/system");
  AppendFile(path, AppendFile::Mode::extend)
      .append(Json({{"mode_step", record.mode_step},
                    {"step", record.step},
                    {"seconds", record.seconds},
                    {"values", std::move(values)}})
                  .dump() +
              "\n");
}

void TrialWriter::cut(std::int64_t step) {
  std::error_code ignored;
  fs::remove(folder_ + "/" + end_mark, ignored);
  const auto sweep = [&](const char* kind, std::string_view suffix) {
    if (!fs::exists(folder_ + "/" + kind)) return;
    for (const fs::directory_entry& folder : fs::directory_iterator(folder_ + "/" + kind)) {
      if (!folder.is_directory()) continue;
      for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
        std::string name = file.path().filename().string();
        const bool half = name.ends_with(temporary);
        if (half) name.resize(name.size() - temporary.size());
        const auto parsed = parse_name(name, suffix);
        if (!parsed || "worker_" + std::to_string(parsed->second) != worker_) continue;
        if (half || parsed->first >= step) fs::remove(file.path());
      }
      if (fs::is_empty(folder)) fs::remove(folder);
    }
  };
  try {
    sweep("index", ".json");  // first: a step without it is none
    sweep("events", ".tfevents");
  } catch (const fs::filesystem_error& error) {
    throw DataError("cannot take back later steps of the trial '" + folder_ + "': " + error.what());
  }
  const std::string path = folder_ + "/system/" + worker_ + ".jsonl";
  if (!fs::exists(path)) return;
  std::ifstream lines(path);
  std::int64_t kept = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded() || json.value("step", std::int64_t{0}) >= step) break;
    kept += static_cast<std::int64_t>(line.size()) + 1;
  }
  AppendFile(path, AppendFile::Mode::extend).cut(kept);
}

void TrialWriter::end() {
  write_file(folder_ + "/" + end_mark, "");
}

TrialReader::TrialReader(std::string folder) : folder_(std::move(folder)) {
  const fs::path place = fs::path(folder_) / "collections" / "000000000";
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(place, error)) {
    if (!file.path().string().ends_with("_collections.json")) continue;
    const std::string path = file.path().string();
    const Json json = parsed(read_file(path), path);
    try {
      workers_ = json.at("_meta").at("num_workers").get<int>();
      if (collections_.empty())
        for (const auto& [name, each] : json.at("collections").items())
          collections_.push_back({name, each.at("include_regex").get<std::vector<std::string>>()});
    } catch (const Json::exception& wrong) {
      throw DataError("'" + path + "' does not describe a trial: " + wrong.what());
    }
  }
  if (collections_.empty())
    throw DataError("'" + folder_ +
                    "' holds no trial: it has no file collections/000000000/*_collections.json");
  for (const Collection& each : default_collections())
    if (std::none_of(collections_.begin(), collections_.end(),
                     [&](const Collection& other) { return other.name == each.name; }))
      collections_.push_back(each);
  refresh();
}

void TrialReader::refresh() {
  ended_ = fs::exists(folder_ + "/" + end_mark);
  std::error_code error;
  std::vector<fs::path> fresh;
  for (const fs::directory_entry& folder : fs::directory_iterator(folder_ + "/index", error))
    for (const fs::directory_entry& file : fs::directory_iterator(folder, error))
      if (!seen_.contains(file.path().filename().string())) fresh.push_back(file.path());
  for (const fs::path& path : fresh) {
    const std::string name = path.filename().string();
    const auto place = parse_name(name, ".json");
    if (!place) continue;
    read_index(path.string(), place->first, place->second);
    seen_.insert(name);
  }
  read_system();
}

void TrialReader::read_index(const std::string& path, std::int64_t step, int worker) {
  const Json json = parsed(read_file(path), path);
  Index index;
  StepRecord& record = index.record;
  record.step = step;
  record.worker = worker;
  try {
    const Json& meta = json.at("meta");
    const auto mode = std::find(mode_names.begin(), mode_names.end(), meta.at("mode").get<std::string>());
    if (mode == mode_names.end()) throw DataError("'" + path + "' is of no mode that is known");
    record.mode = static_cast<Mode>(mode - mode_names.begin());
    record.mode_step = meta.at("mode_step").get<std::int64_t>();
    index.events = meta.value("event_file_name", std::string());
    record.seconds = json.value("seconds", 0.0);
    std::map<std::string, TensorRecord, std::less<>> tensors;
    const auto tensor = [&](const std::string& name) -> TensorRecord& {
      TensorRecord& entry = tensors[name];
      entry.name = name;
      return entry;
    };
    for (const Json& each : json.value("shape_payload", Json::array()))
      tensor(each.at("tensorname").get<std::string>()).shape = shape_of(each.at("shape"));
    for (const Json& each : json.value("statistics", Json::array())) {
      TensorRecord& entry = tensor(each.at("tensorname").get<std::string>());
      entry.shape = shape_of(each.at("shape"));
      entry.statistics = statistics_of(each.at("numbers"));
    }
    for (const Json& each : json.value("tensor_payload", Json::array())) {
      const std::string name = each.at("tensorname").get<std::string>();
      index.values[name] = {each.at("start_idx").get<std::int64_t>(), each.at("length").get<std::int64_t>()};
      if (!name.starts_with("smdebug/reductions/")) tensor(name);
    }
    for (auto& [name, entry] : tensors) record.tensors.push_back(std::move(entry));
  } catch (const Json::exception& wrong) {
    throw DataError("'" + path + "' is no index of a step: " + wrong.what());
  }
  of_mode_[{record.mode, record.mode_step}] = step;
  steps_[step].insert_or_assign(worker, std::move(index));
}

/// Leaves an unfinished last line for the next look.
void TrialReader::read_system() {
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(folder_ + "/system", error)) {
    const std::string path = file.path().string();
    const std::string name = file.path().stem().string();
    std::int64_t& done = lines_read_[path];
    std::ifstream lines(path);
    lines.seekg(done);
    for (std::string line; std::getline(lines, line) && !lines.eof();) {
      const Json json = parsed(line, path);
      auto record = std::make_shared<StepRecord>();
      try {
        record->mode = Mode::global;
        record->mode_step = json.at("mode_step").get<std::int64_t>();
        record->step = json.at("step").get<std::int64_t>();
        record->seconds = json.at("seconds").get<double>();
        std::from_chars(name.data() + name.rfind('_') + 1, name.data() + name.size(), record->worker);
        for (const auto& [tensor, values] : json.at("values").items()) {
          at::Tensor value = at::full({static_cast<std::int64_t>(values.size())}, 0.0, at::kDouble);
          for (std::size_t i = 0; i < values.size(); ++i)
            value.mutable_data_ptr<double>()[i] = number_of(values[i]);
          if (value.numel() == 1) value = value.reshape({});
          record->tensors.push_back({tensor, value.sizes().vec(), statistics(value), value});
        }
      } catch (const Json::exception& wrong) {
        throw DataError("'" + path + "' holds a line that is no record: " + wrong.what());
      }
      std::sort(record->tensors.begin(), record->tensors.end(),
                [](const TensorRecord& a, const TensorRecord& b) { return a.name < b.name; });
      system_.push_back(std::move(record));
      done += static_cast<std::int64_t>(line.size()) + 1;
    }
  }
}

bool TrialReader::complete(std::int64_t step) const {
  const auto found = steps_.find(step);
  if (found == steps_.end()) return false;
  if (ended_ || found->second.size() >= static_cast<std::size_t>(workers_)) return true;
  return std::distance(found, steps_.end()) > incomplete_window;
}

std::vector<Mode> TrialReader::modes() const {
  std::set<Mode> modes;
  for (const auto& [key, step] : of_mode_) modes.insert(key.first);
  return {modes.begin(), modes.end()};
}

std::vector<std::int64_t> TrialReader::steps(Mode mode, bool with_incomplete) const {
  std::vector<std::int64_t> result;
  if (mode == Mode::global) {
    for (const auto& [step, workers] : steps_)
      if (with_incomplete || complete(step)) result.push_back(step);
    return result;
  }
  for (const auto& [key, step] : of_mode_)
    if (key.first == mode && (with_incomplete || complete(step))) result.push_back(key.second);
  return result;
}

std::vector<std::string> TrialReader::tensor_names(const std::string& what) const {
  const Trial trial(collections_);
  std::set<std::string> names;
  for (const auto& [step, workers] : steps_)
    for (const auto& [worker, index] : workers)
      for (const TensorRecord& tensor : index.record.tensors)
        if (what.empty() || trial.belongs(tensor.name, what)) names.insert(tensor.name);
  return {names.begin(), names.end()};
}

std::optional<std::int64_t> TrialReader::step_of(Mode mode, std::int64_t mode_step) const {
  if (mode == Mode::global) return steps_.contains(mode_step) ? std::optional(mode_step) : std::nullopt;
  const auto found = of_mode_.find({mode, mode_step});
  return found == of_mode_.end() ? std::nullopt : std::optional(found->second);
}

StepState TrialReader::has_passed_step(std::int64_t step, Mode mode) const {
  if (const auto known = step_of(mode, step))
    return complete(*known) ? StepState::available : StepState::not_yet_available;
  if (ended_) return StepState::unavailable;
  // Steps of a mode come in order: one that is missing below a complete one will not come.
  const std::vector<std::int64_t> there = steps(mode);
  return !there.empty() && there.back() > step ? StepState::unavailable : StepState::not_yet_available;
}

void TrialReader::wait_for_steps(const std::vector<std::int64_t>& steps, Mode mode, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto name = [&](std::int64_t step) {
    return "step " + std::to_string(step) + " of " + std::string(mode_names[static_cast<std::size_t>(mode)]);
  };
  for (const std::int64_t step : steps)
    for (;;) {
      refresh();
      const StepState state = has_passed_step(step, mode);
      if (state == StepState::available) break;
      if (state == StepState::unavailable)
        throw DataError("trial '" + folder_ + "': " + name(step) + " was not saved" +
                        (ended_ ? ", and the run is over" : ": later ones are there"));
      if (std::chrono::steady_clock::now() >= until)
        throw DataError("trial '" + folder_ + "': " + name(step) + " did not come within " +
                        std::to_string(seconds) + " s");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

std::shared_ptr<const StepRecord> TrialReader::with_values(const Index& index) const {
  auto record = std::make_shared<StepRecord>(index.record);
  if (index.events.empty()) return record;
  const std::string path = folder_ + "/" + index.events;
  const std::string events = read_file(path);
  for (TensorRecord& tensor : record->tensors) {
    const auto place = index.values.find(tensor.name);
    if (place == index.values.end()) continue;
    const auto [start, length] = place->second;
    if (start < 0 || length < 0 || start + length > static_cast<std::int64_t>(events.size()))
      throw DataError("'" + path + "' is shorter than its index says, or damaged");
    try {
      tensor.value = event_file::tensor_of(
          std::string_view(events).substr(static_cast<std::size_t>(start), static_cast<std::size_t>(length)));
    } catch (const DataError& error) {
      throw DataError("'" + path + "', tensor \"" + tensor.name + "\": " + error.what());
    }
    tensor.shape = tensor.value.sizes().vec();
  }
  return record;
}

std::shared_ptr<const StepRecord> TrialReader::record(Mode mode, std::int64_t mode_step, int worker) const {
  const auto step = step_of(mode, mode_step);
  const std::string name =
      "step " + std::to_string(mode_step) + " of " + std::string(mode_names[static_cast<std::size_t>(mode)]);
  if (!step || !complete(*step))
    throw DataError("trial '" + folder_ + "': " + name +
                    (has_passed_step(mode_step, mode) == StepState::unavailable ? " was not saved"
                                                                                : " is not there yet"));
  const Workers& workers = steps_.at(*step);
  const auto found = workers.find(worker);
  if (found == workers.end())
    throw DataError("trial '" + folder_ + "': " + name + " was not saved by worker " +
                    std::to_string(worker));
  return with_values(found->second);
}

std::vector<std::shared_ptr<const StepRecord>> TrialReader::take() {
  std::vector<std::shared_ptr<const StepRecord>> result;
  for (const auto& [step, workers] : steps_) {
    if (step <= taken_) continue;
    if (!complete(step)) break;
    for (const auto& [worker, index] : workers) result.push_back(with_values(index));
    taken_ = step;
  }
  for (auto& record : std::exchange(system_, {})) result.push_back(std::move(record));
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a->seconds < b->seconds; });
  return result;
}

}  // namespace trainyard
