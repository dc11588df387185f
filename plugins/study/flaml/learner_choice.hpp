// Which learner has the next trial: Wang, Wu, Weimer and Zhu, "FLAML: A Fast and Lightweight AutoML Library", MLSys 2021,
// section 4.2. Each has an estimated cost for improvement (ECI), and a learner is drawn with a chance that goes with 1 / ECI,
// so that a dear one has its turns, in proportion. Where the paper leaves something open, the rule is FLAML 2.6's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace studies {

/// What a learner has cost and found. Costs are in one unit, whichever; errors are at least 0, and less is better.
struct LearnerRecord {
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  double relative_cost = 1.0;  ///< of its cheapest trial, by comparison with other learners
  double spent = 0.0;          ///< K0: the cost of all of its trials
  double spent_at_best = 0.0,
         spent_before_best = 0.0;  ///< K1, K2: K0 when the best came, and the best before it
  double best_cost = 0.0;          ///< the cost of the best trial
  double error = infinity, error_before = infinity;  ///< the best one, and the best before that
  double rows = 1.0, all_rows = 1.0;                 ///< samples that a trial trains on; those that there are
  int trials = 0;
  double first_cost = 0.0;  ///< the cost of its first trial

  void take(double trial_error, double cost) {
    if (trials++ == 0) first_cost = cost;
    spent += cost;
    if (!(trial_error < error)) return;
    error_before = std::isinf(error) ? 2.0 * trial_error : error;
    error = trial_error;
    spent_before_best = spent_at_best;
    spent_at_best = spent;
    best_cost = cost;
  }
};

/// The factor by which samples become more.
inline constexpr double more_rows = 4.0;

/// Returns the estimated cost for improvement on `least`, the least error of all learners: to find something better with as
/// many samples (ECI1) or to try the best with more of them (ECI2), and, for a learner that is behind, to catch up.
inline double cost_for_improvement(const LearnerRecord& learner, double least) {
  double cost =
      std::max(learner.spent - learner.spent_at_best, learner.spent_at_best - learner.spent_before_best);
  if (learner.rows < learner.all_rows)
    cost = std::min(cost, learner.best_cost * std::min(more_rows, learner.all_rows / learner.rows));
  if (learner.error > least && std::isfinite(learner.error)) {
    constexpr double least_time = 1e-10;
    const double gain = learner.error_before - learner.error,
                 time = learner.spent - learner.spent_before_best;
    const double speed = (gain != 0.0 ? gain : learner.error) / (time != 0.0 ? time : least_time);
    if (speed > 0.0) cost = std::max(2.0 * (learner.error - least) / speed, cost);
  }
  constexpr double least_cost = 1e-9;
  return cost != 0.0 ? cost : least_cost;
}

/// A learner that may have the next trial.
struct Candidate {
  const LearnerRecord* record = nullptr;
  bool is_free = true;  ///< it may have a trial now
};

/// Returns the number of the learner that has the next trial: an untried one, if its first trial promises to be cheaper than
/// any improvement of the others; else one that is drawn by `place`, a number in [0, 1). The first learner is the measure of
/// untried ones, and has the first trial. Nothing where none is free.
inline std::optional<std::size_t> next_learner(const std::vector<Candidate>& learners, double place) {
  if (learners.empty()) return std::nullopt;
  const LearnerRecord& first = *learners.front().record;
  if (first.trials == 0) return learners.front().is_free ? std::optional<std::size_t>(0) : std::nullopt;
  double least = LearnerRecord::infinity;
  for (const Candidate& each : learners) least = std::min(least, each.record->error);
  std::vector<double> costs;
  std::optional<std::size_t> cheapest;
  for (std::size_t i = 0; i < learners.size(); ++i) {
    const LearnerRecord& record = *learners[i].record;
    costs.push_back(record.trials == 0 ? record.relative_cost / first.relative_cost * first.first_cost
                                       : cost_for_improvement(record, least));
    if (learners[i].is_free && (!cheapest || costs[i] < costs[*cheapest])) cheapest = i;
  }
  if (!cheapest || learners[*cheapest].record->trials == 0) return cheapest;
  double all = 0.0;
  std::vector<std::size_t> tried;
  for (std::size_t i = 0; i < learners.size(); ++i)
    if (learners[i].is_free && learners[i].record->trials > 0) {
      tried.push_back(i);
      all += 1.0 / costs[i];
    }
  double left = place * all;
  for (const std::size_t each : tried)
    if ((left -= 1.0 / costs[each]) < 0.0) return each;
  return tried.back();  // by rounding
}

}  // namespace studies
