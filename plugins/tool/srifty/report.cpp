#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "lib/escapes.hpp"
#include "lib/printed.hpp"

namespace srifty {
namespace {

using trainyard::lib::printed;

std::string why_not(const Candidate& each, const Plan& plan, std::size_t index) {
  if (!each.usable()) return each.unusable;
  if (!each.over.empty()) return each.over;
  if (plan.chosen == index) return "";
  const Candidate& best = plan.candidates[*plan.chosen];
  std::string text;
  if (each.cost > best.cost) text = printed("%+.0f %% cost", 100.0 * (each.cost / best.cost - 1.0));
  if (each.seconds > best.seconds)
    text +=
        (text.empty() ? "" : ", ") + printed("%+.0f %% time", 100.0 * (each.seconds / best.seconds - 1.0));
  return text.empty() ? "more machines for the same" : text;
}

double value_of(const Candidate& each, Objective objective) {
  switch (objective) {
    case Objective::min_cost: return each.cost;
    case Objective::min_time: return each.seconds;
    case Objective::min_cost_time: return each.cost * each.seconds;
  }
  return 0.0;
}

double hourly_price(const Candidate& each) {
  return each.seconds > 0.0 ? each.cost / (each.seconds / 3600.0) : 0.0;
}

}  // namespace

std::string cluster_text(const Candidate& candidate, const Catalogue& catalogue) {
  std::string text;
  for (const Group& group : candidate.groups) {
    const Machine& facts = catalogue.machines[group.machine];
    text += (text.empty() ? "" : " + ") + std::to_string(group.count) + " x " + facts.type;
    const std::string& place = facts.zone.empty() ? facts.region : facts.zone;
    if (!place.empty()) text += " " + place;
    if (group.spot == group.count)
      text += " spot";
    else if (group.spot > 0)
      text += " (" + std::to_string(group.spot) + " spot)";
  }
  return text;
}

std::vector<std::size_t> in_order(const Plan& plan, Objective objective) {
  std::vector<std::size_t> order(plan.candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const Candidate& each = plan.candidates[i];
    const int place = plan.chosen == i ? 0 : each.feasible() ? 1 : each.usable() ? 2 : 3;
    return std::tuple(place, value_of(each, objective), each.machines);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

void add_table(trainyard::Report& report, const Plan& plan, const Job& job, const Catalogue& catalogue,
               std::int64_t most) {
  report.columns = {"chosen", "cluster", "ranks",    "step ms p50", "step ms p90", "samples/s",
                    "hours",  "USD/h",   "cost USD", "front",       "why not",     "prices of"};
  for (const std::size_t i : in_order(plan, job.objective)) {
    if (most > 0 && std::ssize(report.rows) == most) break;
    const Candidate& each = plan.candidates[i];
    report.rows.push_back({plan.chosen == i ? "*" : "", cluster_text(each, catalogue), each.ranks,
                           1e3 * each.p50, 1e3 * each.p90, each.throughput, each.seconds / 3600.0,
                           hourly_price(each), each.cost, each.pareto ? "yes" : "", why_not(each, plan, i),
                           catalogue.machines[each.groups.front().machine].as_of});
  }
}

std::string log_text(const Plan& plan, const Catalogue& catalogue) {
  std::string text =
      "cluster,ranks,micro_batches,bucket_mib,step_p50_s,step_p90_s,spot_overhead,samples_per_s,seconds,"
      "cost_usd,front,chosen,why_not,as_of,source\n";
  for (std::size_t i = 0; i < plan.candidates.size(); ++i) {
    const Candidate& each = plan.candidates[i];
    const Machine& facts = catalogue.machines[each.groups.front().machine];
    const std::string reason = each.usable() ? each.over : each.unusable;
    text += trainyard::lib::csv_field(cluster_text(each, catalogue)) +
            printed(",%d,%d,%g,%.9g,%.9g,%.6g,%.9g,%.9g,%.9g,%d,%d,", each.ranks, each.micros,
                    each.bucket / mebibyte, each.p50, each.p90, each.overhead, each.throughput, each.seconds,
                    each.cost, each.pareto ? 1 : 0, plan.chosen == i ? 1 : 0) +
            trainyard::lib::csv_field(reason) + "," + facts.as_of + "," +
            trainyard::lib::csv_field(facts.source) + "\n";
  }
  return text;
}

std::string relaxation_text(const Relaxation& relaxation, const Plan& plan, const Catalogue& catalogue) {
  const Candidate& each = plan.candidates[relaxation.candidate];
  const std::string cluster = " (" + cluster_text(each, catalogue) + ")";
  if (relaxation.limit == "max_hours")
    return printed("max_hours = %.4g", each.seconds / 3600.0 * 1.001) + cluster;
  if (relaxation.limit == "max_cost") return printed("max_cost = %.4g", each.cost * 1.001) + cluster;
  if (relaxation.limit == "min_throughput")
    return printed("min_throughput = %.4g", each.throughput * 0.999) + cluster;
  return printed("no single limit: %.4g hours, %.4g USD, %.4g samples/s", each.seconds / 3600.0, each.cost,
                 each.throughput) +
         cluster;
}

std::string run_file_text(const Candidate& candidate, const Job& job, const Catalogue& catalogue) {
  const Machine& facts = catalogue.machines[candidate.groups.front().machine];
  const std::int64_t micro =
      *std::max_element(candidate.shares.begin(), candidate.shares.end()) / candidate.micros;
  std::string text = "# Written by trainyard srifty: lay it over the run file that was planned.\n# " +
                     cluster_text(candidate, catalogue) +
                     printed(": %.4g ms a step (90 %%: %.4g), %.4g h, %.4g USD\n", 1e3 * candidate.p50,
                             1e3 * candidate.p90, candidate.seconds / 3600.0, candidate.cost) +
                     "# Prices of " + facts.as_of + ", " + facts.source + "\n\n[data.train]\n";
  text += printed("batch_size = %lld\nmicro_batch_size = %lld\n", static_cast<long long>(job.batch),
                  static_cast<long long>(micro));
  text += printed("\n[distributed]\nbucket_cap_mb = %.6f\n", candidate.bucket / mebibyte);
  if (candidate.groups.size() > 1) {
    std::string shares;
    for (const std::int64_t each : candidate.shares)
      shares += (shares.empty() ? "" : ", ") + std::to_string(each);
    text += "shares = [" + shares + "]\n";
  }
  if (const int spot = candidate.spot_machines(); spot > 0 && job.spot.revocations_per_hour > 0.0) {
    text += std::string("\n[checkpoint]\n") + (job.has_checkpointer ? "" : "type = \"full\"\n");
    text += printed("interval = \"%.0fba\"\n\n[run]\nresume = \"auto\"\n",
                    std::max(1.0, std::round(best_interval(spot, job.spot) / candidate.p50)));
  }
  text += printed("\n[[hooks]]\ntype = \"drift\"\npredicted_ms = %.6f\n", 1e3 * candidate.p50);
  return text;
}

/// Returns a line for each type: ranks have their shares by number, so that machines of the first type have the
/// first numbers.
static std::string launch_of_two_types(const Candidate& candidate, const Catalogue& catalogue,
                                       const std::string& train) {
  std::string text;
  int first = 0;
  for (const Group& group : candidate.groups) {
    const Machine& facts = catalogue.machines[group.machine];
    const int last = first + group.count - 1;
    text += (text.empty() ? "" : "\n") + printed("on %s, as NODE %d", facts.type.c_str(), first) +
            (group.count > 1 ? printed(" to %d", last) : "") +
            printed(
                ": torchrun --no-python --nnodes %d --node-rank NODE --nproc-per-node %d --master-addr "
                "FIRST_HOST "
                "--master-port 29500 ",
                candidate.machines, facts.count) +
            train;
    first = last + 1;
  }
  return text;
}

std::string launch_text(const Candidate& candidate, const Catalogue& catalogue,
                        const std::string& plan_file) {
  const int local = catalogue.machines[candidate.groups.front().machine].count;
  const std::string train = "trainyard train RUN.toml " + plan_file;
  if (candidate.groups.size() > 1) return launch_of_two_types(candidate, catalogue, train);
  if (candidate.machines == 1)
    return candidate.ranks == 1 ? train : train + " --ranks " + std::to_string(local);
  return printed(
             "torchrun --no-python --nnodes %d --nproc-per-node %d --rdzv-backend c10d --rdzv-endpoint "
             "FIRST_HOST:29500 ",
             candidate.machines, local) +
         train;
}

}  // namespace srifty
