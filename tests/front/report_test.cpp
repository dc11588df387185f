// What trainyard report and monitor are made of, on numbers known by hand.
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include "core/cli/run_state.hpp"
#include "core/programs/curve.hpp"
#include "core/programs/time_text.hpp"
#include "core/report/bands.hpp"
#include "core/report/compare.hpp"
#include "core/report/frame.hpp"
#include "core/runfile/parse.hpp"

namespace report_tests {

using namespace trainyard;
using namespace trainyard::report;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

RunData run_of(const std::string& name, const std::string& keys, Curve curve) {
  config::Findings findings;
  RunData run{.path = "runs/" + name, .name = name};
  run.config = *config::parse_text("config.toml", "[run]\nname = \"" + name + "\"\n" + keys, findings);
  run.curves["m"] = std::move(curve);
  return run;
}

Band band_of_values(const std::vector<double>& values) {
  Band band;
  for (std::size_t i = 0; i < values.size(); ++i)
    band.push_back({static_cast<std::int64_t>(i), values[i], values[i], values[i]});
  return band;
}

}  // namespace

TEST_CASE("report: runs that differ by seed alone are one group", "[report]") {
  const std::vector<RunData> runs = {run_of("net-s1", "seed = 1\n[optimizer]\nlr = 0.1", {{1, 1.0}}),
                                     run_of("other", "seed = 1\n[optimizer]\nlr = 0.2", {{1, 1.0}}),
                                     run_of("net-s2", "seed = 2\n[optimizer]\nlr = 0.1", {{1, 1.0}})};
  const std::vector<Group> groups = groups_of(runs);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].label == "net (2 seeds)");
  CHECK(groups[0].runs == std::vector<std::size_t>{0, 2});
  CHECK(groups[1].label == "other");
  const std::vector<DifferingKey> keys = differing_keys(runs);
  REQUIRE(keys.size() == 2);
  CHECK(keys[0].key == "optimizer.lr");
  CHECK(keys[0].values == std::vector<std::string>{"0.1", "0.2", "0.1"});
  CHECK(keys[1].key == "run.seed");
}

TEST_CASE("report: a band is the mean and a standard deviation, and hides no NaN", "[report]") {
  const std::vector<RunData> runs = {run_of("a", "", {{1, 1.0}, {2, 4.0}, {3, 1.0}, {4, 1e300}}),
                                     run_of("b", "", {{1, 3.0}, {3, nan_value}, {4, -1e300}})};
  const Band band = band_of(runs, {0, 1}, "m");
  REQUIRE(band.size() == 4);
  CHECK(band[0].mean == 2.0);
  CHECK(band[0].high == Approx(2.0 + std::sqrt(2.0)));
  CHECK(band[0].low == Approx(2.0 - std::sqrt(2.0)));
  CHECK((band[1].mean == 4.0 && band[1].low == 4.0));
  CHECK(std::isnan(band[2].mean));
  CHECK(band[3].high == Approx(std::sqrt(2.0) * 1e300));
  CHECK(band_of(runs, {0, 1}, "nothing").empty());
}

TEST_CASE("report: thinned curves keep first, lowest, highest, last and gaps of each column", "[report]") {
  std::vector<double> values(1000, 1.0);
  values[503] = 9.0;
  values[507] = -9.0;
  values[750] = nan_value;
  const std::vector<std::size_t> kept = thinned(band_of_values(values), 0, 999, 10);
  const auto has = [&](std::size_t i) { return std::find(kept.begin(), kept.end(), i) != kept.end(); };
  CHECK(kept.size() <= 50);
  CHECK(std::is_sorted(kept.begin(), kept.end()));
  for (const std::size_t i : {0, 503, 507, 750, 999}) CHECK(has(i));
  CHECK(thinned(band_of_values({1.0, 2.0, nan_value}), 0, 2, 600) == std::vector<std::size_t>{0, 1, 2});
  CHECK(thinned({}, 0, 0, 600).empty());
}

TEST_CASE("report: a frame holds what it frames, whatever that is", "[report]") {
  for (const std::vector<double>& values :
       {std::vector<double>{1.0}, {0.0, 0.0}, {1e308, -1e308}, {nan_value}, {1e-310, 1.0}, {5.0, 5.0, 5.0}}) {
    const Frame frame({band_of_values(values)});
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;
      CHECK((frame.y(values[i]) >= 0.0 && frame.y(values[i]) <= plot_height));
      CHECK((frame.x(static_cast<double>(i)) >= 0.0 && frame.x(static_cast<double>(i)) <= plot_width));
    }
    CHECK(frame.values().size() < 12);
  }
  const Frame wide({band_of_values({1.0, 0.1, 0.01, 0.001, 0.0001})});
  CHECK(wide.log());
  CHECK(wide.y(0.1) - wide.y(1.0) == Approx(wide.y(0.001) - wide.y(0.01)));
}

TEST_CASE("monitor: several curves in one drawing, told apart by letters", "[monitor]") {
  cli::Series low, high;
  for (int i = 0; i <= 100; ++i) {
    low.add(i, 1.0);
    high.add(i, 3.0);
  }
  const auto lines = cli::draw(
      {{.series = &low, .letter = 'a', .gap = 5}, {.series = &high, .letter = 'b', .gap = 5}}, 60, 8, true);
  REQUIRE(lines.size() == 8);
  CHECK(lines[0].find('b') != std::string::npos);
  CHECK(lines[0].find('a') == std::string::npos);
  CHECK(lines[6].find('a') != std::string::npos);
  CHECK(std::count(lines[6].begin(), lines[6].end(), 'a') >= 5);
  CHECK(cli::draw(std::vector<cli::Drawn>{}, 60, 8, true).empty());
}

TEST_CASE("monitor: the time that is left has two parts", "[monitor]") {
  CHECK(cli::span_text(-5.0) == "0:00");
  CHECK(cli::span_text(0.2) == "0:01");
  CHECK(cli::span_text(59.2) == "1:00");
  CHECK(cli::span_text(3599.5) == "1:00:00");
  CHECK(cli::span_text(90061.0) == "25:01:01");
  CHECK(cli::span_text(172799.0) == "47:59:59");
  CHECK(cli::span_text(200000.0) == "2d 7h");
  CHECK(cli::span_text(1e30) == "11574074d 1h");
}

TEST_CASE("monitor: where the time goes, by plugin and by phase", "[monitor]") {
  control::Status status;
  status.slots = {{.slot = "optimizer", .type = "adamw", .version = "1", .seconds = 2.0}};
  status.time = {{"forward", 1.0}, {"backward", 4.0}, {"optimizer", 2.0}, {"other", 1.0}};
  CHECK(cli::slot_rows(status)[1] ==
        std::vector<std::string>{"optimizer", "adamw", "1", "0", "2.000", "25.0%"});
  CHECK(cli::time_lines(status.time) ==
        std::vector<std::string>{"time  backward 50.0%  optimizer 25.0%  forward 12.5%  other 12.5%"});
  CHECK(cli::time_lines(std::vector<std::pair<std::string, double>>{}).empty());
  const control::Json sent = status;
  CHECK(sent.get<control::Status>().time == status.time);
  control::Json older = sent;
  older.erase("time");  // of a run of another release
  CHECK(older.get<control::Status>().time.empty());
}

}  // namespace report_tests
