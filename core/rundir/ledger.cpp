#include "core/rundir/ledger.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include <trainyard/error.hpp>

#include "core/runfile/at_path.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/swap.hpp"

namespace trainyard::control {
namespace {

constexpr std::string_view before_prefix = "before/";

/// Returns the key that orders requests to come: their step, or 0 for those that are due as soon as possible.
std::int64_t time_of(const Entry& entry) {
  return entry.step.value_or(0);
}

Table table_of(const Entry& entry) {
  Array swaps;
  for (const config::SwapRequest& swap : entry.swaps) swaps.push_back(Value(config::table_of(swap)));
  Table table;
  table.set("number", Value(entry.number));
  if (!entry.who.empty()) table.set("who", Value(entry.who));
  if (entry.step) table.set("step", Value(*entry.step));
  table.set("swap", Value(std::move(swaps)));
  return table;
}

Entry entry_of(const Value& value) {
  if (value.get_if<Table>() == nullptr) throw DataError("one of its entries is no table");
  const Table& table = value.as<Table>();
  Entry entry;
  const auto* number = config::at_path<std::int64_t>(table, "number");
  const auto* who = config::at_path<std::string>(table, "who");
  const auto* step = config::at_path<std::int64_t>(table, "step");
  const auto* swaps = config::at_path<Array>(table, "swap");
  if (number == nullptr || *number < 1 || swaps == nullptr) throw DataError("it has no number, or no swap");
  entry.number = *number;
  if (who != nullptr) entry.who = *who;
  if (step != nullptr) entry.step = *step;
  for (const Value& swap : *swaps) {
    if (swap.get_if<Table>() == nullptr) throw DataError("one of its swaps is no table");
    entry.swaps.push_back(config::swap_of(swap.as<Table>()));
  }
  return entry;
}

Table parsed(const std::string& text) {
  config::Document document = config::load_resolved("the ledger", text);
  if (document.findings.failed()) throw DataError(document.findings.text());
  return std::move(document.root);
}

/// Compares swaps regardless of the order of options, which in a checkpoint may differ from the run file.
bool ask_the_same(const Entry& a, const Entry& b) {
  return std::equal(a.swaps.begin(), a.swaps.end(), b.swaps.begin(), b.swaps.end(),
                    [](const config::SwapRequest& one, const config::SwapRequest& other) {
                      return config::diff(config::table_of(one), config::table_of(other)).empty();
                    });
}

/// How an entry ended.
struct End {
  std::string_view what;
  Entry entry;  ///< includes the step at which it ended
};

/// Returns the last end of each request in the journal, by number.
std::map<std::int64_t, End> ends_in(const std::vector<report::JournalEntry>& journal) {
  std::map<std::int64_t, End> ends;
  for (const report::JournalEntry& line : journal) {
    const std::string_view what = line.what;
    const bool ends_one =
        what == swap_made || what == swap_refused || what == swap_rolled_back || what == paused;
    if (line.details.empty() || !ends_one) continue;
    try {
      Entry entry = entry_of(Value(parsed(line.details)));
      entry.who = line.plugin;
      entry.step = line.step;
      const std::int64_t number = entry.number;
      ends.insert_or_assign(number, End{what, std::move(entry)});
    } catch (const Error& error) {
      throw DataError("journal.jsonl: \"" + line.what + "\" at step " + std::to_string(line.step) +
                      " cannot be read: " + error.what() +
                      "; a resume has to make the same swaps again: mend the line, or begin anew");
    }
  }
  return ends;
}

/// Finds the first entry of the run file that asks the same at the same step.
template <class Entries>
auto find_planned(Entries& entries, const Entry& wanted) {
  return std::find_if(entries.begin(), entries.end(), [&](const Entry& each) {
    return each.who == run_file && each.step == wanted.step && ask_the_same(each, wanted);
  });
}

}  // namespace

void Ledger::add(Entry entry) {
  if (entry.number == 0) entry.number = next++;
  const auto earlier = [](const Entry& a, const Entry& b) { return time_of(a) < time_of(b); };
  const auto behind = std::upper_bound(open.begin(), open.end(), entry, earlier);
  open.insert(behind, std::move(entry));
}

void Ledger::replan(const std::vector<Entry>& before, const std::vector<Entry>& now) {
  std::vector<Entry> gone = before, fresh;
  for (const Entry& entry : now) {
    const auto same = find_planned(gone, entry);
    if (same == gone.end())
      fresh.push_back(entry);
    else
      gone.erase(same);
  }
  for (const Entry& entry : gone)
    if (const auto found = find_planned(open, entry); found != open.end()) open.erase(found);
  for (Entry& entry : fresh) add(std::move(entry));
}

std::optional<std::int64_t> Ledger::follow(const std::vector<report::JournalEntry>& journal) {
  std::map<std::int64_t, End> ends = ends_in(journal);
  const auto taken_back = std::find_if(made.begin(), made.end(), [&](const MadeSwap& each) {
    const auto end = ends.find(each.entry.number);
    return end != ends.end() && end->second.what == swap_rolled_back;
  });
  // Requests made after the one that was rolled back are made again; that one itself is not.
  std::optional<std::int64_t> before;
  if (taken_back != made.end()) {
    before = taken_back->entry.number;
    for (auto each = taken_back + 1; each != made.end(); ++each) add(each->entry);
    made.erase(taken_back, made.end());
    ends.erase(*before);
  }
  for (auto& [number, end] : ends) {
    if (std::any_of(made.begin(), made.end(), [&](const MadeSwap& each) { return each.entry == end.entry; }))
      continue;
    const auto asked = std::find(open.begin(), open.end(), end.entry);
    const bool settled_before = asked == open.end() && number < next;
    if (settled_before) continue;
    if (asked != open.end()) open.erase(asked);
    next = std::max(next, number + 1);
    if (end.what == swap_made || end.what == paused) add(std::move(end.entry));
  }
  // Clients whose request had not been made when the process ended were told so.
  std::erase_if(open, [](const Entry& each) { return each.who == client && !each.step; });
  return before;
}

std::vector<Entry> ended_of_plan(const std::vector<report::JournalEntry>& journal) {
  std::vector<Entry> entries;
  for (auto& [number, end] : ends_in(journal))
    if (end.entry.who == run_file) entries.push_back(std::move(end.entry));
  return entries;
}

std::string Ledger::text() const {
  Table table;
  table.set("next", Value(next));
  Array requests, standing;
  for (const Entry& entry : open) requests.push_back(Value(table_of(entry)));
  for (const MadeSwap& each : made) {
    Table entry = table_of(each.entry);
    if (each.until) entry.set("until", Value(*each.until));
    standing.push_back(Value(std::move(entry)));
  }
  if (!requests.empty()) table.set("open", Value(std::move(requests)));
  if (!standing.empty()) table.set("made", Value(std::move(standing)));
  return config::toml_file(table);
}

Ledger Ledger::from_text(const std::string& text, const std::string& source) {
  try {
    const Table table = parsed(text);
    Ledger ledger;
    const auto* next = config::at_path<std::int64_t>(table, "next");
    if (next == nullptr) throw DataError("it has no `next`");
    ledger.next = *next;
    if (const auto* open = config::at_path<Array>(table, "open"))
      for (const Value& each : *open) ledger.open.push_back(entry_of(each));
    if (const auto* made = config::at_path<Array>(table, "made"))
      for (const Value& each : *made) {
        Entry entry = entry_of(each);
        if (!entry.step) throw DataError("it does not tell the step of a swap that was made");
        const auto* until = config::at_path<std::int64_t>(each.as<Table>(), "until");
        ledger.made.push_back({std::move(entry), until ? std::optional(*until) : std::nullopt});
      }
    return ledger;
  } catch (const Error& error) {
    throw DataError(source + ": the ledger of its swaps cannot be read: " + error.what());
  }
}

std::string before_owner(std::int64_t number, const std::string& owner) {
  return std::string(before_prefix) + std::to_string(number) + "/" + owner;
}

std::optional<std::pair<std::int64_t, std::string>> owner_before(const std::string& name) {
  if (!name.starts_with(before_prefix)) return std::nullopt;
  std::int64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + before_prefix.size(), end, number);
  if (error != std::errc{} || stop == end || *stop != '/') return std::nullopt;
  return std::pair(number, std::string(stop + 1, end));
}

std::string details(const Entry& entry) {
  Table table = table_of(entry);
  table.erase("who");
  table.erase("step");
  return config::toml_file(table);
}

}  // namespace trainyard::control
