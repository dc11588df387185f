#include "core/runfile/check.hpp"

#include <algorithm>
#include <cmath>

#include "core/runfile/at_path.hpp"
#include "core/runfile/option_text.hpp"
#include "core/runfile/parse.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/suggest.hpp"
#include "lib/words.hpp"

namespace trainyard::config {
namespace {

std::string article(const std::string& noun) {
  return (std::string("aeiou").find(noun.front()) == std::string::npos ? "a " : "an ") + noun;
}

/// Describes a found value: "the string "0.1"", "an array".
std::string found(const Value& value) {
  const std::string type = value.type_name();
  if (value.get_if<Array>() || value.get_if<Table>()) return article(type);
  return "the " + type + " " + toml_text(value);
}

std::vector<std::string> names_of(const std::vector<OptionSpec>& specs) {
  std::vector<std::string> names(specs.size());
  std::ranges::transform(specs, names.begin(), &OptionSpec::name);
  std::ranges::sort(names);
  return names;
}

std::string duration_hint(Units units) {
  const char* names = units == Units::time       ? "s m h d   e.g. \"45m\""
                      : units == Units::length   ? "ep ba sp tok s m h d   e.g. \"30ep\""
                      : units == Units::progress ? "ep ba sp tok %   e.g. \"1ep\""
                                                 : "ep ba sp tok % s m h d   e.g. \"1ep\"";
  return std::string("use <number><unit>, unit one of ") + names;
}

/// Returns `value` with the place in the file of the one that it was made from.
Value placed(Value value, const Value& from) {
  value.origin = from.origin;
  value.key_origin = from.key_origin;
  return value;
}

/// Returns how a value of the wrong type would be written right, where that can be told.
std::string mend(const OptionSpec& spec, const Value& given) {
  if (const auto* text = given.get_if<std::string>()) {
    const std::optional<Value> inner = parse_value(*text);
    const bool fits =
        inner &&
        ((spec.type == OptionType::boolean && inner->get_if<bool>()) ||
         (spec.type == OptionType::integer && inner->get_if<std::int64_t>()) ||
         (spec.type == OptionType::number && (inner->get_if<double>() || inner->get_if<std::int64_t>())));
    if (fits) return "write it without quotes: " + *text;
    if (spec.type == OptionType::boolean) return "write true or false";
  }
  if (spec.type == OptionType::string && !given.get_if<Array>() && !given.get_if<Table>())
    return "write it in quotes: \"" + toml_text(given) + "\"";
  if (const auto* number = given.get_if<double>(); number != nullptr && spec.type == OptionType::integer &&
                                                   std::isfinite(*number) && std::abs(*number) < 1e15)
    return "a whole number, written without a point: " + std::to_string(std::llround(*number));
  if (spec.type == OptionType::boolean) return "write true or false";
  return {};
}

}  // namespace

bool has_steps(const Table& root) {
  const auto* text = at_path<std::string>(root, "trainer.max_duration");
  const std::optional<Duration> length = text == nullptr ? std::nullopt : Duration::parse(*text);
  return !length || length->unit != Duration::Unit::seconds;
}

std::optional<Value> Checker::value(const OptionSpec& spec, const Value& given, const std::string& path,
                                    Units units) {
  if (findings_.mentions(given.origin)) return std::nullopt;  // its ${} reference was reported
  if (!spec.list) return scalar(spec, given, path, units);
  const auto* array = given.get_if<Array>();
  if (array == nullptr) {
    findings_.error("E105", given.origin,
                    path + ": expected a " + type_text(spec) + ", found " + found(given),
                    given.get_if<Table>() ? "" : "put it in brackets: [" + toml_text(given) + "]");
    return std::nullopt;
  }
  if (spec.count && static_cast<std::int64_t>(array->size()) != *spec.count) {
    findings_.error(
        "E123", given.origin,
        path + ": expected a " + type_text(spec) + ", found one of " + std::to_string(array->size()),
        spec.fallback ? "such as " + toml_text(*spec.fallback) : "");
    return std::nullopt;
  }
  Array checked;
  for (std::size_t i = 0; i < array->size(); ++i)
    if (std::optional<Value> element = scalar(spec, (*array)[i], path + "[" + std::to_string(i) + "]", units))
      checked.push_back(std::move(*element));
  if (checked.size() != array->size()) return std::nullopt;
  return placed(std::move(checked), given);
}

std::optional<Value> Checker::scalar(const OptionSpec& spec, const Value& given, const std::string& path,
                                     Units units) {
  if (findings_.mentions(given.origin)) return std::nullopt;
  switch (spec.type) {
    case OptionType::duration: return duration(spec, given, path, units);
    case OptionType::boolean:
      if (given.get_if<bool>()) return given;
      break;
    case OptionType::integer:
      if (const auto* number = given.get_if<std::int64_t>()) {
        if (!in_range(spec, static_cast<double>(*number), given, path)) return std::nullopt;
        return given;
      }
      break;
    case OptionType::number: {
      const auto* integer = given.get_if<std::int64_t>();
      const auto* number = given.get_if<double>();
      if (integer == nullptr && number == nullptr) break;
      const double plain = integer != nullptr ? static_cast<double>(*integer) : *number;
      if (!in_range(spec, plain, given, path)) return std::nullopt;
      return placed(plain, given);
    }
    case OptionType::string:
      if (const auto* text = given.get_if<std::string>()) {
        if (spec.choices.empty() ||
            std::find(spec.choices.begin(), spec.choices.end(), *text) != spec.choices.end())
          return given;
        findings_.error("E107", given.origin, path + ": \"" + *text + "\" is not one of its values",
                        suggestion(*text, spec.choices));
        return std::nullopt;
      }
      break;
    case OptionType::table:
      if (given.get_if<Table>()) return table(spec, given, path, units);
      break;
  }
  const std::string type(option_type_names[static_cast<std::size_t>(spec.type)]);
  findings_.error("E105", given.origin, path + ": expected " + article(type) + ", found " + found(given),
                  mend(spec, given));
  return std::nullopt;
}

Value Checker::table(const OptionSpec& spec, const Value& given, const std::string& path, Units units) {
  const std::string label = "`" + path + "`";
  Table checked;
  for (const Table::Entry& entry : given.as<Table>().entries()) {
    const auto field = std::find_if(spec.fields.begin(), spec.fields.end(),
                                    [&](const OptionSpec& field) { return field.name == entry.key; });
    if (field == spec.fields.end())
      findings_.error("E104", entry.value.key_origin, "unknown key `" + entry.key + "` in " + label,
                      suggestion(entry.key, names_of(spec.fields)));
    else if (std::optional<Value> fitting = value(*field, entry.value, path + "." + entry.key, units))
      checked.set(entry.key, std::move(*fitting));
  }
  complete(spec.fields, checked, given.as<Table>(), given.origin, label);
  return placed(std::move(checked), given);
}

std::optional<Value> Checker::duration(const OptionSpec& spec, const Value& given, const std::string& path,
                                       Units units) {
  const auto* text = given.get_if<std::string>();
  if (text == nullptr) {
    findings_.error("E105", given.origin, path + ": expected a duration, found " + found(given),
                    duration_hint(units));
    return std::nullopt;
  }
  const std::optional<Duration> parsed = Duration::parse(*text);
  if (!parsed) {
    findings_.error("E121", given.origin, path + ": \"" + *text + "\" is not a duration",
                    duration_hint(units));
    return std::nullopt;
  }
  const bool wall = parsed->unit == Duration::Unit::seconds;
  const bool share = parsed->unit == Duration::Unit::percent;
  std::string wrong;
  if (units == Units::time && !wall) wrong = "is not a wall time";
  if (units == Units::progress && wall) wrong = "is a wall time, which is another place in each run";
  if (units == Units::length && share) wrong = "is a share of the run, whose length this is";
  if (share && units != Units::length && units != Units::time && !percent_)
    wrong = "is a share of a run whose number of steps is not known: trainer.max_duration is a wall time";
  if (!wrong.empty()) {
    findings_.error("E122", given.origin, path + ": \"" + *text + "\" " + wrong, duration_hint(units));
    return std::nullopt;
  }
  if (!in_range(spec, parsed->count, given, path)) return std::nullopt;
  return given;
}

bool Checker::in_range(const OptionSpec& spec, double number, const Value& given, const std::string& path) {
  if (!std::isfinite(number)) {
    findings_.error("E106", given.origin, path + ": " + toml_text(given) + " is not a finite number",
                    range_text(spec).empty() ? "" : "allowed: " + range_text(spec));
    return false;
  }
  const bool low = spec.minimum && (spec.open_minimum ? number <= *spec.minimum : number < *spec.minimum);
  const bool high = spec.maximum && (spec.open_maximum ? number >= *spec.maximum : number > *spec.maximum);
  if (!low && !high) return true;
  findings_.error("E106", given.origin, path + ": " + toml_text(given) + " is out of range",
                  "allowed: " + range_text(spec));
  return false;
}

void Checker::complete(const std::vector<OptionSpec>& specs, Table& checked, const Table& given,
                       const Origin& at, const std::string& label) {
  for (const OptionSpec& spec : specs) {
    if (checked.contains(spec.name) || given.contains(spec.name)) continue;
    if (spec.fallback) checked.set(spec.name, *spec.fallback);
    if (!spec.required) continue;
    std::string form = spec.name + " = <" + type_text(spec) + ">";
    if (const std::string range = range_text(spec); !range.empty()) form += ", " + range;
    if (!spec.choices.empty()) form += ", one of " + lib::join(spec.choices);
    findings_.error("E108", at, label + " needs `" + spec.name + "`: " + spec.help, form);
  }
}

}  // namespace trainyard::config
