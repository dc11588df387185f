// Clusters that could train a job, what each would take and cost, and which is best.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "catalogue.hpp"
#include "profile.hpp"
#include "spot.hpp"

namespace srifty {

enum class Objective : std::uint8_t { min_cost, min_time, min_cost_time };

/// What is to be trained, and what it may take.
struct Job {
  std::int64_t batch = 1;  ///< samples a step, of all ranks
  double samples = 0.0;    ///< of the whole training
  double startup = 0.0;    ///< seconds until the first step
  Objective objective = Objective::min_cost;
  double quantile = 0.5;  ///< at which time and cost are judged
  std::optional<double> max_seconds, max_cost, min_throughput;
  std::vector<std::string> regions;  ///< empty: any
  int max_machines = 1;
  bool allow_spot = false;
  bool allow_mixed = false;  ///< clusters of two types of machines
  SpotScenario spot;
  double latency = 0.0;          ///< seconds a message, where no links were measured
  std::vector<double> buckets;   ///< bytes, sizes to choose from
  bool has_checkpointer = true;  ///< the run names one, so that a plan leaves its type as it is
};

/// Machines of one type in a cluster.
struct Group {
  std::size_t machine = 0;  ///< of the catalogue
  int count = 0;
  int spot = 0;  ///< of these, on the spot market
};

/// A cluster with its prediction.
struct Candidate {
  std::vector<Group> groups;
  std::vector<std::int64_t> shares;  ///< samples of a step, a rank each, in the order of the groups
  int machines = 0, ranks = 0;
  int micros = 1;                    ///< micro-batches that each share is cut into
  double bucket = 0.0;               ///< bytes
  double p50 = 0.0, p90 = 0.0;       ///< seconds a step
  double overhead = 0.0;             ///< time lost to revocations as a share of the work
  double seconds = 0.0, cost = 0.0;  ///< of the whole training, at the job's quantile
  double throughput = 0.0;           ///< samples a second
  std::string unusable;              ///< why it cannot train the job at all; empty: it can
  std::string over;                  ///< which limits it is over; empty: none
  bool pareto = false;               ///< no usable one is both faster and cheaper

  int spot_machines() const {
    int count = 0;
    for (const Group& group : groups) count += group.spot;
    return count;
  }
  bool usable() const { return unusable.empty(); }
  bool feasible() const { return usable() && over.empty(); }
};

/// The least that a limit would have to be for a cluster to be feasible.
struct Relaxation {
  std::string limit;  ///< "max_hours", "max_cost", "min_throughput", or "several limits"
  std::size_t candidate = 0;
};

struct Plan {
  std::vector<Candidate> candidates;
  std::optional<std::size_t> chosen;
  std::vector<Relaxation> relaxations;  ///< where nothing was chosen
};

class Planner {
 public:
  /// Keeps references.
  Planner(const Job& job, const Catalogue& catalogue, const std::vector<Profile>& profiles,
          const std::vector<Links>& links);

  /// Returns all clusters, each with its prediction and what is against it. Ends early where `stop` says so.
  template <class Stop>
  Plan plan(Stop stop) const {
    Plan plan{.candidates = clusters()};
    for (std::size_t i = 0; i < plan.candidates.size(); ++i) {
      if (stop(i, plan.candidates.size())) {
        plan.candidates.resize(i);
        break;
      }
      judge(plan.candidates[i]);
    }
    choose(plan);
    return plan;
  }

  /// Returns the seconds of a step of this cluster at a quantile, with buckets of so many bytes.
  double step(const Candidate& candidate, double bucket, double quantile) const;

 private:
  struct Device {
    const Profile* profile;
    BatchTimes forward, backward;
    std::map<double, std::vector<Bucket>> buckets;  ///< by size
  };

  std::vector<Candidate> clusters() const;
  void judge(Candidate& candidate) const;
  void choose(Plan& plan) const;
  void relax(Plan& plan) const;

  /// Says why a cluster cannot train the job at all; sets shares and micro-batches of one that can.
  std::string fit(Candidate& candidate) const;
  std::string fit_equal_shares(Candidate& candidate) const;
  std::string fit_shares_by_speed(Candidate& candidate) const;
  const Machine& machine(const Group& group) const { return catalogue_.machines[group.machine]; }
  const Device* device_of(const Group& group) const;
  StepParts parts_of(const Group& group, double share, const Candidate& candidate, double quantile) const;
  double sum_seconds(const Candidate& candidate, double bytes, double quantile) const;
  std::string limits_exceeded(const Candidate& candidate) const;

  const Job& job_;
  const Catalogue& catalogue_;
  std::map<std::string, const Links*> links_;
  std::map<std::string, Device> devices_;
};

}  // namespace srifty
