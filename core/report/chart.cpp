#include "core/report/chart.hpp"

#include <array>
#include <cmath>
#include <cstdlib>

#include "core/report/frame.hpp"
#include "core/report/html.hpp"
#include "core/report/numbers.hpp"

namespace trainyard::report {
namespace {

using control::Json;

constexpr std::size_t drawn_marks = 40;  ///< most marks in one drawing
constexpr std::size_t few = 40;          ///< curves with at most this many points show each as a dot

std::string share(double part, double whole) {
  return tenth(100.0 * part / whole) + "%";
}

bool spreads(const Band& band) {
  return std::any_of(band.begin(), band.end(), [](const Spread& point) { return point.high > point.low; });
}

std::string place(const Frame& frame, const Spread& point) {
  return tenth(frame.x(static_cast<double>(point.step))) + " " + tenth(frame.y(point.mean));
}

/// Draws a line through the points, broken where one is not finite. Round ends make a single point a dot.
std::string line_through(const Frame& frame, const Band& band, const std::vector<std::size_t>& kept) {
  std::string path;
  bool down = false;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Spread& point = band[kept[i]];
    if (!std::isfinite(point.mean)) {
      down = false;
      continue;
    }
    path += (down ? "L" : "M") + place(frame, point);
    if (!down && (i + 1 == kept.size() || !std::isfinite(band[kept[i + 1]].mean))) path += "h0";  // alone
    down = true;
  }
  return path;
}

std::string dots_at(const Frame& frame, const Band& band) {
  std::string path;
  for (const Spread& point : band)
    if (std::isfinite(point.mean)) path += "M" + place(frame, point) + "h0";
  return path;
}

/// Draws a stroke at the foot of the chart wherever a value is not finite.
std::string broken_at(const Frame& frame, const Band& band, const std::vector<std::size_t>& kept) {
  std::string path;
  for (const std::size_t i : kept)
    if (!std::isfinite(band[i].mean))
      path += "M" + tenth(frame.x(static_cast<double>(band[i].step))) + " " + tenth(plot_height) + "v-12";
  return path;
}

/// Draws the area between the lowest and the highest value of each column, left to right and back.
std::string area_of(const Frame& frame, const Band& band, std::size_t columns) {
  struct Column {
    double x, low, high;
  };
  std::vector<std::vector<Column>> parts(1);
  const double width = plot_width / static_cast<double>(columns);
  for (const Spread& point : band) {
    if (!std::isfinite(point.mean)) {
      if (!parts.back().empty()) parts.emplace_back();
      continue;
    }
    const double x = frame.x(static_cast<double>(point.step));
    const double low = frame.y(point.low), high = frame.y(point.high);
    if (parts.back().empty() || x - parts.back().back().x > width)
      parts.back().push_back({x, low, high});
    else
      parts.back().back() = {parts.back().back().x, std::max(low, parts.back().back().low),
                             std::min(high, parts.back().back().high)};
  }
  std::string path;
  for (const std::vector<Column>& part : parts) {
    for (std::size_t i = 0; i < part.size(); ++i)
      path += (i == 0 ? "M" : "L") + tenth(part[i].x) + " " + tenth(part[i].high);
    for (std::size_t i = part.size(); i-- > 0;) path += "L" + tenth(part[i].x) + " " + tenth(part[i].low);
    if (!part.empty()) path += "Z";
  }
  return path;
}

std::string path(const std::string& kind, std::size_t group, const std::string& points) {
  if (points.empty()) return {};
  return "<path class=\"" + kind + " " + look(group) + "\" data-group=\"" + std::to_string(group) +
         "\" d=\"" + points + "\"/>\n";
}

/// Labels each mark with its number and, where it fits, its word, in the first of three rows that is free.
std::string flags(const Frame& frame, const std::vector<Mark>& marks) {
  std::string html;
  std::array<double, 3> taken = {-1, -1, -1};
  for (const Mark& mark : marks) {
    const double x = frame.x(static_cast<double>(mark.step));
    const std::string number = std::to_string(mark.number);
    const double wide = 8.0 * static_cast<double>(number.size() + mark.what.size()) + 22.0;
    std::size_t row = 0;
    while (row + 1 < taken.size() && taken[row] > x) ++row;
    const bool room = taken[row] <= x && x + wide < plot_width + 60;
    taken[row] = x + (room ? wide : 24.0);
    html += "<span class=\"flag row" + std::to_string(row) + " c" + std::to_string(mark.group % 8) +
            "\" style=\"left:" + share(x, plot_width) + "\" data-step=\"" + std::to_string(mark.step) +
            "\" title=\"" + escaped(mark.text) + "\">" + number +
            (room ? "<b> " + escaped(mark.what) + "</b>" : std::string()) + "</span>\n";
  }
  return html;
}

std::string axes(const Frame& frame) {
  std::string html;
  for (const double value : frame.values())
    html += "<span class=\"value\" style=\"top:" + share(frame.y(value), plot_height) + "\">" +
            digits(value, 4) + "</span>";
  for (const double step : frame.steps())
    html += "<span class=\"step\" style=\"left:" + share(frame.x(step), plot_width) + "\">" +
            digits(step, 12) + "</span>";
  return html + "\n";
}

std::string grid(const Frame& frame) {
  std::string lines;
  for (const double value : frame.values()) lines += "M0 " + tenth(frame.y(value)) + "H" + tenth(plot_width);
  return "<path class=\"grid\" d=\"" + lines + "\"/>\n";
}

/// Returns the drawn points, whose values the page shows under the pointer.
Json values_of(const ChartInput& input, const std::vector<std::vector<std::size_t>>& kept) {
  Json series = Json::array();
  for (std::size_t g = 0; g < input.bands.size(); ++g) {
    if (input.bands[g].empty()) continue;
    Json steps = Json::array(), values = Json::array(), apart = Json::array();
    for (const std::size_t i : kept[g]) {
      const Spread& point = input.bands[g][i];
      const auto number = [](double value) {
        return std::isfinite(value) ? Json(std::strtod(digits(value).c_str(), nullptr)) : Json();
      };
      steps.push_back(point.step);
      values.push_back(number(point.mean));
      apart.push_back(number((point.high - point.low) / 2));
    }
    Json one = {{"g", g}, {"x", std::move(steps)}, {"y", std::move(values)}};
    if (spreads(input.bands[g])) one["e"] = std::move(apart);
    series.push_back(std::move(one));
  }
  return series;
}

std::string curves(const ChartInput& input, const Frame& frame,
                   const std::vector<std::vector<std::size_t>>& kept) {
  std::string svg;
  for (std::size_t g = 0; g < input.bands.size(); ++g)
    if (spreads(input.bands[g])) svg += path("band", g, area_of(frame, input.bands[g], input.columns));
  for (std::size_t g = 0; g < input.bands.size(); ++g) {
    svg += path("curve", g, line_through(frame, input.bands[g], kept[g]));
    if (input.bands[g].size() <= few) svg += path("dots", g, dots_at(frame, input.bands[g]));
    svg += path("broken", g, broken_at(frame, input.bands[g], kept[g]));
  }
  return svg;
}

std::string notes(const ChartInput& input, const Frame& frame, std::size_t left_out) {
  std::size_t broken = 0;
  for (const Band& band : input.bands)
    for (const Spread& point : band) broken += std::isfinite(point.mean) ? 0 : 1;
  std::string text;
  if (frame.log()) text += "logarithmic scale";
  if (broken > 0)
    text += (text.empty() ? "" : "; ") + std::to_string(broken) +
            (broken == 1 ? " value is" : " values are") + " not finite: a gap, and a stroke at the foot";
  if (left_out > 0)
    text += (text.empty() ? "" : "; ") + std::to_string(left_out) + " more marks are in the journal below";
  return text.empty() ? text : "<p class=\"note\">" + text + "</p>\n";
}

}  // namespace

