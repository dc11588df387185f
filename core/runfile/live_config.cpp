#include "core/runfile/live_config.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/plugins/kinds.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/between_keys.hpp"
#include "core/runfile/data_tables.hpp"
#include "core/runfile/hook_order.hpp"
#include "core/runfile/output_files.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/tables.hpp"
#include "core/runfile/typed_fields.hpp"
#include "core/runfile/watched_metrics.hpp"

namespace trainyard::config {
namespace {

/// Reads cadence, order and error handling of a hook from the run file.
void read_hook_keys(const Checked& checked, SlotConfig& slot, Findings& findings) {
  read(checked.host, slot.hook);
  if (slot.hook.every.empty() || checked.filling.plugin == nullptr) return;
  const auto has_cadence = [](const HookSpec& hook) { return !hook.cadence.every.empty(); };
  if (std::ranges::none_of(checked.filling.plugin->manifest.hooks, has_cadence))
    findings.error(
        "E114", checked.host.find("every")->origin,
        slot.type + " has no hook with a cadence: `every` changes nothing",
        "drop the key; the plugin's author can give a hook a cadence, with .every(\"100ba\") where "
        "`describe` subscribes it");
}

/// Reads a run file from top to bottom and finds all errors in one go.
class Resolver {
 public:
  Resolver(Document& document, const plugins::Registry& registry)
      : root_(document.root),
        default_name_(document.default_name),
        registry_(registry),
        findings_(document.findings),
        checker_(findings_, has_steps(root_)),
        tables_(document, registry, checker_, findings_),
        trains_(document.trains) {}

  std::optional<RunConfig> run() {
    if (!schema_version()) return std::nullopt;
    resolved_.set("schema", *root_.find("schema"));
    for (const Section& section : schema()) section.kind.empty() ? host_table(section) : slots(section);
    std::ranges::stable_sort(config_.slots, {},
                             [](const SlotConfig& slot) { return plugins::find_kind(slot.kind); });
    tables_.unknown_tables();
    check_between_keys(resolved_, tables_.local_ranks(), findings_);
    check_together(tables_.in_use(), resolved_, {checker_.percent(), tables_.ranks()}, findings_);
    check_watched_metrics(config_, resolved_, registry_, findings_);
    if (const auto* folder = at_path<std::string>(resolved_, "run.output_dir"))
      check_output_files(config_, *folder, registry_, findings_);
    if (findings_.failed()) return std::nullopt;
    fill_in(resolved_, config_);
    config_.resolved = resolved_;
    for (const events::OrderProblem& problem :
         events::make_order(participants(config_, registry_), tables_.ranks()).problems)
      findings_.error(problem.code, {}, problem.message, problem.hint);
    if (findings_.failed()) return std::nullopt;
    return std::move(config_);
  }

 private:
  bool schema_version() {
    const Value* version = root_.find("schema");
    const auto* number = version == nullptr ? nullptr : version->get_if<std::int64_t>();
    if (number != nullptr && *number == 1) return true;
    std::vector<std::string> keys;
    for (const Table::Entry& entry : root_.entries()) keys.push_back(entry.key);
    // All keys of another version would be reported as unknown, which helps nobody.
    if (const Value* slip = root_.find(nearest("schema", keys)); version == nullptr)
      findings_.error("E103", slip != nullptr ? slip->key_origin : tables_.file(),
                      "the file does not say which version of the keys it uses", "begin it with: schema = 1");
    else
      findings_.error("E103", version->origin, "this host reads schema = 1 only", "schema = 1");
    return false;
  }

  /// Reads a table of the host. Tables within [data] are read with it; [[swap]] is skipped.
  void host_table(const Section& section) {
    const std::string& path = section.path;
    if (path == "run") return run_itself();
    if (path == "plugins") return plugin_folders();
    if (path == "trainer" && !root_.contains(path)) return tables_.missing(section);
    if (path == "trainer" || path == "distributed" || path == "guard" || path == "logging") {
      Table table = tables_.plain(path, true)->table();
      if (path == "distributed") table.set("ranks", Value(std::int64_t{tables_.ranks()}));
      put(section, Value(std::move(table)));
    }
    if (path == "trainer.grad_clip")
      if (std::optional<Checked> given = tables_.plain(path)) put(section, Value(given->table()));
  }

  /// Reads slots. Splits share a dataset, and `shuffle` selects the default sampler: data_tables.hpp.
  void slots(const Section& section) {
    if (section.kind == "sampler") return;
    if (section.kind == "dataset") return read_data(tables_, registry_, findings_, resolved_, config_.slots);
    section.list ? list(section) : slot(section);
  }

  void run_itself() {
    Table run = tables_.plain("run", true)->table();
    if (!run.contains("name")) run.set("name", Value(default_name_));
    const auto* name = at_path<std::string>(run, "name");
    if (name != nullptr && (name->empty() || name->find_first_of("/\\\n") != std::string::npos))
      findings_.error("E107", run.find("name")->origin,
                      "run.name: \"" + *name + "\" does not do as the name of a folder",
                      "leave out slashes; folders go into run.output_dir");
    // The default of output_dir depends on the name.
    Value* output = run.find("output_dir");
    if (output != nullptr && output->origin.line == 0 && name != nullptr) *output = Value("runs/" + *name);
    Value* device = run.find("device");
    if (device != nullptr && device->as<std::string>() == "cuda" && tables_.ranks() == 1)
      device->as<std::string>() = "cuda:0";
    run.set("threads", tables_.plain("run.threads", true)->table());
    resolved_.set("run", std::move(run));
  }

