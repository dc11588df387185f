#include "core/check/values.hpp"

#include <cmath>
#include <limits>

#include "core/runfile/print.hpp"

namespace trainyard::check {
namespace {

std::string number(double value) {
  return config::toml_text(Value(value));
}
std::string integer(double value) {
  return std::to_string(static_cast<std::int64_t>(value));
}

void bounds(const OptionSpec& option, std::vector<Trial>& trials) {
  const bool whole = option.type == OptionType::integer;
  const auto text = [&](double value) { return whole ? integer(value) : number(value); };
  const auto next = [&](double value, double direction) {
    return whole ? value + direction
                 : std::nextafter(value, direction * std::numeric_limits<double>::infinity());
  };
  const auto at = [&](double bound, bool open, double inwards) {
    trials.push_back({text(bound), !open});
    trials.push_back({text(next(bound, -inwards)), false});
    if (open) trials.push_back({text(next(bound, inwards)), true});
  };
  if (option.minimum) at(*option.minimum, option.open_minimum, 1);
  if (option.maximum) at(*option.maximum, option.open_maximum, -1);
  if (!option.minimum) trials.push_back({text(-1e6), !option.maximum || *option.maximum >= -1e6});
  if (!option.maximum) trials.push_back({text(1e6), true});
  if (whole) return;
  for (const char* infinite : {"nan", "inf", "-inf"}) trials.push_back({infinite, false});
}

/// Returns values that no option accepts, except, for some, those of one type, which then get other ones.
std::vector<Trial> of_no_type(const OptionSpec& option) {
  std::vector<Trial> all = {{"[[1]]", false}};
  if (option.type != OptionType::number)
    for (const char* odd : {"nan", "-inf", "1.5"}) all.push_back({odd, false});
  if (option.type != OptionType::table) all.push_back({"{ no_such_field = 1 }", false});
  return all;
}

/// Returns values at the option's bounds, just beyond, and of other types.
std::vector<Trial> of_type(const OptionSpec& option) {
  switch (option.type) {
    case OptionType::boolean: return {{"true", true}, {"false", true}, {"1", false}, {"\"true\"", false}};
    case OptionType::integer:
    case OptionType::number: {
      std::vector<Trial> all = {{"\"1\"", false}, {"true", false}};
      bounds(option, all);
      return all;
    }
    case OptionType::string: {
      std::vector<Trial> all = {{"5", false}, {"false", false}};
      for (const std::string& choice : option.choices) all.push_back({"\"" + choice + "\"", true});
      if (!option.choices.empty()) all.push_back({"\"no such value\"", false});
      return all;
    }
    case OptionType::duration: {
      std::vector<Trial> all = {{"\"1ep\"", true}, {"\"10ba\"", true}, {"5", false}};
      for (const char* wrong : {"", "ep", "5", "1 epoch", "-1ep", "nanep", "infba", "1e400ba", "1ep1ep"})
        all.push_back({std::string("\"") + wrong + "\"", false});
      return all;
    }
    case OptionType::table: {
      std::vector<Trial> all = {{"5", false}, {"\"x\"", false}, {"{ no_such_field = 1 }", false}};
      if (!option.plugins.empty()) all.push_back({"{ type = \"no_such_plugin\" }", false});
      return all;
    }
  }
  return {};
}

void visit_each(const std::vector<OptionSpec>& options, const Written& around,
                const std::function<std::string(const OptionSpec&)>& filling,
                const std::function<void(const OptionSpec&, const Written&)>& visit) {
  for (const OptionSpec& option : options) {
    const Written written = [&](const std::string& value) { return around(option.name + " = " + value); };
    visit(option, written);
    for (const OptionSpec& field : option.fields) {
      const Written inside = [&](const std::string& assignment) {
        std::string rest;
        for (const OptionSpec& other : option.fields)
          if (other.required && other.name != field.name) rest += ", " + other.name + " = " + filling(other);
        const std::string table = "{ " + assignment + rest + " }";
        return written(option.list ? as_list(table, option.count.value_or(1)) : table);
      };
      visit_each({field}, inside, filling, visit);
    }
  }
}

}  // namespace

std::string as_list(const std::string& element, std::int64_t count) {
  std::string text = "[" + element;
  for (std::int64_t i = 1; i < count; ++i) text += ", " + element;
  return text + "]";
}

std::vector<Trial> trials(const OptionSpec& option) {
  std::vector<Trial> all = of_type(option);
  for (const Trial& trial : of_no_type(option)) all.push_back(trial);
  return all;
}

std::string random_value(const OptionSpec& option, std::mt19937_64& dice) {
  const double low =
      option.minimum.value_or(option.maximum.value_or(0.0) < 0.0 ? *option.maximum - 1e3 : 0.0);
  const double high = option.maximum.value_or(std::max(1e3, 2 * low));
  const double place = std::uniform_real_distribution(0.0, 1.0)(dice);
  // Half of the values lie near the lower end, where most special cases are.
  const double spread = dice() % 2 == 0 ? place : place * place * place * place;
  const double value = low + spread * (high - low);
  switch (option.type) {
    case OptionType::boolean: return dice() % 2 == 0 ? "true" : "false";
    case OptionType::integer:
      return integer(std::min(high - (option.open_maximum ? 1 : 0),
                              std::max(low + (option.open_minimum ? 1 : 0), std::round(value))));
    case OptionType::number:
      if ((option.open_minimum && value <= low) || (option.open_maximum && value >= high))
        return number((low + high) / 2);
      return number(value);
    case OptionType::duration: {
      const std::string count = std::to_string(1 + dice() % 9);
      const char* const units[] = {"ep", "ba", "%"};
      return "\"" + count + units[dice() % std::size(units)] + "\"";
    }
    case OptionType::string:
      return option.choices.empty() ? "" : "\"" + option.choices[dice() % option.choices.size()] + "\"";
    case OptionType::table: return {};
  }
  return {};
}

void each_option(const std::vector<OptionSpec>& options,
                 const std::function<std::string(const OptionSpec&)>& filling,
                 const std::function<void(const OptionSpec&, const Written&)>& visit) {
  visit_each(
      options, [](const std::string& text) { return text; }, filling, visit);
}

}  // namespace trainyard::check
