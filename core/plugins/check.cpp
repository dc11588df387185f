#include "core/plugins/check.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <trainyard/duration.hpp>

#include <trainyard/event.hpp>
#include "core/plugins/kinds.hpp"
#include "core/plugins/needs.hpp"
#include "lib/printed.hpp"
#include "lib/words.hpp"

namespace trainyard::plugins {
namespace {

bool is_name(const std::string& text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text.front() >= 'a' && text.front() <= 'z' &&
         std::all_of(text.begin(), text.end(), allowed);
}

/// Returns whether the text is MAJOR.MINOR.PATCH in digits.
bool is_version(const std::string& text) {
  int parts = 1, digits = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      ++digits;
    } else if (c == '.' && digits > 0) {
      ++parts;
      digits = 0;
    } else {
      return false;
    }
  }
  return parts == 3 && digits > 0;
}

std::string list(Regions regions) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < region_count; ++i)
    if (regions.contains(static_cast<Region>(i))) words.emplace_back(region_names[i]);
  return lib::join(words);
}

class Checker {
 public:
  void manifest(const ManifestData& data) {
    name_ = data.name;
    if (!is_name(data.name))
      add("", "its name is \"" + data.name + "\", expected lower-case letters, digits and _, a letter first");
    if (!is_version(data.version))
      add("", "its version is \"" + data.version + "\", expected three numbers as in \"1.0.0\"");
    if (data.summary.empty() || data.summary.find('\n') != std::string::npos)
      add("", "its summary is empty or has several lines, expected one sentence");
    const KindRow* kind = find_kind(data.kind);
    if (kind == nullptr || kind->kind.revision != data.revision)
      add("", "its kind " + data.kind + "/" + std::to_string(data.revision) + " is none of this SDK's");
    for (const std::string& text : data.needs)
      if (const std::string_view wrong = wrong_need(text); !wrong.empty())
        add("", "it needs \"" + text + "\", " + std::string(wrong));
    for (const std::string& text : data.provides)
      if (const std::string_view wrong = wrong_provided(text, data.kind); !wrong.empty())
        add("", "it provides \"" + text + "\", " + std::string(wrong));
    for (const Event event : data.fires)
      if (!of_micro(event))
        add("", "it fires " + std::string(name(event)) + ", which is no event of a micro-batch");
    for (const OptionSpec& option : data.options)
      if (option.name == "type" || option.name == "id")
        add("option `" + option.name + "`", "the run file uses this key for the plugin itself");
    options(data.options, "");
    for (const HookSpec& spec : data.hooks) hook(spec);
  }

  std::vector<std::string> take() { return std::move(found_); }

 private:
  void add(const std::string& where, const std::string& what) {
    found_.push_back(where.empty() ? what : where + ": " + what);
  }

  void options(const std::vector<OptionSpec>& specs, const std::string& prefix) {
    std::set<std::string> seen;
    for (const OptionSpec& spec : specs) {
      const std::string where = "option `" + prefix + spec.name + "`";
      if (!is_name(spec.name))
        add(where, "expected a name of lower-case letters, digits and _, a letter first");
      if (!seen.insert(spec.name).second) add(where, "is declared twice");
      option(spec, where);
      options(spec.fields, prefix + spec.name + ".");
    }
  }

  void option(const OptionSpec& spec, const std::string& where) {
    const bool is_number = spec.type == OptionType::integer || spec.type == OptionType::number;
    if (spec.help.empty()) add(where, "has no help text");
    if (!is_number && (spec.minimum || spec.maximum)) add(where, "has a range but is no number");
    if ((spec.minimum && std::isnan(*spec.minimum)) || (spec.maximum && std::isnan(*spec.maximum)))
      add(where, "has NaN as a bound");
    if (spec.minimum && spec.maximum && *spec.minimum > *spec.maximum)
      add(where,
          "has the empty range " + lib::shortest(*spec.minimum) + " to " + lib::shortest(*spec.maximum));
    if (spec.type != OptionType::string && !spec.choices.empty()) add(where, "has choices but is no string");
    const bool part = !spec.plugins.empty();
    if (part && (spec.type != OptionType::table || !spec.list || !spec.fields.empty()))
      add(where, "holds plugins but is no list of tables without fields of their own");
    if (part && find_kind(spec.plugins) == nullptr)
      add(where, "holds plugins of the kind \"" + spec.plugins + "\", which is none of this SDK's");
    if (!part && (spec.type == OptionType::table) != !spec.fields.empty())
      add(where, spec.fields.empty() ? "is a table without fields" : "has fields but is no table");
    if (spec.count && (!spec.list || part || *spec.count < 1))
      add(where, "has a count of " + std::to_string(*spec.count) + ", expected one of 1 or more, of a list");
    if (spec.required && spec.fallback) add(where, "is required and has a default");
    if (!spec.fallback) return;
    if (!spec.list) {
      value(spec, *spec.fallback, where);
    } else if (const Array* elements = spec.fallback->get_if<Array>()) {
      if (spec.count && static_cast<std::int64_t>(elements->size()) != *spec.count)
        add(where, "has a default of " + std::to_string(elements->size()) + " elements, and a count of " +
                       std::to_string(*spec.count));
      for (const Value& element : *elements) value(spec, element, where);
    } else {
      add(where, std::string("has a default of type ") + spec.fallback->type_name() + ", expected an array");
    }
  }

