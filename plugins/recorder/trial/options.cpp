#include "options.hpp"

#include <algorithm>

#include <trainyard/error.hpp>

namespace trial {
namespace {

std::vector<std::string> default_include(const std::string& name) {
  for (const Collection& each : default_collections())
    if (each.name == name) return each.include;
  return {};
}

SavedCollection saved(const CollectionOptions& given, const Options& all) {
  SavedCollection result;
  result.name = given.name;
  result.include = given.include_regex.empty() ? default_include(given.name) : given.include_regex;
  if (result.include.empty())
    throw ConfigError("recorder.collections: \"" + given.name +
                      "\" is no collection that is known; give it include_regex = [\"...\"]");
  result.save = {.save_interval = given.save_interval.value_or(all.save_interval),
                 .start_step = given.start_step.value_or(all.start_step),
                 .end_step = given.end_step ? given.end_step : all.end_step,
                 .save_steps = given.save_steps.empty() ? all.save_steps : given.save_steps};
  result.reductions = given.reductions;
  result.values = given.save_raw_tensor || given.reductions.empty();
  result.histogram = given.save_histogram;
  return result;
}

}  // namespace

std::vector<SavedCollection> saved_collections(const Options& options) {
  std::vector<SavedCollection> collections;
  for (const CollectionOptions& each : options.collections) {
    for (const SavedCollection& other : collections)
      if (other.name == each.name)
        throw ConfigError("recorder.collections: \"" + each.name + "\" is there twice");
    collections.push_back(saved(each, options));
    const Trial trial;
    for (const std::string& expression : collections.back().include)
      trial.belongs("", expression);  // throws for one that is none
  }
  const auto losses = [](const SavedCollection& each) { return each.name == "losses"; };
  if (std::none_of(collections.begin(), collections.end(), losses))
    collections.push_back(saved({.name = "losses"}, options));
  return collections;
}

std::vector<Collection> known_collections(const std::vector<SavedCollection>& saved) {
  std::vector<Collection> known(saved.begin(), saved.end());
  for (const Collection& each : default_collections())
    if (std::none_of(saved.begin(), saved.end(),
                     [&](const Collection& other) { return other.name == each.name; }))
      known.push_back(each);
  return known;
}

}  // namespace trial
