#include "core/cli/completion.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/cli/run_file.hpp"
#include "core/cli/run_state.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/schema.hpp"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using config::Section;
using Words = std::vector<std::string>;

/// A table of the run file, and the keys allowed in it.
struct Place {
  std::string path;  ///< "metrics.0"
  const Section* section;
  std::string kind, type;             ///< the plugin whose options it takes
  std::string id;                     ///< for an entry of a list; its type without one
  std::vector<OptionSpec> options{};  ///< keys of the host and of the plugin
};

/// The readable files that a command line names, and the plugins that it can find.
class Context {
 public:
  explicit Context(const Words& words) {
    Words folders, files;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      std::error_code error;
      if (i > 0 && words[i - 1] == "--plugins" && fs::is_directory(words[i], error))
        folders.push_back(words[i]);
      else if (const std::string file = run_file_of(words[i]);
               file.ends_with(".toml") && fs::is_regular_file(file, error))
        files.push_back(file);
    }
    if (!files.empty())
      document_ = config::load(files, {}, config::Environment::of_process("../shared/data"));
    registry_ = plugins::Registry::scan(plugin_folders(folders, config::plugin_paths(document_)));
  }

  const plugins::Registry& registry() const { return registry_; }

  /// Returns every possible table; for a list, the entries that the file has.
  std::vector<Place> places() const {
    std::vector<Place> places;
    for (const Section& section : config::schema()) {
      const Value* value = section.path.empty() ? nullptr : config::value_at(document_.root, section.path);
      if (!section.list) {
        places.push_back(place(section, section.path, value));
      } else if (const auto* entries = value == nullptr ? nullptr : value->get_if<Array>()) {
        for (std::size_t i = 0; i < entries->size(); ++i)
          places.push_back(place(section, section.path + "." + std::to_string(i), &(*entries)[i]));
      }
    }
    return places;
  }

 private:
  Place place(const Section& section, const std::string& path, const Value* value) const {
    const Section* filled = &section;
    const std::string parent = section.path.substr(0, std::min(section.path.find('.'), section.path.size()));
    // A table without a plugin takes the options of the plugin of the enclosing table.
    if (section.kind.empty() && !section.path.empty() && parent != section.path)
      filled = &config::section(parent);
    if (filled != &section) value = config::value_at(document_.root, parent);
    Place place{.path = path, .section = &section, .kind = filled->kind, .type = {}};
    if (const Table* table = value == nullptr ? nullptr : value->get_if<Table>()) {
      if (const auto* type = config::at_path<std::string>(*table, "type")) place.type = *type;
      const auto* id = config::at_path<std::string>(*table, "id");
      place.id = id != nullptr ? *id : place.type;
    }
    if (place.type.empty() && !filled->list && !filled->default_types.empty())
      place.type = filled->default_types.front();
    place.options = config::specs_of(section);
    for (const plugins::PluginFile* plugin : registry_.find(place.kind, place.type))
      for (const OptionSpec& option : plugin->manifest.options) place.options.push_back(option);
    return place;
  }

  config::Document document_;
  plugins::Registry registry_;
};

void add_paths(const std::string& begun, bool folders_alone, Words& words) {
  const std::string folder = begun.substr(0, begun.rfind('/') + 1);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;
    if (entry.is_directory(error))
      words.push_back(folder + name + "/");
    else if (!folders_alone)
      words.push_back(folder + name);
  }
}

void add_runs(Words& words) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("runs", error))
    if (holds_run(entry.path().string())) words.push_back(entry.path().filename().string());
}

void add_values(const OptionSpec& option, const std::string& before, Words& words) {
  for (const std::string& choice : option.choices) words.push_back(before + choice);
  if (option.type == OptionType::boolean && !option.list)
    for (const char* value : {"true", "false"}) words.push_back(before + value);
}

