#include "core/runfile/option_text.hpp"

#include <cmath>

#include "core/runfile/print.hpp"
#include "lib/words.hpp"

namespace trainyard::config {

std::string type_text(const OptionSpec& spec) {
  if (!spec.plugins.empty()) return "list of " + spec.plugins + " plugins";
  const std::string name(option_type_names[static_cast<std::size_t>(spec.type)]);
  if (!spec.list) return name;
  return "list of " + (spec.count ? std::to_string(*spec.count) + " " : "") + name +
         (spec.count == 1 ? "" : "s");
}

std::string range_text(const OptionSpec& spec) {
  const auto text = [](double bound) {
    // Most bounds, which are doubles, are whole numbers and read better as such.
    return std::abs(bound) < 1e15 && bound == std::floor(bound)
               ? std::to_string(static_cast<std::int64_t>(bound))
               : toml_text(Value(bound));
  };
  const std::string low = spec.minimum ? (spec.open_minimum ? "> " : ">= ") + text(*spec.minimum) : "";
  const std::string high = spec.maximum ? (spec.open_maximum ? "< " : "<= ") + text(*spec.maximum) : "";
  return low.empty() || high.empty() ? low + high : low + " and " + high;
}

std::string allowed_text(const OptionSpec& spec) {
  return spec.choices.empty() ? range_text(spec) : lib::join(spec.choices, " | ");
}

std::string default_text(const OptionSpec& spec) {
  if (spec.required) return "required";
  return spec.fallback ? toml_text(*spec.fallback) : "";
}

}  // namespace trainyard::config
