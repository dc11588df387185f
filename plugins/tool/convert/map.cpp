#include "map.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <toml++/toml.h>

#include <trainyard/error.hpp>

#include "lib/read_file.hpp"
#include "lib/words.hpp"

namespace convert {
namespace {

using trainyard::ConfigError;

struct MapFile {
  const char *name, *text;
};
constexpr MapFile own_maps[] = {
#include <maps.inc>
};

/// Reads the tables of a map, of which no key is passed over.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  [[noreturn]] void fail(const toml::node& at, const std::string& why) const {
    throw ConfigError(path_ + ":" + std::to_string(at.source().begin.line) + ": " + why);
  }

  void check_keys(const toml::table& table, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : table) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      std::string all;
      for (const std::string_view each : known) all += (all.empty() ? "" : ", ") + std::string(each);
      fail(value, "found the key \"" + std::string(key.str()) + "\", expected one of " + all);
    }
  }

  std::string text(const toml::table& table, const char* key, bool required = false) const {
    const toml::node* const node = table.get(key);
    if (node == nullptr && required) fail(table, "the key \"" + std::string(key) + "\" is missing: write it");
    if (node == nullptr) return {};
    if (!node->is_string()) fail(*node, std::string(key) + ": expected a string");
    return **node->as_string();
  }

  bool flag(const toml::table& table, const char* key) const {
    const toml::node* const node = table.get(key);
    if (node != nullptr && !node->is_boolean()) fail(*node, std::string(key) + ": expected true or false");
    return node != nullptr && **node->as_boolean();
  }

  /// A string is a list of one.
  std::vector<std::string> texts(const toml::table& table, const char* key) const {
    const toml::node* const node = table.get(key);
    if (node == nullptr) return {};
    if (node->is_string()) return {**node->as_string()};
    std::vector<std::string> list;
    if (!node->is_array()) fail(*node, std::string(key) + ": expected a string, or a list of strings");
    for (const toml::node& each : *node->as_array()) {
      if (!each.is_string()) fail(each, std::string(key) + ": expected strings");
      list.push_back(**each.as_string());
    }
    return list;
  }

  std::vector<Pattern> patterns(const toml::table& table, const char* key) const {
    std::vector<Pattern> list;
    for (const std::string& each : texts(table, key)) list.emplace_back(each);
    return list;
  }

  /// Calls take(table) for each of a list of tables.
  template <class Take>
  void each(const toml::table& table, const char* key, Take&& take) const {
    const toml::node* const node = table.get(key);
    if (node == nullptr) return;
    if (!node->is_array()) fail(*node, std::string(key) + ": expected a list of tables");
    for (const toml::node& one : *node->as_array()) {
      if (!one.is_table()) fail(one, std::string(key) + ": expected tables");
      take(*one.as_table());
    }
  }

  Line line(const toml::table& table) const {
    check_keys(table, {"ours", "file", "transpose", "shares", "hint"});
    Line line{.ours = Pattern(text(table, "ours", true)),
              .file = patterns(table, "file"),
              .transpose = flag(table, "transpose"),
              .shares = texts(table, "shares"),
              .hint = text(table, "hint")};
    if (line.file.empty()) fail(table, "the key \"file\" is missing: name the tensors of the file");
    if (!line.shares.empty() && line.shares.size() != line.file.size())
      fail(table, "shares has " + std::to_string(line.shares.size()) + " options, expected one for each of " +
                      std::to_string(line.file.size()) + " tensors of the file");
    for (const Pattern& each : line.file)
      if (each.places() != line.ours.places())
        fail(table, "\"" + line.ours.text() + "\" and \"" + each.text() +
                        "\" have different places in {}: expected the same in both");
    return line;
  }

 private:
  std::string path_;
};

std::string as_text(const toml::node& node) {
  if (node.is_string()) return **node.as_string();
  if (node.is_boolean()) return **node.as_boolean() ? "true" : "false";
  if (node.is_integer()) return std::to_string(**node.as_integer());
  return {};
}

std::vector<std::string> values_of(const toml::node& node) {
  if (!node.is_array()) return {as_text(node)};
  std::vector<std::string> values;
  for (const toml::node& each : *node.as_array()) values.push_back(as_text(each));
  return values;
}

Setting setting_of(const Reader& reader, const toml::table& table) {
  reader.check_keys(table, {"option", "keys", "words"});
  Setting setting{
      .option = reader.text(table, "option", true), .keys = reader.texts(table, "keys"), .words = {}};
  if (const toml::table* const words = table["words"].as_table())
    for (const auto& [word, own] : *words) setting.words.emplace_back(word.str(), as_text(own));
  return setting;
}

}  // namespace

Map parse_map(const std::string& text, const std::string& path) try {
  const toml::table file = toml::parse(text, path);
  const Reader reader(path);
  reader.check_keys(file, {"format", "summary", "model", "prefix", "tensors", "ignored", "kept", "twins",
                           "options", "settings", "bounds"});
  if (file["format"].value_or(0) != 1)
    throw ConfigError(path + ": expected format = 1, which this version reads");
  Map map{.name = path,
          .summary = reader.text(file, "summary", true),
          .model = reader.text(file, "model", true),
          .prefix = reader.text(file, "prefix"),
          .lines = {},
          .ignored = reader.patterns(file, "ignored"),
          .kept = reader.patterns(file, "kept"),
          .twins = {},
          .options = {},
          .settings = {},
          .bounds = {}};
  reader.each(file, "tensors", [&](const toml::table& each) { map.lines.push_back(reader.line(each)); });
  reader.each(file, "twins", [&](const toml::table& each) {
    reader.check_keys(each, {"file", "ours", "hint"});
    map.twins.push_back({Pattern(reader.text(each, "file", true)), reader.text(each, "ours", true),
                         reader.text(each, "hint")});
  });
  if (const toml::table* const options = file["options"].as_table())
    for (const auto& [option, values] : *options)
      map.options.push_back({std::string(option.str()), values_of(values)});
  reader.each(file, "settings",
              [&](const toml::table& each) { map.settings.push_back(setting_of(reader, each)); });
  reader.each(file, "bounds", [&](const toml::table& each) {
    reader.check_keys(each, {"key", "values"});
    map.bounds.push_back({reader.text(each, "key", true), reader.texts(each, "values")});
  });
  return map;
} catch (const toml::parse_error& error) {
  throw ConfigError(path + ":" + std::to_string(error.source().begin.line) + ": " +
                    std::string(error.description()));
}

Map find_map(const std::string& name) {
  if (name.ends_with(".toml")) {
    const std::optional<std::string> text = trainyard::lib::read_file(name);
    if (!text) throw ConfigError("map: " + name + " cannot be read: name a file that is there");
    return parse_map(*text, name);
  }
  for (const MapFile& each : own_maps) {
    if (name != each.name) continue;
    Map map = parse_map(each.text, "maps/" + name + ".toml");
    map.name = name;
    return map;
  }
  throw ConfigError("map = \"" + name + "\": there is no such map, expected one of " +
                    trainyard::lib::join(map_names()) + ", or a file that ends with .toml");
}

std::vector<std::string> map_names() {
  std::vector<std::string> names;
  for (const MapFile& each : own_maps) names.emplace_back(each.name);
  return names;
}

}  // namespace convert
