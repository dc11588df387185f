// BlendSearch: Wang, Wu, Huang and Saied, "Economical Hyperparameter Optimization With Blended Search Strategy", ICLR 2021.
// A global search (tpe.hpp) finds points from which local ones (flow2.hpp) begin; each time the search has the turn that
// promises most for what it costs. Global proposals count near what the local searches saw; farther ones as far as these
// have converged. Details that the paper leaves open are those of FLAML 2.6.
//
// Errors are minimised. No configuration is tried twice. All is a function of the seed and of the calls.
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
#include "tpe.hpp"

namespace studies {

/// How a search does. Wang et al., section 3.
struct Progress {
  double best = std::numeric_limits<double>::infinity(),
         before = best;                                      ///< least error, and the one before that
  double cost = 0.0, cost_at_best = 0.0, cost_before = 0.0;  ///< spent; when `best` came; when `before` came
  double speed = 0.0;  ///< by which the error falls for a cost of 1; 0: unknown

  /// Takes the outcome of a trial, while `running` others of the search were under way.
  void take(double error, double trial_cost, int running) {
    constexpr double least_cost = 1e-9;
    cost += trial_cost;
    if (error < best) {
      cost_before = std::exchange(cost_at_best, cost);
      before = std::isinf(best) ? error : best;
      best = error;
    }
    speed = before > best ? (before - best) / (1 + running) / std::max(cost - cost_before, least_cost) : 0.0;
  }

  /// Returns the cost of an improvement on `least`, the least error of all searches, as it is estimated.
  double cost_to_improve(double least) const {
    const double own = std::max(cost - cost_at_best, cost_at_best - cost_before);
    return best > least && speed > 0.0 ? std::max(own, 2.0 * (best - least) / speed) : own;
  }
};

class BlendSearch {
 public:
  /// Begins at `start`, a point where trials cost little.
  BlendSearch(std::vector<Knob> knobs, Values start, std::uint64_t seed)
      : knobs_(std::move(knobs)), start_(std::move(start)), seed_(seed), state_{Tpe(knobs_, {seed, "tpe"})} {
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      const double at = knobs_[i].at(start_[i]);
      state_.seen.emplace_back(at, at);
    }
    state_.admitted = state_.seen;
  }

  /// Returns a configuration to try; `running` are under way, and `cost_left` may still be spent. Nothing: not before one
  /// of them is reported, or, where none is, that hardly anything is left. A call that returns nothing changes nothing.
  std::optional<Values> next(int running, double cost_left) {
    State state = state_;
    for (int known = 0; known < most_known; ++known) {
      std::optional<Open> proposal = proposed(state, running, cost_left);
      if (!proposal) {
        if (running > 0) return std::nullopt;
        continue;  // a search has ended: another one has the turn
      }
      const auto tried = results_.find(proposal->move.values);
      if (tried != results_.end() && proposal->search == 0) {
        ++state.repeated;
        widen(state);
        continue;
      }
      if (tried != results_.end()) {
        if (++state.searches.at(proposal->search).repeated == most_repeated)
          converged(state, proposal->search);  // all that it reaches is known
        else
          over(state, *proposal, tried->second.error, tried->second.cost);
        continue;
      }
      if (open_.contains(proposal->move.values)) continue;
      if (proposal->search == 0) state.repeated = 0;
      include(proposal->search == 0 ? state.admitted : state.seen, proposal->move.values);
      if (proposal->search != 0) state.admitted = state.seen;
      ++state.searches.at(proposal->search).running;
      state_ = std::move(state);
      Values values = proposal->move.values;
      open_.emplace(values, std::move(*proposal));
      return values;
    }
    return std::nullopt;
  }

  /// Takes the error of a configuration that others tried, before anything is proposed: as one of the global search.
  void know(const Values& values, double error, double cost) {
    const double worth = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    results_[values] = {worth, cost};
    state_.started = true;
    over(state_, {{values, 0.0, 0}, 0}, worth, cost);
  }

  /// Takes the error of a configuration that `next` gave, and what its trial cost.
  void report(const Values& values, double error, double cost) {
    const double worth = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    results_[values] = {worth, cost};
    const Open open = open_.extract(values).mapped();
    if (const auto search = state_.searches.find(open.search); search != state_.searches.end())
      --search->second.running;
    over(state_, open, worth, cost);
  }

  /// Returns how many local searches go on.
  std::size_t local_searches() const { return state_.searches.size() - 1; }

 private:
  static constexpr int most_known = 100'000;  ///< proposals in a row that were tried before
  static constexpr int most_repeated = 100;   ///< of a local search
  static constexpr double margin = 0.1;       ///< of the box of global proposals, in coordinates

  /// The global search has the number 0, and no `flow`.
  struct Search {
    std::optional<Flow2> flow;
    Progress progress;
    int running = 0;
    int repeated = 0;  ///< proposals that were tried before
  };

  using Box = std::vector<std::pair<double, double>>;

  /// What `next` changes.
  struct State {
    Tpe global;
    std::map<std::uint64_t, Search> searches = {{0, {}}};
    std::uint64_t begun = 0;  ///< local searches so far
    Box seen, admitted;       ///< coordinates of local searches; those in which global proposals count
    double least = std::numeric_limits<double>::infinity();
    bool started = false;
    std::uint64_t boxed = 0;     ///< points drawn from the box so far
    std::uint64_t repeated = 0;  ///< global proposals in a row that were tried before
  };

  struct Open {
    Flow2::Proposal move;
    std::uint64_t search = 0;
  };
  struct Result {
    double error, cost;
  };

