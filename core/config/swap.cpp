#include "core/config/swap.hpp"

#include <algorithm>

#include "core/config/load.hpp"
#include "core/config/parse.hpp"
#include "core/config/print.hpp"
#include "core/config/rules.hpp"
#include "core/config/schema.hpp"
#include "core/config/suggest.hpp"

namespace trainyard::config {
namespace {

constexpr std::pair<std::string_view, Carry> carry_words[] = {
    {"state", Carry::state}, {"fresh", Carry::fresh}, {"restart", Carry::restart}, {"splice", Carry::splice}};

/// The table of a slot, and the section that it is of.
struct Place {
  const Section* section = nullptr;
  Table* table = nullptr;
};

Table* table_at(Table& root, std::string_view path) {
  Value* value = const_cast<Value*>(value_at(root, path));
  return value == nullptr ? nullptr : value->get_if<Table>();
}

/// Every slot that a plugin fills, with its address.
template <class F>
void each_slot(Table& root, F&& f) {
  for (const Section& section : schema()) {
    if (section.kind.empty()) continue;
    if (!section.list) {
      if (Table* table = table_at(root, section.path)) f(section.path, Place{&section, table});
      continue;
    }
    Value* list = const_cast<Value*>(value_at(root, section.path));
    if (list == nullptr || list->get_if<Array>() == nullptr) continue;
    for (Value& entry : list->as<Array>())
      if (Table* table = entry.get_if<Table>())
        if (const auto* id = at_path<std::string>(*table, "id"))
          f(section.path + "." + *id, Place{&section, table});
  }
}

void drop_own_options(Table& table, const plugins::PluginFile& plugin) {
  for (const OptionSpec& option : plugin.manifest.options)
    if (!option.common) table.erase(option.name);
}

}  // namespace

Carry carry_of(std::string_view word) {
  const auto* found = std::find_if(std::begin(carry_words), std::end(carry_words),
                                   [&](const auto& each) { return each.first == word; });
  if (found == std::end(carry_words))
    throw ConfigError("\"" + std::string(word) +
                      "\" is nothing that a swap can carry over: expected state, fresh, restart or splice");
  return found->second;
}

Document with_swap(const Table& resolved, const SwapRequest& swap, const plugins::Registry& registry,
                   const Origin& at) {
  Document document;
  document.root = resolved;
  document.file = "the swap of " + swap.slot;
  Place place;
  std::vector<std::string> known;
  each_slot(document.root, [&](const std::string& address, const Place& candidate) {
    known.push_back(address);
    if (address == swap.slot) place = candidate;
  });
  if (place.table == nullptr) {
    document.readable = false;
    document.findings.error("E212", at, "the run has no slot \"" + swap.slot + "\"",
                            suggestion(swap.slot, known, "its slots are"));
    return document;
  }
  if ((swap.carry == Carry::restart || swap.carry == Carry::splice) && place.section->kind != "schedule")
    document.findings.error("E213", at,
                            "carry = \"restart\" and \"splice\" are of a schedule, not of " + swap.slot,
                            "take \"state\" or \"fresh\"");
  Table& table = *place.table;
  const std::string now = table.find("type")->as<std::string>();
  if (!swap.type.empty() && swap.type != now) {
    for (const plugins::PluginFile* plugin : registry.find(place.section->kind, now)) {
      drop_own_options(table, *plugin);
      for (const Section* child : children(place.section->path))  // [data.train] holds options of [data], too
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
  return document;
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
  each_slot(root, [&](const std::string& address, const Place&) { known.push_back(address); });
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

std::string text(const SwapRequest& swap) {
  std::string options;
  for (const Table::Entry& option : swap.options.entries())
    options += (options.empty() ? "" : ", ") + option.key + " = " + toml_text(option.value);
  return swap.slot + (swap.type.empty() ? "" : " = " + swap.type) +
         (options.empty() ? "" : " (" + options + ")");
}

std::string toml(const SwapRequest& swap) {
  Table table;
  table.set("slot", Value(swap.slot));
  if (!swap.type.empty()) table.set("type", Value(swap.type));
  for (const auto& [word, carry] : carry_words)
    if (carry == swap.carry) table.set("carry", Value(std::string(word)));
  table.set("watch", Value(swap.watch));
  table.set("options", Value(swap.options));
  return toml_file(table);
}

SwapRequest swap_from_toml(const std::string& text) {
  const Table table = load_resolved("the journal", text).root;
  SwapRequest swap;
  if (const auto* slot = at_path<std::string>(table, "slot")) swap.slot = *slot;
  if (const auto* type = at_path<std::string>(table, "type")) swap.type = *type;
  if (const auto* carry = at_path<std::string>(table, "carry")) swap.carry = carry_of(*carry);
  if (const auto* watch = at_path<std::string>(table, "watch")) swap.watch = *watch;
  if (const auto* options = at_path<Table>(table, "options")) swap.options = *options;
  return swap;
}

std::int64_t swap_number(const std::string& text) {
  const Table table = load_resolved("the journal", text).root;
  const auto* number = at_path<std::int64_t>(table, "number");
  return number == nullptr ? 0 : *number;
}

}  // namespace trainyard::config
