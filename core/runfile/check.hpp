// A value of the file against what a key may hold: the same for keys of the host and options of plugins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>
#include "core/runfile/findings.hpp"
#include "core/runfile/schema.hpp"

namespace trainyard::config {

/// Whether a place in the run can be counted in steps; a length that is missing or wrong is reported
/// elsewhere.
bool has_steps(const Table& root);

class Checker {
 public:
  /// `percent`: whether the run has a length in steps, so that "20%" is one.
  Checker(Findings& findings, bool percent) : findings_(findings), percent_(percent) {}

  bool percent() const { return percent_; }

  /// The value in the type of its key (an integer becomes a float where one is wanted), tables with defaults
  /// filled in; nothing, with findings, where it does not fit. `path`: "optimizer.groups[0].lr".
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