  /// Checks a default, or an element of one, against the rules of its option.
  void value(const OptionSpec& spec, const Value& value, const std::string& where) {
    const auto wrong_type = [&] {
      add(where, std::string("has a default of type ") + value.type_name() + ", expected " +
                     std::string(option_type_names[static_cast<std::size_t>(spec.type)]));
    };
    switch (spec.type) {
      case OptionType::boolean:
        if (!value.get_if<bool>()) wrong_type();
        return;
      case OptionType::integer:
        if (const auto* held = value.get_if<std::int64_t>())
          bounds(spec, static_cast<double>(*held), where);
        else
          wrong_type();
        return;
      case OptionType::number:
        if (const auto* held = value.get_if<double>())
          bounds(spec, *held, where);
        else
          wrong_type();
        return;
      case OptionType::string:
        if (const auto* held = value.get_if<std::string>())
          choice(spec, *held, where);
        else
          wrong_type();
        return;
      case OptionType::duration:
        if (const auto* held = value.get_if<std::string>(); held == nullptr)
          wrong_type();
        else if (!Duration::parse(*held))
          add(where, "has the default \"" + *held + "\", which is no duration");
        return;
      case OptionType::table:
        if (!value.get_if<Table>()) wrong_type();
        return;
    }
  }

  void bounds(const OptionSpec& spec, double held, const std::string& where) {
    const bool low = spec.minimum && (held < *spec.minimum || (spec.open_minimum && held == *spec.minimum));
    const bool high = spec.maximum && (held > *spec.maximum || (spec.open_maximum && held == *spec.maximum));
    if (std::isnan(held)) add(where, "has NaN as its default");
    if (low)
      add(where, "has the default " + lib::shortest(held) + ", below its own minimum " +
                     lib::shortest(*spec.minimum));
    if (high)
      add(where, "has the default " + lib::shortest(held) + ", above its own maximum " +
                     lib::shortest(*spec.maximum));
  }

  void choice(const OptionSpec& spec, const std::string& held, const std::string& where) {
    if (spec.choices.empty() ||
        std::find(spec.choices.begin(), spec.choices.end(), held) != spec.choices.end())
      return;
    add(where, "has the default \"" + held + "\", which is none of its choices: " + lib::join(spec.choices));
  }

  void hook(const HookSpec& spec) {
    const std::string where = "hook at " + std::string(name(spec.event));
    const Regions allowed = writable(spec.event);
    if (!allowed.contains(spec.writes))
      add(where, "writes " + list(spec.writes) + ", the event allows " + list(allowed));
    if (!spec.writes.empty() && spec.phase != Phase::transform)
      add(where, "writes " + list(spec.writes) + " in phase " + std::string(name(spec.phase)) +
                     ", where nothing may be written");
    if (spec.writes.empty() && spec.phase == Phase::transform)
      add(where, "is in phase transform but declares nothing that it writes");
    if (spec.priority < 0 || spec.priority > 100)
      add(where, "has priority " + std::to_string(spec.priority) + ", expected 0 to 100");
    for (const std::string& text : {spec.cadence.every, spec.cadence.start, spec.cadence.end})
      if (!text.empty() && !Duration::parse(text))
        add(where, "has the cadence \"" + text + "\", which is no duration");
    for (const auto& names : {spec.before, spec.after})
      if (std::find(names.begin(), names.end(), name_) != names.end())
        add(where, "is ordered against itself");
  }

  std::string name_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> problems(const ManifestData& manifest) {
  Checker checker;
  checker.manifest(manifest);
  return checker.take();
}

}  // namespace trainyard::plugins
