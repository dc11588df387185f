// The ensemble of the best at the end: a run of the model `ensemble`, as changes of a run file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/value.hpp>

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
  const auto entry = [](const Table::Entry& each) { return each.key + " = " + toml(each.value); };
  if (const auto* const truth = value.get_if<bool>()) return *truth ? "true" : "false";
  if (const auto* const whole = value.get_if<std::int64_t>()) return std::to_string(*whole);
  if (const auto* const real = value.get_if<double>()) return trainyard::lib::float_text(*real);
  if (const auto* const all = value.get_if<Array>()) return "[" + joined(*all, toml) + "]";
  if (const auto* const table = value.get_if<Table>()) return "{ " + joined(table->entries(), entry) + " }";
  std::string text = "\"";
  for (const char c : value.as<std::string>()) text.append(c == '"' || c == '\\' ? "\\" : "").append(1, c);
  return text + "\"";
}

/// Returns the text of a resolved run's table [data], without what may differ between runs whose networks see the same
/// features: the part of the samples that a split takes, and how many make a batch.
inline std::string data_text(const trainyard::Table& run) {
  const trainyard::Value* const given = run.find("data");
  if (given == nullptr) return {};
  trainyard::Table data = given->as<trainyard::Table>();
  data.erase("batch_size");
  for (trainyard::Table::Entry& each : data.entries())
    if (auto* const split = each.value.get_if<trainyard::Table>())
      for (const char* const key : {"take", "batch_size", "shuffle"}) split->erase(key);
  return toml(trainyard::Value(std::move(data)));
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
