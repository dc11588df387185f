#include "core/runfile/json_schema.hpp"

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "core/runfile/schema.hpp"
#include "core/runfile/value_json.hpp"

namespace trainyard::config {
namespace {

using Json = nlohmann::ordered_json;

/// A reference such as "${vars.lr}" may stand for any scalar.
constexpr const char* reference = R"(\$\{)";
constexpr const char* duration =
    R"(^([0-9.]+(e[+-]?[0-9]+)?(ep|ba|sp|tok|%|d|h|m|s))+$|\$\{)";  // Duration::parse, but for the order of d, h, m, s

Json scalar(const OptionSpec& spec) {
  const auto or_reference = [](const char* type) {
    return Json{{"type", {type, "string"}}, {"pattern", reference}};
  };
  switch (spec.type) {
    case OptionType::boolean: return or_reference("boolean");
    case OptionType::integer: return or_reference("integer");
    case OptionType::number: return or_reference("number");
    case OptionType::duration: return {{"type", "string"}, {"pattern", duration}};
    default: break;
  }
  if (spec.choices.empty()) return {{"type", "string"}};
  return {{"type", "string"}, {"anyOf", {{{"enum", spec.choices}}, {{"pattern", reference}}}}};
}

/// Writes a bound, which is a double, as an integer if it is whole.
Json number(double bound) {
  const bool whole = std::abs(bound) < 1e15 && bound == std::floor(bound);
  return whole ? Json(static_cast<std::int64_t>(bound)) : Json(bound);
}

Json closed(Json properties) {
  return {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

Json value_schema(const OptionSpec& spec);

Json element_schema(const OptionSpec& spec) {
  if (!spec.plugins.empty()) return {{"$ref", "#/definitions/parts/" + spec.plugins}};
  if (spec.type != OptionType::table) {
    Json json = scalar(spec);
    if (spec.type == OptionType::duration) return json;  // its bounds concern the count in a string
    if (spec.minimum) json[spec.open_minimum ? "exclusiveMinimum" : "minimum"] = number(*spec.minimum);
    if (spec.maximum) json[spec.open_maximum ? "exclusiveMaximum" : "maximum"] = number(*spec.maximum);
    return json;
  }
  Json fields = Json::object(), required = Json::array();
  for (const OptionSpec& field : spec.fields) {
    fields[field.name] = value_schema(field);
    if (field.required) required.push_back(field.name);
  }
  Json json = closed(std::move(fields));
  if (!required.empty()) json["required"] = std::move(required);
  return json;
}

Json value_schema(const OptionSpec& spec) {
  Json json = {{"description", spec.help}};
  if (spec.fallback) json["default"] = json_of(*spec.fallback);
  if (spec.list)
    json.update({{"type", "array"}, {"items", element_schema(spec)}});
  else
    json.update(element_schema(spec));
  return json;
}

/// Writes values that fit a line on one line, since people read and compare the file.
std::string text_of(const Json& json, std::size_t indent = 0) {
  std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!json.is_structured() || line.size() + indent <= 120) return line;
  std::string text;
  for (const auto& [key, value] : json.items()) {
    text += (text.empty() ? "\n" : ",\n") + std::string(indent + 1, ' ');
    if (json.is_object()) text += Json(key).dump() + ": ";
    text += text_of(value, indent + 1);
  }
  text += "\n" + std::string(indent, ' ');
  return json.is_object() ? "{" + text + "}" : "[" + text + "]";
}

class SchemaWriter {
 public:
  explicit SchemaWriter(const plugins::Registry& registry) : registry_(registry) {}

  Json file() {
    Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                   {"title", "Run file of Trainyard"},
                   {"description", "made by: trainyard config schema --format json-schema"}};
    schema.update(table(section(""), {}));
    // Required keys may be missing in a file with `extends`, as the extended files may have them.
    schema["if"] = {{"not", {{"required", {"extends"}}}}};
    schema["then"] = whole(section(""));
    Json parts = Json::object();
    for (const std::string& kind : parts_) parts[kind] = slot({.path = kind, .kind = kind});
    schema["definitions"] = {{"tables", std::move(tables_)}, {"parts", std::move(parts)}};
    schema["definitions"].update(plugins_);
    return schema;
  }

 private:
  using Plugins = std::vector<const ManifestData*>;

  /// Describes a host table, with the options of `around`, plugins that may fill the table it is in.
  Json table(const Section& section, const Plugins& around) {
    Json properties = own(section);
    take_options(around, properties);
    take_children(section, {}, properties);
    Json json = closed(std::move(properties));
    // Any key is allowed where the file chooses the keys, or in lists, which take options of any plugin.
    if (section.keys.empty() || section.list) json["additionalProperties"] = true;
    return json;
  }

  /// Describes a plugin's table: one variant per plugin, and one for files that leave `type` to others.
  Json slot(const Section& section) {
    const Plugins all = of_kind(section.kind);
    Json variants = Json::array();
    for (const ManifestData* plugin : all) {
      Json variant = {{"title", plugin->name}};
      const Json type = {{"const", plugin->name}, {"description", plugin->summary}};
      variant.update(filled(section, {plugin}, type));
      variant["required"] = {"type"};
      variants.push_back(std::move(variant));
    }
    Json variant = {{"title", "of another file, or by default"}};
    variant.update(filled(section, all, {{"type", "string"}, {"pattern", reference}}));
    variants.push_back(std::move(variant));
    return {{"type", "object"}, {"anyOf", std::move(variants)}};
  }

  Json filled(const Section& section, const Plugins& by, const Json& type) {
    Json properties = {{"type", type}};
    properties.update(own(section));
    take_options(by, properties);
    take_children(section, by, properties);
    return closed(std::move(properties));
  }

  Json own(const Section& section) {
    Json properties = Json::object();
    for (const Key& key : section.keys) {
      properties[key.name] = value_schema(key);
      if (section.path.empty() && key.name == "extends")  // a single file needs no brackets
        properties[key.name]["type"] = {"array", "string"};
    }
    return properties;
  }

  /// Returns the options of a plugin, defined once under its name.
  const Json& options_of(const ManifestData& plugin, const std::string& name) {
    if (!plugins_.contains(name)) {
      Json options = Json::object();
      for (const OptionSpec& option : plugin.options) {
        options[option.name] = value_schema(option);
        if (!option.plugins.empty()) parts_.insert(option.plugins);
      }
      plugins_[name]["properties"] = std::move(options);
    }
    return plugins_[name]["properties"];
  }

  /// Adds the options that any of several plugins takes.
  void take_options(const Plugins& of, Json& properties) {
    std::map<std::string, std::set<std::string>> seen;  // schemas by option
    Json found = Json::object();
    for (const ManifestData* plugin : of) {
      const std::string name = plugin->kind + "." + plugin->name;
      for (const auto& [option, schema] : options_of(*plugin, name).items())
        if (seen[option].insert(schema.dump(-1, ' ', false, Json::error_handler_t::replace)).second)
          found[option].push_back({{"$ref", "#/definitions/" + name + "/properties/" + option}});
    }
    for (const auto& [option, schemas] : found.items())
      properties[option] = schemas.size() == 1 ? schemas[0] : Json{{"anyOf", schemas}};
  }

  void take_children(const Section& section, const Plugins& around, Json& properties) {
    for (const Section* child : children(section.path)) {
      Json within = {{"description", child->help}};
      if (child->kind.empty()) {
        within.update(table(*child, around));
      } else {
        if (!tables_.contains(child->path)) {
          tables_[child->path] = nullptr;
          within.update(slot(*child));
          tables_[child->path] = std::move(within);
        }
        within = {{"$ref", "#/definitions/tables/" + child->path}};
      }
      const std::string name = name_of(*child);
      properties[name] =
          child->list ? Json{{"type", "array"}, {"items", std::move(within)}} : std::move(within);
    }
  }

  /// Lists the keys that a file without `extends` must have.
  Json whole(const Section& section) {
    Json required = Json::array(), properties = Json::object();
    for (const Key& key : section.keys)
      if (key.required) required.push_back(key.name);
    if (!section.kind.empty() && section.default_types.empty()) required.push_back("type");
    for (const Section* child : children(section.path)) {
      if (child->required) required.push_back(name_of(*child));
      Json within = whole(*child);
      if (within.empty()) continue;
      properties[name_of(*child)] = child->list ? Json{{"items", std::move(within)}} : std::move(within);
    }
    Json json = Json::object();
    if (!required.empty()) json["required"] = std::move(required);
    if (!properties.empty()) json["properties"] = std::move(properties);
    if (Json needs = needs_of_plugins(section); !needs.empty()) json["allOf"] = std::move(needs);
    return json;
  }

  /// Lists the options that each plugin of a section requires, if they all stand in one table.
  Json needs_of_plugins(const Section& section) {
    Json needs = Json::array();
    for (const Section* child : children(section.path))
      if (child->kind.empty()) return needs;
    for (const ManifestData* plugin : section.kind.empty() ? Plugins{} : of_kind(section.kind)) {
      Json required = Json::array();
      for (const OptionSpec& option : plugin->options)
        if (option.required) required.push_back(option.name);
      if (required.empty()) continue;
      const Json named = {{"properties", {{"type", {{"const", plugin->name}}}}}, {"required", {"type"}}};
      needs.push_back({{"if", named}, {"then", {{"required", std::move(required)}}}});
    }
    return needs;
  }

  Plugins of_kind(const std::string& kind) const {
    Plugins plugins;
    for (const std::string& name : registry_.names(kind))
      plugins.push_back(&registry_.find(kind, name).front()->manifest);
    return plugins;
  }

  const plugins::Registry& registry_;
  Json plugins_ = Json::object(), tables_ = Json::object();
  std::set<std::string> parts_;  ///< kinds of plugins that are options of others
};

}  // namespace

std::string json_schema(const plugins::Registry& registry) {
  return text_of(SchemaWriter(registry).file()) + "\n";
}

}  // namespace trainyard::config
