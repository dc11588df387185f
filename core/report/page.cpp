#include "core/report/page.hpp"

#include <algorithm>

#include "core/report/assets.hpp"
#include "core/report/html.hpp"
#include "core/report/tables.hpp"

namespace trainyard::report {
namespace {

using control::Json;

/// Curves are thinned to as many columns as keep the page small, and at most to those of a wide screen.
constexpr std::size_t most_columns = 600, least_columns = 100, columns_of_all = 14'400;

std::string title_of(const Shown& shown) {
  std::string title;
  for (std::size_t i = 0; i < shown.groups.size() && i < 4; ++i)
    title += (i == 0 ? "" : ", ") + shown.groups[i].label;
  if (shown.groups.size() > 4) title += " and " + std::to_string(shown.groups.size() - 4) + " more";
  return escaped(title);
}

std::string legend(const Shown& shown) {
  std::string html = "<div class=\"legend\">";
  for (std::size_t g = 0; g < shown.groups.size(); ++g)
    html +=
        "<span><span class=\"swatch " + look(g) + "\"></span>" + escaped(shown.groups[g].label) + "</span>";
  html += "</div>\n";
  if (std::any_of(shown.groups.begin(), shown.groups.end(),
                  [](const Group& each) { return each.runs.size() > 1; }))
    html += "<p class=\"note\">Of several seeds: their mean, and one standard deviation to each side.</p>\n";
  return html;
}

std::string section(const char* title, const std::string& html, const char* none) {
  return "<h2>" + std::string(title) + "</h2>\n" +
         (html.empty() ? "<p class=\"faint\">" + std::string(none) + "</p>\n" : html);
}

}  // namespace

Page page_of(const std::vector<RunData>& runs, const std::string& time) {
  const Shown shown = report::shown(runs);
  const std::vector<std::string> metrics = metrics_of(runs);
  ChartInput input;
  for (const Group& group : shown.groups) input.labels.push_back(group.label);
  input.marks = shown.marks;
  input.columns = std::clamp(columns_of_all / std::max<std::size_t>(1, shown.groups.size() * metrics.size()),
                             least_columns, most_columns);
  std::string charts;
  for (const std::string& metric : metrics) {
    input.metric = metric;
    input.bands.clear();
    for (const Group& group : shown.groups) input.bands.push_back(band_of(runs, group.runs, metric));
    charts += chart(input);
  }
  const std::string title = title_of(shown);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      title + "</title>\n<style>" + std::string(style) + "</style>\n</head>\n<body>\n<h1>" + title +
      "</h1>\n<p class=\"faint\">trainyard report, " + escaped(time) + "</p>\n";
  html += runs_table(shown);
  html += "<h2>Curves</h2>\n" + legend(shown) + "<div class=\"charts\">\n" + charts + "</div>\n";
  html += section("Metrics", outcomes_table(shown), "");
  html += left_tables(shown);
  html += section("Where the time went", time_table(shown), "A run writes its times when it ends.");
  html += section("Keys that differ", keys_table(shown),
                  runs.size() > 1 ? "The run files are the same." : "There is one run.");
  html += section("Journal", journal_table(shown), "Nothing was stopped, skipped or changed.");
  html += "<script type=\"application/json\" id=\"labels\">" + script_text(input.labels) +
          "</script>\n<script>" + std::string(script) + "</script>\n</body>\n</html>\n";
  return {std::move(html), metrics.size()};
}

}  // namespace trainyard::report
