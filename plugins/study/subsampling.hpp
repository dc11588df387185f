// Which of several arms of a bandit deserves the next observation: sub-sampling, of Chan, "The multi-armed bandit problem:
// an efficient non-parametric solution" (Annals of Statistics 2020), which Huang et al. (MLSys 2022) use for trainings. The
// leader is the arm with most observations. Another one is better than it where it has fewer and
//   - fewer than c_n = sqrt(ln n), n being the observations of all arms, or
//   - its mean is at least that of some observations of the leader in a row, as many as it has itself.
// So an arm loses only to the worst stretch of the leader, needs no scale of the noise, and none is out for good. Larger
// is better. All is a function of the seed and of the calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/manifest.hpp>
#include <trainyard/random.hpp>

namespace studies {

enum class Comparison : std::uint8_t { window_mean, same_rung };

class SubSampling {
 public:
  SubSampling(std::size_t arms, Comparison comparison, trainyard::RandomStream random)
      : arms_(arms), comparison_(comparison), random_(random) {}

  void observe(std::size_t arm, double value) {
    arms_[arm].sums.push_back(arms_[arm].sums.back() + value);
    ++all_;
  }
  /// Leaves an arm out from here on: it leads no more, and is better than nothing.
  void drop(std::size_t arm) { arms_[arm].out = true; }

  std::size_t count(std::size_t arm) const { return arms_[arm].sums.size() - 1; }
  std::size_t observations() const { return all_; }

  /// Returns the arm with most observations; of several the one of the largest mean, of these the one that led before, or
  /// else one by chance. There has to be one that was not dropped.
  std::size_t lead() {
    first_.clear();
    for (std::size_t arm = 0; arm < arms_.size(); ++arm) {
      if (arms_[arm].out) continue;
      const int order = first_.empty() ? 0 : compare(arm, first_.front());
      if (order > 0) first_.clear();
      if (order >= 0) first_.push_back(arm);
    }
    if (std::ranges::find(first_, leader_) == first_.end())
      leader_ = first_.size() == 1 ? first_.front() : first_[random_.below(drawn_++, first_.size())];
    return leader_;
  }

  /// Returns the arms that are better than the leader, lead() being called first.
  std::vector<std::size_t> better() {
    std::vector<std::size_t> found;
    for (std::size_t arm = 0; arm < arms_.size(); ++arm)
      if (arm != leader_ && !arms_[arm].out && is_better(arms_[arm])) found.push_back(arm);
    return found;
  }

 private:
  struct Arm {
    std::vector<double> sums{0.0};  ///< of the first 0, 1, ... observations
    bool out = false;
    // The least sum of `length` observations in a row of the arm `leader`, over those that begin before `next`.
    std::size_t leader = 0, length = 0, next = 0;
    double least = 0.0;
  };

  /// Sums of equal observations are equal, though they were added to others before.
  static constexpr double rounding = 1e-9;

  int compare(std::size_t one, std::size_t other) const {
    if (count(one) != count(other)) return count(one) < count(other) ? -1 : 1;
    const double a = arms_[one].sums.back(), b = arms_[other].sums.back();
    if (std::abs(a - b) <= rounding * (std::abs(a) + std::abs(b))) return 0;
    return a < b ? -1 : 1;
  }

  bool is_better(Arm& arm) {
    const std::vector<double>& of_leader = arms_[leader_].sums;
    const std::size_t own = arm.sums.size() - 1, most = of_leader.size() - 1;
    if (own >= most) return false;
    if (static_cast<double>(own) < std::sqrt(std::log(static_cast<double>(all_)))) return true;
    const double least =
        comparison_ == Comparison::window_mean ? least_window(arm) : of_leader[own] - of_leader[own - 1];
    const double found =
        comparison_ == Comparison::window_mean ? arm.sums.back() : arm.sums[own] - arm.sums[own - 1];
    return found >= least - rounding * (std::abs(found) + std::abs(least));
  }

  /// While leader and length are as before, the newest windows alone are looked at.
  double least_window(Arm& arm) const {
    const std::vector<double>& of_leader = arms_[leader_].sums;
    const std::size_t own = arm.sums.size() - 1;
    if (arm.leader != leader_ || arm.length != own || arm.next == 0) {
      arm.leader = leader_;
      arm.length = own;
      arm.next = 0;
      arm.least = std::numeric_limits<double>::infinity();
    }
    double least = arm.least;
    for (; arm.next + own < of_leader.size(); ++arm.next)
      least = std::min(least, of_leader[arm.next + own] - of_leader[arm.next]);
    return arm.least = least;
  }

  std::vector<Arm> arms_;
  Comparison comparison_;
  trainyard::RandomStream random_;
  std::uint64_t drawn_ = 0;
  std::size_t all_ = 0;
  std::vector<std::size_t> first_;  ///< of lead(), whose memory is kept
  std::size_t leader_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace studies

template <>
struct trainyard::Words<studies::Comparison> {
  static constexpr std::string_view words[] = {"window_mean", "same_rung"};
};
