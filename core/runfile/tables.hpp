// The tables of a run file, each checked by itself: its keys against the host's (schema.hpp) and against the
// manifest of the plugin that fills it.
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

/// A table as it was checked: what was right in it, and defaults.
struct Checked {
  Filling filling;  ///< nothing in a table of the host alone
  std::string id;   ///< of an entry of a list
  Table host, options;
  Origin at;

  /// Options of the plugin; none while it is not known.
  const std::vector<OptionSpec>& specs() const;
  /// As `config show` prints it.
  Table table() const;
};

class Tables {
 public:
  /// All are to outlive the object.
  Tables(const Document& document, const plugins::Registry& registry, Checker& checker, Findings& findings);

  /// That train together; on this machine.
  int ranks() const { return document_.ranks; }
  int local_ranks() const { return document_.local_ranks; }
  const Table& root() const { return document_.root; }

  /// The place of what the file lacks.
  const Origin& file() const { return file_; }

  /// The table of a section if the file has it; a value that is no table is reported once and counts as none.
  const Value* given(const Section& section);

  /// Reports that the file lacks the table.
  void missing(const Section& section);

  /// A table of the host alone. `always`: with its defaults even where the file has none.
  std::optional<Checked> plain(std::string_view path, bool always = false);

  /// The table of a slot, called `path` in messages; null where the file has none. `default_type`: as of
  /// find_plugin().
  Checked slot(const Section& section, const Value* table, const std::string& path,
               const std::string& default_type = {});

  /// The keys that a table has, and defaults of the host's own. Without a filling it may have no others.
  Checked keys(const Section& section, const Value* table, const std::string& path,
               std::optional<Filling> filling);

  /// Fills in defaults of options and reports those required that neither `checked` nor `given` has.
  void complete_options(const Section& section, const Table& given, Checked& checked);

  /// Reports what no section describes.
  void unknown_tables();

  /// The checked table as a slot of that name; its plugin counts among those in use from here on.
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
