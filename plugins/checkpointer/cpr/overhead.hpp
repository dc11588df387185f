// What checkpoints and failures cost a training, and how much it loses where only the shard of a failed node
// is loaded again: the model of Maeng et al., "Understanding and Improving Failure Tolerant Training for Deep
// Learning Recommendation with Partial Recovery" (CPR), MLSys 2021, arXiv 2011.02999. To the first order:
// failures are rare against the interval between saves. All times in the same unit.
#pragma once

#include <algorithm>
#include <cmath>

namespace cpr {

struct Job {
  double duration = 0.0;  ///< T: useful training time, above 0
  double mtbf = 0.0;      ///< Tf: mean time between failures of the job, above 0
  double shards = 1.0;    ///< N: equal parts that the tables are cut into; a failure takes one
};

struct Costs {
  double save = 0.0;        ///< training stands still for a save of everything
  double save_shard = 0.0;  ///< of a shard, which all nodes make at once
  double load = 0.0;        ///< of everything
  double load_shard = 0.0;  ///< of one shard
  double reschedule = 0.0;  ///< until there is a new node
};

/// Where all go back to the last save: (O_save / Ts + (O_load + Ts / 2 + O_res) / Tf), as a share of T.
inline double full_overhead(const Job& job, const Costs& costs, double interval) {
  return costs.save / interval + (costs.load + interval / 2.0 + costs.reschedule) / job.mtbf;
}

/// The interval at which that is least: sqrt(2 O_save Tf).
inline double full_interval(const Job& job, const Costs& costs) {
  return std::sqrt(2.0 * costs.save * job.mtbf);
}

/// Where the failed shard alone is loaded: nothing is computed again. As a share of T.
inline double partial_overhead(const Job& job, const Costs& costs, double interval) {
  return costs.save_shard / interval + (costs.load_shard + costs.reschedule) / job.mtbf;
}

/// The expected portion of lost samples where failures are a Poisson process over the whole duration. With
/// m = floor(T / Ts) whole intervals and the rest q, a failure in an interval of length L loses L / 2 of the
/// progress of one shard on average: (m Ts^2 + q^2) / (2 T Tf N).
inline double expected_pls(const Job& job, double interval) {
  const double whole = std::floor(job.duration / interval);
  const double rest = job.duration - whole * interval;
  return (whole * interval * interval + rest * rest) / (2.0 * job.duration * job.mtbf * job.shards);
}

/// The paper's, which is exact where T is a multiple of Ts and too high elsewhere: Ts / (2 Tf N).
inline double expected_pls_first_order(const Job& job, double interval) {
  return 0.5 * interval / (job.mtbf * job.shards);
}

/// The longest interval whose expected portion of lost samples, to the first order, is `pls`; at most T.
inline double partial_interval(const Job& job, double pls) {
  return std::min(2.0 * pls * job.shards * job.mtbf, job.duration);
}

}  // namespace cpr