  /// Returns what the search that promises most proposes; nothing where it has ended.
  std::optional<Open> proposed(State& state, int running, double cost_left) const {
    if (!std::exchange(state.started, true)) return Open{{start_, 0.0, 0}, 0};
    const auto [first, second] = most_promising(state, running, cost_left);
    if (first != 0) return of_local(state, first);
    Values values(knobs_.size());
    if (state.repeated == 0) {
      values = state.global.propose();
      if (is_admitted(state.admitted, values)) return Open{{std::move(values), 0.0, 0}, 0};
      if (second != 0) return of_local(state, second);
    }
    const trainyard::RandomStream random(seed_, "box", state.boxed++);
    for (std::size_t i = 0; i < knobs_.size(); ++i) {  // near the start, in the box
      const auto [low, high] = state.seen[i];
      const double from = std::max(low - margin, 0.0), to = std::min(high + margin, 1.0);
      values[i] = knobs_[i].value(from + random.uniform(i) * (to - from));
    }
    return Open{{std::move(values), 0.0, 0}, 0};
  }

  std::optional<Open> of_local(State& state, std::uint64_t number) const {
    std::optional<Flow2::Proposal> move = state.searches.at(number).flow->propose();
    if (move) return Open{std::move(*move), number};
    converged(state, number);
    return std::nullopt;
  }

  /// Returns the numbers of the search that has the turn, and of the best local one, 0 if there is none.
  static std::pair<std::uint64_t, std::uint64_t> most_promising(State& state, int running, double cost_left) {
    double fastest = 0.0, least_cost_left = std::max(cost_left, 0.0);
    for (const auto& [number, search] : state.searches) fastest = std::max(fastest, search.progress.speed);
    for (auto& [number, search] : state.searches) {
      if (search.progress.speed == 0.0) search.progress.speed = fastest;
      least_cost_left = std::min(least_cost_left, search.progress.cost_to_improve(state.least));
    }
    const auto promise = [&](const Search& search) {
      return least_cost_left * search.progress.speed - search.progress.best;
    };
    std::uint64_t first = 0, second = 0;
    for (const auto& [number, search] : state.searches) {
      if (number == 0 || (running > 0 && !search.flow->can_propose())) continue;
      if (promise(search) > promise(state.searches.at(first))) first = number;
      if (second == 0 || promise(search) > promise(state.searches.at(second))) second = number;
    }
    return {first, second};
  }

  /// Takes a result, known or new.
  void over(State& state, const Open& open, double error, double cost) const {
    state.least = std::min(state.least, error);
    const auto of = state.searches.find(open.search);
    if (of == state.searches.end()) return;  // it has ended meanwhile
    of->second.progress.take(error, cost, of->second.running);
    if (open.search != 0) {
      of->second.flow->report(open.move, error);
      drop_inferior(state, open.search);
      return;
    }
    state.global.add(open.move.values, error);
    if (std::isfinite(error) && is_worth_a_search(state, error)) {
      Search local{.flow = Flow2(knobs_, open.move.values, error, {seed_, "flow2", ++state.begun})};
      local.progress = {.best = error, .before = error, .cost = cost, .cost_at_best = cost};
      state.searches.emplace(state.begun, std::move(local));
      include(state.seen, open.move.values);
    }
    state.admitted = state.seen;
  }

  /// Returns whether an error is less than the median of the local searches' best.
  static bool is_worth_a_search(const State& state, double error) {
    std::vector<double> best;
    for (const auto& [number, search] : state.searches)
      if (number != 0) best.push_back(search.progress.best);
    if (best.empty()) return true;
    std::ranges::sort(best);
    return error < (best[best.size() / 2] + best[(best.size() - 1) / 2]) / 2.0;
  }

  /// Ends the searches that are worse than another, and within a step of that one.
  static void drop_inferior(State& state, std::uint64_t number) {
    const auto is_inferior = [&](const Search& worse, const Search& better) {
      return worse.progress.best >= better.progress.before && better.flow->reaches(*worse.flow);
    };
    const Search& changed = state.searches.at(number);
    std::vector<std::uint64_t> ended;
    for (const auto& [other, search] : state.searches)
      if (other != 0 && other != number && is_inferior(search, changed)) ended.push_back(other);
    for (const auto& [other, search] : state.searches)
      if (other != 0 && other != number && is_inferior(changed, search) &&
          std::ranges::find(ended, other) == ended.end()) {
        ended.push_back(number);
        break;
      }
    for (const std::uint64_t each : ended) state.searches.erase(each);
  }

  static void converged(State& state, std::uint64_t number) {
    state.searches.erase(number);
    widen(state);
  }

  static void widen(State& state) {
    for (auto& [low, high] : state.seen) {
      low = std::max(low - margin, 0.0);
      high = std::min(high + margin, 1.0);
    }
    state.admitted = state.seen;
  }

  void include(Box& box, const Values& values) const {
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      const double at = knobs_[i].at(values[i]);
      box[i] = {std::min(box[i].first, at), std::max(box[i].second, at)};
    }
  }

  bool is_admitted(const Box& box, const Values& values) const {
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      const double at = knobs_[i].at(values[i]);
      if (at + margin < box[i].first || at > box[i].second + margin) return false;
    }
    return true;
  }

  std::vector<Knob> knobs_;
  Values start_;
  std::uint64_t seed_;
  State state_;
  std::map<Values, Result> results_;  ///< of what was tried
  std::map<Values, Open> open_;       ///< what is being tried
};

}  // namespace studies
