// Decides how a failure is answered and how often is saved, so that the portion of lost samples (PLS) stays
// below what the user tolerates. The paper (overhead.hpp) plans once, before the run; this controller measures
// what it needs to know and plans again whenever it is asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <trainyard/error.hpp>

#include "overhead.hpp"

namespace cpr {

using namespace trainyard;

/// What was lost so far. A failure of a shard adds (samples now - samples at its last save) / all samples,
/// times the share of rows that the shard holds: of N equal ones 1 / N.
class LossMeter {
 public:
  LossMeter(std::int64_t total_samples, std::span<const std::int64_t> rows_of_shards)
      : total_(static_cast<double>(total_samples)),
        rows_(rows_of_shards.begin(), rows_of_shards.end()),
        saved_at_(rows_.size(), 0) {
    all_rows_ = static_cast<double>(std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0}));
    if (total_samples <= 0 || all_rows_ <= 0.0)
      throw ConfigError("the portion of lost samples needs samples and rows; there are " +
                        std::to_string(total_samples) + " samples, " + std::to_string(rows_.size()) +
                        " shards");
  }

  void saved(std::size_t shard, std::int64_t samples) { saved_at_.at(shard) = samples; }
  /// The shard goes back to its last save; gives the samples that it lost.
  std::int64_t failed(std::size_t shard, std::int64_t samples) {
    const std::int64_t lost = samples - saved_at_.at(shard);
    pls_ += static_cast<double>(lost) / total_ * (static_cast<double>(rows_[shard]) / all_rows_);
    return lost;
  }
  double pls() const { return pls_; }

 private:
  double total_;
  std::vector<std::int64_t> rows_;      ///< of each shard
  std::vector<std::int64_t> saved_at_;  ///< samples that had been seen
  double all_rows_ = 0.0;
  double pls_ = 0.0;
};

enum class Mode : std::uint8_t {
  partial,  ///< survivors keep their state, the failed shard is loaded
  full,     ///< all go back to the last save
};

struct Plan {
  Mode mode = Mode::full;
  double interval = 0.0;  ///< between saves
  double overhead = 0.0;  ///< expected share of the useful time
  double pls = 0.0;       ///< expected in the end, with what was lost so far; 0 of the rest in full mode
};

/// One thread at a time. All times in the same unit.
class Controller {
 public:
  struct Settings {
    double target_pls = 0.1;      ///< tolerated in the end
    Job job;                      ///< mtbf: believed before the run
    Costs costs;                  ///< the same
    double prior_failures = 1.0;  ///< how many observed failures that belief weighs
    double smoothing = 0.25;      ///< weight of the newest measurement of a cost
    std::int64_t failures = 0;    ///< of the run so far
  };

  explicit Controller(const Settings& settings)
      : settings_(settings), costs_(settings.costs), failures_(settings.failures) {
    require(settings.target_pls > 0.0, "target_pls", settings.target_pls);
    require(settings.job.duration > 0.0, "duration", settings.job.duration);
    require(settings.job.mtbf > 0.0, "mtbf", settings.job.mtbf);
    require(settings.job.shards >= 1.0, "shards", settings.job.shards);
    require(settings.costs.save > 0.0, "the cost of a save", settings.costs.save);
    require(settings.costs.save_shard > 0.0, "the cost of a shard's save", settings.costs.save_shard);
    require(settings.prior_failures > 0.0, "prior_failures", settings.prior_failures);
  }

  /// Training stood still for that long, for what `mode` saves once an interval. An exponentially weighted
  /// average over the saves.
  void saved(Mode mode, double stall) {
    average(mode == Mode::full ? costs_.save : costs_.save_shard, stall);
  }

  /// What the recovery from a failure took. `load` is of what `mode` loads.
  void failed(Mode mode, double load, double reschedule) {
    ++failures_;
    average(mode == Mode::full ? costs_.load : costs_.load_shard, load);
    average(costs_.reschedule, reschedule);
  }

  /// Failures come at a rate with a Gamma prior of `prior_failures` in prior_failures * mtbf; after `elapsed`
  /// its posterior mean is (prior_failures + failures) / (prior_failures * mtbf + elapsed), and this 1 / that.
  double mtbf(double elapsed) const {
    return (settings_.prior_failures * settings_.job.mtbf + elapsed) /
           (settings_.prior_failures + static_cast<double>(failures_));
  }
  const Costs& costs() const { return costs_; }

  /// What is best from here on: `progress` of the duration is trained after `elapsed`, `pls` lost.
  /// A partial recovery saves as rarely as the target allows, more often where what was lost leaves less for
  /// the rest than was planned; where nothing is left, or full recovery is cheaper, all go back.
  Plan plan(double progress, double elapsed, double pls) const {
    Job job = settings_.job;
    job.mtbf = mtbf(elapsed);
    const double rest = std::max(0.0, 1.0 - progress);
    Plan full{.mode = Mode::full, .interval = full_interval(job, costs_), .pls = pls};
    full.overhead = full_overhead(job, costs_, full.interval);
    const double budget = settings_.target_pls - pls;
    if (budget <= 0.0) return full;
    // The rest is a share of the run, and so of the samples that it can lose.
    const double tolerated =
        rest > 0.0 ? std::min(settings_.target_pls, budget / rest) : settings_.target_pls;
    Plan partial{.mode = Mode::partial, .interval = partial_interval(job, tolerated)};
    partial.overhead = partial_overhead(job, costs_, partial.interval);
    partial.pls = pls + rest * expected_pls_of_rest(job, rest, partial.interval);
    return partial.overhead < full.overhead ? partial : full;
  }

 private:
  static double expected_pls_of_rest(Job job, double rest, double interval) {
    job.duration *= rest;
    return job.duration > 0.0 ? expected_pls(job, interval) : 0.0;
  }

  static void require(bool holds, const char* what, double found) {
    if (!holds)
      throw ConfigError(std::string(what) + " of partial recovery is " + std::to_string(found) +
                        ", it must be above 0 (shards: 1 or more)");
  }

  void average(double& cost, double measured) const { cost += settings_.smoothing * (measured - cost); }

  Settings settings_;
  Costs costs_;
  std::int64_t failures_;
};

}  // namespace cpr
