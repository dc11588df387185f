#include "page.hpp"

#include <algorithm>

#include "lib/printed.hpp"

namespace ops {
namespace {

using trainyard::lib::printed;

constexpr double width = 640.0, height = 220.0, left = 60.0, bottom = 24.0;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

/// Places of a curve in a picture whose axes begin at 0.
struct Axes {
  double last_x, most;
  double x(double value) const { return left + (width - left - 8.0) * value / last_x; }
  double y(double seconds) const { return (height - bottom) * (1.0 - seconds / most) + 4.0; }
};

std::string picture(const Curve& curve) {
  double most = 0.0;
  for (const Point& each : curve) most = std::max(most, each.seconds);
  const Axes axes{static_cast<double>(curve.back().x), most};
  std::string svg = printed("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">", width, height + 8.0);
  for (const double part : {0.0, 0.5, 1.0})
    svg += printed(
        "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/><text x=\"%.0f\" y=\"%.1f\" "
        "class=\"y\">%.4g</text>",
        left, width, axes.y(part * most), axes.y(part * most), left - 6.0, axes.y(part * most) + 4.0,
        1e6 * part * most);
  for (const double part : {0.25, 0.5, 0.75, 1.0})
    svg += printed("<text x=\"%.1f\" y=\"%.0f\" class=\"x\">%.0f</text>", axes.x(part * axes.last_x), height,
                   part * axes.last_x);
  if (const Staircase fit = fit_staircase(curve); fit.width() > 1) {
    svg += "<path class=\"fit\" d=\"";
    for (std::size_t i = 0; i < curve.size(); ++i)
      svg += printed("%s%.1f %.1f", i == 0 ? "M" : "L", axes.x(static_cast<double>(curve[i].x)),
                     axes.y(fit.at(curve[i].x)));
    svg += "\"/>";
  }
  for (const Point& each : curve)
    svg += printed("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\"><title>%ld: %.1f us</title></circle>",
                   axes.x(static_cast<double>(each.x)), axes.y(each.seconds), static_cast<long>(each.x),
                   1e6 * each.seconds);
  return svg + "</svg>";
}

std::string row_of(const std::vector<std::string>& cells, const char* kind = "td") {
  std::string row = "<tr>";
  for (const std::string& cell : cells)
    row += std::string("<") + kind + ">" + escaped(cell) + "</" + kind + ">";
  return row + "</tr>\n";
}

}  // namespace

std::string pattern_text(const Curve& curve, double jump_threshold) {
  const Staircase fit = fit_staircase(curve);
  std::string text;
  if (fit.width() > 1) {
    text = "steps of width";
    for (const Staircase::Step& each : fit.steps)
      text += each.width > 1 ? " " + std::to_string(each.width) : "";
    text += printed(", %.4g us for each and %.4g us to begin with, mean error %.1f %%",
                    1e6 * fit.steps.back().height, 1e6 * fit.base, 100.0 * fit.error);
  } else {
    text = curve.size() < 8 ? "too few points for a staircase" : "no staircase";
  }
  std::string jumps, cliffs;
  for (const Jump& each : curve.size() < 8 ? std::vector<Jump>() : jumps_of(curve, fit, jump_threshold))
    (each.explained ? jumps : cliffs) += printed(" %ld (%.2f)", static_cast<long>(each.x), each.ratio);
  if (!jumps.empty()) text += "; jumps at" + jumps;
  if (!cliffs.empty()) text += "; cliffs at" + cliffs;
  for (const Inversion& each : inversions_of(curve))
    text += printed("; %ld to %ld cost more than %ld (%.2f)", static_cast<long>(each.from),
                    static_cast<long>(each.to - 1), static_cast<long>(each.to), each.ratio);
  return text;
}

std::string page_of(const Database& database, const std::vector<Sweep>& sweeps, const PageInput& input) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Operators on this "
      "machine</title><style>\n"
      "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 "
      "1em}table{border-collapse:collapse}"
      "td,th{padding:.2em .7em;border-bottom:1px solid "
      "#ccc;text-align:left;vertical-align:top}figure{display:inline-block;width:32em;margin:1em 1em 1em 0}"
      "svg{width:100%}circle{fill:#2060c0}.fit{fill:none;stroke:#c04020}.grid{stroke:#ddd}text{font-size:"
      "11px;fill:#555}.y{text-anchor:end}.x{text-anchor:middle}\n"
      "</style></head><body>\n<h1>Operators on this machine</h1>\n<table>\n";
  for (const auto& [name, value] : input.facts) html += row_of({name, value});
  html += "</table>\n<h2>Findings</h2>\n<table>\n" +
          row_of({"", "statement", "verdict", "value", "bound", "statistic", "numbers"}, "th");
  for (const Finding& each : input.findings)
    html += row_of({each.name, each.statement,
                    !each.decided ? "not decided"
                    : each.holds  ? "holds"
                                  : "does not hold",
                    printed("%.3g", each.value), printed("%.3g", each.bound), each.statistic, each.numbers});
  html += "</table>\n";
  if (!input.network.nodes.empty()) {
    html +=
        "<h2>The network</h2>\n<table>\n" +
        row_of({"node", "operator", "forward us", "predicted", "forward and backward us", "predicted"}, "th");
    for (const NodeTimes& each : input.network.nodes)
      html += row_of({each.name, each.op, printed("%.1f", 1e6 * each.measured.forward),
                      each.predicted ? printed("%.1f", 1e6 * each.predicted->forward) : "",
                      printed("%.1f", 1e6 * each.measured.training),
                      each.predicted ? printed("%.1f", 1e6 * each.predicted->training) : ""});
    html += "</table>\n";
  }
  if (!input.advice.empty()) {
    html += "<h2>Advice</h2>\n<ul>\n";
    for (const Advice& each : input.advice) html += "<li>" + escaped(text_of(each)) + "</li>\n";
    html += "</ul>\n";
  }
  html +=
      "<h2>Sweeps</h2>\n<p>Least time of a call in microseconds over what changes; in red the staircase that "
      "was found.</p>\n";
  for (const Sweep& sweep : sweeps) {
    const Curve curve = curve_of(database, sweep);
    if (curve.empty()) continue;
    html += "<figure>" + picture(curve) + "<figcaption><b>" + escaped(sweep.name) +
            "</b>: " + escaped(pattern_text(curve, input.jump_threshold)) + "</figcaption></figure>\n";
  }
  return html + "</body></html>\n";
}

}  // namespace ops
