#include "core/engine/train/run_states.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <trainyard/compressor.hpp>

#include "core/engine/distributed/together.hpp"
#include "core/engine/save/load.hpp"
#include "core/engine/train/finite_check.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/opening.hpp"
#include "core/engine/train/weights.hpp"

namespace trainyard::train {
namespace {

/// Returns the name under which a checkpoint says that a plugin is disabled. It holds for that very code:
/// once mended, the plugin is called again.
std::string disabled_as(const ActivePlugin& plugin) {
  const plugins::PluginFile& file = plugin.file();
  return "disabled/" + plugin.slot().address() + "/" + file.digest +
         (file.place > 0 ? "/" + std::to_string(file.place) : "");  // a pack has one digest for its plugins
}

/// Returns the owner, in a checkpoint, of the own state of a rank other than the first.
std::string of_rank(std::size_t rank, const std::string& owner) {
  return "rank/" + std::to_string(rank) + "/" + owner;
}

/// Loads a compressor's states of the first rank and of the others, which `take` returns. If there are no
/// others, the state is the one that this rank goes back to.
template <class Take>
void load_ranks(ActivePlugin& plugin, const State& first, Take&& take) {
  std::vector<State> saved{first};
  while (const State* other = take(of_rank(saved.size(), first.owner))) saved.push_back(*other);
  guarded(plugin.slot(), 0, [&] {
    if (saved.size() == 1)
      plugin.as<Plugin>().load(StateReader(first));
    else
      plugin.as<Compressor>().load_all(saved);
  });
}

}  // namespace

Snapshot RunStates::snapshot() const {
  Snapshot snapshot{.step = live_.context.clock_.step, .states = {}, .metrics = loop_->latest()};
  State run{.owner = "run", .version = TRAINYARD_SDK_VERSION, .scalars = {}, .tensors = {}};
  StateWriter writer(run);
  loop_->save(writer);
  if (StateReader(run).integer("last_evaluated") != snapshot.step)  // the values are of other weights
    std::erase_if(snapshot.metrics, [](const auto& each) { return each.first.starts_with("val/"); });
  writer.scalar("config", live_.config_text);
  writer.scalar("file", file_);
  writer.scalar("swaps", live_.swaps);
  writer.scalar("curve_start", live_.layer.made.curve_place.start);
  writer.scalar("curve_gain", live_.layer.made.curve_place.gain);
  State model{.owner = "model", .version = {}, .scalars = {}, .tensors = {}};
  for (const NamedTensor& each : weights()) model.tensors.emplace(each.name, each.tensor);
  for (const ActivePlugin& plugin : live_.layer.plugins) {
    if (plugin.subscriber().disabled) writer.scalar(disabled_as(plugin), plugin.subscriber().error);
    if (!plugin.has_state()) continue;
    writer.scalar("type/" + plugin.slot().address(), plugin.slot().type);
    State state = plugin.state();
    if (!state.scalars.empty() || !state.tensors.empty()) snapshot.states.push_back(std::move(state));
  }
  snapshot.states.push_back(std::move(model));
  snapshot.states.push_back(std::move(run));
  return snapshot;
}

Snapshot RunStates::snapshot_of_ranks() const {
  Snapshot all = snapshot();
  if (live_.world == nullptr || live_.config.find("distributed.compressor") == nullptr) return all;
  const std::vector<std::vector<State>> ranks = distributed::gather(*live_.world, own_states());
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    for (State state : ranks[rank]) {
      state.owner = of_rank(rank, state.owner);
      all.states.push_back(std::move(state));
    }
  return all;
}

/// Disables the plugins that were disabled when the run was saved.
void RunStates::leave_out(const State& run, const std::function<void(const std::string&)>& note) {
  bool any = false;
  for (ActivePlugin& plugin : live_.layer.plugins) {
    events::Subscriber& subscriber = plugin.subscriber();
    const auto error = run.scalars.find(disabled_as(plugin));
    if (error == run.scalars.end() || subscriber.disabled) continue;
    any = true;
    subscriber.disable(std::get<std::string>(error->second));
    note(plugin.slot().address() + " (" + plugin.slot().type + ") stays disabled: " + subscriber.error);
  }
  if (any) live_.bus->rebuild();
}

/// Drops the requests of plugins that are gone.
void RunStates::drop_requests(const State& run) {
  const auto is_gone = [&](const auto& request) {
    const auto type = run.scalars.find("type/" + request.first);
    return type != run.scalars.end() &&
           std::ranges::none_of(live_.layer.plugins, [&](const ActivePlugin& plugin) {
             return plugin.slot().address() == request.first && Scalar(plugin.slot().type) == type->second;
           });
  };
  std::erase_if(live_.context.requests(), is_gone);
  std::erase_if(live_.context.waiting(), is_gone);
}

void RunStates::restore(const std::vector<State>& given,
                        const std::function<void(const std::string&)>& note) {
  const std::vector<State> states = shards_ ? shards_->rows.own(given, snapshot().states) : given;
  std::map<std::string_view, const State*> saved;
  for (const State& state : states) saved.emplace(state.owner, &state);
  const auto take = [&](std::string_view owner) -> const State* {
    const auto found = saved.find(owner);
    return found == saved.end() ? nullptr : saved.extract(found).mapped();
  };
  const State* const run = take("run");
  const State* const model = take("model");
  if (run == nullptr || model == nullptr) throw DataError("the checkpoint holds no run, or no model");
  settle();
  leave_out(*run, note);
  live_.bus->fire(Event::before_load, live_.context);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : model->tensors) tensors.push_back({name, tensor});
  copy_weights(weights(), tensors, "the checkpoint");
  loop_->load(*run);
  drop_requests(*run);
  live_.swaps = StateReader(*run).integer("swaps");
  place_curve(live_.layer.made, live_.layer.plugin("schedule"), live_.scale,
              {StateReader(*run).integer("curve_start"), StateReader(*run).number("curve_gain")});
  for (ActivePlugin& plugin : live_.layer.plugins) {
    if (!plugin.has_state()) continue;
    const std::string address = plugin.slot().address();
    const State* const state = take(address);
    const auto type = run->scalars.find("type/" + address);
    if (type == run->scalars.end() || type->second != Scalar(plugin.slot().type))
      note(address + " (" + plugin.slot().type + ") is not in the checkpoint: it begins anew");
    else if (state != nullptr && plugin.slot().kind == Compressor::kind.name)
      load_ranks(plugin, *state, take);
    else if (state != nullptr)
      guarded(plugin.slot(), 0, [&] { plugin.as<Plugin>().load(StateReader(*state)); });
  }
  for (const auto& [owner, state] : saved)
    note("the run has no " + std::string(owner) + " any more: its state is left");
  live_.bus->fire(Event::after_load, live_.context);
}

