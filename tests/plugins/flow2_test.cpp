// FLOW2 and the search by it, against what FLAML 2.6 does: closed forms of its steps, and medians of its errors and costs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "plugins/study/flow2.hpp"
#include "plugins/study/frugal_search.hpp"

namespace flow2_test {

using namespace studies;
using Catch::WithinAbs;
using trainyard::RandomStream;

constexpr double infinite = std::numeric_limits<double>::infinity();

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2.0;
}

Flow2 unit_cube(std::size_t dimensions, double start, double error, std::uint64_t seed) {
  return {std::vector<Knob>(dimensions), Values(dimensions, start), error, RandomStream(seed, "flow2")};
}

TEST_CASE("FLOW2's steps shorten with the root of the number of proposals where nothing is better",
          "[flow2]") {
  // At proposal 2^d, and at each second one after it: 0.1 sqrt(d / (i + 2)).
  for (const int d : {1, 2, 3, 5, 9, 12}) {
    Flow2 flow = unit_cube(static_cast<std::size_t>(d), 0.5, 1.0, 1);
    const int patience = 1 << std::min(9, d);
    for (int i = 1; i <= patience + 200; ++i) {
      const auto proposal = flow.propose();
      REQUIRE(proposal);
      flow.report(*proposal, 1.0);
      double expected = 0.1 * std::sqrt(d);
      if (i >= patience) expected /= std::sqrt(patience + (i - patience) / 2 * 2 + 2.0);
      CAPTURE(d, i);
      REQUIRE_THAT(flow.step(), WithinAbs(expected, 1e-9));
    }
  }
  // Values that the reference printed.
  Flow2 flow = unit_cube(3, 0.5, 1.0, 1);
  for (int i = 1; i <= 8; ++i) flow.report(*flow.propose(), 1.0);
  CHECK_THAT(flow.step(), WithinAbs(0.05477, 5e-6));
}

TEST_CASE("FLOW2 tries the opposite of each direction that was no better, and no other length", "[flow2]") {
  Flow2 flow = unit_cube(4, 0.5, 1.0, 7);
  for (int pair = 0; pair < 7; ++pair) {
    const double step = flow.step();
    const auto there = flow.propose(), back = flow.propose();
    double length = 0.0;
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK_THAT(there->values[i] + back->values[i], WithinAbs(1.0, 2e-6));  // of six digits
      length += std::pow(there->values[i] - 0.5, 2.0);
    }
    CHECK_THAT(std::sqrt(length), WithinAbs(step, 4e-6));
    flow.report(*there, 1.0);
    flow.report(*back, 1.0);
  }
  // Where one was better, a new direction begins there.
  const auto better = flow.propose();
  flow.report(*better, 0.5);
  CHECK(flow.best() == better->values);
  const auto next = flow.propose();
  CHECK(std::abs(next->values[0] - 0.5) > 1e-6);
}

TEST_CASE("FLOW2's steps are as long as before once something is better", "[flow2]") {
  Flow2 flow = unit_cube(2, 0.5, 1.0, 1);
  for (int i = 1; i <= 8; ++i) flow.report(*flow.propose(), 1.0);
  const double shortened = flow.step();  // K' was 8, and K 10
  flow.report(*flow.propose(), 0.5);
  CHECK_THAT(flow.step(), WithinAbs(shortened * std::sqrt(10.0 / 8.0), 1e-12));
}

TEST_CASE("A step that is long enough changes a whole number, and one that is shorter does not", "[flow2]") {
  for (const Knob& knob : {Knob{.low = 4, .high = 32768, .log = true, .integer = true},
                           Knob{.low = 0, .high = 50, .integer = true}})
    for (const double value : {4.0, 7.0, 20.0, 49.0})
      CHECK_THAT(knob.at(value) + knob.resolution(value), WithinAbs(knob.at(value + 1.0), 1e-12));
}

TEST_CASE("Only so many proposals are open as dimensions have two ends", "[flow2]") {
  Flow2 flow = unit_cube(3, 0.5, 1.0, 1);
  std::vector<Flow2::Proposal> open;
  while (flow.can_propose()) open.push_back(*flow.propose());
  CHECK(open.size() == 6);
  for (const Flow2::Proposal& each : open) flow.report(each, 2.0);
  CHECK(flow.can_propose());
}