  void plugin_folders() {
    std::optional<Checked> folders = tables_.plain("plugins");
    if (!folders) return;
    if (Value* paths = folders->host.find("paths"))
      for (Value& path : paths->as<Array>()) {
        const std::string folder = absolute_path(path.as<std::string>(), path.origin);
        std::error_code error;
        if (!std::filesystem::is_directory(folder, error))
          findings_.error("E401", path.origin, "plugins.paths: there is no folder " + folder,
                          "a path is relative to the file that it is written in");
        path = Value(folder);
      }
    resolved_.set("plugins", folders->table());
  }

  /// Returns whether the run has the slot of a section that its file omits.
  bool goes_without_saying(const Section& section) const {
    if (section.kind == "recorder") return !config_.of_kind("rule").empty();  // rules read what it takes
    return plugins::find_kind(section.kind)->place == plugins::KindRow::Place::needed;
  }

  /// Adds the plugin of a section that is not a list. A single process that trains nothing takes the default,
  /// or none, in place of one that needs several ranks.
  void slot(const Section& section) {
    const Value* value = tables_.given(section);
    if (value == nullptr && !goes_without_saying(section)) return;
    if (value == nullptr && section.default_types.empty()) return tables_.missing(section);
    const std::string standard = section.default_types.empty() ? "" : section.default_types.front();
    Checked checked = tables_.slot(section, value, section.path, standard);
    const bool free = !standard.empty() || !goes_without_saying(section);
    const plugins::PluginFile* const plugin = checked.filling.plugin;
    if (!trains_ && free && plugin != nullptr && needs_ranks(*plugin, checked.options, resolved_)) {
      if (standard.empty()) return;
      checked = tables_.slot(section, nullptr, section.path, standard);
    }
    put(section, Value(checked.table()));
    config_.slots.push_back(tables_.use(section, section.path, checked));
  }

  /// Returns the entries of a list: those of the file, or else the default plugins.
  std::optional<Array> entries(const Section& section) {
    if (const Value* value = value_at(root_, section.path)) {
      if (const auto* given = value->get_if<Array>()) return *given;
      findings_.error("E105", value->origin,
                      section.path + ": expected a list of tables, found " + value->type_name(),
                      "write " + header(section) + ", with two pairs of brackets");
      return std::nullopt;
    }
    Array entries;
    for (const std::string& type : section.default_types) {
      Table table;
      table.set("type", Value(type));
      entries.push_back(Value(std::move(table)));
      entries.back().origin = tables_.file();
    }
    return entries;
  }

  void list(const Section& section) {
    const std::optional<Array> given = entries(section);
    if (!given) return;
    std::set<std::string> ids;
    if (section.kind == "metric") ids.insert("loss");  // "val/loss" is the value of [loss] itself
    Array printed;
    for (std::size_t i = 0; i < given->size(); ++i) {
      const Value& entry = (*given)[i];
      const std::string name = section.path + "[" + std::to_string(i) + "]";
      if (entry.get_if<Table>() == nullptr) {
        findings_.error("E105", entry.origin, name + ": expected a table, found " + entry.type_name(),
                        "write " + header(section) + " and its keys below");
        continue;
      }
      Checked checked = tables_.slot(section, &entry, name);
      const auto* id = at_path<std::string>(checked.host, "id");
      checked.id = id != nullptr ? *id : checked.filling.type;
      if (!checked.id.empty() && !ids.insert(checked.id).second)
        findings_.error("E112", id != nullptr ? checked.host.find("id")->origin : checked.at,
                        name + ": the id \"" + checked.id + "\" is taken",
                        "give it another: id = \"" + checked.id + "2\"");
      config_.slots.push_back(tables_.use(section, name, checked));
      if (section.kind == "hook") read_hook_keys(checked, config_.slots.back(), findings_);
      printed.push_back(Value(checked.table()));
    }
    put(section, Value(std::move(printed)));
  }

  /// Puts a section where `config show` prints it; one within another table only if that table is there.
  void put(const Section& section, Value value) {
    Table* into = &resolved_;
    if (const std::size_t dot = section.path.find('.'); dot != std::string::npos) {
      Value* parent = resolved_.find(section.path.substr(0, dot));
      if (parent == nullptr) return;
      into = &parent->as<Table>();
    }
    into->set(name_of(section), std::move(value));
  }

  const Table& root_;
  const std::string& default_name_;
  const plugins::Registry& registry_;
  Findings& findings_;
  Checker checker_;
  Tables tables_;
  const bool trains_;
  Table resolved_;
  RunConfig config_;
};

}  // namespace

Resolution live_config(Document document, const plugins::Registry& registry) {
  Resolution result;
  if (document.readable) result.config = Resolver(document, registry).run();
  result.findings = std::move(document.findings);
  return result;
}

void keep_training(RunConfig& config) {
  std::erase_if(config.slots, [](const SlotConfig& slot) { return plugins::find_kind(slot.kind)->beside; });
}

}  // namespace trainyard::config
