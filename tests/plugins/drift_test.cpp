// drift: how long a prediction may be off before it counts as failed, and when it holds again.
#include <catch2/catch.hpp>

#include "plugins/hook/drift/watch.hpp"

namespace drift_test {

using drift::Watch;
using Finding = Watch::Finding;

namespace {

/// Returns after how many steps of that length something is found; 0: not in 1000.
int steps_until(Watch& watch, double seconds, Finding finding) {
  for (int step = 1; step <= 1000; ++step)
    if (const Finding found = watch.add(seconds); found != Finding::none)
      return found == finding ? step : -step;
  return 0;
}

}  // namespace

TEST_CASE("a prediction fails after 50 steps that are off by more than a fifth", "[drift]") {
  Watch slow(0.1, 0.2, 50, 11);
  CHECK(steps_until(slow, 0.121, Finding::off) == 50);
  CHECK(steps_until(slow, 0.121, Finding::off) == 0);  // it is told once
  Watch fast(0.1, 0.2, 50, 11);
  CHECK(steps_until(fast, 0.079, Finding::off) == 50);
  Watch near(0.1, 0.2, 50, 11);
  CHECK(steps_until(near, 0.119, Finding::off) == 0);
}

TEST_CASE("single slow steps are not a drift, and a change is found once the median has moved", "[drift]") {
  Watch watch(0.1, 0.2, 50, 11);
  for (int step = 0; step < 1000; ++step) CHECK(watch.add(step % 3 == 0 ? 0.5 : 0.1) == Finding::none);
  // Steps are counted in a row, and anew for the way back.
  Watch broken(0.1, 0.2, 50, 1);
  for (int step = 0; step < 1000; ++step) CHECK(broken.add(step % 40 == 0 ? 0.1 : 0.2) == Finding::none);
  Watch last(0.1, 0.2, 50, 1);
  CHECK(steps_until(last, 0.2, Finding::off) == 50);
  CHECK(steps_until(last, 0.1, Finding::back) == 50);
  Watch changed(0.1, 0.2, 50, 11);
  CHECK(steps_until(changed, 0.1, Finding::off) == 0);
  CHECK(steps_until(changed, 0.2, Finding::off) == 55);  // 5 until the median is another, and 50 with it
  CHECK(steps_until(changed, 0.1, Finding::back) == 55);
}

}  // namespace drift_test
