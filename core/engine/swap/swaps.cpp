#include "core/engine/swap/swaps.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <trainyard/compressor.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/mixins/plain_state.hpp>
#include <trainyard/model.hpp>
#include <trainyard/recorder.hpp>

#include "core/engine/train/guard.hpp"
#include "core/engine/train/opening.hpp"
#include "core/runfile/live_config.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/swap.hpp"
#include "lib/words.hpp"

namespace trainyard::train {
namespace {

bool same_shape(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

/// For another plugin: returns what `fresh` would save, with each tensor that `old` has under the same name,
/// shape and type. If there is one, the numbers of `old` come, too: a moment without its count of updates
/// would be corrected for a bias that it does not have.
State overlaid(State fresh, const State& old) {
  bool any = false;
  for (auto& [name, tensor] : fresh.tensors) {
    const auto found = old.tensors.find(name);
    if (found == old.tensors.end() || !same_shape(found->second, tensor)) continue;
    tensor = found->second;
    any = true;
  }
  if (!any) return fresh;
  for (auto& [name, scalar] : fresh.scalars)
    if (const auto found = old.scalars.find(name);
        found != old.scalars.end() && found->second.index() == scalar.index())
      scalar = found->second;
  return fresh;
}

/// For the same plugin with other options: returns all of `old`, with what these options add or shape
/// otherwise taken from `fresh`.
State completed(State old, const State& fresh) {
  for (const auto& [name, tensor] : fresh.tensors) {
    at::Tensor& own = old.tensors.try_emplace(name, tensor).first->second;
    if (!same_shape(own, tensor)) own = tensor;
  }
  for (const auto& [name, scalar] : fresh.scalars) {
    Scalar& own = old.scalars.try_emplace(name, scalar).first->second;
    if (own.index() != scalar.index()) own = scalar;
  }
  return old;
}

/// Returns the state in the form that plugins of other types, or with other options, can take over.
State plain_state(ActivePlugin& plugin) {
  const auto* const own_form = dynamic_cast<const PlainState*>(&plugin.as<Plugin>());
  if (own_form == nullptr) return plugin.state();
  State state{
      .owner = plugin.slot().address(), .version = plugin.manifest().version, .scalars = {}, .tensors = {}};
  StateWriter writer(state);
  guarded(plugin.slot(), 0, [&] { own_form->save_plain(writer); });
  return state;
}

void hand_over(ActivePlugin& from, ActivePlugin& to, config::Carry carry) {
  if (carry == config::Carry::fresh) return;
  const bool same_type = from.slot().type == to.slot().type;
  const bool alike =
      same_type && config::toml_file(from.slot().options) == config::toml_file(to.slot().options);
  State state = alike ? from.state() : plain_state(from);
  if (state.scalars.empty() && state.tensors.empty()) return;
  if (!alike)
    state = same_type ? completed(std::move(state), plain_state(to)) : overlaid(plain_state(to), state);
  auto* const own_form = alike ? nullptr : dynamic_cast<PlainState*>(&to.as<Plugin>());
  guarded(to.slot(), 0, [&] {
    const StateReader reader(state);
    own_form != nullptr ? own_form->load_plain(reader) : to.as<Plugin>().load(reader);
  });
}

/// Returns the names of gradients that one compressor kept back and the next cannot hold; empty: none.
std::string lost_gradients(const ActivePlugin& from, const ActivePlugin& to) {
  std::string names;
  if (from.slot().kind != Compressor::kind.name) return names;
  const State before = from.state(), after = to.state();
  for (const auto& [name, tensor] : before.tensors) {
    const auto found = after.tensors.find(name);
    if (found != after.tensors.end() && same_shape(found->second, tensor)) continue;
    if (tensor.any().item<bool>()) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

/// Returns the plugins that are there now, but those that no swap brings as the run has them: their files may
/// have been rebuilt, too. A plugin in two slots is the one that was loaded last.
plugins::Registry plugins_for(const std::vector<config::SwapRequest>& swaps, Run& run, Layer& layer,
                              const config::RunConfig& config) {
  std::multimap<int, plugins::PluginFile> kept;  // by generation
  std::set<std::pair<std::string, std::string>> brought;
  for (const plugins::PluginFile& file : run.registry().files())
    if (plugins::find_kind(file.manifest.kind)->beside) kept.emplace(0, file);
  for (const control::Quarantined& each : run.live().quarantined)
    for (const plugins::PluginFile* file : run.registry().find(each.kind, each.plugin))
      kept.emplace(0, *file);
  for (const config::SlotConfig& slot : config.slots) {
    ActivePlugin& plugin = layer.plugin(slot.address());
    kept.emplace(plugin.generation(), plugin.file());
    const auto replaces = [&](const config::SwapRequest& swap) { return config::replaces(swap.slot, slot); };
    if (const auto swap = std::ranges::find_if(swaps, replaces); swap != swaps.end())
      brought.emplace(slot.kind, swap->type.empty() ? slot.type : swap->type);
    else
      for (const auto& [name, code] : plugin.services().parts()) kept.emplace(code.generation(), code.file());
  }
  std::vector<plugins::PluginFile> files;
  for (auto& [generation, file] : kept)
    if (!brought.contains({file.manifest.kind, file.manifest.name})) files.push_back(std::move(file));
  return run.registry().rescan(files);
}

/// Returns true if the loop settles before each hook of a plugin.
bool comes_after_settle(ActivePlugin& plugin) {
  const std::vector<HookSpec>& hooks = plugin.subscriber().participant.hooks;
  return std::all_of(hooks.begin(), hooks.end(),
                     [](const HookSpec& hook) { return weights_written_at(hook.event); });
}

/// Drops the last values of a metric that is gone.
void forget(const std::string& metric, std::map<std::string, double, std::less<>>& values) {
  std::erase_if(values, [&](const auto& each) {
    const std::string name = each.first.substr(each.first.rfind('/') + 1);
    return name == metric || name.starts_with(metric + ".");
  });
}

}  // namespace

std::unique_ptr<PreparedSwap> Swaps::prepare(const std::vector<config::SwapRequest>& swaps,
                                             PreparedSwap* after) {
  auto swap = std::make_unique<PreparedSwap>();
  const config::RunConfig& config = after != nullptr ? after->config_ : live_.config;
  swap->layer_.below = after != nullptr ? &after->layer_ : &live_.layer;
  const plugins::Registry registry = plugins_for(swaps, run_, *swap->layer_.below, config);
  config::Resolution resolution =
      config::live_config(config::with_swaps(config.resolved, swaps, registry), registry);
  if (resolution.config) {
    config::keep_training(*resolution.config);
    std::erase_if(resolution.config->slots, [&](const config::SlotConfig& slot) {
      return std::ranges::find(live_.left_out, slot.address()) != live_.left_out.end();
    });
    control::leave_out(*resolution.config, registry, live_.quarantined);
    config::check_swaps(config, *resolution.config, swaps, registry, {}, resolution.findings);
  }
  if (!resolution.config || resolution.findings.failed()) throw ConfigError(resolution.findings.text());
  swap->config_ = std::move(*resolution.config);
  swap->config_text_ = config::toml_file(swap->config_.resolved);
  const auto has = [](const config::RunConfig& run, const config::SlotConfig& slot) {
    return std::ranges::count(run.slots, slot.address(), &config::SlotConfig::address) > 0;
  };
  std::vector<std::string> told;
  for (const config::SlotConfig& slot : swap->config_.slots) {
    const auto asked = std::find_if(swaps.rbegin(), swaps.rend(), [&](const config::SwapRequest& each) {
      return config::replaces(each.slot, slot);
    });
    const bool added = !has(config, slot);
    if (asked == swaps.rend() && !added) continue;
    const auto carry = asked == swaps.rend() ? config::Carry::fresh : asked->carry;
    const std::string& address = swap->parts_.emplace_back(slot.address(), carry, added).address;
    const ActivePlugin& plugin = swap->layer_.plugins.emplace_back(run_.make_plugin(slot, registry));
    if (added || address == asked->slot || asked->slot == "data")
      told.push_back(address + ": " + slot.type + " " + plugin.manifest().version + ", generation " +
                     std::to_string(plugin.generation()) + (added ? ", added" : ""));
  }
  for (const config::SlotConfig& slot : config.slots)
    if (!has(swap->config_, slot)) {
      swap->parts_.push_back({slot.address()});
      told.push_back(slot.address() + ": " + slot.type + " removed");
    }
  swap->text_ = lib::join(told, "; ");
  open(*swap);
  place(*swap);
  return swap;
}

/// Makes the table of events for the run with the swap in it.
void Swaps::place(PreparedSwap& swap) {
  std::vector<events::Subscriber*> places;
  std::vector<const events::Subscriber*> fillings;
  for (const config::SlotConfig& slot : swap.config_.slots) {
    ActivePlugin& next = swap.layer_.plugin(slot.address());
    ActivePlugin* const now = live_.layer.own(slot.address());
    places.push_back(now != nullptr ? &now->subscriber() : &next.subscriber());
    fillings.push_back(&next.subscriber());
  }
  swap.table_ = live_.bus->table_of(places, fillings);
}

/// Returns true if a swap brings or removes a plugin of one of these kinds.
bool Swaps::touches(PreparedSwap& swap, std::initializer_list<std::string_view> kinds) {
  return std::ranges::any_of(swap.parts_, [&](const PreparedSwap::Part& part) {
    const std::string_view kind = swap.layer_.plugin(part.address).slot().kind;
    return std::ranges::find(kinds, kind) != kinds.end();
  });
}

void Swaps::open(PreparedSwap& swap) {
  Opening opening(live_, swap.config_, swap.layer_);
  for (ActivePlugin& plugin : swap.layer_.plugins) {
    opening.open(plugin);
    guarded(plugin.slot(), 0, [&] { run_.host().open(plugin); });
  }
  for (const PreparedSwap::Part& part : swap.parts_)
    if (ActivePlugin* const own = swap.layer_.own(part.address); own && part.carry == config::Carry::state)
      swap.own_states_.push_back(own->state());
  opening.check_momentum();
  const auto divides = [](ActivePlugin& plugin) { return plugin.as<Executor>().divides_network(); };
  if (!touches(swap, {Dataset::kind.name, Sampler::kind.name, Loss::kind.name}) &&
      divides(swap.layer_.plugin("executor")) == divides(swap.layer_.below->plugin("executor")))
    return;
  for (const auto& [name, split] : live_.layer.made.splits) {
    Split made = opening.split(name);
    if (made.loader->steps_per_epoch() != split.loader->steps_per_epoch() ||
        made.loader->samples_per_epoch() != split.loader->samples_per_epoch())
      throw ConfigError("[data." + name + "] would have " + std::to_string(made.loader->samples_per_epoch()) +
                        " samples an epoch in place of " + std::to_string(split.loader->samples_per_epoch()) +
                        ": a running training keeps their number");
    swap.layer_.made.splits.emplace(name, std::move(made));
  }
}

void Swaps::rehearse() {
  std::vector<std::unique_ptr<PreparedSwap>> made;
  std::multimap<std::int64_t, config::SwapRequest>
      plan;  // in the order of the file where the step is the same
  for (const config::PlannedSwap& each : live_.config.swaps)
    plan.emplace(in_steps(each.at, live_.scale, "swap.at"), each.request);
  for (const auto& [step, request] : plan) {
    try {
      PreparedSwap* const after = made.empty() ? nullptr : made.back().get();
      PreparedSwap& swap = *made.emplace_back(prepare({request}, after));
      if (swap.layer_.made.network) swap.layer_.made.network->adopt(run_.states().weights());
      for (const PreparedSwap::Part& part : swap.parts_)
        if (ActivePlugin* const plugin = part.added ? nullptr : swap.layer_.own(part.address);
            plugin && plugin->has_state() &&
            plugin->slot().kind != Recorder::kind.name)  // its load cuts files
          hand_over(swap.layer_.below->plugin(part.address), *plugin, part.carry);
      if (swap.layer_.made.curve) place_curve(swap, step);
      for (const std::unique_ptr<PreparedSwap>& earlier : made)
        if (earlier.get() != &swap) earlier->free_replaced_by(swap);
    } catch (const Error& error) {
      throw ConfigError("the swap that is planned at step " + std::to_string(step) + " (" +
                        config::text({request}) + ") cannot be made: " + error.what());
    }
  }
}

/// Returns true if nobody writes a tensor of the state before the loop settles, also with the swap: a graph
/// only reads parameters, an optimizer is called only for its step, hooks only at events.
bool Swaps::steady(PreparedSwap& swap, const State& state, const at::Tensor& tensor) {
  const auto graph = [](const Network& network) { return dynamic_cast<const GraphNetwork*>(&network); };
  if (state.owner == "model")  // its buffers require no gradients
    return tensor.requires_grad() && graph(run_.network()) && graph(swap.layer_.network());
  for (ActivePlugin& plugin : live_.layer.plugins) {
    const config::SlotConfig& slot = plugin.slot();
    if (slot.address() != state.owner) continue;
    return (slot.kind == Optimizer::kind.name || slot.kind == Hook::kind.name) &&
           comes_after_settle(plugin) && comes_after_settle(swap.layer_.plugin(slot.address()));
  }
  return false;
}

/// Returns true if the run's executor goes, and its state is not taken over.
bool Swaps::leaves_executor(PreparedSwap& swap) {
  return std::ranges::any_of(swap.parts_, [&](const PreparedSwap::Part& part) {
    return part.address == "executor" &&
           (part.carry == config::Carry::fresh ||
            swap.layer_.own(part.address)->slot().type != live_.layer.own(part.address)->slot().type);
  });
}

/// Brings a plugin to where the run stands, with what it takes over from the one whose place it takes.
void Swaps::come(ActivePlugin& plugin, ActivePlugin* from, config::Carry carry) {
  const auto call = [&](Event event) { live_.bus->call_alone(plugin.subscriber(), event, live_.context); };
  for (const Event event : config::set_up) call(event);
  if (from != nullptr) {
    hand_over(*from, plugin, carry);
    if (const std::string lost = lost_gradients(*from, plugin);
        !lost.empty() && carry != config::Carry::fresh)
      run_.warn("[" + plugin.slot().slot + "] " + plugin.slot().type + " has no place for what " +
                from->slot().type + " kept back of gradients (" + lost + "): it is lost");
  }
  call(Event::swap_in);
}

std::shared_ptr<StateCopy> Swaps::commit(PreparedSwap& swap, bool watched) {
  run_.states().settle();
  run_.loop().bench().settle(Executor::Pause::swap);
  std::shared_ptr<StateCopy> before;
  const bool leaves = leaves_executor(swap);
  if (watched || leaves)
    before = std::make_shared<StateCopy>(
        run_.states().snapshot().states,
        [&](const State& state, const at::Tensor& tensor) { return steady(swap, state, tensor); });
  if (leaves) {  // ends what is in flight here; a rollback puts it back in flight
    before->settle();
    run_.loop().bench().settle(Executor::Pause::exchange);
  }
  const bool rules = touches(swap, {Rule::kind.name, Recorder::kind.name});
  std::vector<const ActivePlugin*> out, in;  // those that have been told to go, to come
  bool exchanged = false;
  try {
    for (const PreparedSwap::Part& part : swap.parts_)
      if (const ActivePlugin* const goes = live_.layer.own(part.address)) {
        live_.bus->call_alone(goes->subscriber(), Event::swap_out, live_.context);
        out.push_back(goes);
      }
    for (const PreparedSwap::Part& part : swap.parts_)
      if (ActivePlugin* const comes = swap.layer_.own(part.address)) {
        come(*comes, live_.layer.own(part.address), part.carry);
        in.push_back(comes);
      }
    if (swap.layer_.made.network) swap.layer_.made.network->adopt(run_.states().weights());
    if (swap.layer_.made.curve) place_curve(swap, run_.loop().bench().updates());
    if (swap.layer_.own("checkpoint") != nullptr) run_.host().settle();
    if (rules) run_.attach_rules(swap.config_, swap.layer_);  // it may object to them
    exchange(swap);
    exchanged = true;
    if (swap.layer_.made.network ||
        touches(swap, {Dropout::kind.name, Loss::kind.name, Optimizer::kind.name, Executor::kind.name}))
      run_.loop().bench().reopen();  // the executor may depend on them
    if (run_.loop().world() != nullptr &&
        (swap.layer_.made.network || touches(swap, {Dataset::kind.name, Loss::kind.name})))
      run_.try_batch();  // several ranks do not go back once they train
  } catch (...) {
    if (exchanged) {
      exchange(swap);
      run_.loop().bench().reopen();  // for the parts that it had before
    }
    if (rules) run_.attach_rules(live_.config, live_.layer);
    for (const ActivePlugin* each : in) run_.fire_swap(*each, Event::swap_out);
    for (const ActivePlugin* each : out) run_.fire_swap(*each, Event::swap_in);
    if (leaves) run_.states().go_back(before->states());
    throw;
  }
  for (const PreparedSwap::Part& part : swap.parts_)
    if (part.address.starts_with("metrics.") && live_.layer.own(part.address) == nullptr)
      for (auto* const values : {&run_.loop().latest(), &live_.context.metrics()})
        forget(part.address.substr(std::string_view("metrics.").size()), *values);
  ++live_.swaps;
  if (!watched) return nullptr;
  run_.states().set_copying(before);
  return before;
}

/// Sets where the curve of a schedule that comes in at an update begins, and its scale.
void Swaps::place_curve(PreparedSwap& swap, std::int64_t step) {
  Layer& layer = swap.layer_;
  ActivePlugin& schedule = *layer.own("schedule");
  const config::SlotConfig& slot = schedule.slot();
  const auto [old_curve, old_place] = layer.below->curve();
  CurvePlace place;
  switch (std::ranges::find(swap.parts_, slot.slot, &PreparedSwap::Part::address)->carry) {
    case config::Carry::state:
      place = old_place;
      // A scale that made two curves meet is meaningless for a third.
      if (slot.type != layer.below->plugin(slot.slot).slot().type) place.gain = 1.0;
      break;
    case config::Carry::restart: place.start = step; break;
    case config::Carry::splice: {
      const double before = guarded(slot, step, [&] { return old_curve->factor(step); });
      const double after = guarded(slot, step, [&] { return layer.made.curve->factor(step); });
      if (!(after > 0.0 && before > 0.0))
        throw ConfigError("[schedule] " + slot.type + " has the factor " + std::to_string(after) +
                          " at step " + std::to_string(step) + ", the one that it replaces " +
                          std::to_string(before) +
                          ": no scale makes them meet; both must be above 0, or take carry = \"restart\"");
      place.gain = before / after;
      break;
    }
    case config::Carry::fresh: break;
  }
  train::place_curve(layer.made, schedule, live_.scale, place, step);
}

/// Exchanges everything that a swap brings for what the run has in its place; a second call undoes it.
void Swaps::exchange(PreparedSwap& swap) {
  exchange_plugins(swap);
  std::swap(live_.config.slots, swap.config_.slots);
  std::swap(live_.config.resolved, swap.config_.resolved);
  std::swap(live_.config_text, swap.config_text_);
  Opened &now = live_.layer.made, &made = swap.layer_.made;
  if (made.network) std::swap(now.network, made.network);
  if (made.dropout) std::swap(now.dropout, made.dropout);
  if (made.compressor) std::swap(now.compressor, made.compressor);
  if (made.network || made.dropout) now.network->set_dropout(now.dropout.get(), live_.config.run.seed);
  for (auto& [name, split] : made.splits) split = std::exchange(now.splits[name], std::move(split));
  if (made.curve) {
    std::swap(now.curve, made.curve);
    std::swap(now.curve_place, made.curve_place);
  }
  live_.bus->exchange(swap.table_);
  run_.connect();
  const Clock& clock = run_.clock();
  if (!made.splits.empty()) now.splits.at("train").loader->seek(clock.epoch, clock.step_in_epoch);
  run_.host().exchanged();
}

/// Plugins that replace others take their very places, to which the loop points; others come and go between.
void Swaps::exchange_plugins(PreparedSwap& swap) {
  std::list<ActivePlugin>&now = live_.layer.plugins, &other = swap.layer_.plugins, next;
  for (ActivePlugin& each : other)
    if (ActivePlugin* const own = live_.layer.own(each.slot().address())) std::swap(*own, each);
  for (const config::SlotConfig& slot : swap.config_.slots) {
    std::list<ActivePlugin>& from = live_.layer.own(slot.address()) != nullptr ? now : other;
    const auto found = std::ranges::find(from, slot.address(),
                                         [](const ActivePlugin& each) { return each.slot().address(); });
    found->set_place(slot.slot);
    next.splice(next.end(), from, found);
  }
  other.splice(other.end(), now);
  now.swap(next);
}

void Swaps::take_back(PreparedSwap& swap) {
  const auto tell = [&](Event event) {
    for (const PreparedSwap::Part& part : swap.parts_)
      if (const ActivePlugin* const plugin = live_.layer.own(part.address)) run_.fire_swap(*plugin, event);
  };
  tell(Event::swap_out);
  exchange(swap);
  tell(Event::swap_in);
}

}  // namespace trainyard::train
