// Checks the tables of a run file one by one: their keys against the host's (schema.hpp) and against the
// manifest of the plugin that fills them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/runfile/check.hpp"
#include "core/runfile/find_plugin.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/plugins_together.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// A checked table: its valid keys, and defaults.
struct Checked {
  Filling filling;  ///< empty for a table of the host alone
  std::string id;   ///< set for an entry of a list
  Table host, options;
  Origin at;

  /// Returns the option specs of the plugin; none while it is not known.
  const std::vector<OptionSpec>& specs() const;
  /// Returns the table as `config show` prints it.
  Table table() const;
};

class Tables {
 public:
  /// All arguments must outlive the object.
  Tables(const Document& document, const plugins::Registry& registry, Checker& checker, Findings& findings);

  /// Ranks that train together, and those of them on this machine.
  int ranks() const { return document_.ranks; }
  int local_ranks() const { return document_.local_ranks; }
  const Table& root() const { return document_.root; }

  /// The place for findings about missing keys and tables.
  const Origin& file() const { return file_; }

  /// Returns a section's table if the file has it; a value of another type is reported once and ignored.
  const Value* given(const Section& section);

  /// Reports that the file lacks the table.
  void missing(const Section& section);

  /// Checks a table of the host alone. `always` returns it with its defaults even if the file has none.
  std::optional<Checked> plain(std::string_view path, bool always = false);

  /// Checks the table of a slot, called `path` in messages; `table` is null where the file has none, and
  /// `default_type` is that of find_plugin().
  Checked slot(const Section& section, const Value* table, const std::string& path,
               const std::string& default_type = {});

  /// Checks a table's keys and adds the host's defaults. Without a filling no other keys are allowed.
  Checked keys(const Section& section, const Value* table, const std::string& path,
               std::optional<Filling> filling);

  /// Fills in defaults of options and reports required ones that neither `checked` nor `given` has.
  void complete_options(const Section& section, const Table& given, Checked& checked);

  /// Reports tables that no section describes.
  void unknown_tables();

  /// Returns the checked table as a slot of that name; its plugin counts as in use from here on.
  SlotConfig use(const Section& section, const std::string& name, const Checked& checked);
  const std::vector<PluginInUse>& in_use() const { return in_use_; }

 private:
  std::optional<Value> parts(const OptionSpec& spec, const Value& given, const std::string& path);
  std::optional<Value> part(const std::string& kind, const Value& given, const std::string& path);
  void unknown_key(const Section& section, const Table::Entry& entry, const Checked& checked);
  bool left_behind(const Value& type, const Table::Entry& entry, const std::string& path);
  std::size_t layer_of(const Origin& origin) const;

  const Document& document_;
  const plugins::Registry& registry_;
  Checker& checker_;
  Findings& findings_;
  Origin file_;
  std::vector<PluginInUse> in_use_;
};

}  // namespace trainyard::config
