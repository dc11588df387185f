#include "core/runfile/data_tables.hpp"

#include "core/runfile/at_path.hpp"
#include "core/runfile/between_keys.hpp"
#include "core/runfile/option_files.hpp"
#include "core/runfile/rank_place.hpp"

namespace trainyard::config {
namespace {

class DataTables {
 public:
  /// `data` is the table [data] as it was given.
  DataTables(Tables& tables, const plugins::Registry& registry, Findings& findings, const Value& data)
      : tables_(tables),
        findings_(findings),
        section_(section("data")),
        data_(data.as<Table>()),
        shared_(tables.keys(section_, &data, section_.path,
                            find_plugin(section_, data_, data.origin, {}, registry, findings))) {
    anchor_files(shared_.specs(), shared_.options);
    for (const OptionSpec& option : shared_.specs())
      if (option.fallback && !data_.contains(option.name)) shared_.options.set(option.name, *option.fallback);
    printed_ = shared_.table();
  }

  std::optional<SlotConfig> split(const std::string& name) {
    const Section& section = config::section("data." + name);
    const Value* value = tables_.given(section);
    if (value == nullptr) {
      if (section.required && !data_.contains(name)) tables_.missing(section);
      return std::nullopt;
    }
    const Table& table = value->as<Table>();
    Checked own = tables_.keys(section, value, section.path, shared_.filling);
    anchor_files(own.specs(), own.options);
    batch(section, name, table, own);

    Checked merged = own;
    for (const Table::Entry& entry : shared_.options.entries())
      if (!table.contains(entry.key)) merged.options.set(entry.key, entry.value);
    Table both = data_;  // an option in either table, right or wrong, is not missing
    for (const Table::Entry& entry : table.entries()) both.set(entry.key, entry.value);
    tables_.complete_options(section, both, merged);
    files_exist(merged.specs(), merged.options, section.path, findings_);

    own.filling = {};  // the plugin is printed in [data]
    printed_.set(name, own.table());
    return tables_.use(section_, section.path, merged);
  }

  SlotConfig sampler() {
    const Section& section = config::section("data.sampler");
    const Value* value = tables_.given(section);
    const auto* shuffle = at_path<bool>(printed_, "train.shuffle");
    const std::string fallback = shuffle != nullptr && *shuffle ? "random" : "sequential";
    const Checked checked = tables_.slot(section, value, section.path, value == nullptr ? fallback : "");
    printed_.set("sampler", Value(checked.table()));
    return tables_.use(section, section.path, checked);
  }

  /// Returns the tables as `config show` prints them.
  const Table& printed() const { return printed_; }

 private:
  void batch(const Section& section, const std::string& name, const Table& table, Checked& own) {
    for (const Key& key : section.keys)
      if (table.contains(key.name) && !own.host.contains(key.name)) return;  // already reported as wrong
    if (name == "train")
      solve_batch(own.host, own.at, tables_.ranks(), ranks_of(tables_.root(), tables_.ranks()),
                  shares_of(tables_.root()), findings_);
    else if (const auto* micro = at_path<std::int64_t>(printed_, "train.micro_batch_size");
             micro != nullptr && !own.host.contains("batch_size"))
      own.host.set("batch_size", Value(*micro));
  }

  Tables& tables_;
  Findings& findings_;
  const Section& section_;
  const Table& data_;
  Checked shared_;
  Table printed_;
};

}  // namespace

void read_data(Tables& tables, const plugins::Registry& registry, Findings& findings, Table& resolved,
               std::vector<SlotConfig>& slots) {
  const Section& section = config::section("data");
  const Value* value = tables.given(section);
  if (value == nullptr) return tables.missing(section);
  DataTables data(tables, registry, findings, *value);
  for (const char* name : {"train", "val", "test"})
    if (std::optional<SlotConfig> split = data.split(name)) slots.push_back(std::move(*split));
  slots.push_back(data.sampler());
  resolved.set("data", data.printed());
}

}  // namespace trainyard::config