std::string chart(const ChartInput& input) {
  const Frame frame(input.bands);
  std::vector<std::vector<std::size_t>> kept;
  for (const Band& band : input.bands) kept.push_back(thinned(band, frame.from(), frame.to(), input.columns));
  std::vector<Mark> marks;
  for (const Mark& mark : input.marks)
    if (static_cast<double>(mark.step) >= frame.from() && static_cast<double>(mark.step) <= frame.to() &&
        !input.bands[mark.group].empty())
      marks.push_back(mark);
  const std::size_t left_out = marks.size() > drawn_marks ? marks.size() - drawn_marks : 0;
  marks.resize(marks.size() - left_out);

  std::string strokes;
  for (const Mark& mark : marks)
    strokes += "<path class=\"mark c" + std::to_string(mark.group % 8) + "\" data-step=\"" +
               std::to_string(mark.step) + "\" d=\"M" + tenth(frame.x(static_cast<double>(mark.step))) +
               " 0V" + tenth(plot_height) + "\"/>\n";
  const std::string data = script_text({{"from", frame.from()},
                                        {"to", frame.to()},
                                        {"low", frame.low()},
                                        {"high", frame.high()},
                                        {"log", frame.log()},
                                        {"series", values_of(input, kept)}});
  return "<figure class=\"chart\" data-metric=\"" + escaped(input.metric) + "\" data-lowest=\"" +
         digits(frame.lowest(), 17) + "\" data-highest=\"" + digits(frame.highest(), 17) +
         "\">\n<figcaption>" + escaped(input.metric) + "</figcaption>\n<div class=\"plot\">\n" +
         flags(frame, marks) + "<svg viewBox=\"0 0 " + tenth(plot_width) + " " + tenth(plot_height) +
         "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"" + escaped(input.metric) +
         " over the steps\">\n" + grid(frame) + strokes + curves(input, frame, kept) + "</svg>\n" +
         axes(frame) + "</div>\n" + notes(input, frame, left_out) + "<script type=\"application/json\">" +
         data + "</script>\n</figure>\n";
}

}  // namespace trainyard::report
