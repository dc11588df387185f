// The ensemble of the best at the end: a run of the model `ensemble`, as changes of a run file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/value.hpp>

#include "lib/escapes.hpp"
#include "lib/printed.hpp"

namespace studies {

/// Returns a value as it stands in a run file, on one line.
inline std::string toml(const trainyard::Value& value) {
  using trainyard::Array, trainyard::Table, trainyard::Value;
  const auto joined = [](const auto& all, const auto& text) {
    std::string line;
    for (const auto& each : all) line += (line.empty() ? "" : ", ") + text(each);
    return line;
  };
  const auto entry = [](const Table::Entry& each) {
    return trainyard::lib::toml_key(each.key) + " = " + toml(each.value);
  };
  if (const auto* const truth = value.get_if<bool>()) return *truth ? "true" : "false";
  if (const auto* const whole = value.get_if<std::int64_t>()) return std::to_string(*whole);
  if (const auto* const real = value.get_if<double>()) return trainyard::lib::float_text(*real);
  if (const auto* const all = value.get_if<Array>()) return "[" + joined(*all, toml) + "]";
  if (const auto* const table = value.get_if<Table>()) return "{ " + joined(table->entries(), entry) + " }";
  return trainyard::lib::toml_string(value.as<std::string>());
}

/// Keys of [data] that say in what order and by how many samples are read, and not what a network sees of one.
inline bool is_of_reading(std::string_view key) {
  constexpr std::string_view keys[] = {
      "take",    "batch_size", "micro_batch_size", "accumulation", "global_batch_size",
      "shuffle", "drop_last",  "workers",          "prefetch",     "sampler"};
  return std::ranges::find(keys, key) != std::end(keys);
}

/// Returns the text of a resolved run's table [data], without what may differ between runs whose networks see the same
/// features.
inline std::string data_text(const trainyard::Table& run) {
  using Entry = trainyard::Table::Entry;
  const trainyard::Value* const given = run.find("data");
  if (given == nullptr) return {};
  trainyard::Table data = given->as<trainyard::Table>();
  const auto is_entry_of_reading = [](const Entry& each) { return is_of_reading(each.key); };
  std::erase_if(data.entries(), is_entry_of_reading);
  for (Entry& each : data.entries())
    if (auto* const split = each.value.get_if<trainyard::Table>())
      std::erase_if(split->entries(), is_entry_of_reading);
  return toml(trainyard::Value(std::move(data)));
}

/// Returns whether a change of a run file, as after --set, says what the data is.
inline bool is_of_data(std::string_view change) {
  const std::string_view key = change.substr(0, change.find('='));
  return key.starts_with("vars.") ||
         (key.starts_with("data.") && !is_of_reading(key.substr(key.rfind('.') + 1)));
}

/// A configuration that may be a member: the resolved run file of its trial, and that run's folder as it is seen from the
/// ensemble's.
struct PossibleMember {
  trainyard::Table run;
  std::string from;
};

/// Returns the changes that make a run file one that chooses among candidates, a member a step. Steps have a sample each:
/// members are chosen by the validation split alone.
inline std::vector<std::string> ensemble_changes(const std::vector<PossibleMember>& candidates, int steps) {
  trainyard::Array members, from;
  for (const PossibleMember& each : candidates) {
    trainyard::Table model = each.run.find("model")->as<trainyard::Table>();
    model.erase("dropout");  // acts in training alone
    members.emplace_back(std::move(model));
    from.emplace_back(each.from);
  }
  trainyard::Table model;
  model.set("type", "ensemble");
  model.set("members", std::move(members));
  model.set("from", std::move(from));
  return {"model=" + toml(trainyard::Value(std::move(model))), "executor={ type = \"boosting\" }",
          "optimizer={ type = \"sgd\", lr = 1.0 }", "data.train.batch_size=1",
          "trainer.max_duration=" + std::to_string(steps) + "ba"};
}

}  // namespace studies
