// trainyard schedule plot: draws learning rate and, where it is cycled, momentum over the steps of a run, as
// text, as JSON, or into an SVG file.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/cli/engine_library.hpp"
#include "core/cli/run_state.hpp"
#include "core/programs/curve.hpp"
#include "core/programs/programs.hpp"
#include "lib/escapes.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

double momentum_of(const train::StepRate& rate) {
  return rate.momentum.value_or(0.0);
}
double lr_of(const train::StepRate& rate) {
  return rate.lr;
}

template <class Value>
double highest(const std::vector<train::StepRate>& rates, Value&& value) {
  double most = 0.0;
  for (const train::StepRate& rate : rates) most = std::max(most, value(rate));
  return most;
}

std::string fixed(double value) {
  return lib::printed("%.2f", value);
}

/// Draws values between 0 and their highest over the whole area.
template <class Value>
std::string polyline(const std::vector<train::StepRate>& rates, Value&& value, const char* colour) {
  const double top = highest(rates, value);
  const auto first = static_cast<double>(rates.front().step), last = static_cast<double>(rates.back().step);
  std::string text =
      "  <polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"" + std::string(colour) + "\" points=\"";
  for (const train::StepRate& rate : rates) {
    const double x = last > first ? (static_cast<double>(rate.step) - first) / (last - first) : 0.0;
    const double y = top > 0.0 ? value(rate) / top : 0.0;
    text += fixed(70 + 560 * x) + "," + fixed(260 - 220 * y) + " ";
  }
  return text + "\"/>\n";
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return "  <text x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" text-anchor=\"" + anchor + "\">" +
         lib::escaped(text, "<&") + "</text>\n";
}

/// Draws learning rate and momentum, each between 0 and its highest value.
std::string svg_of(const std::string& title, const std::vector<train::StepRate>& rates) {
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 700 300\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n"
      "  <rect width=\"700\" height=\"300\" fill=\"white\"/>\n"
      "  <path d=\"M70 40V260H630\" fill=\"none\" stroke=\"black\"/>\n";
  svg += label(70, 22, "start", title);
  svg += label(64, 44, "end", lib::metric_text(highest(rates, lr_of)));
  svg += label(64, 264, "end", "0");
  svg += label(70, 278, "middle", std::to_string(rates.front().step));
  svg += label(630, 278, "middle", std::to_string(rates.back().step));
  svg += label(350, 292, "middle", "step");
  svg += polyline(rates, lr_of, "#1f6fb4");
  if (rates.front().momentum) {
    svg += polyline(rates, momentum_of, "#c2571a");
    svg += label(636, 44, "start", lib::metric_text(highest(rates, momentum_of)));
    svg += label(630, 22, "end", "learning rate: blue, momentum: orange");
  }
  return svg + "</svg>\n";
}

void print(const std::string& title, const std::vector<train::StepRate>& rates) {
  constexpr std::size_t columns = 100, rows = 16;
  const auto plot = [&](const std::string& what, auto&& value) {
    Series series;
    double mean = 0.0, lowest = value(rates.front());
    for (const train::StepRate& rate : rates) {
      series.add(rate.step, value(rate));
      mean += value(rate) / static_cast<double>(rates.size());
      lowest = std::min(lowest, value(rate));
    }
    std::cout << what << ": from " << lib::metric_text(value(rates.front())) << " to "
              << lib::metric_text(value(rates.back())) << ", lowest " << lib::metric_text(lowest)
              << ", highest " << lib::metric_text(highest(rates, value)) << ", mean "
              << lib::metric_text(mean) << "\n";
    for (const std::string& line : draw(series, columns, rows, terminal_has_unicode()))
      std::cout << line << "\n";
  };
  std::cout << title << "\n";
  plot("learning rate", lr_of);
  if (rates.front().momentum) plot("momentum", momentum_of);
}

void print_json(const std::string& title, const std::vector<train::StepRate>& rates) {
  auto list = nlohmann::ordered_json::array();
  for (const train::StepRate& rate : rates) {
    nlohmann::ordered_json entry = {{"step", rate.step}, {"lr", rate.lr}};
    if (rate.momentum) entry["momentum"] = *rate.momentum;
    list.push_back(std::move(entry));
  }
  std::cout << nlohmann::ordered_json{{"schedule", title}, {"rates", std::move(list)}}.dump(1) << "\n";
}

struct ScheduleArguments {
  RunFileOptions run_file;
  Format format = Format::text;
  std::string svg;
};

int plot_run(const RunFile& run, Format format, const std::string& svg) {
  const config::RunConfig& config = run.config;
  // People get no more points than a drawing can show; programs get each step, of very long runs a million.
  const std::int64_t most = format == Format::json ? 1'000'000 : 2000;
  std::vector<train::StepRate> rates;
  if (const int code = engine().rates(config, run.registry, most, rates); code != 0) return code;
  const std::string title = config.run.name + ": " + config.at("schedule").type;
  if (!svg.empty()) {
    std::ofstream file(svg);
    file << svg_of(title, rates);
    if (!file.flush()) throw DataError("cannot write " + svg);
  }
  if (format == Format::json)
    print_json(title, rates);
  else
    print(title, rates);
  if (std::any_of(config.swaps.begin(), config.swaps.end(),
                  [](const config::PlannedSwap& swap) { return swap.request.slot == "schedule"; }))
    std::fputs("note: the run file swaps the schedule on the way, which is not drawn\n", stderr);
  return 0;
}

int plot_schedule(ScheduleArguments& given) {
  return with_run(given.run_file, [&](const RunFile& run) { return plot_run(run, given.format, given.svg); });
}

}  // namespace

void add_schedule(Arguments verb, CommandLine& line) {
  Arguments plotted = verb.verb("plot", "learning rate and momentum over the steps of a run");
  const auto given = std::make_shared<ScheduleArguments>();
  add_run_file(plotted, given->run_file);
  add_format(plotted, given->format);
  plotted.add("--svg", given->svg, "file to draw them into, as an SVG");
  when_chosen(plotted, line, given, plot_schedule);
}

}  // namespace trainyard::cli
