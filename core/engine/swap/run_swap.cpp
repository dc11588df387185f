// The part of Run that replaces plugins while it is going.
#include <algorithm>
#include <set>
#include <utility>

#include <trainyard/graph/network.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/recorder.hpp>

#include "core/engine/swap/prepared_swap.hpp"
#include "core/engine/train/finite_guard.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/guarded_plugins.hpp"
#include "core/runfile/live_config.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/swap.hpp"

namespace trainyard::train {
namespace {

/// Events that a plugin expects to have seen once it is in a run.
constexpr Event set_up[] = {Event::init, Event::model_ready, Event::optimizer_ready, Event::fit_start};

bool same_shape(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

/// For another plugin: what `fresh` would save, with all tensors that `old` has under the same name, shape
/// and type; with any of them its numbers, too: a moment without the count of its updates would be corrected
/// for a bias that it does not have.
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

/// For the same plugin with other options: all that `old` has, and of `fresh` what these options bring or
/// shape otherwise.
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

void hand_over(const ActivePlugin& from, ActivePlugin& to, config::Carry carry) {
  if (carry == config::Carry::fresh) return;
  State state = from.state();
  if (state.scalars.empty() && state.tensors.empty()) return;
  const bool same_type = from.slot().type == to.slot().type;
  if (!same_type)
    state = overlaid(to.state(), state);
  else if (config::toml_file(from.slot().options) != config::toml_file(to.slot().options))
    state = completed(std::move(state), to.state());
  guarded(to.slot(), 0, [&] { to.as<Plugin>().load(StateReader(state)); });
}

/// Whether the loop settles before each hook of a plugin.
bool comes_after_settle(ActivePlugin& plugin) {
  const std::vector<HookSpec>& hooks = plugin.subscriber().participant.hooks;
  return std::all_of(hooks.begin(), hooks.end(),
                     [](const HookSpec& hook) { return weights_written_at(hook.event); });
}

}  // namespace

/// Who fills a slot once `swap` and those that it follows are made.
ActivePlugin& Run::filling(PreparedSwap* swap, std::string_view slot) {
  for (; swap != nullptr; swap = swap->after_)
    if (ActivePlugin* found = swap->find(slot)) return *found;
  return plugin_of(slot);
}

Network& Run::network_with(PreparedSwap* swap) {
  for (; swap != nullptr; swap = swap->after_)
    if (swap->network_) return *swap->network_;
  return *network_;
}

std::pair<const ScheduleCurve*, CurvePlace> Run::curve_with(PreparedSwap* swap) const {
  for (; swap != nullptr; swap = swap->after_)
    if (swap->curve_) return {&*swap->curve_, swap->curve_place_};
  return {&*curve_, curve_place_};
}

std::unique_ptr<PreparedSwap> Run::prepare(const std::vector<config::SwapRequest>& swaps,
                                           PreparedSwap* after) {
  auto swap = std::make_unique<PreparedSwap>();
  swap->after_ = after;
  const config::RunConfig& config = after != nullptr ? after->config_ : config_;
  const plugins::Registry registry = registry_.rescan();
  config::Resolution resolution =
      config::live_config(config::with_swaps(config.resolved, swaps, registry), registry);
  if (resolution.config) control::leave_out(*resolution.config, registry, quarantined_);
  if (resolution.config)
    config::check_swaps(config, *resolution.config, swaps, registry, {}, resolution.findings);
  if (!resolution.config || resolution.findings.failed()) throw ConfigError(resolution.findings.text());
  swap->config_ = std::move(*resolution.config);
  swap->config_text_ = config::toml_file(swap->config_.resolved);
  const std::vector<config::SlotConfig>& then = swap->config_.slots;
  swap->parts_.reserve(then.size());
  for (std::size_t i = 0; i < then.size(); ++i) {
    const auto asked = std::find_if(swaps.rbegin(), swaps.rend(), [&](const config::SwapRequest& each) {
      return config::replaces(each.slot, then[i]);
    });
    if (asked == swaps.rend()) continue;
    const PreparedSwap::Part& part =
        swap->parts_.emplace_back(PreparedSwap::Part{.place = &plugins_[i],
                                                     .slot = &config_.slots[i],
                                                     .plugin = make_plugin(then[i], registry),
                                                     .config = then[i],
                                                     .carry = asked->carry,
                                                     .own = {}});
    if (part.config.address() == asked->slot || asked->slot == "data")
      swap->text_ += (swap->text_.empty() ? "" : "; ") + part.config.address() + ": " + part.config.type +
                     " " + part.plugin.manifest().version + ", generation " +
                     std::to_string(part.plugin.generation());
  }
  open(*swap);
  for (PreparedSwap::Part& part : swap->parts_)
    if (part.carry == config::Carry::state) part.own = part.plugin.state();
  std::map<const events::Subscriber*, const events::Subscriber*> replacements;
  for (PreparedSwap* each = swap.get(); each != nullptr; each = each->after_)
    for (PreparedSwap::Part& part : each->parts_)
      replacements.emplace(&part.place->subscriber(), &part.plugin.subscriber());
  swap->table_ = bus_->table_with(replacements);
  return swap;
}

/// Everything that plugins do before their first step.
void Run::open(PreparedSwap& swap) {
  const config::RunConfig& next = swap.config_;
  const auto splits = [&](const std::string& slot) {
    return slot == "data.train" ? &next.train : slot == "data.val" ? &*next.val : &*next.test;
  };
  bool data = false;
  for (PreparedSwap::Part& part : swap.parts_) {
    const std::string& kind = part.config.kind;
    ActivePlugin& plugin = part.plugin;
    data = data || kind == "dataset" || kind == "sampler" || kind == "loss";
    guarded(part.config, 0, [&] {
      if (kind == "dataset") {
        open_dataset(part.config.slot.substr(5), plugin);
      } else if (kind == "sampler") {
        open_sampler(plugin, filling(&swap, "data.train"));
      } else if (kind == "model") {
        swap.network_ = plugin.as<Model>().build({schema_, config_.run.seed});
        swap.network_->to(device_);
      } else if (kind == "dropout") {
        swap.dropout_ = open_dropout(part.config, plugin.as<Dropout>(), network_with(&swap), scale_);
      } else if (kind == "loss") {
        plugin.as<Loss>().check(network_with(&swap).output_shape(), schema_);
      } else if (kind == "metric") {
        plugin.as<Metric>().check(network_with(&swap).output_shape(), schema_);
      } else if (kind == "optimizer") {
        auto& optimizer = plugin.as<Optimizer>();
        // A network that comes in takes these very tensors over.
        optimizer.open(make_groups(network_->parameters(), optimizer.common));
      } else if (kind == "schedule") {
        swap.curve_.emplace(plugin.as<Schedule>(), scale_);
      } else if (kind == "recorder") {
        open_recorder(plugin);
      } else if (kind == "sink" || kind == "checkpointer") {
        outside_.open(plugin);
      }
    });
  }
  check_momentum(*curve_with(&swap).first, filling(&swap, "optimizer").as<Optimizer>(), next);
  if (!data) return;
  ActivePlugin& loss = filling(&swap, "loss");
  for (const auto& [name, split] : splits_) {
    const std::string slot = "data." + name;
    Split made = make_split(name, {splits(slot), &filling(&swap, slot),
                                   split.sampler ? &filling(&swap, "data.sampler") : nullptr, &loss});
    if (made.loader->steps_per_epoch() != split.loader->steps_per_epoch() ||
        made.loader->samples_per_epoch() != split.loader->samples_per_epoch())
      throw ConfigError("[data." + name + "] would have " + std::to_string(made.loader->samples_per_epoch()) +
                        " samples an epoch in place of " + std::to_string(split.loader->samples_per_epoch()) +
                        ": a running training keeps their number");
    swap.splits_.emplace(name, std::move(made));
  }
}

std::vector<Run::Planned> Run::plan() const {
  std::vector<Planned> plan;
  for (const config::PlannedSwap& each : config_.swaps)
    plan.push_back({in_steps(each.at, scale_, "swap.at"), {each.request}});
  std::stable_sort(plan.begin(), plan.end(),
                   [](const Planned& a, const Planned& b) { return a.step < b.step; });
  return plan;
}

void Run::rehearse(const std::vector<Planned>& plan) {
  std::vector<std::unique_ptr<PreparedSwap>> made;
  for (const Planned& planned : plan) {
    try {
      PreparedSwap* const after = made.empty() ? nullptr : made.back().get();
      PreparedSwap& swap = *made.emplace_back(prepare(planned.swaps, after));
      if (swap.network_) swap.network_->adopt(weights());
      for (PreparedSwap::Part& part : swap.parts_)
        if (part.plugin.has_state() && part.config.kind != Recorder::kind.name)  // which would cut its files
          hand_over(filling(after, part.config.slot), part.plugin, part.carry);
      if (swap.curve_) place_curve(swap, planned.step);
      for (const std::unique_ptr<PreparedSwap>& earlier : made)
        if (earlier.get() != &swap) earlier->free_replaced_by(swap);
    } catch (const Error& error) {
      throw ConfigError("the swap that is planned at step " + std::to_string(planned.step) + " (" +
                        config::text(planned.swaps) + ") cannot be made: " + error.what());
    }
  }
}

/// Whether nobody writes a tensor of the run's state, with the swap, before the loop settles: a graph reads
/// its parameters only, an optimizer is called for its step only, and hooks are called at events.
bool Run::steady(PreparedSwap& swap, const State& state, const at::Tensor& tensor) {
  const auto graph = [](const Network& network) { return dynamic_cast<const GraphNetwork*>(&network); };
  if (state.owner == "model")  // its buffers require no gradients
    return tensor.requires_grad() && graph(*network_) && graph(network_with(&swap));
  for (ActivePlugin& plugin : plugins_) {
    const config::SlotConfig& slot = plugin.slot();
    if (slot.address() != state.owner) continue;
    return (slot.kind == Optimizer::kind.name || slot.kind == Hook::kind.name) &&
           comes_after_settle(plugin) && comes_after_settle(filling(&swap, slot.slot));
  }
  return false;
}

void Run::settle() {
  if (copying_) std::exchange(copying_, nullptr)->settle();
}

std::shared_ptr<StateCopy> Run::commit(PreparedSwap& swap, bool watched) {
  settle();
  std::shared_ptr<StateCopy> before;
  if (watched)
    before = std::make_shared<StateCopy>(
        snapshot().states,
        [&](const State& state, const at::Tensor& tensor) { return steady(swap, state, tensor); });
  std::size_t out = 0, in = 0;  // of them have been told to go, to come
  const bool rules = std::any_of(swap.parts_.begin(), swap.parts_.end(), [](const PreparedSwap::Part& part) {
    return part.config.kind == Rule::kind.name || part.config.kind == Recorder::kind.name;
  });
  try {
    for (; out < swap.parts_.size(); ++out)
      bus_->call_alone(swap.parts_[out].place->subscriber(), Event::swap_out, context_);
    for (PreparedSwap::Part& part : swap.parts_) {
      for (const Event event : set_up) bus_->call_alone(part.plugin.subscriber(), event, context_);
      hand_over(*part.place, part.plugin, part.carry);
      bus_->call_alone(part.plugin.subscriber(), Event::swap_in, context_);
      ++in;
    }
    if (swap.network_) swap.network_->adopt(weights());
    if (swap.curve_) place_curve(swap, loop_->updates());
    for (PreparedSwap::Part& part : swap.parts_) outside_.settle(*part.place);
    if (rules) attach_rules(&swap);  // it may object to them; nothing may once the swap is in
  } catch (...) {
    if (rules) attach_rules();
    for (std::size_t i = 0; i < in; ++i) tell(swap.parts_[i].plugin, Event::swap_out);
    for (std::size_t i = 0; i < out; ++i) tell(*swap.parts_[i].place, Event::swap_in);
    throw;
  }
  exchange(swap);
  ++swaps_;
  return copying_ = before;
}

/// Of a swap that is taken back: whatever the plugin makes of it, the run goes on.
void Run::tell(ActivePlugin& plugin, Event event) {
  try {
    bus_->call_alone(plugin.subscriber(), event, context_);
  } catch (const Error& error) {
    outputs_.log(LogLevel::warning, error.what());
  }
}

/// Where the curve of a schedule that comes in at an update begins, and its scale.
void Run::place_curve(PreparedSwap& swap, std::int64_t step) {
  const auto part = std::find_if(swap.parts_.begin(), swap.parts_.end(), [](const PreparedSwap::Part& each) {
    return each.config.kind == Schedule::kind.name;
  });
  const config::SlotConfig& slot = part->config;
  const auto [old_curve, old_place] = curve_with(swap.after_);
  CurvePlace place;
  switch (part->carry) {
    case config::Carry::state:
      place = old_place;
      // A scale that made two curves meet says nothing of a third.
      if (slot.type != filling(swap.after_, slot.slot).slot().type) place.gain = 1.0;
      break;
    case config::Carry::restart: place.start = step; break;
    case config::Carry::splice: {
      const double before = guarded(slot, step, [&] { return old_curve->factor(step); });
      const double after = guarded(slot, step, [&] { return swap.curve_->factor(step); });
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
  guarded(slot, step,
          [&] { swap.curve_.emplace(part->plugin.as<Schedule>(), scale_from(place.start), place); });
  swap.curve_place_ = place;
}

/// Everything that a swap brings against what the run has in its place; the same again takes it back.
void Run::exchange(PreparedSwap& swap) {
  for (PreparedSwap::Part& part : swap.parts_) {
    std::swap(*part.place, part.plugin);
    std::swap(*part.slot, part.config);
  }
  std::swap(config_.resolved, swap.config_.resolved);
  std::swap(config_text_, swap.config_text_);
  if (swap.network_) std::swap(network_, swap.network_);
  if (swap.dropout_) std::swap(dropout_, swap.dropout_);
  if (swap.network_ || swap.dropout_) network_->set_dropout(dropout_.get(), config_.run.seed);
  for (auto& [name, split] : swap.splits_) std::swap(splits_[name], split);
  if (swap.curve_) {
    std::swap(curve_, swap.curve_);
    std::swap(curve_place_, swap.curve_place_);
  }
  bus_->exchange(swap.table_);
  connect();
  if (!swap.splits_.empty()) parts_.train.plugin->seek(context_.clock_.epoch, context_.clock_.step_in_epoch);
  for (PreparedSwap::Part& part : swap.parts_) outside_.use(*part.place);
}

void Run::check_weights() const {
  if (config_.guard.nan == config::GuardKeys::Nan::off) return;
  if (const std::optional<std::string> bad = first_infinite(weights()))
    throw NumericError(
        *bad + " holds a value that is not finite after step " + std::to_string(context_.clock_.step) +
        ": lower optimizer.lr or add trainer.grad_clip, and resume from the last checkpoint, which "
        "stays; set guard.nan = \"off\" where such a value is meant");
}

void Run::take_back(PreparedSwap& swap) {
  for (PreparedSwap::Part& part : swap.parts_) tell(*part.place, Event::swap_out);
  exchange(swap);
  for (PreparedSwap::Part& part : swap.parts_) tell(*part.place, Event::swap_in);
}

void Run::go_back(const std::vector<State>& states) {
  for (const events::Subscriber* disabled : bus_->rebuild())
    parts_.journal(disabled->participant.id, "disabled", disabled->error);
  restore(states, [](const std::string&) {});
  // One that had no state then has to be told so.
  std::set<std::string, std::less<>> saved;
  for (const State& state : states) saved.insert(state.owner);
  for (ActivePlugin& plugin : plugins_) {
    if (!plugin.has_state() || plugin.subscriber().disabled) continue;
    const State now = plugin.state();
    if (saved.contains(now.owner) || (now.scalars.empty() && now.tensors.empty())) continue;
    const State none{.owner = now.owner, .version = now.version, .scalars = {}, .tensors = {}};
    guarded(plugin.slot(), context_.clock_.step, [&] { plugin.as<Plugin>().load(StateReader(none)); });
  }
  parts_.train.plugin->seek(context_.clock_.epoch, context_.clock_.step_in_epoch);
}

}  // namespace trainyard::train
