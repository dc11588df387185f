// TPE and BlendSearch against what Optuna 3.6 and FLAML 2.7 find on the same functions (medians of 20 seeds, which
// tools/bench/peers/searches prints), and against what their papers say of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "plugins/study/blend_search.hpp"
#include "plugins/study/tpe.hpp"

namespace blend_search_test {

using namespace studies;
using Catch::WithinAbs;
using trainyard::RandomStream;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2.0;
}

double sphere(const Values& values) {
  double sum = 0.0;
  for (const double value : values) sum += (value - 0.7) * (value - 0.7);
  return sum;
}

/// Rastrigin's function, of many minima, with the least at 0.72.
double rastrigin(const Values& values) {
  double sum = 0.0;
  for (const double value : values) {
    const double z = (value - 0.72) * 10.24;
    sum += z * z - 10.0 * std::cos(2.0 * std::numbers::pi * z) + 10.0;
  }
  return sum;
}

/// Medians over 20 seeds of the least error after so many trials. `play` gives the error of each trial of a seed.
std::vector<double> medians(const std::vector<int>& after,
                            const std::function<std::vector<double>(std::uint64_t)>& play) {
  std::vector<std::vector<double>> found(after.size());
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<double> errors = play(seed);
    for (std::size_t i = 0; i < after.size(); ++i)
      found[i].push_back(*std::min_element(errors.begin(), errors.begin() + after[i]));
  }
  std::vector<double> all;
  for (const std::vector<double>& each : found) all.push_back(median(each));
  return all;
}

TEST_CASE("TPE comes as near to a minimum as Optuna's does", "[tpe]") {
  const std::map<std::size_t, std::vector<double>> optuna = {{2, {6.6e-4, 1.27e-4, 1.26e-5}},
                                                             {5, {.0306, .0120, .00278}}};
  for (const auto& [d, expected] : optuna) {
    const std::vector<double> found = medians({50, 100, 200}, [d = d](std::uint64_t seed) {
      Tpe tpe(std::vector<Knob>(d), RandomStream(seed, "tpe"));
      std::vector<double> errors;
      for (int i = 0; i < 200; ++i) {
        const Values values = tpe.propose();
        errors.push_back(sphere(values));
        tpe.add(values, errors.back());
      }
      return errors;
    });
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(d, i, found[i], expected[i]);
      CHECK(found[i] < 2.0 * expected[i]);
    }
  }
}

TEST_CASE("A Parzen estimator is a density, whose parts reach as far as their neighbours", "[tpe]") {
  const std::vector<double> points{.1, .15, .8, .82, .5};
  const Parzen parzen(0.0, 1.0, points);
  constexpr int cells = 20000;
  double sum = 0.0, lower = 0.0;
  for (int i = 0; i < cells; ++i) {
    const double part = std::exp(parzen.log_density((i + 0.5) / cells)) / cells;
    sum += part;
    if (i < cells / 4) lower += part;
  }
  CHECK_THAT(sum, WithinAbs(1.0, 1e-6));
  CHECK_THAT(std::exp(parzen.log_chance(0.0, 0.25)), WithinAbs(lower, 1e-6));
  // What is drawn has that density.
  const RandomStream random(3, "draws");
  std::uint64_t drawn = 0;
  int below = 0;
  for (int i = 0; i < 20000; ++i) below += parzen.draw([&] { return random.uniform(drawn++); }) < 0.25;
  CHECK(std::abs(below - 20000 * lower) < 5.0 * std::sqrt(20000 * lower * (1.0 - lower)));
  // A point by itself reaches to the wide part in the middle: N(0.9, 0.4), N(0.5, 1), each cut off at 0 and 1.
  const auto normal = [](double x, double center, double width) {
    const auto below_x = [&](double at) {
      return 0.5 * std::erfc(-(at - center) / width / std::numbers::sqrt2);
    };
    const double z = (x - center) / width;
    return std::exp(-0.5 * z * z) / std::sqrt(2.0 * std::numbers::pi) / width / (below_x(1.0) - below_x(0.0));
  };
  const Parzen one(0.0, 1.0, {0.9});
  CHECK_THAT(std::exp(one.log_density(0.3)),
             WithinAbs((normal(0.3, 0.9, 0.4) + normal(0.3, 0.5, 1.0)) / 2.0, 1e-12));
  // Of 30 points the first five weigh from a thirtieth to one, the others one.
  std::vector<double> many(30, 0.2);
  std::fill(many.begin(), many.begin() + 5, 0.8);
  const Parzen weighed(0.0, 1.0, many);
  const double old = (1.0 / 30 + 1.0) / 2 * 5;
  const double share = old / (old + 25.0 + 1.0);
  CHECK_THAT(std::exp(weighed.log_chance(0.65, 1.0)), WithinAbs(share, 0.05));
}

