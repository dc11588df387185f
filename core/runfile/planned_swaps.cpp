#include "core/runfile/planned_swaps.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "core/runfile/at_path.hpp"
#include "core/runfile/check.hpp"
#include "core/runfile/live_config.hpp"
#include "core/runfile/rank_place.hpp"
#include "core/runfile/swap.hpp"

namespace trainyard::config {
namespace {

constexpr const char* options_key = "options";

const std::vector<Key>& host_keys() {
  return config::section("swap").keys;
}

const Key* host_key(const std::string& name) {
  const auto found = std::ranges::find(host_keys(), name, &Key::name);
  return found == host_keys().end() ? nullptr : &*found;
}

/// An entry by itself: the host's keys, and all others as options of the new plugin.
struct Entry {
  Table host, options;

  /// Returns the swap; nothing if a required key is missing or wrong.
  std::optional<PlannedSwap> swap() const {
    for (const char* key : {"at", "slot", "carry", "watch"})
      if (!host.contains(key)) return std::nullopt;
    PlannedSwap planned{.at = *Duration::parse(host.find("at")->as<std::string>()), .request = swap_of(host)};
    planned.request.options = options;
    return planned;
  }

  /// Returns the entry as printed: options that share a name with a host's key go to a table of their own.
  Table printed() const {
    Table all = host, apart;
    for (const Table::Entry& option : options.entries())
      (option.key == options_key || host_key(option.key) != nullptr ? apart : all)
          .set(option.key, option.value);
    if (!apart.entries().empty()) all.set(options_key, Value(std::move(apart)));
    return all;
  }
};

Entry read(const Table& given, const Origin& at, const std::string& name, Checker& checker) {
  Entry entry;
  for (const Table::Entry& each : given.entries()) {
    const Key* const key = host_key(each.key);
    if (each.key == options_key && each.value.get_if<Table>() != nullptr) {
      for (const Table::Entry& option : each.value.as<Table>().entries())
        entry.options.set(option.key, option.value);
    } else if (key == nullptr) {
      entry.options.set(each.key, each.value);
    } else if (std::optional<Value> checked =
                   checker.value(*key, each.value, name + "." + each.key, key->units)) {
      entry.host.set(each.key, std::move(*checked));
    }
  }
  checker.complete({host_keys().begin(), host_keys().end()}, entry.host, given, at, name);
  return entry;
}

struct Planned {
  std::size_t index;  ///< index in the file
  PlannedSwap swap;
  Origin at;
};

/// Sorts by time if the units can be compared without knowing the data; otherwise keeps the order of the
/// file, which the run checks when it begins.
void sort_by_time(std::vector<Planned>& places, const Table& resolved) {
  const auto* text = at_path<std::string>(resolved, "trainer.max_duration");
  const std::optional<Duration> whole = text == nullptr ? std::nullopt : Duration::parse(*text);
  const auto in_one_unit = [&](const Duration& at) {
    return at.unit == Duration::Unit::percent && whole
               ? Duration{at.count / 100.0 * whole->count, whole->unit}
               : at;
  };
  for (const Planned& each : places)
    if (in_one_unit(each.swap.at).unit != in_one_unit(places.front().swap.at).unit) return;
  std::ranges::stable_sort(places, {}, [&](const Planned& each) { return in_one_unit(each.swap.at).count; });
}

}  // namespace

PlannedSwaps plan_swaps(const Value& entries, const RunConfig& run, const plugins::Registry& registry,
                        Findings& findings) {
  Checker checker(findings, has_steps(run.resolved));
  PlannedSwaps planned;
  const auto* list = entries.get_if<Array>();
  if (list == nullptr) {
    findings.error("E105", entries.origin,
                   std::string("swap: expected a list of tables, found ") + entries.type_name(),
                   "write [[swap]], with two pairs of brackets");
    return planned;
  }
  std::vector<Planned> places;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Value& value = (*list)[i];
    const std::string name = "swap[" + std::to_string(i) + "]";
    const Table* const given = value.get_if<Table>();
    if (given == nullptr) {
      findings.error("E105", value.origin, name + ": expected a table, found " + value.type_name());
      continue;
    }
    const Entry entry = read(*given, value.origin, name, checker);
    planned.printed.push_back(Value(entry.printed()));
    std::optional<PlannedSwap> swap = entry.swap();
    if (!swap) continue;
    const Value* const watch = given->find("watch");
    if (watch && Duration::parse(swap->request.watch)->count > 0.0 && ranks_of(run.resolved) > 1)
      findings.warning("E218", watch->origin, name + ".watch: several ranks never go back to before a swap",
                       "leave it out: an error behind the swap ends the run");
    places.push_back({i, std::move(*swap), value.origin});
  }
  if (findings.failed()) return planned;
  sort_by_time(places, run.resolved);
  RunConfig now = run;
  for (Planned& place : places) {
    Resolution then =
        live_config(with_swaps(now.resolved, {place.swap.request}, registry, place.at), registry);
    if (then.config) check_swaps(now, *then.config, {place.swap.request}, registry, place.at, then.findings);
    for (const Finding& finding : then.findings.list()) {
      const auto report =
          finding.severity == Finding::Severity::error ? &Findings::error : &Findings::warning;
      (findings.*report)(finding.code, finding.at.line > 0 ? finding.at : place.at,
                         "swap[" + std::to_string(place.index) + "]: " + finding.message, finding.hint);
    }
    if (then.config && !then.findings.failed()) now = std::move(*then.config);
    planned.swaps.push_back(std::move(place.swap));
  }
  return planned;
}

PlannedSwap planned_swap(const Table& printed) {
  PlannedSwap planned{.at = *Duration::parse(printed.find("at")->as<std::string>()),
                      .request = swap_of(printed)};
  for (const Table::Entry& each : printed.entries())
    if (each.key != options_key && host_key(each.key) == nullptr)
      planned.request.options.set(each.key, each.value);
  return planned;
}

}  // namespace trainyard::config