TEST_CASE("FLOW2 comes as near to a minimum as the reference does", "[flow2]") {
  // Medians of 40 seeds after 50, 100 and 400 trials, from 0.05, of sum (x - 0.7)^2; within a factor of 2.
  const std::map<std::size_t, std::vector<double>> reference = {{2, {.0024, .0014, .00046}},
                                                                {3, {.0066, .0033, .00091}},
                                                                {5, {.027, .012, .0023}},
                                                                {9, {.27, .066, .033}}};
  for (const auto& [d, medians] : reference) {
    std::vector<std::vector<double>> found(3);
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const auto error = [](const Values& values) {
        double sum = 0.0;
        for (const double value : values) sum += (value - 0.7) * (value - 0.7);
        return sum;
      };
      Flow2 flow = unit_cube(d, 0.05, error(Values(d, 0.05)), seed);
      for (int trial = 2; trial <= 400; ++trial) {
        const auto proposal = flow.propose();
        flow.report(*proposal, error(proposal->values));
        if (trial == 50) found[0].push_back(flow.error());
        if (trial == 100) found[1].push_back(flow.error());
        if (trial == 400) found[2].push_back(flow.error());
      }
    }
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(d, i, median(found[i]), medians[i]);
      CHECK(median(found[i]) < 2.0 * medians[i]);
      CHECK(median(found[i]) > 0.5 * medians[i]);
    }
  }
}

TEST_CASE("A search that begins cheap reaches a good point for little, as the reference does", "[flow2]") {
  // Two sizes cost what they are, m further values nothing; the cost until f is .1, .03 and .01, in costs of the best.
  const std::map<int, std::vector<double>> reference = {{0, {.08, .64, 2.15}}, {2, {.72, 4.3, 43.0}}};
  const Knob size{.low = 4, .high = 32768, .log = true, .integer = true};
  for (const auto& [free, costs] : reference) {
    std::vector<Knob> knobs{size, size};
    Values start{4, 4}, optimum{100, 30};
    for (int i = 0; i < free; ++i) {
      knobs.push_back({});
      start.push_back(0.3);
      optimum.push_back(0.6);
    }
    std::vector<std::vector<double>> needed(3);
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      FrugalSearch search(knobs, start, seed);
      double cost = 0.0;
      for (std::size_t reached = 0; reached < 3;) {
        const std::optional<Values> values = search.next(0);
        REQUIRE(values);
        double error = 0.0;
        for (std::size_t i = 0; i < knobs.size(); ++i)
          error += std::pow(knobs[i].at((*values)[i]) - knobs[i].at(optimum[i]), 2.0);
        cost += (*values)[0] * (*values)[1] / 16.0;
        search.report(*values, error);
        for (; reached < 3 && error <= std::vector{0.1, 0.03, 0.01}[reached]; ++reached)
          needed[reached].push_back(cost / (100.0 * 30.0 / 16.0));
      }
    }
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(free, i, median(needed[i]), costs[i]);
      CHECK(median(needed[i]) <= 1.5 * costs[i]);
    }
  }
}

TEST_CASE("An error of zero is the best there is, and one that is no number never is", "[flow2]") {
  Flow2 flow = unit_cube(2, 0.5, 1.0, 3);
  const auto failed = flow.propose();
  flow.report(*failed, std::nan(""));
  CHECK(flow.error() == 1.0);
  const auto perfect = flow.propose();
  flow.report(*perfect, 0.0);
  CHECK(flow.error() == 0.0);
  CHECK(flow.best() == perfect->values);
  flow.report(*flow.propose(), 0.5);
  CHECK(flow.best() == perfect->values);

  Flow2 from_failure = unit_cube(2, 0.5, infinite, 3);
  const auto first = from_failure.propose();
  from_failure.report(*first, 7.0);
  CHECK(from_failure.error() == 7.0);

  FrugalSearch search({Knob{}, Knob{}}, {0.5, 0.5}, 1);
  search.report(*search.next(0), std::nan(""));
  search.report(*search.next(0), 2.0);
  CHECK(search.next(0));
}

TEST_CASE("Words change to any other with the same chance, and steps of numbers to what is near", "[flow2]") {
  const Knob word{.kind = Knob::Kind::unordered, .count = 5}, number{.kind = Knob::Kind::steps, .count = 5};
  std::map<double, int> words, numbers;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Flow2 flow({word, number}, {2, 2}, 1.0, RandomStream(seed, "flow2"));
    const auto proposal = flow.propose();
    ++words[proposal->values[0]];
    ++numbers[proposal->values[1]];
  }
  for (const double other : {0.0, 1.0, 3.0, 4.0}) {
    const double expected = (4000 - words[2]) / 4.0;
    CAPTURE(other, words[other], expected);
    CHECK(std::abs(words[other] - expected) < 5.0 * std::sqrt(expected));
  }
  // A step is 0.1 sqrt(2) long, of which 2 / pi goes along one of two dimensions; a part is a fifth.
  const double change = 0.1 * std::sqrt(2.0) * 2.0 / std::numbers::pi * 5.0;
  for (auto* const of : {&words, &numbers})
    CHECK(std::abs((*of)[2] - 4000 * (1.0 - change)) < 5.0 * std::sqrt(4000 * change * (1.0 - change)));
  CHECK(numbers.size() == 3);  // a step is shorter than a fifth: 1, 2 and 3
}

