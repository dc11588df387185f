// FLOW2, a randomised direct search that only compares: Wu, Wang and Huang, "Frugal Optimization for Cost-related
// Hyperparameters", AAAI 2021, algorithm 1. It tries a random direction from the best point and, where that is no
// better, the opposite one. Where 2^d proposals in a row brought nothing, steps become shorter: of a length that goes
// with the root of the number of proposals. Details that the paper leaves open are those of FLAML 2.6.
//
// Errors are minimised; one that is not finite is never the best. All is a function of the seed and of the calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <trainyard/random.hpp>

#include "knob.hpp"
#include "normal.hpp"

namespace studies {

class Flow2 {
 public:
  /// A point to be tried, as propose() gave it.
  struct Proposal {
    Values values;
    double step = 0.0;            ///< length of the move that led there
    std::uint64_t incumbent = 0;  ///< number of the best point that it is a move from
  };

  /// Begins at a point of which the error is known.
  Flow2(std::vector<Knob> knobs, Values start, double error, trainyard::RandomStream random)
      : knobs_(std::move(knobs)), random_(random), best_(std::move(start)), error_(error) {
    for (std::size_t i = 0; i < knobs_.size(); ++i) center_.push_back(knobs_[i].at(best_[i]));
    const auto dimensions = static_cast<double>(knobs_.size());
    longest_ = std::sqrt(dimensions);
    step_ = first_step * longest_;
    if (const double least = least_step(); least > step_) step_ = std::min(2.0 * least, longest_);
    patience_ = std::uint64_t{1} << std::min<std::size_t>(9, knobs_.size());
    open_ = 2 * static_cast<std::int64_t>(knobs_.size());
  }

  const Values& best() const { return best_; }
  /// Returns the coordinates of the best point.
  const std::vector<double>& center() const { return center_; }
  double error() const { return error_; }
  double step() const { return step_; }

  /// Returns whether more proposals make sense before some of those that are open are reported.
  bool can_propose() const { return open_ > 0; }

  /// Returns the next point; nothing once the search has converged, as steps are so short that they lead nowhere. Steps
  /// become shorter only where they may.
  std::optional<Proposal> propose(bool may_shorten = true) {
    ++proposed_;
    --open_;
    const bool opposite = !direction_.empty();
    if (!opposite) direction_ = direction();
    std::vector<double> to = center_;
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = std::clamp(to[i] + (opposite ? -direction_[i] : direction_[i]), 0.0, 1.0);
    if (opposite) direction_.clear();
    Proposal proposal{values_at(to), step_, incumbent_};
    if (++from_here_ >= patience_ && may_shorten) {
      from_here_ = patience_ - 2;
      if (step_ < least_step()) return std::nullopt;
      before_ = shortened_ > 0.0 ? shortened_ : best_at_;
      shortened_ = static_cast<double>(proposed_) + 2.0;
      step_ *= std::sqrt(before_ / shortened_);
    }
    return proposal;
  }

  /// Sets the error of the best point, as trials are other ones from here on.
  void restate(double error) { error_ = error; }

  void report(const Proposal& proposal, double error) {
    ++reported_;
    if (error < error_ || (std::isnan(error_) && !std::isnan(error))) return move_to(proposal, error);
    if (proposal.incumbent != incumbent_) return;
    ++reported_here_;
    if (reported_here_ >= 2 * knobs_.size() && open_ <= 0) open_ = 2;
  }

  /// Returns whether the best point of another search lies within a step of this one's.
  bool reaches(const Flow2& other) const {
    double square = 0.0;
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      if (knobs_[i].kind == Knob::Kind::unordered && best_[i] != other.best_[i]) return false;
      square += (center_[i] - other.center_[i]) * (center_[i] - other.center_[i]);
    }
    return std::sqrt(square) <= step_;
  }

 private:
  static constexpr double first_step = 0.1;  ///< times the root of the number of dimensions
  static constexpr double least_float_step = 1e-4;

  void move_to(const Proposal& proposal, double error) {
    error_ = error;
    best_ = proposal.values;
    for (std::size_t i = 0; i < knobs_.size(); ++i) center_[i] = knobs_[i].at(best_[i]);
    ++incumbent_;
    step_ = proposal.step;
    if (shortened_ > 0.0) step_ *= std::sqrt(shortened_ / before_);
    step_ = std::min(step_, longest_);
    best_at_ = static_cast<double>(reported_) + 1.0;
    direction_.clear();
    from_here_ = 0;
    reported_here_ = 0;
    open_ = 2 * static_cast<std::int64_t>(knobs_.size());
  }

  /// Returns the length below which a move changes no whole number any more.
  double least_step() const {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < knobs_.size(); ++i) least = std::min(least, knobs_[i].resolution(best_[i]));
    return std::isfinite(least) ? least * longest_ : least_float_step;
  }

  /// Returns a move of the length of a step in a random direction.
  std::vector<double> direction() {
    std::vector<double> move(knobs_.size());
    double square = 0.0;
    for (std::size_t i = 0; i < move.size(); ++i) {
      const double first = random_.uniform(drawn_++);
      move[i] = normal(first, random_.uniform(drawn_++));
      square += move[i] * move[i];
    }
    const double scale = square > 0.0 ? step_ / std::sqrt(square) : 0.0;
    for (double& each : move) each *= scale;
    return move;
  }

  /// Returns the values at a point. Of one among several a move of a share of a part changes the value by that chance:
  /// to one of those next to it, or to any other where they have no order. (FLAML's moves have to be half a part long,
  /// which short ones never are.)
  Values values_at(const std::vector<double>& to) {
    Values values(knobs_.size());
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      const Knob& knob = knobs_[i];
      if (knob.kind == Knob::Kind::range) {
        values[i] = knob.value(to[i]);
        continue;
      }
      values[i] = best_[i];
      if (knob.count < 2.0) continue;
      const double parts = (to[i] - center_[i]) * knob.count, chance = random_.uniform(drawn_++);
      if (knob.kind == Knob::Kind::steps) {
        values[i] = std::clamp(best_[i] + std::floor(parts + chance), 0.0, knob.count - 1.0);
      } else if (chance < std::abs(parts)) {
        values[i] = std::floor(random_.uniform(drawn_++) * (knob.count - 1.0));
        if (values[i] >= best_[i]) ++values[i];
      }
    }
    return values;
  }

  std::vector<Knob> knobs_;
  trainyard::RandomStream random_;
  std::uint64_t drawn_ = 0;
  Values best_;
  double error_;
  std::vector<double> center_;  ///< coordinates that moves begin at
  std::uint64_t incumbent_ = 0;
  double step_ = 0.0, longest_ = 0.0;
  std::uint64_t patience_ = 0;  ///< proposals without success before steps become shorter
  std::uint64_t proposed_ = 0, reported_ = 0;
  std::uint64_t from_here_ = 0;            ///< proposals from the best point, fewer by two at each shortening
  std::uint64_t reported_here_ = 0;        ///< of these, how many are reported
  std::int64_t open_ = 0;                  ///< how many may be proposed before one is reported
  double best_at_ = 1.0;                   ///< number of the trial that found the best point
  double before_ = 0.0, shortened_ = 0.0;  ///< K' and K of the last shortening; 0: there was none
  std::vector<double> direction_;          ///< of the last proposal, if the opposite one comes next
};

}  // namespace studies
