// Sub-sampling against the published regrets of bandits, brute force, and a trace by hand; with the rules that look like it
// and are not, each of which has to fall through. The short form plays few bandits; TRAINYARD_RUNS=1000 as many as the paper.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "plugins/study/rounds.hpp"

namespace subsampling_test {

using namespace studies;
using trainyard::RandomStream;

namespace {

int runs(int few) {
  const char* const given = std::getenv("TRAINYARD_RUNS");
  return given == nullptr ? few : std::atoi(given);
}

struct Bandit {
  std::string name;
  bool normal;
  std::vector<double> means;
  double regret;  ///< after 20,000 pulls, mean of 1000 runs of a simulation that shares no code with this one
  double deviation;  ///< of a run
  double constant;   ///< of Lai and Robbins: regret grows by it with each power of e
};

const std::vector<Bandit>& bandits() {
  static const std::vector<Bandit> all = {
      {"B1", false, {.8, .9}, 12.34, 7.3, 2.2521},
      {"B2", false, {.5, .6}, 24.6, 38.2, 4.8993},
      {"B3", false, {.1, .05, .05, .05, .03, .03, .03, .01, .01, .01}, 102.0, 28.5, 18.5116},
      {"B4", false, {.9, .85, .85, .85, .85, .85, .85, .85}, 119.2, 40.8, 28.6062},
      {"G1", true, {.5, 0.}, 25.5, 52.8, 4.0},
      {"G2", true, {.5, 0., 0., 0.}, 75.1, 34.7, 12.0},
      {"G3", true, {1.5, 1., .5, 0.}, 51.5, 23.7, 7.3333},
  };
  return all;
}

/// What is pulled next: SubSampling, or something else.
class Rule {
 public:
  virtual ~Rule() = default;
  virtual void observe(std::size_t arm, double value) = 0;
  virtual std::vector<std::size_t> next() = 0;
};

class Ours final : public Rule {
 public:
  Ours(std::size_t arms, unsigned seed)
      : bandit_(arms, Comparison::window_mean, RandomStream(seed, "test")) {}
  void observe(std::size_t arm, double value) override { bandit_.observe(arm, value); }
  std::vector<std::size_t> next() override {
    const std::size_t leader = bandit_.lead();
    const std::vector<std::size_t> better = bandit_.better();
    return better.empty() ? std::vector<std::size_t>{leader} : better;
  }

 private:
  SubSampling bandit_;
};

/// What passes for sub-sampling and is none. `better` has the sums of the first 0, 1, ... observations of an arm and of the
/// leader.
class Fake final : public Rule {
 public:
  using Sums = std::vector<double>;
  using Better = std::function<bool(const Sums& own, const Sums& leader)>;
  Fake(std::size_t arms, Better better) : sums_(arms, Sums{0.0}), better_(std::move(better)) {}
  void observe(std::size_t arm, double value) override {
    sums_[arm].push_back(sums_[arm].back() + value);
    ++all_;
  }
  std::vector<std::size_t> next() override {
    const auto order = [](const Sums& sums) { return std::pair(sums.size(), sums.back()); };
    const std::size_t leader =
        static_cast<std::size_t>(std::ranges::max_element(sums_, {}, order) - sums_.begin());
    std::vector<std::size_t> chosen;
    for (std::size_t arm = 0; arm < sums_.size(); ++arm) {
      if (arm == leader || sums_[arm].size() >= sums_[leader].size()) continue;
      const bool rare =
          static_cast<double>(sums_[arm].size() - 1) < std::sqrt(std::log(static_cast<double>(all_)));
      if (rare || better_(sums_[arm], sums_[leader])) chosen.push_back(arm);
    }
    return chosen.empty() ? std::vector<std::size_t>{leader} : chosen;
  }