TEST_CASE("TPE takes words and whole numbers that did well", "[tpe]") {
  const Knob word{.kind = Knob::Kind::unordered, .count = 6},
      whole{.low = 1, .high = 4096, .log = true, .integer = true};
  int good = 0, near = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Tpe tpe({word, whole}, RandomStream(seed, "tpe"));
    for (int i = 0; i < 80; ++i) {
      const Values values = tpe.propose();
      REQUIRE(values[1] == std::round(values[1]));
      REQUIRE((values[1] >= 1 && values[1] <= 4096 && values[0] >= 0 && values[0] <= 5));
      const double error = (values[0] == 4.0 ? 0.0 : 1.0) + std::abs(std::log(values[1] / 64.0));
      tpe.add(values, seed % 2 == 0 && i % 7 == 3 ? std::nan("") : error);
      if (i >= 60) good += values[0] == 4.0, near += values[1] >= 32 && values[1] <= 128;
    }
  }
  CHECK(good > 70);   // of 200; 33 by chance
  CHECK(near > 100);  // 33 by chance
}

TEST_CASE("BlendSearch comes as near to a minimum as FLAML's does", "[blendsearch]") {
  struct Case {
    std::string name;
    double (*error)(const Values&);
    std::size_t dimensions;
    std::vector<double> flaml;  ///< after 50, 100 and 400 trials
  };
  for (const Case& each :
       {Case{"sphere", sphere, 2, {.0028, .00141, 3.9e-4}}, Case{"sphere", sphere, 5, {.0305, .0131, .00245}},
        Case{"rastrigin", rastrigin, 2, {12.7, 8.12, 3.06}},
        Case{"rastrigin", rastrigin, 5, {68.9, 39.0, 27.1}}}) {
    const std::vector<double> found = medians({50, 100, 400}, [&](std::uint64_t seed) {
      BlendSearch search(std::vector<Knob>(each.dimensions), Values(each.dimensions, 0.05), seed);
      std::vector<double> errors;
      for (int i = 0; i < 400; ++i) {
        const std::optional<Values> values = search.next(0, 400.0 - i);
        errors.push_back(each.error(values.value()));
        search.report(*values, errors.back(), 1.0);
      }
      return errors;
    });
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(each.name, each.dimensions, i, found[i], each.flaml[i]);
      CHECK(found[i] < (each.error == sphere ? 2.0 : 1.25) * each.flaml[i]);
    }
  }
}

TEST_CASE(
    "BlendSearch begins at the start, near which its global search stays, and leaves it where it has "
    "converged",
    "[blendsearch]") {
  BlendSearch search({Knob{}, Knob{}}, {0.1, 0.1}, 4);
  double low = 0.1, high = 0.1;
  for (int i = 0; i < 100; ++i) {
    const Values values = search.next(0, 100.0 - i).value();
    if (i == 0) CHECK((values == Values{0.1, 0.1}));
    for (const double value : values) {
      CHECK((value >= low - 0.1 - 0.15 && value <= high + 0.1 + 0.15));  // a margin, and a step
      low = std::min(low, value);
      high = std::max(high, value);
    }
    search.report(values, rastrigin(values), 1.0);
  }

  // Where nothing is better anywhere, local searches converge one after the other, and the box grows to all there is.
  const Knob whole{.low = 0, .high = 20, .integer = true};
  BlendSearch flat({whole}, {2}, 4);
  std::set<Values> seen;
  while (const std::optional<Values> values = flat.next(0, 100.0)) {
    CHECK(seen.insert(*values).second);
    flat.report(*values, 1.0, 1.0);
  }
  CHECK(seen.size() == 21);

  // A small space is tried whole, also where the start fails.
  const Knob numbers{.kind = Knob::Kind::steps, .count = 4}, words{.kind = Knob::Kind::unordered, .count = 3};
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::set<Values> all;
    BlendSearch small({numbers, words}, {3, 0}, seed);
    while (const std::optional<Values> values = small.next(0, 100.0)) {
      CHECK(all.insert(*values).second);
      small.report(*values, all.size() == 1 ? std::nan("") : (*values)[0], 1.0);
    }
    CHECK(all.size() == 12);
  }
}

