#include "core/engine/train/reunion.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <trainyard/checkpointer.hpp>

#include "core/engine/distributed/together.hpp"
#include "core/engine/train/guard.hpp"

namespace trainyard::train {
namespace {

constexpr int most_losses = 5;  ///< at one step: what kills a rank there may be the step

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

void Reunion::keep() {
  kept_ = std::make_unique<StateCopy>(run_.early_states());
  kept_at_ = run_.clock().step;
}

Reunion::Rank Reunion::own() const {
  if (!has_state_) return {.newcomer = true};
  const Loop& loop = run_.loop();
  return {.newcomer = false,
          .position = loop.position(),
          .gradients = loop.has_gradients(),
          .updating = loop.updating(),
          .swaps = run_.live().swaps};
}

/// With all ranks, old and new. Throws where they cannot go on from there.
void Reunion::meet() {
  const Rank self = own();
  State said;
  said.scalars["newcomer"] = self.newcomer;
  said.scalars["step"] = self.position.step;
  said.scalars["stage"] = static_cast<std::int64_t>(self.position.stage);
  said.scalars["agreed"] = static_cast<std::int64_t>(self.position.agreed);
  said.scalars["gradients"] = self.gradients;
  said.scalars["updating"] = self.updating;
  said.scalars["swaps"] = self.swaps;
  given_up_ = true;  // unless this succeeds
  const std::vector<std::string> all = world_.meet_again(distributed::to_bytes({said}));
  ranks_.clear();
  for (const std::string& each : all) {
    const State state = distributed::from_bytes(each).front();
    const StateReader rank(state);
    ranks_.push_back({.newcomer = rank.boolean("newcomer"),
                      .position = {.step = rank.integer("step"),
                                   .stage = static_cast<Stage>(rank.integer("stage")),
                                   .agreed = static_cast<unsigned>(rank.integer("agreed"))},
                      .gradients = rank.boolean("gradients"),
                      .updating = rank.boolean("updating"),
                      .swaps = rank.integer("swaps")});
  }
  find_leader();
  check();
  given_up_ = false;
  met_ = true;
}

/// The first of those that have come furthest; and who comes a step later because it can.
void Reunion::find_leader() {
  leader_ = -1;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const Rank& each = ranks_[static_cast<std::size_t>(rank)];
    if (each.newcomer) {
      if (std::ranges::find(replaced_, rank) == replaced_.end()) replaced_.push_back(rank);
      continue;
    }
    if (leader_ < 0 || ranks_[static_cast<std::size_t>(leader_)].position.order() < each.position.order())
      leader_ = rank;
  }
  std::ranges::sort(replaced_);
}

void Reunion::check() const {
  if (leader_ < 0) throw DistributedError("no rank is left that has the state of the run: all were killed");
  const std::int64_t step = ranks_[static_cast<std::size_t>(leader_)].position.step;
  const std::string lost = list(replaced_) + " was lost at step " + std::to_string(step + 1);
  for (const Rank& each : ranks_) {
    if (each.newcomer) continue;
    if (each.swaps > 0)
      throw DistributedError(lost +
                             ", and a swap has changed the run: it goes on from its last checkpoint alone");
    if (each.updating || (each.position.step != step && !(each.gradients && each.position.step + 1 == step)))
      throw DistributedError(lost +
                             ", while a plugin was changing the weights: the run goes on from its last "
                             "checkpoint alone");
  }
  if (losses_ >= most_losses && last_step_ == step)
    throw DistributedError(lost + ", as " + std::to_string(losses_) +
                           " before it: the run does not go on by itself");
}

void Reunion::update_as_others(const Error& error) {
  if (error.code() != ExitCode::distributed || !world_.exchange_failed()) throw;
  began_ = SteadyClock::now();
  meet();
  const std::int64_t step = run_.clock().step;
  if (ranks_[static_cast<std::size_t>(leader_)].position.step == step) throw;  // none has: all drop it
  run_.host().journal("host", "update",
                      "rank " + std::to_string(leader_) + " has made step " + std::to_string(step + 1) +
                          " already: it is made here, too");
}

bool Reunion::recover(const Error& error) {
  if (error.code() != ExitCode::distributed || given_up_ || (!met_ && !world_.exchange_failed()))
    return false;
  if (!met_) {
    began_ = SteadyClock::now();
    meet();
  }
  come_together();
  return true;
}

void Reunion::join() {
  has_state_ = false;
  meet();
  come_together();
}

/// Again where another one is lost meanwhile.
void Reunion::come_together() {
  for (;;) try {
      exchange();
      break;
    } catch (const DistributedError&) {
      if (!world_.exchange_failed()) throw;
      meet();
    }
  met_ = false;
  losses_ = run_.clock().step == last_step_ ? losses_ + 1 : 1;
  last_step_ = run_.clock().step;
  tell();
}

/// The leader, and the ranks that lack something of its state: those that are new, or those that are behind.
std::vector<int> Reunion::those(bool newcomers) const {
  Position furthest = ranks_[static_cast<std::size_t>(leader_)].position;
  std::vector<int> found;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const Rank& each = ranks_[static_cast<std::size_t>(rank)];
    Position position = each.position;
    if (position.step < furthest.step) position = {.step = furthest.step, .stage = Stage::stepped};
    const bool lacks = newcomers ? each.newcomer : !each.newcomer && position.order() < furthest.order();
    if (lacks || rank == leader_) found.push_back(rank);
  }
  return found;
}

void Reunion::exchange() {
  Loop& loop = run_.loop();
  const Position furthest = ranks_[static_cast<std::size_t>(leader_)].position;
  if (has_state_) {
    if (kept_ && kept_at_ == run_.clock().step) run_.take_over(kept_->states());
    kept_.reset();  // plugins may have kept its tensors
    loop.drop_step();
  }
  for (const bool newcomers : {false, true}) {
    const std::vector<int> group = those(newcomers);
    if (group.size() == 1) continue;
    const bool leads = world_.rank() == leader_;
    const std::string bytes =
        world_.share(leads ? distributed::to_bytes(run_.common_states(newcomers)) : "", leader_, group);
    if (leads || std::ranges::find(group, world_.rank()) == group.end()) continue;
    const std::vector<State> states = distributed::from_bytes(bytes);
    if (newcomers)
      run_.restore(states,
                   [&](const std::string& note) { run_.host().journal("host", "replacement", note); });
    else
      run_.take_over(states);
    loop.take_position(furthest);
    has_state_ = true;
  }
}

/// The checkpointer, and the journal.
void Reunion::tell() {
  const Clock& clock = run_.clock();
  const Replacement what{.ranks = std::exchange(replaced_, {}),
                         .step = clock.step,
                         .samples = clock.samples,
                         .seconds = std::chrono::duration<double>(SteadyClock::now() - began_).count()};
  ActivePlugin& plugin = run_.checkpointer();
  guarded(plugin.slot(), clock.step, [&] {
    if (ReplacesRanks* const replaces = plugin.as<Checkpointer>().replaces_ranks())
      replaces->replaced(what, run_.network(), run_.optimizer());
  });
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f", what.seconds);
  run_.host().journal("host", "replaced",
                      list(what.ranks) +
                          " was lost, and a new process has taken its place; all go on behind step " +
                          std::to_string(clock.step) + ", after " + seconds + " s");
}

}  // namespace trainyard::train
