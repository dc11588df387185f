#include "core/programs/study/plot.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "core/report/numbers.hpp"
#include "lib/escapes.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

constexpr double left = 80, right = 560, top = 40, bottom = 290, height = 400;
constexpr std::size_t most_named = 16;  ///< most series in a legend
constexpr std::size_t most_bars = 12;   ///< most points of a series with bars; beyond, a band

const char* const svg_head =
    R"svg(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">
<style>
svg { --ink: #1f2328; --paper: #ffffff; --line: #d0d4da; --light: 42%%; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6e8eb; --paper: #15181c; --line: #3a3f46; --light: 64%%; } }
text { fill: var(--ink); } .h { font-size: 13px; font-weight: bold; } .e { text-anchor: end; } .m { text-anchor: middle; }
.a { stroke: var(--ink); fill: none; } .g { stroke: var(--line); fill: none; } .s { fill: none; } .b { opacity: 0.15; stroke: none; }
</style>
<rect width="100%%" height="100%%" style="fill: var(--paper)"/>
)svg";

std::string pixels(double value, int digits = 1) {
  return lib::printed("%.*f", digits, value);
}

/// Maps a range of values to a range of the picture.
class Scale {
 public:
  Scale(double from, double to, bool log = false) : from_(from), to_(to), log_(log) {}

  double low = 0.0, high = 1.0;

  void cover(const std::vector<double>& values) {
    low = std::numeric_limits<double>::infinity();
    high = -low;
    for (const double value : values)
      if (std::isfinite(value) && (!log_ || value > 0)) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
    if (low > high) std::tie(low, high) = log_ ? std::pair(1.0, 10.0) : std::pair(0.0, 1.0);
    if (low == high)
      std::tie(low, high) = log_ ? std::pair(low / 2, high * 2) : std::pair(low - 0.5, high + 0.5);
  }

  double at(double value) const {
    const double part = log_ ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from_ + part * (to_ - from_);
  }

  std::vector<double> ticks() const {
    std::vector<double> all;
    if (log_ && high / low > 10) {
      for (double tick = std::pow(10.0, std::ceil(std::log10(low) - 1e-9)); tick <= high * (1 + 1e-9);
           tick *= 10)
        all.push_back(tick);
      return all;
    }
    return report::round_numbers(low, high + (high - low) * 1e-9, 5);
  }

 private:
  double from_, to_;
  bool log_;
};

class Panel {
 public:
  /// `names`: those of all panels, which have a colour each.
  Panel(const ResultPlot& plot, const std::vector<std::string>& names)
      : plot_(plot), names_(names), x_(left, right, plot.log_x), y_(bottom, top) {
    std::vector<double> xs, ys;
    for (std::size_t i = 0; i < plot.places.size(); ++i) xs.push_back(static_cast<double>(i));
    for (const ResultPlot::Series& series : plot.series)
      for (const ResultPlot::Point& point : series.points) {
        if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
        xs.push_back(point.x);
        ys.push_back(point.y - point.half);
        ys.push_back(point.y + point.half);
      }
    x_.cover(xs);
    y_.cover(ys);
  }

  std::string text(double down) const {
    std::string out = "<g transform=\"translate(0 " + pixels(down) + ")\">\n";
    out += "<text class=\"h\" x=\"20\" y=\"22\">" + lib::escaped(plot_.title) + "</text>\n" + axes();
    for (std::size_t i = 0; i < plot_.series.size(); ++i)
      out += series(plot_.series[i], colour(plot_.series[i]));
    return out + legend() + "</g>\n";
  }

 private:
  std::string colour(const ResultPlot::Series& series) const {
    const auto place = std::ranges::find(names_, series.name) - names_.begin();
    return "hsl(" + std::to_string(360 * place / std::ssize(names_)) + " 70% var(--light))";
  }