 private:
  std::vector<Sums> sums_;
  Better better_;
  std::size_t all_ = 0;
};

double mean(const std::vector<double>& sums, std::size_t count) {
  return sums[count] / static_cast<double>(count);
}

/// The regret after each of `ends` pulls.
std::vector<double> play(const Bandit& bandit, Rule& rule, const std::vector<int>& ends, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> normal;
  const double best = std::ranges::max(bandit.means);
  std::vector<double> regrets;
  double regret = 0.0;
  int pulls = 0;
  const auto pull = [&](std::size_t arm) {
    if (pulls == ends.back()) return;
    const double of_arm = bandit.means[arm];
    rule.observe(arm, bandit.normal ? of_arm + normal(random) : uniform(random) < of_arm ? 1.0 : 0.0);
    regret += best - of_arm;
    ++pulls;
    if (std::ranges::find(ends, pulls) != ends.end()) regrets.push_back(regret);
  };
  for (std::size_t arm = 0; arm < bandit.means.size(); ++arm) pull(arm);
  while (pulls < ends.back()) {
    std::vector<std::size_t> chosen = rule.next();
    std::ranges::shuffle(chosen, random);
    for (const std::size_t arm : chosen) pull(arm);
  }
  return regrets;
}

double mean_regret(const Bandit& bandit, int count,
                   const std::function<std::unique_ptr<Rule>(unsigned)>& made) {
  double sum = 0.0;
  for (int run = 0; run < count; ++run) {
    const auto rule = made(static_cast<unsigned>(run));
    sum += play(bandit, *rule, {20'000}, static_cast<unsigned>(run) + 1).front();
  }
  return sum / count;
}

Histories histories(const std::vector<std::vector<double>>& curves, const std::vector<std::size_t>& reached) {
  Histories made;
  for (std::size_t i = 0; i < curves.size(); ++i)
    made[i].worths.assign(curves[i].begin(), curves[i].begin() + static_cast<std::ptrdiff_t>(reached[i]));
  return made;
}

using Trace = std::vector<std::vector<std::pair<std::size_t, std::size_t>>>;

/// Plays rounds over curves that are known: who was trained, and how far, in each.
Trace trace(Rounds& rounds, const std::vector<std::vector<double>>& curves) {
  std::vector<std::size_t> reached(curves.size(), 0);
  Trace all;
  while (true) {
    const std::vector<Stretch> next = rounds.next(histories(curves, reached));
    if (next.empty()) return all;
    all.emplace_back();
    for (const Stretch& each : next) {
      CHECK(each.until > reached[each.number]);  // it goes on, and begins nothing anew
      reached[each.number] = each.until;
      all.back().emplace_back(each.number, each.until);
    }
    std::ranges::sort(all.back());
  }
}

std::vector<std::size_t> numbers(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

TEST_CASE("who is better than the leader is who a double loop over all windows says", "[subsampling]") {
  std::mt19937_64 random(3);
  int ties = 0;
  for (int history = 0; history < 100'000; ++history) {
    const std::size_t arms = 2 + random() % 4, values = 2 + random() % 40;
    const bool windows = history % 4 != 0;
    SubSampling bandit(arms, windows ? Comparison::window_mean : Comparison::same_rung,
                       RandomStream(1, "test"));
    std::vector<std::vector<std::int64_t>> seen(arms);  // in thousandths: sums of these are exact
    const std::size_t pulls = arms + random() % 60;
    std::size_t leader = 0;
    std::vector<std::size_t> better;
    for (std::size_t pull = 0; pull < pulls; ++pull) {
      const std::size_t arm = pull < arms ? pull : random() % (1 + random() % arms);
      const auto value =
          static_cast<std::int64_t>(random() % values) * 1000 / static_cast<std::int64_t>(values);
      seen[arm].push_back(value);
      bandit.observe(arm, static_cast<double>(value) / 1000.0);
      if (pull + 1 < arms) continue;
      leader = bandit.lead();  // at each step: what is kept from one to the next is looked at as well
      better = bandit.better();
    }
    const double c = std::sqrt(std::log(static_cast<double>(pulls)));
    std::vector<std::size_t> expected;
    for (std::size_t arm = 0; arm < arms; ++arm) {
      REQUIRE(seen[arm].size() <= seen[leader].size());
      const std::size_t own = seen[arm].size(), most = seen[leader].size();
      if (arm == leader || own >= most) continue;
      bool is_better = static_cast<double>(own) < c;
      if (!windows) is_better = is_better || seen[arm][own - 1] >= seen[leader][own - 1];
      for (std::size_t j = 0; windows && !is_better && j + own <= most; ++j) {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < own; ++i) sum += seen[arm][i] - seen[leader][j + i];
        is_better = sum >= 0;
        ties += sum == 0;
      }
      if (is_better) expected.push_back(arm);
    }
    REQUIRE(better == expected);
  }
  CHECK(ties > 1000);
}

TEST_CASE("arms are tried at least sqrt(ln n) times, whatever they gave", "[subsampling]") {
  // A hopeless arm gets its next observation once n is above e^1, e^4, e^9: 3, 55, 8104.
  SubSampling bandit(2, Comparison::window_mean, RandomStream(1, "test"));
  bandit.observe(0, 1.0);
  bandit.observe(1, 0.0);
  std::vector<std::size_t> at;
  for (std::size_t n = 2; n < 10'000; n = bandit.observations()) {
    bandit.lead();
    const std::vector<std::size_t> better = bandit.better();
    if (!better.empty()) at.push_back(n);
    bandit.observe(better.empty() ? 0 : 1, better.empty() ? 1.0 : 0.0);
  }
  CHECK((at == std::vector<std::size_t>{3, 55, 8104}));
}

TEST_CASE("regrets of seven bandits after 20,000 pulls are those that were published", "[subsampling]") {
  const int count = runs(40);
  for (const Bandit& bandit : bandits()) {
    const double found = mean_regret(
        bandit, count, [&](unsigned seed) { return std::make_unique<Ours>(bandit.means.size(), seed); });
    const double bar = bandit.name == "B2" || bandit.name == "G1" ? 0.10 : 0.08;
    const double error = bandit.deviation / std::sqrt(count);
    if (count >= 1000)
      WARN(bandit.name << ": " << found << " +- " << error << ", published " << bandit.regret);
    CHECK(std::abs(found - bandit.regret) <=
          (count >= 1000 ? bar * bandit.regret : 0.10 * bandit.regret + 3.0 * error));
  }
}

TEST_CASE("rules that only look like sub-sampling have regrets many times as large", "[subsampling]") {
  const std::vector<std::pair<std::string, Fake::Better>> fakes = {
      {"against the leader's mean",
       [](const auto& own, const auto& leader) {
         return mean(own, own.size() - 1) >= mean(leader, leader.size() - 1);
       }},
      {"against the leader's first observations",
       [](const auto& own, const auto& leader) { return own.back() >= leader[own.size() - 1]; }}};
  for (const auto& [name, better] : fakes) {
    INFO(name);
    const Bandit& bandit = bandits()[3];
    const double found =
        mean_regret(bandit, 8, [&](unsigned) { return std::make_unique<Fake>(bandit.means.size(), better); });
    CHECK(found > 3.0 * bandit.regret);
  }
}

TEST_CASE("regret grows with the logarithm of the pulls, by the constant of Lai and Robbins",
          "[.subsampling_slope]") {
  for (const std::size_t which : {2U, 5U, 6U}) {
    const Bandit& bandit = bandits()[which];
    double slope = 0.0;
    const int count = runs(400);
    for (int run = 0; run < count; ++run) {
      Ours rule(bandit.means.size(), static_cast<unsigned>(run));
      const auto regrets = play(bandit, rule, {5'000, 50'000}, static_cast<unsigned>(run) + 1);
      slope += (regrets[1] - regrets[0]) / std::log(10.0) / count;
    }
    WARN(bandit.name << ": " << slope / bandit.constant << " of the constant");
    CHECK(slope >= 0.7 * bandit.constant);
    CHECK(slope <= 1.15 * bandit.constant);
  }
}

TEST_CASE("what a bandit of 20,000 pulls takes", "[.subsampling_time]") {
  const auto began = std::chrono::steady_clock::now();
  for (const Bandit& bandit : bandits()) {
    Ours rule(bandit.means.size(), 1);
    play(bandit, rule, {20'000}, 1);
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  WARN(took.count() / 7.0 << " ms");
}

TEST_CASE("ss trains whom the rule names, round by round, and goes on where they were", "[subsampling]") {
  const std::vector<std::vector<double>> curves = {{.30, .50, .60, .66, .70, .72, .73, .74},
                                                   {.40, .45, .48, .50, .51, .52, .52, .52},
                                                   {.10, .35, .62, .75, .80, .83, .85, .86},
                                                   {.20, .22, .23, .24, .25, .25, .25, .25}};
  SubSamplingRounds rounds(numbers(4), {1, 8, 2}, Comparison::window_mean, RandomStream(1, "test"));
  CHECK((trace(rounds, curves) ==
         Trace{{{0, 1}, {1, 1}, {2, 1}, {3, 1}}, {{1, 2}}, {{0, 4}, {2, 4}, {3, 4}}, {{1, 8}}}));
}

TEST_CASE("ss goes from round to round as the paper's pseudo-code does", "[subsampling]") {
  std::mt19937_64 random(5);
  for (int game = 0; game < 300; ++game) {
    const std::size_t arms = 2 + random() % 8;
    std::vector<std::vector<double>> curves(arms, std::vector<double>(27));
    for (std::vector<double>& curve : curves)
      for (double& value : curve)
        value = static_cast<double>(random() % 100'000);  // whole numbers: sums are exact, and no ties
    SubSamplingRounds rounds(numbers(arms), {1, 27, 3}, Comparison::window_mean, RandomStream(1, "test"));
    const Trace found = trace(rounds, curves);
    std::vector<std::size_t> reached(arms, 1);
    Trace expected{{}};
    for (std::size_t arm = 0; arm < arms; ++arm) expected.back().emplace_back(arm, 1);
    const auto sum = [&](std::size_t arm, std::size_t from, std::size_t count) {
      const auto first = curves[arm].begin() + static_cast<std::ptrdiff_t>(from);
      return std::accumulate(first, first + static_cast<std::ptrdiff_t>(count), 0.0);
    };
    for (const std::size_t target : {3U, 9U, 27U}) {
      std::size_t leader = 0;
      for (std::size_t arm = 1; arm < arms; ++arm)
        if (std::pair(reached[arm], sum(arm, 0, reached[arm])) >
            std::pair(reached[leader], sum(leader, 0, reached[leader])))
          leader = arm;
      const double c = std::sqrt(std::log(std::accumulate(reached.begin(), reached.end(), 0.0)));
      expected.emplace_back();
      for (std::size_t arm = 0; arm < arms; ++arm) {
        const std::size_t own = reached[arm];
        if (own >= reached[leader]) continue;
        bool is_better = static_cast<double>(own) < c;
        for (std::size_t j = 0; j + own <= reached[leader]; ++j)
          is_better = is_better || sum(arm, 0, own) >= sum(leader, j, own);
        if (is_better) expected.back().emplace_back(arm, target);
      }
      if (expected.back().empty()) expected.back().emplace_back(leader, target);
      for (const auto& [arm, until] : expected.back()) reached[arm] = until;
    }
    REQUIRE((found == expected));
  }
}

TEST_CASE("who was left out for a round comes back where it is better after all", "[subsampling]") {
  // 0 begins well and then falls behind what 1 shows at its own beginning.
  const std::vector<std::vector<double>> crossing = {{.6, .6, .2, .1, .1, .1, .1, .1, .1},
                                                     {.5, .7, .8, .9, .9, .9, .9, .9, .9},
                                                     {.1, .1, .1, .1, .1, .1, .1, .1, .1},
                                                     {.0, .0, .0, .0, .0, .0, .0, .0, .0}};
  SECTION("ss") {
    SubSamplingRounds rounds(numbers(4), {1, 9, 3}, Comparison::same_rung, RandomStream(1, "test"));
    const Trace found = trace(rounds, crossing);
    REQUIRE(found.size() == 3);
    CHECK((found[1] == Trace::value_type{{0, 3}}));
    CHECK(std::ranges::find(found[2], std::pair<std::size_t, std::size_t>{1, 9}) != found[2].end());
  }
  SECTION("modified_ss") {
    // 0 to 3 go on after the first round. 3 is the best of them at two, and 4 was nearer to it at one than the others are.
    std::vector<std::vector<double>> nine(9, std::vector<double>(9, 0.1));
    for (std::size_t i = 0; i < 9; ++i) nine[i][0] = 0.9 - 0.1 * static_cast<double>(i);
    std::fill(nine[3].begin() + 1, nine[3].end(), 0.9);
    FixedWidthRounds rounds(numbers(9), {1, 9, 2});
    const Trace found = trace(rounds, nine);
    REQUIRE(found.size() == 4);
    CHECK((found[1] == Trace::value_type{{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
    CHECK((found[2] == Trace::value_type{{3, 4}, {4, 4}}));
    CHECK((found[3] == Trace::value_type{{3, 8}}));
  }
}

TEST_CASE("modified_ss has the widths and budgets of its formula", "[subsampling]") {
  const auto left = [](std::size_t count, std::size_t most) {
    std::vector<std::pair<std::size_t, std::size_t>> all;
    for (const Stretch& each : FixedWidthRounds(numbers(count), {1, most, 3}).left())
      all.emplace_back(each.number, each.until);
    return all;
  };
  using Plan = std::vector<std::pair<std::size_t, std::size_t>>;
  CHECK((left(81, 81) == Plan{{81, 3}, {27, 3}, {9, 9}, {3, 27}, {1, 81}}));
  CHECK((left(34, 27) == Plan{{34, 1}, {11, 3}, {3, 9}, {1, 27}}));
  CHECK((left(9, 4) == Plan{{9, 1}, {3, 3}, {1, 4}}));
  std::vector<std::vector<double>> curves(81, std::vector<double>(81));
  for (std::size_t i = 0; i < 81; ++i) std::ranges::fill(curves[i], static_cast<double>(i));
  FixedWidthRounds rounds(numbers(81), {1, 81, 3});
  std::size_t all = 0;
  std::vector<std::size_t> reached(81, 0);
  for (const auto& round : trace(rounds, curves))
    for (const auto& [number, until] : round) all += until - std::exchange(reached[number], until);
  CHECK(all == 405);
}

TEST_CASE("what failed leads no more and goes no further", "[subsampling]") {
  Histories seen = histories({{.9}, {.5}, {.4}}, {1, 1, 1});
  SubSamplingRounds rounds(numbers(3), {1, 9, 3}, Comparison::window_mean, RandomStream(1, "test"));
  rounds.next({});
  seen[0].fit = false;
  const std::vector<Stretch> next = rounds.next(seen);
  REQUIRE(next.size() == 1);
  CHECK((next[0].number == 1 && next[0].until == 3));
  Histories two = histories({std::vector<double>(9, .9), std::vector<double>(9, .1)}, {3, 3});
  SubSamplingRounds other(numbers(2), {3, 27, 3}, Comparison::window_mean, RandomStream(1, "test"));
  other.next({});
  CHECK((other.next(two).front().number == 0));
  two[0].worths.resize(9, .9);
  two[0].fit = false;  // having led
  const std::vector<Stretch> last = other.next(two);
  REQUIRE(last.size() == 1);
  CHECK(last[0].number == 1);
  for (auto& [number, history] : seen) history.fit = false;
  CHECK(rounds.next(seen).empty());
  FixedWidthRounds fixed(numbers(3), {1, 9, 3});
  fixed.next({});
  CHECK(fixed.next(seen).empty());
}

namespace {

/// Learning curves of a file: a line a configuration, an accuracy an epoch.
std::vector<std::vector<double>> curves_in(const std::string& path) {
  std::vector<std::vector<double>> curves;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream values(line);
    curves.emplace_back();
    for (double value; values >> value;) curves.back().push_back(value);
  }
  return curves;
}

struct Found {
  double regret = 0.0, epochs = 0.0;
};

/// Successive halving: of each rung one of three, the best there, goes on for three times as long.
Found halved(const std::vector<std::vector<double>>& seen, std::size_t least,
             std::vector<std::size_t>& order) {
  Found found;
  order = numbers(seen.size());
  const std::size_t most = seen.front().size();
  for (std::size_t budget = least, before = 0; budget <= most; before = budget, budget *= 3) {
    found.epochs += static_cast<double>(order.size() * (budget - before));
    std::ranges::stable_sort(
        order, [&](std::size_t a, std::size_t b) { return seen[a][budget - 1] > seen[b][budget - 1]; });
    if (budget * 3 <= most) order.resize(std::max<std::size_t>(1, order.size() / 3));
  }
  return found;
}

/// Plays rounds, and puts the configuration that they recommend in front of `order`.
Found played(Rounds& rounds, const std::vector<std::vector<double>>& seen, std::vector<std::size_t>& order) {
  Found found;
  std::vector<std::size_t> reached(seen.size(), 0);
  for (const auto& round : trace(rounds, seen))
    for (const auto& [number, until] : round)
      found.epochs += static_cast<double>(until - std::exchange(reached[number], until));
  order = numbers(seen.size());
  const Histories all = histories(seen, reached);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const auto standing_of = [&](std::size_t i) {
      return std::pair(reached[i], standing(all.at(i).worths, 3));
    };
    return standing_of(a) > standing_of(b);
  });
  return found;
}

}  // namespace

// What tools/bench/subsampling makes curves for.
TEST_CASE("pools of learning curves with noise: regret and epochs", "[.subsampling_curves]") {
  const char* const path = std::getenv("TRAINYARD_CURVES");
  REQUIRE(path != nullptr);
  const std::vector<std::vector<double>> curves = curves_in(path);
  REQUIRE(curves.size() > 81);
  using Player =
      std::function<Found(const std::vector<std::vector<double>>&, std::vector<std::size_t>&, unsigned)>;
  const auto ss = [](std::size_t least, Comparison comparison) -> Player {
    return [=](const auto& seen, auto& order, unsigned seed) {
      SubSamplingRounds rounds(numbers(seen.size()), {least, seen.front().size(), 3}, comparison,
                               RandomStream(seed, "test"));
      return played(rounds, seen, order);
    };
  };
  const std::vector<std::pair<std::string, Player>> players = {
      {"SHA, 1 epoch", [](const auto& seen, auto& order, unsigned) { return halved(seen, 1, order); }},
      {"SHA, 3 epochs", [](const auto& seen, auto& order, unsigned) { return halved(seen, 3, order); }},
      {"ss, 1 epoch", ss(1, Comparison::window_mean)},
      {"ss, 3 epochs", ss(3, Comparison::window_mean)},
      {"ss, same_rung, 1 epoch", ss(1, Comparison::same_rung)},
      {"ss, same_rung, 3 epochs", ss(3, Comparison::same_rung)},
      {"modified_ss",
       [](const auto& seen, auto& order, unsigned) {
         FixedWidthRounds rounds(numbers(seen.size()), {1, seen.front().size(), 3});
         return played(rounds, seen, order);
       }},
      {"4 in full", [](const auto& seen, auto& order, unsigned) {
         order = numbers(4);  // a pool is in no order
         std::ranges::stable_sort(
             order, [&](std::size_t a, std::size_t b) { return seen[a].back() > seen[b].back(); });
         return Found{.epochs = 4.0 * static_cast<double>(seen.front().size())};
       }}};
  const int pools = runs(300);
  for (const double noise : {0.0, 0.03, 0.10})
    for (const auto& [name, player] : players) {
      Found sum;
      for (int pool = 0; pool < pools; ++pool) {
        std::mt19937_64 random(static_cast<unsigned>(pool) + 1);
        std::vector<std::size_t> chosen = numbers(curves.size());
        std::ranges::shuffle(chosen, random);
        chosen.resize(81);
        std::normal_distribution<double> normal(0.0, 1.0);
        std::vector<std::vector<double>> seen;
        double best = 0.0;
        for (const std::size_t i : chosen) {
          seen.push_back(curves[i]);
          for (double& value : seen.back()) value += noise * normal(random);
          best = std::max(best, curves[i].back());
        }
        std::vector<std::size_t> order;
        const Found found = player(seen, order, static_cast<unsigned>(pool));
        sum.regret += best - curves[chosen[order.front()]].back();
        sum.epochs += found.epochs;
      }
      std::printf("noise %.2f  %-24s regret %5.2f points  %6.0f epochs\n", noise, name.c_str(),
                  100 * sum.regret / pools, sum.epochs / pools);
    }
}

}  // namespace subsampling_test
