#include "core/plugins/needs.hpp"

#include <algorithm>
#include <utility>

#include "lib/words.hpp"

namespace trainyard::plugins {
namespace {

/// Returns the text before and after a separator; nothing if it is not found.
std::optional<std::pair<std::string_view, std::string_view>> split(std::string_view text,
                                                                   std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(lib::trimmed(text.substr(0, at), " "),
                   lib::trimmed(text.substr(at + separator.size()), " "));
}

std::optional<Comparison> parse_comparison(std::string_view text) {
  const auto unequal = split(text, " != "), equal = split(text, " = ");
  const auto& sides = unequal ? unequal : equal;
  if (!sides || sides->first.empty()) return std::nullopt;
  Comparison comparison{.key = sides->first, .equal = !unequal, .words = {}};
  std::string_view rest = sides->second;
  while (const auto parts = split(rest, "|")) {
    comparison.words.push_back(parts->first);
    rest = parts->second;
  }
  comparison.words.push_back(rest);
  if (std::ranges::count(comparison.words, "") > 0) return std::nullopt;
  return comparison;
}

}  // namespace

std::optional<Feature> parse_feature(std::string_view text) {
  constexpr std::string_view prefers = "prefers ";
  Feature feature{.text = lib::trimmed(text, " "), .name = {}, .key = {}, .conditions = {}};
  feature.wish = feature.text.starts_with(prefers);
  if (feature.wish) text = feature.text = feature.text.substr(prefers.size());
  if (const auto parts = split(text, " where ")) {
    feature.text = parts->first;
    std::string_view rest = parts->second;
    for (auto both = split(rest, " and "); !rest.empty(); both = split(rest, " and ")) {
      std::optional<Comparison> condition = parse_comparison(both ? both->first : rest);
      if (!condition) return std::nullopt;
      feature.conditions.push_back(std::move(*condition));
      rest = both ? both->second : std::string_view();
    }
  }
  feature.key = parse_comparison(feature.text);
  if (feature.key) return feature;
  feature.absent = feature.text.starts_with("no ");
  feature.name = feature.absent ? lib::trimmed(feature.text.substr(3), " ") : feature.text;
  return feature.name.empty() ? std::nullopt : std::optional(feature);
}

const Provided* find_provided(std::string_view name) {
  const auto found = std::ranges::find(provided_features, name, &Provided::name);
  return found == std::end(provided_features) ? nullptr : found;
}

std::string_view wrong_need(std::string_view text) {
  const std::optional<Feature> need = parse_feature(text);
  if (!need)
    return "expected a feature, \"no SLOT\" or \"KEY = WORD\", then perhaps \" where OPTION = WORD\"";
  if (need->key || need->absent || find_provided(need->name) != nullptr ||
      std::ranges::find(run_features, need->name) != std::end(run_features))
    return {};
  return "expected a feature that manifest.hpp lists at Manifest::needs";
}

std::string_view wrong_provided(std::string_view text, std::string_view kind) {
  const std::optional<Feature> feature = parse_feature(text);
  const Provided* known =
      feature && !feature->absent && !feature->wish && !feature->key ? find_provided(feature->name) : nullptr;
  return known != nullptr && known->kind == kind ? std::string_view()
                                                 : "expected a feature that manifest.hpp lists for its kind";
}

}  // namespace trainyard::plugins
