#include "core/runfile/schema.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include <trainyard/error.hpp>

#include "core/plugins/kinds.hpp"
#include "core/runfile/host_keys.hpp"
#include "core/runfile/option_text.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/suggest.hpp"
#include "lib/words.hpp"

namespace trainyard::config {
namespace {

using plugins::KindRow;

/// Splits names of plugins at spaces, as a row of a kind has them.
std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

/// Returns the section that plugins of a kind fill.
Section section_of(const KindRow& row, std::vector<Key> keys) {
  Section section{.path = std::string(row.section),
                  .help = std::string(row.help),
                  .kind = row.kind.name,
                  .default_types = words(row.defaults),
                  .list = row.place == KindRow::Place::list,
                  .required = row.place == KindRow::Place::needed && row.defaults.empty(),
                  .type_change = row.type_change,
                  .change = row.change,
                  .keys = {}};
  if (section.list) section.keys = keys_of<EntryKeys>();
  std::ranges::move(keys, std::back_inserter(section.keys));
  return section;
}

/// Returns the section for one plugin of a kind that has a list, too.
Section section_of(const plugins::SlotRow& row) {
  Section section = section_of(*plugins::find_kind(row.kind), {});
  section.path = row.section;
  section.help = row.help;
  section.default_types = {std::string(row.plugin)};
  section.list = false;
  section.keys = {};
  return section;
}

std::vector<Section> make_schema() {
  std::vector<Section> all;
  const auto table = [&](std::string path, std::string help, std::vector<Key> keys,
                         ChangeClass change = ChangeClass::journalled) -> Section& {
    all.push_back(
        {.path = std::move(path), .help = std::move(help), .change = change, .keys = std::move(keys)});
    return all.back();
  };
  const auto slot = [&](std::string_view path, std::vector<Key> keys = {}) {
    const auto* row = std::ranges::find(plugins::kinds, path, &KindRow::section);
    all.push_back(section_of(*row, std::move(keys)));
  };
  using enum ChangeClass;
  table("", "the file", keys_of<FileKeys>());
  table("vars", "values for ${vars.NAME}", {});
  table("run", "the run as a whole", keys_of<RunKeys>(), allowed);
  table("run.threads", "threads of LibTorch", keys_of<ThreadKeys>());  // changes how sums split
  table("plugins", "where plugins come from besides the host's own", keys_of<PluginKeys>(), allowed);
  slot("model");
  slot("model.dropout");
  slot("loss");
  slot("data", keys_of<DataKeys>());
  table("data.train", "what is trained on; options of the dataset go here too", keys_of<BatchKeys>(), refused)
      .required = true;
  table("data.val", "what is evaluated during training", keys_of<EvaluationKeys>());
  table("data.test", "what is evaluated after training", keys_of<EvaluationKeys>());
  slot("data.sampler");
  slot("metrics");
  slot("optimizer");
  slot("schedule");
  table("trainer", "the loop", keys_of<TrainerKeys>()).required = true;
  table("trainer.grad_clip", "bound on the gradient", keys_of<GradClip>());
  slot("checkpoint");
  table("distributed", "how several ranks train together", keys_of<DistributedKeys>(), allowed);
  for (const plugins::SlotRow& row : plugins::slots_beside_lists) all.push_back(section_of(row));
  table("guard", "plugins that misbehave", keys_of<GuardKeys>(), allowed);
  table("logging", "what is told about the run", keys_of<LoggingKeys>(), allowed);
  slot("logging.sinks");
  slot("rules");
  slot("recorder");
  slot("hooks", keys_of<HookKeys>());
  table(
      "swap",
      "another plugin, or other options, in a slot from a step of the run on; options go here too, or into a "
      "table `options`: one that is called as a key below is",
      keys_of<SwapKeys>())
      .list = true;
  for (const KindRow& row : plugins::kinds)
    if (std::ranges::find(all, row.section, &Section::path) == all.end()) slot(row.section);
  return all;
}

std::vector<Section> sections_below(const std::string& path) {
  std::vector<Section> found;
  std::vector<std::string> paths;
  for (const Section& section : schema()) {
    const bool below = path.empty() || section.path == path || section.path.starts_with(path + ".");
    if (below) found.push_back(section);
    if (!section.path.empty()) paths.push_back(section.path);
  }
  if (found.empty())
    throw ConfigError("a run file has no table \"" + path + "\"; " + suggestion(path, paths, "there are"));
  return found;
}

}  // namespace

const std::vector<Section>& schema() {
  static const std::vector<Section> all = make_schema();
  return all;
}

const Section& section(std::string_view path) {
  for (const Section& section : schema())
    if (section.path == path) return section;
  assert(false && "no such section");
  return schema().front();
}

std::vector<const Section*> children(std::string_view path) {
  std::vector<const Section*> result;
  for (const Section& section : schema()) {
    const std::size_t dot = section.path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : section.path.substr(0, dot);
    if (!section.path.empty() && parent == path) result.push_back(&section);
  }
  return result;
}

bool has_child(const Section& section, std::string_view name) {
  return std::ranges::any_of(children(section.path),
                             [&](const Section* child) { return name_of(*child) == name; });
}

std::vector<OptionSpec> specs_of(const Section& section) {
  return {section.keys.begin(), section.keys.end()};
}

std::string name_of(const Section& section) {
  return section.path.substr(section.path.rfind('.') + 1);
}

std::string header(const Section& section) {
  if (section.path.empty()) return "the run file";
  return section.list ? "[[" + section.path + "]]" : "[" + section.path + "]";
}

std::string schema_text(const std::string& path) {
  std::string out;
  for (const Section& section : sections_below(path)) {
    if (!section.path.empty()) {
      out += (out.empty() ? "" : "\n") + header(section) + "  # " + section.help;
      if (section.required) out += "; required";
      out += "\n";
    }
    if (!section.kind.empty()) {
      out += "  type: name of a " + section.kind + " plugin";
      out += section.default_types.empty() ? "\n" : " (default " + lib::join(section.default_types) + ")\n";
    }
    for (const Key& key : section.keys) {
      out += "  " + key.name + ": " + type_text(key);
      if (const std::string allowed = allowed_text(key); !allowed.empty()) out += ", " + allowed;
      if (const std::string value = default_text(key); !value.empty())
        out += key.required ? " (required)" : " (default " + value + ")";
      out += "\n      " + key.help + "\n";
    }
  }
  return out;
}

std::string schema_json(const std::string& path) {
  using Json = nlohmann::ordered_json;
  constexpr const char* resumes[] = {"allowed", "journalled", "refused"};  // in the order of ChangeClass
  Json sections = Json::array();
  for (const Section& section : sections_below(path)) {
    Json keys = Json::array();
    for (const Key& key : section.keys) {
      Json entry = {
          {"name", key.name}, {"type", type_text(key)}, {"required", key.required}, {"help", key.help}};
      entry["on_resume"] = resumes[static_cast<std::size_t>(key.change.value_or(section.change))];
      if (key.fallback) entry["default"] = toml_text(*key.fallback);
      if (!key.choices.empty()) entry["choices"] = key.choices;
      if (const std::string range = range_text(key); !range.empty()) entry["range"] = range;
      keys.push_back(std::move(entry));
    }
    sections.push_back({{"table", section.path},
                        {"list", section.list},
                        {"required", section.required},
                        {"plugin_kind", section.kind},
                        {"default_types", section.default_types},
                        {"help", section.help},
                        {"keys", std::move(keys)}});
  }
  return Json{{"schema", 1}, {"tables", std::move(sections)}}.dump(2) + "\n";
}

}  // namespace trainyard::config
