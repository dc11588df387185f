// Local searches one after the other: FLOW2 from a cheap point to where it converges, then anew from near that point.
// No configuration is tried twice. All is a function of the seed and of the calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <trainyard/random.hpp>

#include "flow2.hpp"
#include "normal.hpp"

namespace studies {

class FrugalSearch {
 public:
  FrugalSearch(std::vector<Knob> knobs, Values start, std::uint64_t seed)
      : knobs_(std::move(knobs)), start_(std::move(start)), seed_(seed) {}

  /// Returns a configuration to try; `running` are under way. Nothing: not before one of them is reported, or, where
  /// none is, that hardly anything is left in the space. A call that returns nothing changes nothing.
  /// Steps become shorter only where they may.
  std::optional<Values> next(int running, bool may_shorten = true) {
    Search search = search_;
    if (search.again) {
      if (running > 0) return std::nullopt;
      search.again = false;
      const Values best = search.flow->best();
      return open(std::move(search), {best, 0.0, retried});
    }
    for (int known = 0; known < most_known; ++known) {
      if (!search.flow) {
        const Values first = search.begun == 0 ? start_ : near_start(search.begun);
        const auto error = errors_.find(first);
        if (error == errors_.end() && open_.contains(first)) return std::nullopt;
        if (error == errors_.end()) return open(std::move(search), {first, 0.0, 0});
        search.flow.emplace(knobs_, first, error->second, random(search.begun));
      }
      if (running > 0 && !search.flow->can_propose()) return std::nullopt;
      std::optional<Flow2::Proposal> proposal = search.flow->propose(may_shorten);
      if (!proposal) {
        search.flow.reset();
        ++search.begun;
        continue;
      }
      const auto error = errors_.find(proposal->values);
      const bool is_open = open_.contains(proposal->values);
      if (error == errors_.end() && !is_open) return open(std::move(search), std::move(*proposal));
      search.flow->report(*proposal, is_open ? std::numeric_limits<double>::infinity() : error->second);
    }
    return std::nullopt;
  }

  /// Tries the best point again, and forgets all others: trials are other ones from here on, of more samples. None is
  /// under way.
  void try_best_again() {
    errors_.clear();
    search_.again = search_.flow.has_value();
  }

  /// Takes the error of a configuration that others tried, before anything is proposed: the search begins at the
  /// best of these.
  void know(const Values& values, double error) {
    errors_[values] = error;
    if (error >= least_known_ || !std::isfinite(error)) return;
    least_known_ = error;
    start_ = values;
  }

  /// Takes the error of a configuration that `next` gave; not finite where the trial failed.
  void report(const Values& values, double error) {
    errors_[values] = error;
    const Open of = open_.extract(values).mapped();
    if (of.search != search_.begun) return;  // that search is over
    if (of.proposal.incumbent == retried) return search_.flow->restate(error);
    if (!search_.flow)
      search_.flow.emplace(knobs_, values, error, random(search_.begun));
    else
      search_.flow->report(of.proposal, error);
  }

 private:
  static constexpr int most_known = 100'000;  ///< proposals in a row that were tried before
  static constexpr std::uint64_t retried =
      std::numeric_limits<std::uint64_t>::max();  ///< marks the best point, tried again

  /// What `next` changes.
  struct Search {
    std::optional<Flow2> flow;  ///< none: its first point is not known yet
    std::uint64_t begun = 0;    ///< number of searches before it
    bool again = false;         ///< the best point is to be tried again
  };

  /// A configuration that is being tried.
  struct Open {
    Flow2::Proposal proposal;
    std::uint64_t search;  ///< number of the search that it is of
  };

  Values open(Search&& search, Flow2::Proposal proposal) {
    search_ = std::move(search);
    Values values = proposal.values;
    open_.emplace(values, Open{std::move(proposal), search_.begun});
    return values;
  }

  trainyard::RandomStream random(std::uint64_t search) const { return {seed_, "flow2", search}; }

  /// Returns the first point of a later search: normal numbers added to the coordinates of what has an order.
  Values near_start(std::uint64_t search) const {
    const trainyard::RandomStream random(seed_, "start", search);
    Values values = start_;
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      if (knobs_[i].kind == Knob::Kind::unordered) continue;
      const double moved = normal(random.uniform(2 * i), random.uniform(2 * i + 1));
      values[i] = knobs_[i].value(std::clamp(knobs_[i].at(start_[i]) + moved, 0.0, 1.0));
    }
    return values;
  }

  std::vector<Knob> knobs_;
  Values start_;
  std::uint64_t seed_;
  double least_known_ = std::numeric_limits<double>::infinity();  ///< by know()
  Search search_;
  std::map<Values, double> errors_;  ///< of what was tried
  std::map<Values, Open> open_;
};

}  // namespace studies