void RunStates::go_back(const std::vector<State>& states) {
  for (const events::Subscriber* disabled : live_.bus->rebuild())
    host_->journal(disabled->participant.id, "disabled", disabled->error);
  restore(states, [](const std::string&) {});
  // A plugin that had no state then gets an empty one.
  std::set<std::string, std::less<>> saved;
  for (const State& state : states) saved.insert(state.owner);
  for (ActivePlugin& plugin : live_.layer.plugins) {
    if (!plugin.has_state() || plugin.subscriber().disabled) continue;
    const State now = plugin.state();
    if (saved.contains(now.owner) || (now.scalars.empty() && now.tensors.empty())) continue;
    const State none{.owner = now.owner, .version = now.version, .scalars = {}, .tensors = {}};
    guarded(plugin.slot(), live_.context.clock_.step, [&] { plugin.as<Plugin>().load(StateReader(none)); });
  }
  loop_->bench().reopen();
  live_.layer.made.splits.at("train").loader->seek(live_.context.clock_.epoch,
                                                   live_.context.clock_.step_in_epoch);
}

State RunStates::buffers() const {
  State state{.owner = "model", .version = {}, .scalars = {}, .tensors = {}};
  for (const NamedTensor& each : live_.layer.made.network->buffers())
    state.tensors.emplace(each.name, each.tensor);
  return state;
}

