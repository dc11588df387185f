#include "core/config/planned_swaps.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "core/config/resolve.hpp"
#include "core/config/rules.hpp"
#include "core/config/swap.hpp"

namespace trainyard::config {
namespace {

/// An entry by itself: the host's keys, and all others as options of the plugin that comes.
struct Entry {
  Table host, options;

  /// Nothing where a key that it needs is missing or wrong.
  std::optional<PlannedSwap> swap() const {
    const auto* at = at_path<std::string>(host, "at");
    const auto* slot = at_path<std::string>(host, "slot");
    const auto* type = at_path<std::string>(host, "type");
    const auto* carry = at_path<std::string>(host, "carry");
    const auto* watch = at_path<std::string>(host, "watch");
    if (at == nullptr || slot == nullptr || carry == nullptr || watch == nullptr) return std::nullopt;
    return PlannedSwap{.at = *Duration::parse(*at),
                       .request = {.slot = *slot,
                                   .type = type == nullptr ? "" : *type,
                                   .options = options,
                                   .carry = carry_of(*carry),
                                   .watch = *watch}};
  }
};

Entry read(const Value& value, const std::string& name, Checker& checker) {
  const Section& section = config::section("swap");
  const Table& given = value.as<Table>();
  Entry entry;
  for (const Table::Entry& each : given.entries()) {
    const auto key = std::find_if(section.keys.begin(), section.keys.end(),
                                  [&](const Key& candidate) { return candidate.name == each.key; });
    if (key == section.keys.end())
      entry.options.set(each.key, each.value);
    else if (std::optional<Value> checked =
                 checker.value(*key, each.value, name + "." + each.key, key->units))
      entry.host.set(each.key, std::move(*checked));
  }
  checker.complete(specs_of(section), entry.host, given, value.origin, name);
  return entry;
}

}  // namespace

PlannedSwaps plan_swaps(const Value& entries, const Table& resolved, const plugins::Registry& registry,
                        Checker& checker, Findings& findings) {
  PlannedSwaps planned;
  const auto* list = entries.get_if<Array>();
  if (list == nullptr) {
    findings.error("E105", entries.origin,
                   std::string("swap: expected a list of tables, found ") + entries.type_name(),
                   "write [[swap]], with two pairs of brackets");
    return planned;
  }
  Table now = resolved;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Value& value = (*list)[i];
    const std::string name = "swap[" + std::to_string(i) + "]";
    if (value.get_if<Table>() == nullptr) {
      findings.error("E105", value.origin, name + ": expected a table, found " + value.type_name());
      continue;
    }
    const Entry entry = read(value, name, checker);
    std::optional<PlannedSwap> swap = entry.swap();
    if (!swap) continue;
    const Resolution then = resolve(with_swap(now, swap->request, registry, value.origin), registry);
    for (const Finding& finding : then.findings.list())
      findings.error(finding.code, finding.at, name + ": " + finding.message, finding.hint);
    if (!then.config) continue;
    now = then.config->resolved;
    Table shown = entry.host;
    for (const Table::Entry& option : entry.options.entries()) shown.set(option.key, option.value);
    planned.printed.push_back(Value(std::move(shown)));
    planned.swaps.push_back(std::move(*swap));
  }
  return planned;
}

}  // namespace trainyard::config
