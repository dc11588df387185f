#include "core/programs/time_text.hpp"

#include <algorithm>
#include <numeric>

#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

using control::Json;
using Named = std::vector<std::pair<std::string, double>>;

double sum_of(const Named& time) {
  return std::accumulate(time.begin(), time.end(), 0.0,
                         [](double sum, const auto& each) { return sum + each.second; });
}

std::string percent(double part, double whole) {
  return whole <= 0.0 ? "" : lib::printed("%.1f%%", 100.0 * part / whole);
}

/// Reads an object of numbers from a file that others may have written.
Named named_in(const Json& json, const char* key) {
  Named all;
  const Json found = json.is_object() ? json.value(key, Json()) : Json();
  if (!found.is_object()) return all;
  for (const auto& [what, value] : found.items())
    if (const std::optional<double> seconds = control::number(value)) all.emplace_back(what, *seconds);
  return all;
}

}  // namespace

std::vector<std::vector<std::string>> slot_rows(const control::Status& status) {
  const double whole = sum_of(status.time);
  std::vector<std::vector<std::string>> rows = {{"slot", "plugin", "version", "swaps", "seconds", "share"}};
  for (const control::Status::Slot& slot : status.slots)
    rows.push_back({printable(slot.slot), printable(slot.type), printable(slot.version),
                    std::to_string(slot.swaps), lib::printed("%.3f", slot.seconds),
                    percent(slot.seconds, whole)});
  return rows;
}

std::vector<std::vector<std::string>> plugin_rows(const RunState& run) {
  if (run.status) return slot_rows(*run.status);
  if (!run.result.is_object() || !run.result.contains("plugins") || !run.result["plugins"].is_array())
    return {};
  const double whole = sum_of(named_in(run.result, "time"));
  std::vector<std::vector<std::string>> rows = {{"kind", "plugin", "version", "seconds", "share"}};
  for (const Json& plugin : run.result["plugins"]) {
    if (!plugin.is_object()) continue;
    const auto text = [&](const char* key) {
      const Json value = plugin.value(key, Json());
      return value.is_string() ? printable(value.get<std::string>()) : std::string();
    };
    const std::optional<double> seconds = control::number(plugin.value("seconds", Json()));
    rows.push_back({text("kind"), text("name"), text("version"),
                    seconds ? lib::printed("%.3f", *seconds) : "", seconds ? percent(*seconds, whole) : ""});
  }
  return rows;
}

std::vector<std::string> time_lines(const Named& time) {
  const double whole = sum_of(time);
  if (whole <= 0.0) return {};
  Named phases = time;
  std::ranges::stable_sort(phases, std::ranges::greater(), &std::pair<std::string, double>::second);
  std::string line = "time";
  for (const auto& [phase, seconds] : phases) line += "  " + printable(phase) + " " + percent(seconds, whole);
  return {line};
}

std::vector<std::string> time_lines(const RunState& run) {
  return time_lines(run.status ? run.status->time : named_in(run.result, "time"));
}

}  // namespace trainyard::cli