std::vector<State> RunStates::early_states() const {
  const auto is_early = [](const HookSpec& hook) {
    return hook.event >= Event::before_fetch && hook.event <= Event::after_reduce;
  };
  std::vector<State> states{buffers()};
  for (const ActivePlugin& plugin : live_.layer.plugins)
    if (plugin.has_state() && !plugin.subscriber().disabled &&
        std::ranges::any_of(plugin.subscriber().participant.hooks, is_early))
      states.push_back(plugin.state());
  return states;
}

std::vector<State> RunStates::common_states(bool weights) const {
  std::vector<State> states = snapshot().states;
  std::erase_if(states, [&](const State& each) {
    const config::SlotConfig* const slot = live_.config.find(each.owner);
    return slot != nullptr && slot->kind == Compressor::kind.name;
  });
  if (weights) return shards_ ? shards_->rows.without(std::move(states)) : states;
  std::erase_if(states, [](const State& each) { return each.owner == "optimizer" || each.owner == "model"; });
  states.push_back(buffers());
  return states;
}

std::vector<State> RunStates::own_states() const {
  std::vector<State> own;
  for (const ActivePlugin& plugin : live_.layer.plugins)
    if (plugin.slot().kind == Compressor::kind.name) own.push_back(plugin.state());
  std::erase_if(own, [](const State& each) { return each.scalars.empty() && each.tensors.empty(); });
  return own;
}

void RunStates::take_own_states(const std::vector<std::vector<State>>& of_ranks) {
  std::vector<State> saved;
  for (const std::vector<State>& own : of_ranks) saved.insert(saved.end(), own.begin(), own.end());
  for (ActivePlugin& plugin : live_.layer.plugins)
    if (plugin.slot().kind == Compressor::kind.name && !saved.empty())
      guarded(plugin.slot(), live_.context.clock_.step, [&] { plugin.as<Compressor>().load_all(saved); });
}

void RunStates::take_over(const std::vector<State>& states) {
  settle();
  const at::NoGradGuard no_grad;
  for (const State& state : states) {
    if (state.owner == "run") loop_->load(state);
    if (state.owner == "model")
      for (const NamedTensor& buffer : live_.layer.made.network->buffers())
        at::Tensor(buffer.tensor).copy_(state.tensors.at(buffer.name));
    for (ActivePlugin& plugin : live_.layer.plugins)
      if (plugin.has_state() && plugin.slot().address() == state.owner)
        guarded(plugin.slot(), live_.context.clock_.step,
                [&] { plugin.as<Plugin>().load(StateReader(state)); });
  }
}

void RunStates::check_weights() const {
  if (live_.config.guard.nan == config::GuardKeys::Nan::off) return;
  if (const std::optional<std::string> bad = first_infinite(weights()))
    throw NumericError(
        *bad + " holds a value that is not finite after step " + std::to_string(live_.context.clock_.step) +
        ": lower optimizer.lr or add trainer.grad_clip, and resume from the last checkpoint, which "
        "stays; set guard.nan = \"off\" where such a value is meant");
}

void RunStates::settle() {
  if (copying_) std::exchange(copying_, nullptr)->settle();
}

std::vector<NamedTensor> RunStates::weights() const {
  const Network& network = *live_.layer.made.network;
  std::vector<NamedTensor> all = network.parameters();
  const std::vector<NamedTensor> buffers = network.buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

void RunStates::load_weights(const std::string& path, const std::vector<std::string>& patterns) {
  copy_weights(weights(),
               checkpoint::load_weights(path, shards_ ? shards_->rows.wanted() : RowsWanted(all_rows)), path,
               patterns);
}

std::string RunStates::model_digest() const {
  State state;
  for (const NamedTensor& each : weights()) state.tensors.emplace(each.name, each.tensor);
  return shards_ ? shards_->rows.digest(std::move(state)) : digest(state);
}

State RunStates::optimizer_state() const {
  State state;
  StateWriter writer(state);
  live_.context.optimizer_->save(writer);
  return state;
}

std::string RunStates::optimizer_digest() const {
  return shards_ ? shards_->rows.digest(optimizer_state()) : digest(optimizer_state());
}

}  // namespace trainyard::train
