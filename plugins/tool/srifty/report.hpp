// A plan as text: a table, a log of all clusters, a run file and the line that starts it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/tool.hpp>

#include "planner.hpp"

namespace srifty {

/// Returns the machines of a cluster: "3 x p3.2xlarge us-east-1, 2 of them spot".
std::string cluster_text(const Candidate& candidate, const Catalogue& catalogue);

/// Returns the indices of the candidates in the order in which a reader wants them: the chosen one, then those
/// that would do by the objective, then those over a limit, then those that cannot be used.
std::vector<std::size_t> in_order(const Plan& plan, Objective objective);

/// Fills columns and rows: the first `most` of that order, 0: all.
void add_table(trainyard::Report& report, const Plan& plan, const Job& job, const Catalogue& catalogue,
               std::int64_t most);

/// Returns all candidates as CSV, in the order in which they were judged.
std::string log_text(const Plan& plan, const Catalogue& catalogue);

/// Returns what to give up, with the cluster that it would bring: "max_cost = 12.5 (2 x ...)".
std::string relaxation_text(const Relaxation& relaxation, const Plan& plan, const Catalogue& catalogue);

/// Returns a file to be laid over the run's own, of a cluster of one type.
std::string run_file_text(const Candidate& candidate, const Job& job, const Catalogue& catalogue);

/// Returns the command that trains on that cluster; RUN.toml stands for the run's own file.
std::string launch_text(const Candidate& candidate, const Catalogue& catalogue, const std::string& plan_file);

}  // namespace srifty
