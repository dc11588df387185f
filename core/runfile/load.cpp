#include "core/runfile/load.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>

#include "core/plugins/kinds.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/interpolate.hpp"
#include "core/runfile/parse.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/rank_place.hpp"

namespace trainyard::config {
namespace {

constexpr std::size_t most_files = 100;

/// Returns whether a path is a list of plugins, whose entries merge by their ids.
bool is_list_by_id(std::string_view path) {
  return std::ranges::any_of(plugins::kinds, [&](const plugins::KindRow& row) {
    return row.section == path && row.place == plugins::KindRow::Place::list;
  });
}

std::string child_path(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

/// Returns the name by which an entry of a list merges: its id, else its type.
const std::string* id_of(const Value& entry) {
  const Table* table = entry.get_if<Table>();
  if (table == nullptr) return nullptr;
  for (const char* key : {"id", "type"})
    if (const auto* text = at_path<std::string>(*table, key)) return text;
  return nullptr;
}

class Loader {
 public:
  explicit Loader(Document& document) : document_(document) {}

  void file(const std::string& name) {
    if (std::find(stack_.begin(), stack_.end(), canonical(name)) != stack_.end()) {
      findings().error("E109", extended_at_, "`extends` goes in a circle: " + circle(name),
                       "a file cannot extend itself; take one of these out");
      return;
    }
    if (++files_ > most_files) {
      if (files_ == most_files + 1)
        findings().error("E109", extended_at_,
                         "`extends` reads more than " + std::to_string(most_files) + " files",
                         "are files extended many times over?");
      return;
    }
    std::optional<Table> table = read(name);
    if (!table) return;
    if (const Value* extends = table->find("extends")) {
      stack_.push_back(canonical(name));
      extend(*extends);
      stack_.pop_back();
      table->erase("extends");
    }
    document_.layers.push_back(name);
    merge(document_.root, std::move(*table), "");
  }

  /// Keeps only the entry of one tool, made if the file has none.
  void choose(const std::string& tool) {
    Value* const present = document_.root.find("tools");
    if (present != nullptr && !present->get_if<Array>()) return;  // the later check of the file reports it
    Array chosen;
    if (present != nullptr)
      std::ranges::copy_if(present->as<Array>(), std::back_inserter(chosen), [&](const Value& entry) {
        const Table* table = entry.get_if<Table>();
        const auto* name = table == nullptr ? nullptr : at_path<std::string>(*table, "type");
        return name != nullptr && *name == tool;
      });
    if (chosen.size() > 1)
      findings().error("E111", chosen[1].origin, "[[tools]] has two entries of type \"" + tool + "\"",
                       "a verb has one: take one of them out");
    if (chosen.empty()) {
      Table entry;
      entry.set("type", Value(tool));
      chosen.emplace_back(std::move(entry));
    }
    document_.root.set("tools", Value(std::move(chosen)));
  }

  void set(const std::vector<std::string>& sets) {
    if (sets.empty()) return;
    std::string source;
    for (std::string text : sets) {
      std::replace(text.begin(), text.end(), '\n', ' ');
      source += text + "\n";
    }
    findings().add_source("--set", source);
    document_.layers.push_back("--set");
    const auto file = std::make_shared<const std::string>("--set");
    const auto text_of = [&](const char* key) { return at_path<std::string>(document_.root, key); };
    const std::string *name = text_of("run.name"), *folder = text_of("run.output_dir");
    const std::string old_name = name == nullptr ? "" : *name, old_folder = folder == nullptr ? "" : *folder;
    for (std::size_t i = 0; i < sets.size(); ++i) set_one(sets[i], {file, static_cast<int>(i) + 1, 1});
    // A run's own file has name and folder; the default folder ends with the name and follows it.
    name = text_of("run.name");
    const bool given =
        std::ranges::any_of(sets, [](const std::string& set) { return set.starts_with("run.output_dir="); });
    if (given || old_name.empty() || name == nullptr || !old_folder.ends_with("/" + old_name)) return;
    document_.root.find("run")->as<Table>().find("output_dir")->as<std::string>() =
        old_folder.substr(0, old_folder.size() - old_name.size()) + *name;
  }

 private:
  Findings& findings() { return document_.findings; }

  static std::string canonical(const std::string& name) {
    std::error_code error;
    const auto path = std::filesystem::weakly_canonical(name, error);
    return error ? name : path.string();
  }

  std::string circle(const std::string& name) const {
    std::string text;
    for (auto at = std::find(stack_.begin(), stack_.end(), canonical(name)); at != stack_.end(); ++at)
      text += std::filesystem::path(*at).filename().string() + " -> ";
    return text + std::filesystem::path(name).filename().string();
  }

  std::optional<Table> read(const std::string& name) {
    std::error_code error;
    if (extended_at_.line > 0 && !std::filesystem::exists(name, error)) {
      findings().error("E101", extended_at_, "`extends` names " + name + ", which does not exist",
                       "a path is relative to the file that it is written in");
      return std::nullopt;
    }
    return parse_file(name, findings());
  }

  void extend(const Value& extends) {
    const auto one = [&](const Value& value) {
      const auto* name = value.get_if<std::string>();
      if (name == nullptr) {
        findings().error(
            "E105", value.origin,
            "extends: expected a string or an array of strings, found " + std::string(value.type_name()),
            "extends = [\"base.toml\"]");
        return;
      }
      const Origin before = std::exchange(extended_at_, value.origin);
      const auto folder = std::filesystem::path(*value.origin.file).parent_path();
      file((folder / *name).lexically_normal().string());
      extended_at_ = before;
    };
    const auto* names = extends.get_if<Array>();
    if (names == nullptr) return one(extends);
    for (const Value& name : *names) one(name);
  }

  void merge(Table& base, Table over, const std::string& path) {
    std::map<std::string, std::size_t> places;  // avoids linear search: a file may have thousands of keys
    for (const Table::Entry& entry : base.entries()) places.emplace(entry.key, places.size());
    for (Table::Entry& entry : over.entries()) {
      const std::string here = child_path(path, entry.key);
      const auto place = places.find(entry.key);
      Value* present = place == places.end() ? nullptr : &base.entries()[place->second].value;
      if (present == nullptr)
        base.entries().push_back(std::move(entry));
      else if (present->get_if<Table>() && entry.value.get_if<Table>())
        merge(present->as<Table>(), std::move(entry.value.as<Table>()), here);
      else if (present->get_if<Array>() && entry.value.get_if<Array>() && is_list_by_id(here))
        merge_list(present->as<Array>(), std::move(entry.value.as<Array>()), here);
      else
        *present = std::move(entry.value);
    }
  }

  void merge_list(Array& base, Array over, const std::string& path) {
    // Entries of one file never merge with each other, so that duplicates are detected.
    std::map<std::string, std::size_t> inherited;
    for (std::size_t i = 0; i < base.size(); ++i)
      if (const std::string* id = id_of(base[i])) inherited.emplace(*id, i);
    for (Value& entry : over) {
      const std::string* id = id_of(entry);
      const auto present = id == nullptr ? inherited.end() : inherited.find(*id);
      if (present == inherited.end())
        base.push_back(std::move(entry));
      else
        merge(base[present->second].as<Table>(), std::move(entry.as<Table>()), path);
    }
  }

  /// A part of the dotted key of a --set.
  struct Step {
    std::string key;
    Origin at;
  };

  void set_one(const std::string& text, const Origin& at) {
    const std::string usage = "--set KEY=VALUE, e.g. --set optimizer.lr=0.1 or --set metrics.0.k=5";
    const auto column = [&](std::size_t i) { return Origin{at.file, at.line, static_cast<int>(i) + 1}; };
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      findings().error("E111", at, "`" + text + "` is not KEY=VALUE", usage);
      return;
    }
    std::vector<Step> steps;
    for (std::size_t begin = 0; begin <= equals;) {
      const std::size_t end = std::min(text.find('.', begin), equals);
      steps.push_back({text.substr(begin, end - begin), column(begin)});
      if (steps.back().key.empty() || steps.size() > 32) {
        findings().error("E111", column(begin), "`" + text.substr(0, equals) + "` is not a dotted key",
                         usage);
        return;
      }
      begin = end + 1;
    }
    const std::string written = text.substr(equals + 1);
    std::optional<Value> value = parse_value(written);
    if (!value && (written.empty() || written.find_first_of("[{\"'\r\n") == 0)) {
      findings().error("E111", column(equals + 1),
                       "the value of `" + text.substr(0, equals) + "` is not TOML",
                       "quote it for the shell: --set 'a.b=[1, 2]'; a bare word is a string");
      return;
    }
    if (!value) value = Value(written);
    place(*value, column(equals + 1));
    if (Value* target = target_of(steps)) {
      const Origin key_origin = steps.back().at;
      *target = std::move(*value);
      target->key_origin = key_origin;
    }
  }

  /// Returns the value that the steps lead to, made if absent; nothing, with a finding, if they lead nowhere.
  Value* target_of(const std::vector<Step>& steps) {
    Value* target = nullptr;
    std::string path;
    for (const Step& step : steps) {
      Table* table = target == nullptr ? &document_.root : target->get_if<Table>();
      if (table != nullptr) {
        target = table->find(step.key);
        if (target == nullptr) {
          target = &table->set(step.key, Value(Table{}));
          target->origin = target->key_origin = step.at;
        }
      } else if (auto* array = target->get_if<Array>()) {
        target = element_of(*array, step, path);
        if (target == nullptr) return nullptr;
      } else {
        findings().error(
            "E111", step.at,
            "`" + path + "` is " + target->type_name() + ": there is no `" + step.key + "` in it");
        return nullptr;
      }
      path = child_path(path, step.key);
    }
    return target;
  }

  Value* element_of(Array& array, const Step& step, const std::string& path) {
    std::size_t index = 0;
    const char* end = step.key.data() + step.key.size();
    const auto [stop, error] = std::from_chars(step.key.data(), end, index);
    if (error == std::errc{} && stop == end && index < array.size()) return &array[index];
    findings().error("E111", step.at,
                     "`" + path + "` is a list of " + std::to_string(array.size()) + ", and `" + step.key +
                         "` is not an index into it",
                     array.empty() ? "" : "use 0 to " + std::to_string(array.size() - 1));
    return nullptr;
  }

  /// Gives all parts of a value from --set the same place.
  static void place(Value& value, const Origin& at) {
    value.origin = value.key_origin = at;
    if (auto* array = value.get_if<Array>())
      for (Value& element : *array) place(element, at);
    if (auto* table = value.get_if<Table>())
      for (Table::Entry& entry : table->entries()) place(entry.value, at);
  }

  Document& document_;
  Origin extended_at_;
  std::vector<std::string> stack_;  // canonical paths of files that are being extended
  std::size_t files_ = 0;
};

/// Returns a document for the ranks of this process.
Document empty_document(const std::string& file) {
  Document document;
  document.file = file;
  const RankPlace place = RankPlace::of_process();
  document.ranks = place.size;
  document.local_ranks = place.local_size;
  return document;
}

}  // namespace

Environment Environment::of_process(std::string fallback) {
  const char* given = std::getenv("TRAINYARD_DATA");
  const RankPlace place = RankPlace::of_process();
  return {given != nullptr && *given != '\0' ? given : std::move(fallback), place.size, place.local_size};
}

Document load(const std::vector<std::string>& files, const std::vector<std::string>& sets,
              const Environment& environment, const std::string& tool) {
  Document document;
  if (files.empty()) {
    document.readable = false;
    document.findings.error("E101", {}, "no run file was given", "trainyard train RUN.toml");
    return document;
  }
  document.file = files.back();
  document.ranks = environment.ranks;
  document.local_ranks = environment.local_ranks;
  document.default_name = std::filesystem::path(files.front()).stem().string();
  Loader loader(document);
  for (const std::string& file : files) loader.file(file);
  document.readable = !document.findings.failed();
  if (!tool.empty()) loader.choose(tool);
  loader.set(sets);
  interpolate(document.root, {document.default_name, environment.data_root}, document.findings);
  return document;
}

Document with_sets(const Table& resolved, const std::vector<std::string>& sets) {
  Document document = empty_document("--set");
  document.root = resolved;
  Loader(document).set(sets);
  return document;
}

Document load_resolved(const std::string& name, const std::string& text) {
  Document document = empty_document(name);
  document.default_name = std::filesystem::path(name).stem().string();
  document.findings.add_source(name, text);
  std::optional<Table> root = parse_text(name, text, document.findings);
  document.readable = root.has_value();
  if (root) document.root = std::move(*root);
  interpolate(document.root, {document.default_name, {}}, document.findings);
  return document;
}

std::vector<std::string> plugin_paths(const Document& document) {
  std::vector<std::string> result;
  const auto* const paths = at_path<Array>(document.root, "plugins.paths");
  if (paths == nullptr) return result;
  for (const Value& path : *paths)
    if (const auto* text = path.get_if<std::string>()) result.push_back(absolute_path(*text, path.origin));
  return result;
}

}  // namespace trainyard::config
