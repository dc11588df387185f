#include "contract/records.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include <trainyard/formats/event_file.hpp>
#include <trainyard/formats/trial_files.hpp>

#include "support/folder.hpp"

#include "lib/sha256.hpp"

namespace trainyard::contract {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;
using check::is_time;

Json without_times(Json values) {
  for (auto each = values.begin(); each != values.end();)
    each = is_time(each.key()) ? values.erase(each) : std::next(each);
  return values;
}

void read_jsonl(const std::string& path, Lines& lines) {
  for (const std::string& line : test::lines(path)) {
    Json record = without_times(Json::parse(line));
    if (record["what"] != "train" && record["what"] != "eval") continue;
    record["values"] = without_times(record["values"]);
    lines.push_back(record.dump());
  }
}

void read_csv(const std::string& path, Lines& lines) {  // step,epoch,seconds,name,value
  for (const std::string& line : test::lines(path)) {
    Lines cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    REQUIRE(cells.size() == 5);
    if (!is_time(cells[3])) lines.push_back(cells[0] + "," + cells[1] + "," + cells[3] + "," + cells[4]);
  }
}

/// The fields of a protobuf message: number, and its bytes.
std::vector<std::pair<int, std::string_view>> fields(std::string_view message) {
  std::vector<std::pair<int, std::string_view>> found;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= std::uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    const std::size_t begin = at;
    const std::size_t length = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : varint();
    const bool number = (key & 7) == 0;
    const std::size_t start = (key & 7) == 2 ? at : begin;
    if (!number) at = start + length;
    found.emplace_back(static_cast<int>(key >> 3), message.substr(start, at - start));
  }
  return found;
}

/// Every value of TensorBoard's: step, tag, and the bytes of the rest.
void read_events(const std::string& path, Lines& lines) {
  event_file::length_through(test::read_file(path), std::numeric_limits<std::int64_t>::max(),
                             [&](std::string_view event) {
                               for (const auto& [number, summary] : fields(event)) {
                                 if (number != 5) continue;
                                 for (const auto& [_, value] : fields(summary)) {
                                   const std::string tag(fields(value).front().second);
                                   if (!is_time(tag))
                                     lines.push_back(std::to_string(event_file::step_of(event)) + " " + tag +
                                                     " " + lib::Sha256::of(value));
                                 }
                               }
                             });
}

/// Every step of a trial, and its tensors; not what the machine did (Mode::global).
Lines read_trial(const std::string& folder) {
  Lines lines;
  for (const auto& entry : fs::recursive_directory_iterator(folder + "/index"))
    if (entry.is_regular_file())
      lines.push_back(entry.path().filename().string() + " " +
                      without_times(Json::parse(test::read_file(entry.path()))).dump());
  std::sort(lines.begin(), lines.end());
  const TrialReader trial(folder);
  for (const trainyard::Mode mode : trial.modes())
    for (const std::int64_t step : trial.steps(mode)) {
      const std::shared_ptr<const StepRecord> record = trial.record(mode, step);
      for (const TensorRecord& tensor : record->tensors) {
        if (!tensor.value.defined()) continue;
        const at::Tensor plain = tensor.value.contiguous();
        const std::string_view bytes(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
        lines.push_back(std::string(mode_names[static_cast<std::size_t>(mode)]) + std::to_string(step) + " " +
                        tensor.name + " " + lib::Sha256::of(bytes));
      }
    }
  return lines;
}

/// What has the time in everything, and a name drawn at random: tests/e2e/sinks.py and trace.py read these.
bool by_the_clock(const std::string& name) {
  return name == "mllog.txt" || name == "mlflow_run_id" || name.starts_with("trace.json");
}

/// What the host itself leaves, and says when it did what.
bool of_host(const std::string& name) {
  static const std::set<std::string> names = {"config.toml", "journal.jsonl", "run.log",  "result.json",
                                              "checkpoints", "ctl.sock",      "run.lock", "model.safetensors",
                                              "ranks",       "swapped.toml"};
  return names.contains(name);
}

}  // namespace

Remains remains_of(const std::string& run_folder) {
  Remains remains = check::remains_of(run_folder);
  // Rules have a thread of their own: whether the last checkpoint holds a verdict, or the loop has taken it by then, is a
  // matter of time.
  if (const auto recorder = remains.find("state of recorder"); recorder != remains.end())
    std::erase_if(recorder->second, [](const std::string& line) { return line.starts_with("verdicts "); });
  // The machine is looked at twice a second: whether that was after the first step of a short run is a matter of time.
  if (const auto rule = remains.find("state of rules.max_initialization_time"); rule != remains.end())
    std::erase_if(rule->second, [](const std::string& line) { return line.starts_with("begun "); });
  std::set<std::string> names;  // of several files of events the earlier comes first
  for (const auto& entry : fs::directory_iterator(run_folder)) names.insert(entry.path().filename().string());
  for (const std::string& name : names) {
    const std::string path = run_folder + "/" + name;
    if (of_host(name) || by_the_clock(name)) continue;
    if (name == "trial")
      remains["trial"] = read_trial(path);
    else if (name == "report")
      for (const auto& table : fs::directory_iterator(path))
        remains["report " + table.path().filename().string()] = test::lines(table.path().string());
    else if (name.ends_with(".jsonl"))
      read_jsonl(path, remains[name]);
    else if (name.ends_with(".csv"))
      read_csv(path, remains[name]);
    else if (name.starts_with("events.out.tfevents."))
      read_events(path, remains["events"]);
    else if (name == "data.json")
      remains[name] = test::lines(path);
    else
      FAIL_CHECK("nobody here can read " << path << ": add it to tests/contract/records.cpp");
  }
  return remains;
}

}  // namespace trainyard::contract
