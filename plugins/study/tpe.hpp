// The tree-structured Parzen estimator (TPE): Bergstra, Bardenet, Bengio and Kégl, "Algorithms for Hyper-Parameter
// Optimization", NIPS 2011, section 4. What was good and what was not are two densities for each dimension, mixtures of a
// normal distribution around each point and a wide one; of some points drawn from the first, the one is tried that is
// most likely of the first by comparison with the second. Widths, weights and numbers are those of Optuna 4 by default.
//
// Errors are minimised; one that is not finite is among the worst. All is a function of the seed and of the calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include <trainyard/random.hpp>

#include "knob.hpp"
#include "normal.hpp"

namespace studies {

/// A mixture of normal distributions over coordinates from `low` to `high`, each cut off there.
class Parzen {
 public:
  /// The distribution of points that were seen in this order, with a wide one beside them. Of more than 25 points those
  /// seen first count less.
  Parzen(double low, double high, const std::vector<double>& points) : low_(low), high_(high) {
    const std::size_t count = points.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t old = count < recent ? 0 : count - recent;
      const double step =
          old < 2 ? 0.0 : (1.0 - 1.0 / static_cast<double>(count)) / static_cast<double>(old - 1);
      const double weight = i < old ? 1.0 / static_cast<double>(count) + static_cast<double>(i) * step : 1.0;
      parts_.push_back({points[i], 0.0, weight});
    }
    parts_.push_back({(low + high) / 2.0, high - low, 1.0});
    set_widths();
    const double all = std::accumulate(parts_.begin(), parts_.end(), 0.0,
                                       [](double sum, const Part& each) { return sum + each.weight; });
    for (Part& each : parts_) {
      each.weight /= all;
      each.mass =
          chance_below((high - each.center) / each.width) - chance_below((low - each.center) / each.width);
    }
  }

  double log_density(double at) const {
    double sum = 0.0;
    for (const Part& each : parts_) {
      const double z = (at - each.center) / each.width;
      sum +=
          each.weight * std::exp(-0.5 * z * z) / (each.width * std::sqrt(2.0 * std::numbers::pi) * each.mass);
    }
    return std::log(sum);
  }

  /// Returns the logarithm of the chance of a coordinate between two.
  double log_chance(double from, double to) const {
    double sum = 0.0;
    for (const Part& each : parts_)
      sum +=
          each.weight *
          (chance_below((to - each.center) / each.width) - chance_below((from - each.center) / each.width)) /
          each.mass;
    return std::log(std::max(sum, std::numeric_limits<double>::min()));
  }

  /// Draws a coordinate; `next` returns numbers in [0, 1).
  template <class Next>
  double draw(Next&& next) const {
    double left = next();
    auto part = parts_.begin();
    for (; part != parts_.end() - 1 && left >= part->weight; ++part) left -= part->weight;
    for (int i = 0; i < 100; ++i) {
      const double first = next(), at = part->center + part->width * studies::normal(first, next());
      if (at >= low_ && at <= high_) return at;
    }
    return std::clamp(part->center, low_, high_);
  }

 private:
  static constexpr std::size_t recent = 25;

  struct Part {
    double center, width, weight, mass = 1.0;
  };

  /// The standard normal distribution below z.
  static double chance_below(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

  /// Makes each part as wide as the larger gap to a neighbour, within bounds; the wide one keeps its width.
  void set_widths() {
    std::vector<std::size_t> order(parts_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return parts_[i].center; });
    const double range = high_ - low_;
    const double least = range / std::min(100.0, 1.0 + static_cast<double>(parts_.size()));
    const auto center = [&](std::size_t i) { return parts_[order[i]].center; };
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i] + 1 == parts_.size()) continue;
      const double below = i > 0 ? center(i) - center(i - 1) : order.size() > 1 ? 0.0 : center(i) - low_;
      const double above = i + 1 < order.size() ? center(i + 1) - center(i) : 0.0;
      parts_[order[i]].width = std::clamp(std::max(below, above), least, range);
    }
  }

  double low_, high_;
  std::vector<Part> parts_;  ///< the wide one is the last
};

class Tpe {
 public:
  Tpe(std::vector<Knob> knobs, trainyard::RandomStream random) : knobs_(std::move(knobs)), random_(random) {}

  void add(Values values, double error) {
    seen_.push_back({std::move(values), std::isnan(error) ? std::numeric_limits<double>::infinity() : error});
  }

