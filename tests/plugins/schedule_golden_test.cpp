// Schedules against tests/golden/schedules.json.
#include <cmath>
#include <map>

#include <catch2/catch.hpp>

#include <trainyard/schedule.hpp>

#include "golden.hpp"
#include "tests/support/plugin.hpp"

namespace schedule_golden_tests {

using namespace trainyard;
using nlohmann::json;

namespace {

/// How far values of a source may be off: what is exact to 1e-12 of each value; what torch multiplies up step
/// by step, to 1e-9; what others printed in six digits, to those.
bool close(const std::string& source, double found, double expected) {
  if (source == "exact") return std::abs(found - expected) <= 1e-12 * std::abs(expected);
  if (source == "torch") return std::abs(found - expected) <= 1e-9 * std::abs(expected) + 1e-12;
  return std::abs(found - expected) <= 1e-6;
}

struct Tally {
  int values = 0;
  double worst = 0;  ///< relative error
};

}  // namespace

TEST_CASE("schedules give the values of torch, of their closed forms and of what was published") {
  std::map<std::string, Tally> tallies;
  for (const json& each : test::golden("schedules.json")) {
    if (each.contains("metrics")) continue;  // plateau
    const std::string source = each["source"], plugin = each["plugin"];
    const auto schedule = test::make<Schedule>(plugin, test::options(each["options"]));
    const std::int64_t steps = each["steps"];
    const ScheduleCurve curve(*schedule, {.steps_per_epoch = 10, .total_steps = steps});
    for (std::size_t i = 0; i < each["at"].size(); ++i) {
      const std::int64_t at = each["at"][i];
      const double found = curve.factor(at), expected = each["factor"][i];
      INFO(source << " " << plugin << " " << each["options"] << ", step " << at << " of " << steps);
      INFO("found " << found << ", expected " << expected);
      if (!close(source, found, expected)) FAIL_CHECK("factor");
      if (expected == 0.0 || expected == 1.0)
        CHECK(std::abs(found - expected) <= (source == "exact" ? 0 : 1e-6));
      if (each.contains("momentum")) CHECK(close(source, curve.momentum(at).value(), each["momentum"][i]));
      Tally& tally = tallies[source];
      ++tally.values;
      if (expected != 0.0) tally.worst = std::max(tally.worst, std::abs(found / expected - 1.0));
    }
  }
  CHECK(tallies["exact"].values > 4000);
  CHECK(tallies["torch"].values > 1500);
  CHECK(tallies["paper"].values > 150);
  for (const auto& [source, tally] : tallies)
    WARN(source << ": " << tally.values << " values, largest relative error " << tally.worst);
}

}  // namespace schedule_golden_tests