  std::string axes() const {
    std::string out;
    for (const double tick : y_.ticks()) {
      const std::string y = pixels(y_.at(tick));
      out += "<path class=\"g\" d=\"M" + pixels(left) + " " + y + "H" + pixels(right) +
             "\"/><text class=\"e\" x=\"" + pixels(left - 6) + "\" y=\"" + pixels(y_.at(tick) + 4) + "\">" +
             lib::printed("%.4g", tick) + "</text>\n";
    }
    out += "<path class=\"a\" d=\"M" + pixels(left) + " " + pixels(top) + "V" + pixels(bottom) + "H" +
           pixels(right) + "\"/>\n";
    for (std::size_t i = 0; i < plot_.places.size(); ++i)
      out += "<text transform=\"translate(" + pixels(x_.at(static_cast<double>(i))) + " " +
             pixels(bottom + 14) + ") rotate(30)\">" + lib::escaped(plot_.places[i]) + "</text>\n";
    if (plot_.places.empty())
      for (const double tick : x_.ticks())
        out += "<text class=\"m\" x=\"" + pixels(x_.at(tick)) + "\" y=\"" + pixels(bottom + 16) + "\">" +
               lib::printed("%.4g", tick) + "</text>\n";
    return out + "<text class=\"m\" x=\"" + pixels((left + right) / 2) + "\" y=\"" + pixels(bottom + 36) +
           "\">" + lib::escaped(plot_.x_label) + "</text>\n";
  }

  std::string series(const ResultPlot::Series& series, const std::string& colour) const {
    std::vector<ResultPlot::Point> points;
    for (const ResultPlot::Point& point : series.points)
      if (std::isfinite(point.x) && std::isfinite(point.y) && (!plot_.log_x || point.x > 0))
        points.push_back(point);
    const auto place = [&](double x, double y) { return pixels(x_.at(x)) + "," + pixels(y_.at(y)) + " "; };
    std::string line, above, below, marks;
    for (const ResultPlot::Point& point : points) {
      line += place(point.x, point.y);
      above += place(point.x, point.y + point.half);
      below.insert(0, place(point.x, point.y - point.half));
      if (points.size() > most_bars && series.joined) continue;
      if (point.half > 0)
        marks += "<path class=\"s\" d=\"M" + pixels(x_.at(point.x)) + " " +
                 pixels(y_.at(point.y - point.half)) + "V" + pixels(y_.at(point.y + point.half)) +
                 "\" style=\"stroke: " + colour + "\"/>";
      marks += mark(series, point, colour);
    }
    std::string out;
    const bool band =
        points.size() > most_bars && series.joined &&
        std::ranges::any_of(points, [](const ResultPlot::Point& point) { return point.half > 0; });
    if (band) out += "<polygon class=\"b\" points=\"" + above + below + "\" style=\"fill: " + colour + "\"/>";
    if (series.joined)
      out += "<polyline class=\"s\" points=\"" + line + "\" style=\"stroke: " + colour +
             "; stroke-width: " + (series.bold ? "2.6" : "1.2") + "\"><title>" + lib::escaped(series.name) +
             "</title></polyline>";
    return out + marks + "\n";
  }

  std::string mark(const ResultPlot::Series& series, const ResultPlot::Point& point,
                   const std::string& colour) const {
    const bool named = point.x >= 0 && point.x < static_cast<double>(plot_.places.size());
    const std::string where =
        named ? plot_.places[static_cast<std::size_t>(point.x)] : lib::printed("%.4g", point.x);
    return "<circle cx=\"" + pixels(x_.at(point.x)) + "\" cy=\"" + pixels(y_.at(point.y)) + "\" r=\"" +
           (series.bold ? "3.5" : "2.5") + "\" style=\"fill: " + colour + "\"><title>" +
           lib::escaped(series.name + (series.name.empty() ? "" : ", ") + where + ": " +
                        lib::printed("%.4g", point.y) +
                        (point.half > 0 ? " ± " + lib::printed("%.4g", point.half) : "")) +
           "</title></circle>";
  }

