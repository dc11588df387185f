#include "core/engine/recovery/rendezvous.hpp"

#include <set>

#include "core/engine/distributed/together.hpp"

namespace trainyard::train {
namespace {

std::string bytes_of(const RankProgress& own) {
  State said;
  said.scalars["newcomer"] = own.newcomer;
  said.scalars["step"] = own.position.step;
  said.scalars["stage"] = static_cast<std::int64_t>(own.position.stage);
  said.scalars["agreed"] = static_cast<std::int64_t>(own.position.agreed);
  said.scalars["gradients"] = own.gradients;
  said.scalars["updating"] = own.updating;
  said.scalars["swaps"] = own.swaps;
  said.scalars["due"] = own.due;
  return distributed::to_bytes({said});
}

RankProgress progress_of(const std::string& bytes) {
  const State state = distributed::from_bytes(bytes).front();
  const StateReader rank(state);
  return {.newcomer = rank.boolean("newcomer"),
          .position = {.step = rank.integer("step"),
                       .stage = static_cast<Stage>(rank.integer("stage")),
                       .agreed = static_cast<unsigned>(rank.integer("agreed"))},
          .gradients = rank.boolean("gradients"),
          .updating = rank.boolean("updating"),
          .swaps = rank.integer("swaps"),
          .due = rank.integer("due")};
}

}  // namespace

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

Rendezvous::Rendezvous(distributed::World& world, const RankProgress& own) {
  for (const std::string& each : world.meet_again(bytes_of(own))) ranks_.push_back(progress_of(each));
  find_leader();
  check();
}

void Rendezvous::find_leader() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (progress(rank).newcomer)
      newcomers_.push_back(rank);
    else if (leader_ < 0 || position().order() < progress(rank).position.order())
      leader_ = rank;
  }
}

std::string Rendezvous::text() const {
  return (newcomers_.empty() ? "a rank" : list_of(newcomers_)) + " was lost at step " +
         std::to_string(position().step + 1);
}

void Rendezvous::check() const {
  if (leader_ < 0) throw DistributedError("no rank is left that has the state of the run: all were killed");
  const std::string last = ": the run goes on from its last checkpoint alone";
  const std::int64_t step = position().step;
  for (const RankProgress& each : ranks_) {
    if (each.newcomer) continue;
    if (each.updating || (each.position.step != step && !(each.gradients && each.position.step + 1 == step)))
      throw DistributedError(text() + ", while a plugin was changing the weights" + last);
    if (each.swaps != progress(leader_).swaps || each.due != progress(leader_).due)
      throw DistributedError(text() + ", when some of the others knew of the end of a swap and some did not" +
                             last);
  }
}

std::vector<int> Rendezvous::lacking(bool newcomers) const {
  std::vector<int> found;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    const RankProgress& each = progress(rank);
    Position at = each.position;
    if (at.step < position().step) at = {.step = position().step, .stage = Stage::stepped};
    const bool lacks = newcomers ? each.newcomer : !each.newcomer && at.order() < position().order();
    if (lacks || rank == leader_) found.push_back(rank);
  }
  return found;
}

Joined join(distributed::World& world) {
  std::set<int> replaced;
  for (;;) try {
      const Rendezvous rendezvous(world, {.newcomer = true});
      replaced.insert(rendezvous.newcomers().begin(), rendezvous.newcomers().end());
      std::string bytes;
      for (const bool newcomers : {false, true})  // all ranks take part in both
        if (const std::vector<int> group = rendezvous.lacking(newcomers); group.size() > 1)
          bytes = world.share("", rendezvous.leader(), group);
      std::vector<State> states = distributed::from_bytes(bytes);
      const std::string facts = StateReader(states.back()).text("facts");
      states.pop_back();
      return {std::move(states), facts, rendezvous.position(), {replaced.begin(), replaced.end()}};
    } catch (const DistributedError&) {
      if (!world.exchange_failed()) throw;
    }
}

}  // namespace trainyard::train