/// Completes KEY=VALUE, one part of the key at a time.
void add_settings(const Context& context, const std::string& begun, Words& words) {
  const std::size_t equals = begun.find('=');
  const std::string key = begun.substr(0, equals);
  for (const Place& place : context.places()) {
    const std::string before = place.path.empty() ? "" : place.path + ".";
    if (equals == std::string::npos) {
      if (!place.section->kind.empty()) words.push_back(before + "type=");
      for (const OptionSpec& option : place.options) words.push_back(before + option.name + "=");
      continue;
    }
    if (key == before + "type" && !place.section->kind.empty())
      for (const std::string& name : context.registry().names(place.kind)) words.push_back(key + "=" + name);
    for (const OptionSpec& option : place.options)
      if (key == before + option.name) add_values(option, key + "=", words);
  }
  for (std::string& word : words)
    if (equals == std::string::npos && word.starts_with(begun))
      word = word.substr(0, std::min(word.find('.', begun.size()), word.size() - 1) + 1);
}

/// Returns slots as `ctl swap` takes them, with the kind that fills each.
std::vector<std::pair<std::string, std::string>> slots(const Context& context) {
  std::vector<std::pair<std::string, std::string>> slots;
  for (const Place& place : context.places()) {
    if (place.section->kind.empty() || place.type.empty()) continue;
    const std::string name = place.section->list ? place.section->path + "." + place.id : place.path;
    slots.emplace_back(name, place.kind);
  }
  return slots;
}

/// Completes options of the new plugin. `given` are the words after `ctl` in `ctl RUN swap SLOT TYPE`.
void add_options_of_swap(const Context& context, const Words& given, const std::string& begun, Words& words) {
  for (const auto& [slot, kind] : slots(context)) {
    if (given.size() < 3 || slot != given[1]) continue;
    for (const plugins::PluginFile* plugin : context.registry().find(kind, given[2]))
      for (const OptionSpec& option : plugin->manifest.options) {
        words.push_back(option.name + "=");
        if (begun.starts_with(option.name + "=")) add_values(option, option.name + "=", words);
      }
  }
}

void add_what(const Offer& offer, const Words& typed, const std::string& begun, Words& words) {
  const std::string& what = offer.what;
  if (what == "run_file" || what == "run") add_runs(words);
  if (what == "run_file" || what == "run" || what == "file") add_paths(begun, false, words);
  if (what == "folder") add_paths(begun, true, words);
  if (what == "table")
    for (const Section& section : config::schema()) words.push_back(section.path);
  if (what != "verb" && what != "setting" && what != "slot" && what != "type" && what != "option" &&
      what != "plugin")
    return;
  const Context context(typed);
  if (what == "verb")
    for (const std::string& name : context.registry().names("tool")) words.push_back(name);
  if (what == "plugin")
    for (const plugins::PluginFile& file : context.registry().files())
      words.push_back(file.manifest.kind + "/" + file.manifest.name);
  if (what == "setting") add_settings(context, begun, words);
  if (what == "option") add_options_of_swap(context, offer.before, begun, words);
  for (const auto& [slot, kind] : slots(context)) {
    if (what == "slot") words.push_back(slot);
    if (what == "type" && !offer.before.empty() && slot == offer.before.back())
      for (const std::string& name : context.registry().names(kind)) words.push_back(name);
  }
}

}  // namespace

std::vector<std::string> completions(const Command& command, const Words& words) {
  const Offer offer = command.offer(words);
  const std::string word = words.empty() ? "" : words.back();
  // In "--set=optimizer." only the part behind the option's name is completed.
  const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
  const std::string before = equals == std::string::npos ? "" : word.substr(0, equals + 1);
  const std::string begun = word.substr(before.size());
  Words found = offer.words;
  add_what(offer, words, begun, found);
  std::set<std::string> fitting;
  for (const std::string& each : found)
    if (!each.empty() && each.starts_with(begun)) fitting.insert(before + each);
  return {fitting.begin(), fitting.end()};
}

}  // namespace trainyard::cli
