#include "core/runfile/swap.hpp"

#include <algorithm>

#include "core/plugins/kinds.hpp"
#include "core/plugins/order.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/parse.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/rank_place.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/suggest.hpp"

namespace trainyard::config {
namespace {

constexpr auto& carry_words = Words<Carry>::words;

/// The table of a slot, and its section.
struct Slot {
  const Section* section = nullptr;
  Table* table = nullptr;
};

Table* table_at(Table& root, std::string_view path) {
  return const_cast<Table*>(at_path<Table>(root, path));
}

/// Calls f for every slot that a plugin fills, with its address.
template <class F>
void each_slot(Table& root, F&& f) {
  Array none;
  for (const Section& section : schema()) {
    if (section.kind.empty() || plugins::find_kind(section.kind)->beside) continue;
    if (!section.list) {
      if (Table* table = table_at(root, section.path)) f(section.path, Slot{&section, table});
      continue;
    }
    auto* const list = const_cast<Array*>(at_path<Array>(root, section.path));
    for (Value& entry : list == nullptr ? none : *list)
      if (Table* table = entry.get_if<Table>())
        if (const auto* id = at_path<std::string>(*table, "id"))
          f(section.path + "." + *id, Slot{&section, table});
  }
}

void drop_own_options(Table& table, const plugins::PluginFile& plugin) {
  for (const OptionSpec& option : plugin.manifest.options)
    if (!option.common) table.erase(option.name);
}

/// Adds an entry at the end of a list of plugins that a run can go on without, or takes one out.
void put_entry(Document& document, const SwapRequest& swap, const std::vector<std::string>& known,
               const Origin& at) {
  const auto refuse = [&](const std::string& what, const std::string& mend) {
    document.readable = false;
    document.findings.error("E212", at, what, mend);
  };
  const auto list = std::ranges::find_if(schema(), [&](const Section& section) {
    return section.list && plugins::can_be_left_out(section.kind) &&
           swap.slot.starts_with(section.path + ".");
  });
  if (list == schema().end())
    return refuse("\"" + swap.slot + "\" does not come or go while a run trains",
                  "entries of hooks, rules, metrics and logging.sinks do: hooks.ema");
  auto& entries = const_cast<Array&>(*at_path<Array>(document.root, list->path));
  const std::string id = swap.slot.substr(list->path.size() + 1);
  if (swap.change == "remove" && !(swap.type + toml_file(swap.options)).empty())
    return refuse(swap.slot + " goes as it is: a plugin or options cannot be given", "leave them out");
  if (swap.change == "remove") {
    const auto is_it = [&](const Value& each) { return *at_path<std::string>(each.as<Table>(), "id") == id; };
    if (std::erase_if(entries, is_it) == 0)
      refuse("the run has no slot \"" + swap.slot + "\"", suggestion(swap.slot, known, "its slots are"));
    return;
  }
  if (swap.type.empty() || swap.options.contains("id"))
    return refuse(swap.slot + " comes with its id in `slot` and its plugin in `type`", "type = \"ema\"");
  Table entry = swap.options;
  entry.set("type", Value(swap.type));
  entry.set("id", Value(id));
  entries.push_back(Value(std::move(entry)));
}

void put_swap(Document& document, const SwapRequest& swap, const plugins::Registry& registry,
              const Origin& at) {
  Slot slot;
  std::vector<std::string> known;
  each_slot(document.root, [&](const std::string& address, const Slot& candidate) {
    known.push_back(address);
    if (address == swap.slot) slot = candidate;
  });
  if (swap.change != "replace") return put_entry(document, swap, known, at);
  if (slot.table == nullptr) {
    document.readable = false;
    document.findings.error("E212", at, "the run has no slot \"" + swap.slot + "\"",
                            suggestion(swap.slot, known, "its slots are"));
    return;
  }
  if ((swap.carry == Carry::restart || swap.carry == Carry::splice) && slot.section->kind != "schedule")
    document.findings.error("E213", at,
                            "carry = \"restart\" and \"splice\" are of a schedule, not of " + swap.slot,
                            "take \"state\" or \"fresh\"");
  Table& table = *slot.table;
  const std::string now = table.find("type")->as<std::string>();
  if (!swap.type.empty() && swap.type != now) {
    for (const plugins::PluginFile* plugin : registry.find(slot.section->kind, now)) {
      drop_own_options(table, *plugin);
      for (const Section* child : children(slot.section->path))  // [data.train] holds options of [data], too
        if (Table* part = child->kind.empty() ? table_at(document.root, child->path) : nullptr)
          drop_own_options(*part, *plugin);
    }
    table.set("type", Value(swap.type));
  }
  for (const Table::Entry& option : swap.options.entries()) {
    const bool child = option.value.get_if<Table>() != nullptr && table.contains(option.key) &&
                       table.find(option.key)->get_if<Table>() != nullptr;
    if (!child) {
      table.set(option.key, option.value);
      continue;
    }
    for (const Table::Entry& inner : option.value.as<Table>().entries())
      table.find(option.key)->as<Table>().set(inner.key, inner.value);
  }
}

/// Returns the first hook at an event that a running training is past and that writes more than its own.
const HookSpec* too_late(const ManifestData& manifest) {
  for (const HookSpec& hook : manifest.hooks)
    for (const Event event : set_up)
      if (hook.event == event && !Regions(Region::plugin_own).contains(hook.writes)) return &hook;
  return nullptr;
}

}  // namespace

Carry carry_of(std::string_view word) {
  const auto* found = std::find(std::begin(carry_words), std::end(carry_words), word);
  if (found == std::end(carry_words))
    throw ConfigError("\"" + std::string(word) +
                      "\" is nothing that a swap can carry over: expected state, fresh, restart or splice");
  return static_cast<Carry>(found - std::begin(carry_words));
}

Document with_swaps(const Table& resolved, const std::vector<SwapRequest>& swaps,
                    const plugins::Registry& registry, const Origin& at) {
  Document document;
  document.root = resolved;
  document.root.erase("swap");  // a plan is no part of the live configuration
  document.ranks = static_cast<int>(ranks_of(resolved));
  document.file = "the swap of " + (swaps.empty() ? "nothing" : swaps.front().slot);
  for (const SwapRequest& swap : swaps)
    if (document.readable) put_swap(document, swap, registry, at);
  return document;
}

bool replaces(const std::string& address, const SlotConfig& slot) {
  return slot.address() == address || slot.slot.starts_with(address + ".");
}

void check_swaps(const RunConfig& now, const RunConfig& then, const std::vector<SwapRequest>& swaps,
                 const plugins::Registry& registry, const Origin& at, Findings& findings) {
  const auto keeps = [&](const std::string& what, const std::string& mend) {
    findings.error("E214", at, "a running training keeps " + what, mend);
  };
  const auto lasting = [&](const RunConfig& run) {
    std::vector<std::string> addresses;
    for (const SlotConfig& slot : run.slots) {
      const auto moves = [&](const SwapRequest& swap) {
        return swap.change != "replace" && (swap.slot == slot.address() || slot.kind == "recorder");
      };
      if (std::ranges::none_of(swaps, moves)) addresses.push_back(slot.address());
    }
    return addresses;
  };
  const std::vector<std::string> here = lasting(now), there = lasting(then);
  const auto [old_slot, new_slot] = std::ranges::mismatch(here, there);
  if (old_slot != here.end() || new_slot != there.end()) {
    const std::string what = there.size() > here.size()   ? "add [" + *new_slot + "]"
                             : there.size() < here.size() ? "drop [" + *old_slot + "]"
                                                          : "rename " + *old_slot + " to " + *new_slot;
    return keeps("its slots and their names: the swap would " + what,
                 "leave `id` and the tables as they are");
  }
  if (then.train.batch_size != now.train.batch_size ||
      then.train.micro_batch_size != now.train.micro_batch_size ||
      then.train.drop_last != now.train.drop_last || then.train.take != now.train.take)
    keeps("its batch size and its part of the samples: a swap of data changes the samples alone",
          "leave batch_size, micro_batch_size, drop_last and take out");
  if (then.data.workers != now.data.workers || then.data.prefetch != now.data.prefetch)
    keeps("data.workers and data.prefetch", "they change with a resume");
  for (const SlotConfig& slot : then.slots)
    for (const SwapRequest& swap : swaps)
      if (replaces(swap.slot, slot))
        for (const plugins::PluginFile* plugin : registry.find(slot.kind, slot.type))
          if (const HookSpec* hook = too_late(plugin->manifest))
            findings.error("E215", at,
                           slot.slot + ": " + slot.type + " writes " + events::text(hook->writes) + " at " +
                               std::string(name(hook->event)) + ", which a running training has behind it",
                           "it can only be there from the beginning");
}

void assign(Table& options, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    throw ConfigError("\"" + assignment + "\" is no assignment: expected KEY=VALUE");
  const std::string written = assignment.substr(equals + 1);
  std::optional<Value> value = parse_value(written);
  if (!value) value = Value(written);  // a bare word is a string
  Table* table = &options;
  std::string_view key(assignment.data(), equals);
  for (std::size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.')) {
    const std::string part(key.substr(0, dot));
    if (!table->contains(part) || table->find(part)->get_if<Table>() == nullptr)
      table->set(part, Value(Table{}));
    table = &table->find(part)->as<Table>();
    key.remove_prefix(dot + 1);
  }
  table->set(std::string(key), std::move(*value));
}

std::vector<SwapRequest> swaps_of(const Table& resolved, const std::vector<std::string>& assignments) {
  Table root = resolved;
  std::vector<std::string> known;
  each_slot(root, [&](const std::string& address, const Slot&) { known.push_back(address); });
  std::vector<SwapRequest> swaps;
  for (const std::string& assignment : assignments) {
    std::string slot;
    for (const std::string& address : known)
      if (assignment.starts_with(address + ".") && address.size() > slot.size()) slot = address;
    if (slot.empty())
      throw ConfigError("\"" + assignment + "\" sets no option of a slot: " +
                        suggestion(assignment.substr(0, assignment.rfind('.', assignment.find('='))), known,
                                   "a running training changes only"));
    auto swap =
        std::find_if(swaps.begin(), swaps.end(), [&](const SwapRequest& each) { return each.slot == slot; });
    if (swap == swaps.end())
      swap = swaps.insert(swaps.end(), SwapRequest{.slot = slot, .type = {}, .options = {}});
    assign(swap->options, assignment.substr(slot.size() + 1));
  }
  return swaps;
}

std::string text(const std::vector<SwapRequest>& swaps) {
  std::string line;
  for (const SwapRequest& swap : swaps) {
    std::string options;
    for (const Table::Entry& option : swap.options.entries())
      options += (options.empty() ? "" : ", ") + option.key + " = " + toml_text(option.value);
    line += (line.empty() ? "" : "; ") + (swap.change == "replace" ? "" : swap.change + " ") + swap.slot +
            (swap.type.empty() ? "" : " = " + swap.type) + (options.empty() ? "" : " (" + options + ")");
  }
  return line;
}

Table table_of(const SwapRequest& swap) {
  Table table;
  table.set("slot", Value(swap.slot));
  if (!swap.type.empty()) table.set("type", Value(swap.type));
  if (swap.change != "replace") table.set("change", Value(swap.change));
  table.set("carry", Value(std::string(carry_words[static_cast<std::size_t>(swap.carry)])));
  table.set("watch", Value(swap.watch));
  if (!swap.options.entries().empty()) table.set("options", Value(swap.options));
  return table;
}

SwapRequest swap_of(const Table& table) {
  SwapRequest swap;
  if (const auto* slot = at_path<std::string>(table, "slot")) swap.slot = *slot;
  if (const auto* type = at_path<std::string>(table, "type")) swap.type = *type;
  if (const auto* change = at_path<std::string>(table, "change")) swap.change = *change;
  if (const auto* carry = at_path<std::string>(table, "carry")) swap.carry = carry_of(*carry);
  if (const auto* watch = at_path<std::string>(table, "watch")) swap.watch = *watch;
  if (const auto* options = at_path<Table>(table, "options")) swap.options = *options;
  return swap;
}

}  // namespace trainyard::config
