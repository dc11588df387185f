#include "core/report/tables.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/report/html.hpp"
#include "core/report/numbers.hpp"
#include "lib/words.hpp"

namespace trainyard::report {
namespace {

using control::Json;

constexpr std::size_t listed_marks = 200;  ///< most marks of a run

std::string swatch(std::size_t group) {
  return "<span class=\"swatch " + look(group) + "\"></span>";
}

std::string cell(const std::string& html, const char* kind = nullptr) {
  return kind == nullptr ? "<td>" + html + "</td>"
                         : "<td class=\"" + std::string(kind) + "\">" + html + "</td>";
}

std::string head(const Shown& shown, const std::string& first) {
  std::string row = "<thead><tr><th>" + first + "</th>";
  for (std::size_t i = 0; i < shown.runs.size(); ++i)
    row += "<th class=\"number\">" + swatch(shown.group_of[i]) + escaped(shown.labels[i]) + "</th>";
  return row;
}

std::string table(const std::string& id, const std::string& rows) {
  return "<div class=\"wide\"><table id=\"" + id + "\">" + rows + "</tbody></table></div>\n";
}

std::string rows_of(const std::string& text) {
  std::string rows = "<tr><td>";
  for (const char c : escaped(lib::trimmed(text, "\n")))
    rows += c == '\t' ? "</td><td class=\"number\">" : c == '\n' ? "</td></tr><tr><td>" : std::string(1, c);
  return rows + "</td></tr>";
}

/// Returns a run's journal entries as marks; consecutive entries that are alike share one.
std::vector<Mark> marks_of(const RunData& run, std::size_t group, std::size_t place) {
  std::vector<Mark> marks;
  for (std::size_t begin = 0, end = 0; begin < run.journal.size(); begin = end) {
    const JournalEntry& first = run.journal[begin];
    for (end = begin + 1; end < run.journal.size(); ++end) {
      const JournalEntry& next = run.journal[end];
      if (next.plugin != first.plugin || next.what != first.what || next.why != first.why) break;
    }
    std::string text = "step " + std::to_string(first.step);
    if (end - begin > 1)
      text +=
          " to " + std::to_string(run.journal[end - 1].step) + ", " + std::to_string(end - begin) + " times";
    text += ": " + first.what + (first.plugin.empty() ? "" : " by " + first.plugin);
    if (!first.why.empty()) text += ": " + first.why;
    marks.push_back(
        {.step = first.step, .group = group, .run = place, .number = 0, .what = first.what, .text = text});
  }
  return marks;
}

/// Returns a part of result.json, null where it is not there.
Json part(const Json& json, const char* key) {
  return json.is_object() ? json.value(key, Json()) : Json();
}

std::optional<double> number(const Json& json, const char* key) {
  return control::number(part(json, key));
}

std::string text(const Json& json, const char* key) {
  const Json value = part(json, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// Returns samples per second over the whole run with its evaluation passes, else the last value recorded.
std::string throughput(const RunData& run) {
  const std::optional<double> samples = number(run.result, "samples"), time = number(run.result, "seconds");
  if (samples && time && *time > 0.0) return digits(*samples / *time, 4);
  const auto said = run.curves.find("samples_per_second");
  return said == run.curves.end() ? std::string() : digits(said->second.back().value, 4);
}

std::string value_at(const Point& point) {
  return digits(point.value, 5) + " <span class=\"faint\">at " + std::to_string(point.step) + "</span>";
}

/// Returns mean and standard deviation of the last values of a metric over the runs of a group.
std::string mean_of(const MetricOutcomes& outcomes, const Group& group) {
  std::vector<double> values;
  for (const std::size_t run : group.runs)
    if (outcomes.of_run[run]) values.push_back(outcomes.of_run[run]->last.value);
  if (values.empty()) return {};
  const Spread spread = spread_of(0, values);
  return digits(spread.mean, 5) + " &plusmn; " + digits(spread.high - spread.mean, 2);
}

/// The seconds that each run spent, by name (phase or plugin) in the order in which names first appear.
struct Seconds {
  std::vector<std::string> names;
  std::map<std::string, std::vector<double>> of_run;

  void add(const std::string& name, std::size_t run, std::size_t runs, double value) {
    if (of_run.find(name) == of_run.end()) names.push_back(name);
    auto& values = of_run[name];
    values.resize(runs, std::nan(""));
    values[run] = std::isnan(values[run]) ? value : values[run] + value;
  }
};

/// Returns the seconds of a training: the sum of its phases, else the time that result.json reports.
double whole_of(const Json& result) {
  double sum = 0.0;
  for (const Json& value : part(result, "time")) sum += control::number(value).value_or(0.0);
  return sum > 0.0 ? sum : number(result, "seconds").value_or(0.0);
}

/// Adds each number of an object, by its key behind `prefix`.
void take(const Json& times, const std::string& prefix, std::size_t run, std::size_t runs, Seconds& seconds) {
  if (!times.is_object()) return;
  for (const auto& [key, value] : times.items())
    if (const std::optional<double> each = control::number(value))
      seconds.add(prefix + key, run, runs, *each);
}

/// The times of a plugin's hooks are rows below it, whose names have two lines: plugin and event.
void take_plugins(const Json& result, std::size_t run, std::size_t runs, Seconds& seconds) {
  for (const Json& plugin : part(result, "plugins"))
    if (const std::optional<double> all = number(plugin, "seconds")) {
      const std::string name = text(plugin, "kind") + " " + text(plugin, "name");
      seconds.add(name, run, runs, *all);
      take(part(plugin, "events"), name + "\n", run, runs, seconds);
    }
}

std::string time_rows(const Shown& shown, const Seconds& seconds, const char* title) {
  if (seconds.names.empty()) return {};
  std::string html = head(shown, title) + "</tr></thead><tbody>";
  for (const std::string& name : seconds.names) {
    const std::size_t within = name.find('\n');
    html += within == std::string::npos
                ? "<tr><th>" + escaped(name) + "</th>"
                : "<tr class=\"within\"><th>" + escaped(name.substr(within + 1)) + "</th>";
    const std::vector<double>& values = seconds.of_run.at(name);
    for (std::size_t run = 0; run < shown.runs.size(); ++run) {
      if (run >= values.size() || std::isnan(values[run])) {
        html += cell("");
        continue;
      }
      const double whole = whole_of(shown.runs[run].result);
      const double percent = whole > 0.0 ? std::min(100.0, 100.0 * values[run] / whole) : 0.0;
      html += cell(report::seconds(values[run]) + " <span class=\"faint\">" + digits(percent, 3) +
                       "%</span><div class=\"bar c" + std::to_string(shown.group_of[run] % 8) +
                       "\" style=\"width:" + tenth(percent) + "%\"></div>",
                   "number");
    }
    html += "</tr>";
  }
  return html;
}

}  // namespace

Shown shown(const std::vector<RunData>& runs) {
  Shown shown{
      .runs = runs, .labels = labels_of(runs), .groups = groups_of(runs), .group_of = {}, .marks = {}};
  shown.group_of.resize(runs.size());
  for (std::size_t g = 0; g < shown.groups.size(); ++g)
    for (const std::size_t run : shown.groups[g].runs) shown.group_of[run] = g;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (Mark& mark : marks_of(runs[i], shown.group_of[i], i)) {
      mark.number = shown.marks.size() + 1;
      if (runs.size() > 1) mark.text = shown.labels[i] + ", " + mark.text;
      shown.marks.push_back(std::move(mark));
    }
  return shown;
}

std::string runs_table(const Shown& shown) {
  std::string html =
      "<thead><tr><th>run</th><th>state</th><th class=\"number\">steps</th><th class=\"number\">epochs</th>"
      "<th class=\"number\">samples</th><th class=\"number\">time</th><th class=\"number\">samples/s</th>"
      "<th>folder</th></tr></thead><tbody>";
  for (std::size_t i = 0; i < shown.runs.size(); ++i) {
    const RunData& run = shown.runs[i];
    const auto count = [&](const char* key) {
      const std::optional<double> value = number(run.result, key);
      return value ? digits(*value, 12) : std::string();
    };
    const std::optional<double> time = number(run.result, "seconds");
    std::string state = escaped(run.state);
    if (const std::string error = text(run.result, "error"); !error.empty())
      state += "<div class=\"bad words\">" + escaped(error) + "</div>";
    if (run.unread > 0)
      state += "<div class=\"bad\">" + std::to_string(run.unread) +
               " lines of its metrics are no records and left out</div>";
    html += "<tr><th>" + swatch(shown.group_of[i]) + escaped(shown.labels[i]) + "</th>" + cell(state) +
            cell(std::to_string(run.steps), "number") + cell(count("epochs"), "number") +
            cell(count("samples"), "number") + cell(time ? seconds(*time) : "", "number") +
            cell(throughput(run), "number") + cell("<code>" + escaped(run.path) + "</code>") + "</tr>";
  }
  return table("runs", html);
}

std::string outcomes_table(const Shown& shown) {
  std::string html = head(shown, "metric");
  for (const Group& group : shown.groups)
    if (group.runs.size() > 1) html += "<th class=\"number\">" + escaped(group.label) + "</th>";
  html += "</tr></thead><tbody>";
  for (const MetricOutcomes& outcomes : outcomes_of(shown.runs)) {
    html += "<tr><th>" + escaped(outcomes.metric);
    if (outcomes.lower_is_better)
      html += std::string(" <span class=\"faint\">final; ") +
              (*outcomes.lower_is_better ? "lowest" : "highest") + "</span>";
    html += "</th>";
    for (const std::optional<Outcome>& outcome : outcomes.of_run) {
      std::string values = outcome ? value_at(outcome->last) : "";
      if (outcome && outcome->best) values += "<br>" + value_at(*outcome->best);
      html += cell(values, "number");
    }
    for (const Group& group : shown.groups)
      if (group.runs.size() > 1) html += cell(mean_of(outcomes, group), "number");
    html += "</tr>";
  }
  return table("outcomes", html);
}

std::string time_table(const Shown& shown) {
  Seconds phases, plugins;
  for (std::size_t i = 0; i < shown.runs.size(); ++i) {
    take(part(shown.runs[i].result, "time"), "", i, shown.runs.size(), phases);
    take_plugins(shown.runs[i].result, i, shown.runs.size(), plugins);
  }
  std::string html;
  if (const std::string rows = time_rows(shown, phases, "phase"); !rows.empty())
    html += table("phases", rows);
  if (const std::string rows = time_rows(shown, plugins, "plugin and event"); !rows.empty())
    html += table("plugins", rows);
  return html;
}

std::string keys_table(const Shown& shown) {
  const std::vector<DifferingKey> keys = differing_keys(shown.runs);
  if (keys.empty()) return {};
  std::string html = head(shown, "key") + "</tr></thead><tbody>";
  for (const DifferingKey& each : keys) {
    html += "<tr><th><code>" + escaped(each.key) + "</code></th>";
    for (const std::string& value : each.values)
      html +=
          cell(value.empty() ? "<span class=\"faint\">none</span>" : "<code>" + escaped(value) + "</code>",
               "number");
    html += "</tr>";
  }
  return table("keys", html);
}

std::string left_tables(const Shown& shown) {
  std::string html;
  for (std::size_t i = 0; i < shown.runs.size(); ++i)
    for (const auto& [name, text] : shown.runs[i].tables)
      html += table(escaped(name) + "-" + std::to_string(i), "<caption>" + swatch(shown.group_of[i]) +
                                                                 escaped(shown.labels[i] + ", " + name) +
                                                                 "</caption><tbody>" + rows_of(text));
  return html;
}

std::string journal_table(const Shown& shown) {
  std::string html = "<thead><tr><th>mark</th><th class=\"words\">what and why</th></tr></thead><tbody>";
  std::vector<std::size_t> of_run(shown.runs.size());
  for (const Mark& mark : shown.marks)
    if (++of_run[mark.run] <= listed_marks)
      html += "<tr><th>" + swatch(mark.group) + std::to_string(mark.number) + "</th>" +
              cell(escaped(mark.text)) + "</tr>";
  for (std::size_t i = 0; i < of_run.size(); ++i)
    if (of_run[i] > listed_marks)
      html += "<tr><th></th>" +
              cell(std::to_string(of_run[i] - listed_marks) + " more in <code>" +
                   escaped(shown.runs[i].path) + "/journal.jsonl</code>") +
              "</tr>";
  return shown.marks.empty() ? std::string() : table("journal", html);
}

}  // namespace trainyard::report
