// Trainings that stop and go on, round by round: who is trained next, and how far, by what was observed of all at equal
// intervals. Huang, Li, Ye, Li and Zhang, MLSys 2022: sub-sampling (SS) as the paper has it, and modified SS, whose rounds
// have fixed widths so that workers are busy. Budgets are whole numbers of observations; a training goes on from where it
// was, and a budget is what it comes to altogether.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "subsampling.hpp"

namespace studies {

/// What was observed of a configuration, larger being better.
struct History {
  std::vector<double> worths;
  bool fit = true;  ///< to go on: what failed or diverged is not
};

/// What a configuration is ranked by among those that were trained as far: the mean over the last part of what was observed,
/// one of eta, so that luck in the last evaluation counts for less.
inline double standing(const std::vector<double>& worths, std::size_t eta) {
  const std::size_t part = (worths.size() + eta - 1) / eta;
  return std::accumulate(worths.end() - static_cast<std::ptrdiff_t>(part), worths.end(), 0.0) /
         static_cast<double>(part);
}

using Histories = std::map<std::size_t, History>;

/// A configuration, and how many observations it is to come to.
struct Stretch {
  std::size_t number = 0, until = 0;
};

/// Budgets from the least to the largest that are wanted.
struct Budgets {
  std::size_t least = 1, most = 1, eta = 3;

  /// least, least * eta, ... and `most` at the end.
  std::vector<std::size_t> rungs() const {
    std::vector<std::size_t> all;
    for (std::size_t budget = least; budget < most; budget *= eta) all.push_back(budget);
    all.push_back(most);
    return all;
  }
};

class Rounds {
 public:
  Rounds() = default;
  virtual ~Rounds() = default;
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  /// Returns who is trained in the next round, all of the one before being done; nobody: it is over.
  virtual std::vector<Stretch> next(const Histories& histories) = 0;
  /// Returns for each round to come how many are trained at most, as `number`, and how far.
  virtual std::vector<Stretch> left() const = 0;
};

/// SS: round r trains those that are better than the leader, or else the leader, to least * eta^(r - 1).
class SubSamplingRounds final : public Rounds {
 public:
  SubSamplingRounds(std::vector<std::size_t> numbers, const Budgets& budgets, Comparison comparison,
                    trainyard::RandomStream random)
      : numbers_(std::move(numbers)), rungs_(budgets.rungs()), arms_(numbers_.size(), comparison, random) {}

  std::vector<Stretch> next(const Histories& histories) override {
    if (round_ == 0) return to(std::exchange(round_, 1), numbers_);
    if (!look(histories) || round_ == rungs_.size()) return {};
    const std::size_t leader = arms_.lead();  // who has no more observations than the round before came to
    std::vector<std::size_t> chosen;
    for (const std::size_t arm : arms_.better()) chosen.push_back(numbers_[arm]);
    if (chosen.empty()) chosen.push_back(numbers_[leader]);
    return to(round_++, chosen);
  }

  std::vector<Stretch> left() const override {
    std::vector<Stretch> all;
    for (std::size_t round = round_; round < rungs_.size(); ++round)
      all.push_back(
          {round == 0 ? numbers_.size() : std::max<std::size_t>(1, numbers_.size() - 1), rungs_[round]});
    return all;
  }

 private:
  /// Takes what is new, and returns whether there is one left that is fit.
  bool look(const Histories& histories) {
    bool any = false;
    for (std::size_t arm = 0; arm < numbers_.size(); ++arm) {
      const History& history = histories.at(numbers_[arm]);
      if (!history.fit) {
        arms_.drop(arm);
        continue;
      }
      any = true;
      while (arms_.count(arm) < history.worths.size()) arms_.observe(arm, history.worths[arms_.count(arm)]);
    }
    return any;
  }

  std::vector<Stretch> to(std::size_t rung, const std::vector<std::size_t>& numbers) const {
    std::vector<Stretch> all;
    all.reserve(numbers.size());
    for (const std::size_t number : numbers) all.push_back({number, rungs_[rung]});
    return all;
  }

  std::vector<std::size_t> numbers_, rungs_;
  SubSampling arms_;
  std::size_t round_ = 0;
};

/// Modified SS: a round keeps the best of the last one, and those that come nearest to it where both were observed last:
/// of all configurations, so that who was left out may return. Each round has one of eta as many, for eta times as long,
/// from a least budget that sub-sampling would give to all.
class FixedWidthRounds final : public Rounds {
 public:
  FixedWidthRounds(std::vector<std::size_t> numbers, const Budgets& budgets) : numbers_(std::move(numbers)) {
    const auto count = static_cast<double>(numbers_.size()), eta = static_cast<double>(budgets.eta);
    const double c = std::floor(std::sqrt(std::log(count * eta / (eta - 1.0))));
    const double least = static_cast<double>(budgets.least) * std::pow(eta, c - 1.0);
    double budget = static_cast<double>(budgets.least);
    for (std::size_t width = numbers_.size(); width > 0; width /= budgets.eta, budget *= eta)
      rungs_.push_back({width, static_cast<std::size_t>(std::round(
                                   std::min(std::max(budget, least), static_cast<double>(budgets.most))))});
    present_ = numbers_;
  }

  std::vector<Stretch> next(const Histories& histories) override {
    while (round_ < rungs_.size()) {
      if (round_ > 0) present_ = chosen(histories, rungs_[round_].number);
      const std::size_t target = rungs_[round_++].until;
      std::vector<Stretch> all;
      for (const std::size_t number : present_) {
        const auto known = histories.find(number);
        if (known == histories.end() || known->second.worths.size() < target) all.push_back({number, target});
      }
      if (!all.empty()) return all;
    }
    return {};
  }

  std::vector<Stretch> left() const override {
    return {rungs_.begin() + static_cast<std::ptrdiff_t>(round_), rungs_.end()};
  }

 private:
  std::vector<std::size_t> chosen(const Histories& histories, std::size_t width) const {
    const auto worths = [&](std::size_t number) -> const std::vector<double>& {
      return histories.at(number).worths;
    };
    const auto is_fit = [&](std::size_t number) { return histories.at(number).fit; };
    std::vector<std::size_t> order;
    std::ranges::copy_if(present_, std::back_inserter(order), is_fit);
    if (order.empty()) return {};
    const std::size_t leader =
        *std::ranges::max_element(order, {}, [&](std::size_t number) { return worths(number).back(); });
    const auto lead = [&](std::size_t number) {
      const std::size_t last = std::min(worths(number).size(), worths(leader).size()) - 1;
      return number == leader ? std::numeric_limits<double>::infinity()
                              : worths(number)[last] - worths(leader)[last];
    };
    order.clear();
    std::ranges::copy_if(numbers_, std::back_inserter(order), is_fit);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return lead(a) > lead(b); });
    order.resize(std::min(order.size(), width));
    return order;
  }

  std::vector<std::size_t> numbers_, present_;
  std::vector<Stretch> rungs_;  ///< how many, and how far
  std::size_t round_ = 0;
};

}  // namespace studies
