#include "settings.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "lib/read_file.hpp"
#include "lib/words.hpp"

namespace convert {
namespace {

using nlohmann::json;
using trainyard::ConfigError;
using trainyard::Table;
using trainyard::Value;

std::string text_of(const Value& value) {
  if (const auto* const text = value.get_if<std::string>()) return *text;
  if (const auto* const flag = value.get_if<bool>()) return *flag ? "true" : "false";
  if (const auto* const number = value.get_if<std::int64_t>()) return std::to_string(*number);
  if (const auto* const number = value.get_if<double>()) return json(*number).dump();
  return value.type_name();
}

/// What stands at "rope.theta"; null where nothing does.
const json* at_key(const json& file, const std::string& key) {
  const std::size_t dot = key.find('.');
  const auto found = file.is_object() ? file.find(key.substr(0, dot)) : file.end();
  if (!file.is_object() || found == file.end() || found->is_null()) return nullptr;
  return dot == std::string::npos ? &*found : at_key(*found, key.substr(dot + 1));
}

std::string plain(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Numbers are the same where they are the same as floats.
bool is_same(const Value& own, const json& given) {
  if (const auto* const number = own.get_if<double>())
    return given.is_number() && static_cast<float>(*number) == static_cast<float>(given.get<double>());
  return text_of(own) == plain(given);
}

/// What is wrong with one setting; empty: nothing.
std::string difference(const Setting& setting, const Value& own, const std::string& key, const json& given) {
  const std::string option = "model." + setting.option;
  if (setting.words.empty())
    return is_same(own, given) ? "" : option + " is " + text_of(own) + ", and " + key + " " + plain(given);
  for (const auto& [word, ours] : setting.words)
    if (word == plain(given))
      return ours == text_of(own) ? ""
                                  : option + " is " + text_of(own) + ", and " + key + " \"" + word +
                                        "\": set it to \"" + ours + "\"";
  return key + " is " + plain(given) + ", which this model does not have";
}

}  // namespace

void check_options(const Map& map, const Table& model) {
  const Value* const type = model.find("type");
  if (type == nullptr || text_of(*type) != map.model)
    throw ConfigError("map \"" + map.name + "\" is for [model] type = \"" + map.model + "\", found \"" +
                      (type == nullptr ? "" : text_of(*type)) + "\"");
  std::string wrong;
  for (const Fitting& each : map.options) {
    const Value* const value = model.find(each.option);
    const std::string found = value == nullptr ? "" : text_of(*value);
    if (std::find(each.values.begin(), each.values.end(), found) == each.values.end())
      wrong += "\n  model." + each.option + " is " + found + ", expected " +
               trainyard::lib::join(each.values, " or ");
  }
  if (!wrong.empty())
    throw ConfigError("the files of map \"" + map.name + "\" are of models with other options: set them" +
                      wrong);
}

Map fitting_map(const Table& model) {
  std::vector<Map> fitting;
  std::vector<std::string> names;
  for (const std::string& name : map_names()) {
    try {
      Map map = find_map(name);
      check_options(map, model);
      fitting.push_back(std::move(map));
      names.push_back(name);
    } catch (const ConfigError&) {}  // it is for another model
  }
  if (fitting.size() == 1) return std::move(fitting.front());
  throw ConfigError(fitting.empty()
                        ? "no map fits the model: name one of your own, NAME.toml; there are " +
                              trainyard::lib::join(map_names())
                        : "several maps fit the model: set map to one of " + trainyard::lib::join(names));
}

std::int64_t check_settings(const Map& map, const Table& model, const std::string& folder) {
  const std::string path = folder + "/config.json";
  const std::optional<std::string> text =
      std::filesystem::exists(path) ? trainyard::lib::read_file(path) : std::nullopt;
  if (!text) return 0;
  const json file = json::parse(*text, nullptr, false);
  if (!file.is_object())
    throw trainyard::DataError(path + ": is not a JSON object: mend it, or take it away");
  std::string wrong;
  std::int64_t told = 0;
  for (const Setting& setting : map.settings)
    for (const std::string& key : setting.keys) {
      const json* const given = at_key(file, key);
      const Value* const own = model.find(setting.option);
      if (given == nullptr || own == nullptr) continue;
      ++told;
      if (const std::string found = difference(setting, *own, key, *given); !found.empty())
        wrong += "\n  " + found;
      break;
    }
  for (const Bound& bound : map.bounds) {
    const json* const given = at_key(file, bound.key);
    if (given == nullptr ||
        std::find(bound.values.begin(), bound.values.end(), plain(*given)) != bound.values.end())
      continue;
    wrong += "\n  " + bound.key + " is " + plain(*given) + ", which this model does not have" +
             (bound.values.empty() ? "" : ", expected " + trainyard::lib::join(bound.values, " or "));
  }
  if (!wrong.empty()) throw ConfigError(path + " says otherwise than the run file:" + wrong);
  return told;
}

}  // namespace convert
