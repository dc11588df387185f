#include "core/engine/recovery/rank_recovery.hpp"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include <trainyard/checkpointer.hpp>

#include "core/engine/distributed/together.hpp"
#include "core/engine/train/guard.hpp"
#include "lib/printed.hpp"

namespace trainyard::train {
namespace {

constexpr int most_losses = 5;  ///< at one step, as the step itself may kill the ranks

double norm_of(const std::vector<State>& states) {
  double squares = 0.0;
  for (const State& state : states)
    for (const auto& [name, tensor] : state.tensors)
      if (tensor.is_floating_point())
        squares += std::pow(at::linalg_vector_norm(tensor).item().toDouble(), 2.0);
  return std::sqrt(squares);
}

}  // namespace

void RankRecovery::keep_state() {
  kept_ = std::make_unique<StateCopy>(run_.states().early_states());
  kept_at_ = run_.clock().step;
}

RankProgress RankRecovery::own() const {
  Loop& loop = run_.loop();
  return {.newcomer = false,
          .position = loop.position(),
          .gradients = loop.bench().ranks().has_gradients(),
          .updating = loop.bench().ranks().updating(),
          .swaps = run_.live().swaps,
          .due = run_.host().planned_swaps()};
}

/// Throws if ranks cannot be replaced any more: swaps may have changed what the run was begun with.
void RankRecovery::check_replaceable() const {
  const std::string lost = "a rank was lost, and the run goes on from its last checkpoint alone: ";
  if (run_.checkpointer().as<Checkpointer>().replaces_ranks() == nullptr)
    throw DistributedError(lost + "checkpoint.type = \"" + run_.checkpointer().slot().type +
                           "\" replaces none");
  if (world_.has_groups())
    throw DistributedError(lost + "[distributed.compressor] has groups of ranks, which end with it");
}

/// Meets all ranks, old and new. Throws if they cannot go on from there.
void RankRecovery::meet_again() {
  given_up_ = true;  // unless this succeeds
  check_replaceable();
  rendezvous_.emplace(world_, own());
  for (const int rank : rendezvous_->newcomers())
    if (std::ranges::find(replaced_, rank) == replaced_.end()) replaced_.push_back(rank);
  std::ranges::sort(replaced_);
  if (losses_ >= most_losses && last_step_ == rendezvous_->position().step)
    throw DistributedError(rendezvous_->text() + ", as " + std::to_string(losses_) +
                           " before it: the run does not go on by itself");
  given_up_ = false;
}

void RankRecovery::update_as_others(const Error& error) {
  if (error.code() != ExitCode::distributed || !world_.exchange_failed()) throw;
  began_ = SteadyClock::now();
  meet_again();
  const std::int64_t step = run_.clock().step;
  if (rendezvous_->position().step == step) throw;  // no rank has made it: all drop it
  run_.host().journal("host", "update",
                      "rank " + std::to_string(rendezvous_->leader()) + " has made step " +
                          std::to_string(step + 1) + " already: it is made here, too");
}

bool RankRecovery::recover(const Error& error) {
  if (error.code() != ExitCode::distributed || given_up_ || (!rendezvous_ && !world_.exchange_failed()))
    return false;
  if (!rendezvous_) {
    began_ = SteadyClock::now();
    meet_again();
  }
  share_states();
  return true;
}

void RankRecovery::join(const Joined& joined) {
  replaced_ = joined.replaced;
  run_.loop().take_position(joined.position);
  share_states();
}

/// Gives ranks the state that they lack; starts again if another rank is lost meanwhile.
void RankRecovery::share_states() {
  for (;;) try {
      if (rendezvous_) send_missing_states();
      // New processes have built their run by now.
      const std::vector<std::vector<State>> own = distributed::gather(world_, run_.states().own_states());
      run_.states().take_own_states(own);
      kept_back_.clear();
      if (!own.front().empty()) std::ranges::transform(own, std::back_inserter(kept_back_), norm_of);
      break;
    } catch (const DistributedError&) {
      if (!world_.exchange_failed()) throw;
      meet_again();
    }
  rendezvous_.reset();
  losses_ = run_.clock().step == last_step_ ? losses_ + 1 : 1;
  last_step_ = run_.clock().step;
  announce();
}

void RankRecovery::send_missing_states() {
  Loop& loop = run_.loop();
  if (kept_ && kept_at_ == run_.clock().step) run_.states().take_over(kept_->states());
  kept_.reset();  // plugins may hold its tensors
  loop.drop_step();
  for (const bool newcomers : {false, true}) {
    const std::vector<int> group = rendezvous_->lacking(newcomers);
    if (group.size() == 1) continue;
    const bool leads = world_.rank() == rendezvous_->leader();
    Snapshot state;
    if (leads) state.states = run_.states().common_states(newcomers);
    if (leads && newcomers) run_.host().complete(state);
    std::ranges::move(state.fixed, std::back_inserter(state.states));
    if (newcomers) state.states.push_back({"data", {}, {{"facts", facts_}}, {}});
    const std::string bytes =
        world_.share(leads ? distributed::to_bytes(state.states) : "", rendezvous_->leader(), group);
    if (leads || std::ranges::find(group, world_.rank()) == group.end()) continue;
    run_.states().take_over(distributed::from_bytes(bytes));
    loop.take_position(rendezvous_->position());
  }
}

/// Tells the checkpointer and the journal of the replacement.
void RankRecovery::announce() {
  const Clock& clock = run_.clock();
  const Replacement what{.ranks = replaced_,
                         .step = clock.step,
                         .samples = clock.samples,
                         .seconds = std::chrono::duration<double>(SteadyClock::now() - began_).count()};
  ActivePlugin& plugin = run_.checkpointer();
  guarded(plugin.slot(), clock.step, [&] {
    if (ReplacesRanks* const replaces = plugin.as<Checkpointer>().replaces_ranks())
      replaces->replaced(what, run_.network(), run_.optimizer());
  });
  replaced_.clear();  // kept until here in case another rank was lost meanwhile
  std::string norms;
  for (const double norm : kept_back_) norms += (norms.empty() ? "" : ", ") + lib::printed("%.6g", norm);
  if (!norms.empty())
    run_.host().journal("host", "gradients_lost",
                        "what [distributed.compressor] kept back of " + list_of(what.ranks) +
                            " is lost; the ranks go on with norms of " + norms);
  run_.host().journal(
      "host", "replaced",
      list_of(what.ranks) + " was lost, and a new process has taken its place; all go on behind step " +
          std::to_string(clock.step) + ", after " + lib::printed("%.2f", what.seconds) + " s");
}

}  // namespace trainyard::train
