// Checks values of the file against the rules of their keys, the host's and plugins' alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>
#include "core/runfile/findings.hpp"
#include "core/runfile/schema.hpp"

namespace trainyard::config {

/// Returns whether the run's length can be counted in steps; also true for a length that is missing or wrong,
/// which is reported elsewhere.
bool has_steps(const Table& root);

class Checker {
 public:
  /// `percent` says that the run has a length in steps, so that "20%" is valid.
  Checker(Findings& findings, bool percent) : findings_(findings), percent_(percent) {}

  bool percent() const { return percent_; }

  /// Returns the value in the type of its key (an integer becomes a float where one is wanted), with defaults
  /// filled into tables; nothing, with findings, where it does not fit. `path`: "optimizer.groups[0].lr".
  std::optional<Value> value(const OptionSpec& spec, const Value& given, const std::string& path,
                             Units units = Units::any);

  /// Reports required keys that neither `checked` nor `given` has, and fills in defaults. `label` names the
  /// table in messages: "[optimizer] (type = \"sgd\")".
  void complete(const std::vector<OptionSpec>& specs, Table& checked, const Table& given, const Origin& at,
                const std::string& label);

 private:
  Value table(const OptionSpec& spec, const Value& given, const std::string& path, Units units);
  std::optional<Value> scalar(const OptionSpec& spec, const Value& given, const std::string& path,
                              Units units);
  std::optional<Value> duration(const OptionSpec& spec, const Value& given, const std::string& path,
                                Units units);
  bool in_range(const OptionSpec& spec, double number, const Value& given, const std::string& path);

  Findings& findings_;
  bool percent_;
};

}  // namespace trainyard::config