  std::string legend() const {
    std::string out;
    std::size_t shown = 0;
    for (std::size_t i = 0; i < plot_.series.size() && shown < most_named; ++i) {
      if (plot_.series[i].name.empty()) continue;
      const std::string y = pixels(top + 10 + 16 * static_cast<double>(shown++));
      out += "<text x=\"" + pixels(right + 20) + "\" y=\"" + y +
             "\" style=\"fill: " + colour(plot_.series[i]) +
             (plot_.series[i].bold ? "; font-weight: bold" : "") + "\">" +
             lib::escaped(plot_.series[i].name) + "</text>\n";
    }
    return out;
  }

  const ResultPlot& plot_;
  const std::vector<std::string>& names_;
  Scale x_, y_;
};

/// Returns mean and 95 % interval at each step that all curves have.
std::vector<ResultPlot::Point> mean_of(const std::vector<std::map<double, double>>& curves) {
  std::vector<ResultPlot::Point> points;
  for (const auto& [step, ignored] : curves.front()) {
    double sum = 0.0, squares = 0.0, count = 0.0;
    for (const std::map<double, double>& curve : curves)
      if (const auto found = curve.find(step); found != curve.end()) {
        sum += found->second;
        squares += found->second * found->second;
        ++count;
      }
    if (count < static_cast<double>(curves.size())) continue;
    const double mean = sum / count;
    const double variance = count > 1 ? std::max(0.0, squares - count * mean * mean) / (count - 1) : 0.0;
    points.push_back({step, mean, 2 * std::sqrt(variance / count)});
  }
  return points;
}

}  // namespace

std::vector<ResultPlot> learning_curves(const std::vector<Finished>& trials, const std::string& metric,
                                        const std::vector<StudyBest>& best) {
  std::vector<std::string> panels;
  std::map<std::string, std::map<std::string, std::vector<std::map<double, double>>>> curves;
  std::map<std::string, std::vector<std::string>> names;
  std::set<std::string> seen;  // a run that was continued counts once
  for (const Finished& each : trials) {
    if (each.trial.panel.empty() || !seen.insert(each.folder).second) continue;
    std::map<double, double> curve = curve_of(each.folder, metric);
    if (curve.size() < 2) continue;
    if (!curves.contains(each.trial.panel)) panels.push_back(each.trial.panel);
    auto& series = curves[each.trial.panel][each.trial.series];
    if (series.empty()) names[each.trial.panel].push_back(each.trial.series);
    series.push_back(std::move(curve));
  }
  std::vector<ResultPlot> plots;
  for (const std::string& panel : panels) {
    ResultPlot plot{.title = panel == metric ? metric + " while it was trained"
                                             : panel + ": " + metric + " while it was trained",
                    .x_label = "step",
                    .y_label = metric,
                    .places = {},
                    .log_x = false,
                    .series = {}};
    for (const std::string& name : names[panel]) {
      const bool bold = std::ranges::any_of(best, [&](const StudyBest& each) {
        return each.trial.panel == panel && each.trial.series == name;
      });
      plot.series.push_back({.name = name, .points = mean_of(curves[panel][name]), .bold = bold});
    }
    std::ranges::stable_sort(plot.series, [](const auto& a, const auto& b) { return a.bold && !b.bold; });
    plots.push_back(std::move(plot));
  }
  return plots;
}

std::string svg(const std::string& title, const std::vector<ResultPlot>& plots) {
  std::vector<std::string> names;
  std::size_t longest = 0;
  for (const ResultPlot& plot : plots)
    for (const ResultPlot::Series& series : plot.series) {
      longest = std::max(longest, series.name.size());
      if (std::ranges::find(names, series.name) == names.end()) names.push_back(series.name);
    }
  char begin[2000];
  std::snprintf(begin, sizeof begin, svg_head,
                std::max(800, static_cast<int>(right) + 40 + 7 * static_cast<int>(longest)),
                static_cast<int>(height) * static_cast<int>(plots.size()) + 40);
  std::string text = begin;
  text += "<text class=\"h\" x=\"20\" y=\"24\">" + lib::escaped(title) + "</text>\n";
  for (std::size_t i = 0; i < plots.size(); ++i)
    text += Panel(plots[i], names).text(40 + height * static_cast<double>(i));
  return text + "</svg>\n";
}

}  // namespace trainyard::cli