TEST_CASE("A search that has converged begins elsewhere, whatever of the one before comes later", "[flow2]") {
  const Knob many{.low = 0, .high = 100, .integer = true};
  FrugalSearch search({many}, {50}, 2);
  search.report(*search.next(0), 1.0);
  Values before = *search.next(0);
  std::optional<Values> next = search.next(1);
  const auto is_new = [&] { return next && ((*next)[0] == 0.0 || (*next)[0] == 100.0); };  // a step is 10
  for (; !is_new(); next = search.next(1)) {
    search.report(before, 1.0);
    before = next ? *next : *search.next(0);
  }
  search.report(before, 0.0);  // better than all, and of the search that is over
  search.report(*next, 1.0);
  CHECK(std::abs((*search.next(0))[0] - (*next)[0]) <= 11.0);
}

TEST_CASE("No configuration is tried twice, and a call that has none changes nothing", "[flow2]") {
  const Knob few{.low = 1, .high = 3, .integer = true};
  std::set<Values> seen;
  FrugalSearch search({few, few}, {1, 1}, 5);
  while (const std::optional<Values> values = search.next(0)) {
    CHECK(seen.insert(*values).second);
    search.report(*values, (*values)[0]);
  }
  CHECK(seen.size() == 9);

  // One of several numbers, or of several words, by themselves and beside a number.
  const Knob numbers{.kind = Knob::Kind::steps, .count = 5}, words{.kind = Knob::Kind::unordered, .count = 4};
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    std::set<Values> all;
    FrugalSearch choices({numbers, words, few}, {0, 0, 1}, seed);
    while (const std::optional<Values> values = choices.next(0)) {
      all.insert(*values);
      choices.report(*values, all.size() % 3 == 0 ? std::nan("") : 1.0);
    }
    CHECK(all.size() == 60);
    std::set<double> tried;
    std::set<std::string> shown;
    FrugalSearch mixed({Knob{.low = 1e-4, .high = 1.0, .log = true}, words}, {0.01, 2}, seed);
    for (int i = 0; i < 100; ++i) {
      const Values values = mixed.next(0).value();
      tried.insert(values[1]);
      char text[64];
      std::snprintf(text, sizeof text, "%.6g %g", values[0], values[1]);
      CHECK(shown.insert(text).second);  // as a table shows them
      mixed.report(values, std::abs(std::log(values[0] / 0.1)) + (values[1] == 1.0 ? 0.0 : 1.0));
    }
    CHECK(tried.size() == 4);
  }

  // Two searches that are asked alike but for calls in vain, with up to four trials at a time.
  FrugalSearch one({Knob{}, few}, {0.2, 1}, 9), other = one;
  std::vector<Values> open;
  for (int i = 0; i < 300; ++i) {
    for (int vain = 0; vain < 3 && !open.empty(); ++vain) {
      FrugalSearch asked = other;
      if (!asked.next(static_cast<int>(open.size()))) other = asked;
    }
    const std::optional<Values> values = one.next(static_cast<int>(open.size()));
    REQUIRE(values == other.next(static_cast<int>(open.size())));
    if (values) open.push_back(*values);
    if (!values || open.size() == 4) {
      const Values ended = open[static_cast<std::size_t>(i) % open.size()];
      std::erase(open, ended);
      one.report(ended, std::abs(ended[0] - 0.6));
      other.report(ended, std::abs(ended[0] - 0.6));
    }
  }
}

/// Prints what the table in plugins/study/README.md says; timings are not checked.
TEST_CASE("Seconds of a proposal and its report", "[.flow2_time]") {
  Flow2 flow = unit_cube(9, 0.05, 9.0 * 0.65 * 0.65, 1);
  constexpr int proposals = 1'000'000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < proposals; ++i) {
    const auto proposal = flow.propose();
    if (!proposal) break;
    double error = 0.0;
    for (const double value : proposal->values) error += (value - 0.7) * (value - 0.7);
    flow.report(*proposal, error);
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  std::printf("%.2f us\n", time.count() / proposals);
}

}  // namespace flow2_test