TEST_CASE("What a search promises goes with the cost of its trials", "[blendsearch]") {
  // By hand: errors 8, 4, 4, 3 at costs of 2, 3, 5, 10.
  Progress progress;
  progress.take(8.0, 2.0, 0);
  CHECK(progress.speed == 0.0);
  progress.take(4.0, 3.0, 0);
  CHECK_THAT(progress.speed, WithinAbs(4.0 / (5.0 - 2.0), 1e-12));
  progress.take(4.0, 5.0, 1);  // with another one under way
  CHECK_THAT(progress.speed, WithinAbs(4.0 / 2.0 / (10.0 - 2.0), 1e-12));
  CHECK_THAT(progress.cost_to_improve(4.0), WithinAbs(5.0, 1e-12));  // what it spent since it was better
  progress.take(3.0, 10.0, 0);
  CHECK_THAT(progress.speed, WithinAbs(1.0 / (20.0 - 5.0), 1e-12));
  CHECK_THAT(progress.cost_to_improve(3.0), WithinAbs(15.0, 1e-12));  // what the last improvement took
  CHECK_THAT(progress.cost_to_improve(1.0), WithinAbs(2.0 * 2.0 * 15.0, 1e-12));  // twice the gap
}

TEST_CASE("Local searches go on beside each other where there are several minima, until two of them meet",
          "[blendsearch]") {
  std::size_t most = 0, all = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    BlendSearch search({Knob{}, Knob{}}, {0.05, 0.05}, seed);
    std::size_t at_once = 0;
    for (int i = 0; i < 400; ++i) {
      const Values values = search.next(0, 400.0 - i).value();
      search.report(values, rastrigin(values), 1.0);
      at_once = std::max(at_once, search.local_searches());
    }
    most = std::max(most, at_once);
    all += at_once;
  }
  CHECK(most >= 2);
  CHECK(all <= 40);  // 53 where those that meet go on beside each other
}

TEST_CASE(
    "BlendSearch finds a good point for little where a global search alone spends thousands of times as much",
    "[blendsearch]") {
  // The sizes of flow2_test.cpp with two keys that cost nothing; costs until f is .01, in costs of the optimum.
  const Knob size{.low = 4, .high = 32768, .log = true, .integer = true};
  const std::vector<Knob> knobs{size, size, {}, {}};
  const Values optimum{100, 30, 0.6, 0.6};
  std::vector<double> blended, global;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    BlendSearch search(knobs, {4, 4, 0.3, 0.3}, seed);
    Tpe tpe(knobs, RandomStream(seed, "tpe"));
    for (const bool is_blended : {true, false}) {
      double spent = 0.0, error = 1.0;
      for (int i = 0; error > 0.01 && i < 1000; ++i) {
        const Values values = is_blended ? search.next(0, 1000.0 - i).value() : tpe.propose();
        error = 0.0;
        for (std::size_t j = 0; j < 4; ++j)
          error += std::pow(knobs[j].at(values[j]) - knobs[j].at(optimum[j]), 2.0);
        const double cost = values[0] * values[1] / 3000.0;
        spent += cost;
        is_blended ? search.report(values, error, cost) : tpe.add(values, error);
      }
      (is_blended ? blended : global).push_back(spent);
    }
  }
  CAPTURE(median(blended), median(global));
  CHECK(median(blended) <= 1.5 * 43.0);  // half as much again as FLAML's local search
  CHECK(median(global) > 100.0 * median(blended));
}

TEST_CASE("A call of BlendSearch that has nothing changes nothing, whatever is under way", "[blendsearch]") {
  const Knob few{.low = 1, .high = 30, .integer = true}, word{.kind = Knob::Kind::unordered, .count = 3};
  BlendSearch one({Knob{}, few, word}, {0.2, 1, 0}, 9), other = one;
  std::vector<Values> open;
  std::set<Values> seen;
  for (int i = 0; i < 120; ++i) {
    const int running = static_cast<int>(open.size());
    BlendSearch asked = other;
    if (!asked.next(running, 100.0)) other = asked;
    const std::optional<Values> values = one.next(running, 100.0);
    REQUIRE(values == other.next(running, 100.0));
    if (values) {
      CHECK(seen.insert(*values).second);
      open.push_back(*values);
    }
    if (open.empty() || (values && open.size() < 4)) continue;
    const Values ended = open[static_cast<std::size_t>(i) % open.size()];
    std::erase(open, ended);
    const double error = i % 11 == 0 ? std::nan("") : std::abs(ended[0] - 0.6) + ended[2];
    one.report(ended, error, 1.0 + ended[1]);
    other.report(ended, error, 1.0 + ended[1]);
  }
}

}  // namespace blend_search_test