  /// Returns the next point: one at random while few are known.
  Values propose() {
    const auto next = [this] { return random_.uniform(drawn_++); };
    Values values(knobs_.size());
    if (seen_.size() < random_first) {
      for (std::size_t i = 0; i < knobs_.size(); ++i)
        values[i] = knobs_[i].value(random_coordinate(knobs_[i], next()));
      return values;
    }
    const std::vector<bool> good = good_ones();
    for (std::size_t i = 0; i < knobs_.size(); ++i)
      values[i] =
          knobs_[i].kind == Knob::Kind::unordered ? best_choice(i, good, next) : best_number(i, good, next);
    return values;
  }

 private:
  static constexpr std::size_t random_first = 10, candidates = 24, most_good = 25;

  struct Seen {
    Values values;
    double error;
  };

  /// Returns which of the points are the best tenth, 25 at most; of equal ones those that were seen first.
  std::vector<bool> good_ones() const {
    std::vector<std::size_t> order(seen_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return seen_[i].error; });
    std::vector<bool> good(seen_.size());
    const std::size_t count = std::min((seen_.size() + 9) / 10, most_good);
    for (std::size_t i = 0; i < count; ++i) good[order[i]] = true;
    return good;
  }

  static bool has_cells(const Knob& knob) { return knob.kind != Knob::Kind::range || knob.integer; }

  /// Returns the coordinates that belong to a value: of whole numbers those nearer to it than to others.
  static std::pair<double, double> cell(const Knob& knob, double value) {
    if (knob.kind != Knob::Kind::range) return {value / knob.count, (value + 1.0) / knob.count};
    return {knob.at(value - 0.5), knob.at(value + 0.5)};
  }
  static std::pair<double, double> bounds(const Knob& knob) {
    if (!has_cells(knob) || knob.kind != Knob::Kind::range) return {0.0, 1.0};
    return {cell(knob, knob.low).first, cell(knob, knob.high).second};
  }
  static double random_coordinate(const Knob& knob, double place) {
    const auto [low, high] = bounds(knob);
    return std::clamp(low + place * (high - low), 0.0, std::nextafter(1.0, 0.0));
  }

  template <class Next>
  double best_number(std::size_t dimension, const std::vector<bool>& good, Next&& next) const {
    const Knob& knob = knobs_[dimension];
    std::vector<double> of_good, of_rest;
    for (std::size_t i = 0; i < seen_.size(); ++i)
      (good[i] ? of_good : of_rest).push_back(knob.at(seen_[i].values[dimension]));
    const auto [low, high] = bounds(knob);
    const Parzen best(low, high, of_good), rest(low, high, of_rest);
    double chosen = 0.0, most = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < candidates; ++i) {
      const double at = best.draw(next);
      const double value = knob.value(std::clamp(at, 0.0, std::nextafter(1.0, 0.0)));
      const auto [from, to] = has_cells(knob) ? cell(knob, value) : std::pair(at, at);
      const double gain = has_cells(knob) ? best.log_chance(from, to) - rest.log_chance(from, to)
                                          : best.log_density(at) - rest.log_density(at);
      if (gain <= most) continue;
      most = gain;
      chosen = value;
    }
    return chosen;
  }

  /// The same of words: each has been seen as often as it was, and a share of one time more.
  template <class Next>
  double best_choice(std::size_t dimension, const std::vector<bool>& good, Next&& next) const {
    const auto count = static_cast<std::size_t>(knobs_[dimension].count);
    std::vector<double> of_good(count, 1.0 / static_cast<double>(count)), of_rest = of_good;
    for (std::size_t i = 0; i < seen_.size(); ++i)
      ++(good[i] ? of_good : of_rest)[static_cast<std::size_t>(seen_[i].values[dimension])];
    const double all = std::accumulate(of_good.begin(), of_good.end(), 0.0);
    std::size_t chosen = 0;
    double most = -1.0;
    for (std::size_t i = 0; i < candidates; ++i) {
      double left = next() * all;
      std::size_t choice = 0;
      for (; choice + 1 < count && left >= of_good[choice]; ++choice) left -= of_good[choice];
      const double gain = of_good[choice] / of_rest[choice];
      if (gain <= most) continue;
      most = gain;
      chosen = choice;
    }
    return static_cast<double>(chosen);
  }

  std::vector<Knob> knobs_;
  trainyard::RandomStream random_;
  std::uint64_t drawn_ = 0;
  std::vector<Seen> seen_;
};

}  // namespace studies
