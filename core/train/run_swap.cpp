// The part of Run that replaces plugins while it is going.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include <trainyard/recorder.hpp>

#include "core/config/resolve.hpp"
#include "core/config/swap.hpp"
#include "core/train/finite_guard.hpp"
#include "core/train/guard.hpp"
#include "core/train/guarded_plugins.hpp"
#include "core/train/prepared_swap.hpp"

namespace trainyard::train {
namespace {

/// Events that a plugin expects to have seen once it is in a run.
constexpr Event set_up[] = {Event::init, Event::model_ready, Event::optimizer_ready, Event::fit_start};

/// Whether a swap of `address` replaces the plugin of a slot: its own, and those that look into it.
bool replaces(const std::string& address, const config::SlotConfig& slot) {
  if (slot.address() == address) return true;
  if (address == "data") return slot.kind == "dataset" || slot.kind == "sampler";
  return address == "model" && slot.kind == "dropout";
}

void check_set_up(const ActivePlugin& plugin) {
  for (const HookSpec& hook : plugin.manifest().hooks)
    for (const Event event : set_up)
      if (hook.event == event && !Regions(Region::plugin_own).contains(hook.writes))
        throw ConfigError(
            plugin.slot().slot + ": " + plugin.slot().type + " writes " + events::text(hook.writes) + " at " +
            std::string(name(event)) +
            ", which a running training has behind it: it can only be there from the beginning");
}

/// A swap fills places again; their number and their names stay.
void check_same_slots(const std::vector<const config::SlotConfig*>& now,
                      const std::vector<const config::SlotConfig*>& then) {
  const auto differs = [](const config::SlotConfig* a, const config::SlotConfig* b) {
    return a->slot != b->slot || a->address() != b->address();
  };
  const auto [here, there] =
      std::mismatch(now.begin(), now.end(), then.begin(), then.end(), std::not_fn(differs));
  if (here == now.end() && there == then.end()) return;
  throw ConfigError("a running training keeps its slots: the swap would " +
                    (then.size() > now.size() ? "add [" + (*there)->slot + "]"
                     : then.size() < now.size()
                         ? "drop [" + (*here)->slot + "]"
                         : "rename " + (*here)->address() + " to " + (*there)->address()));
}

/// What `fresh` would save, with all tensors that `old` has under the same name, shape and type; with any of
/// them its numbers, too: a moment without the count of its updates would be corrected for a bias that it
/// does not have.
State overlaid(State fresh, const State& old) {
  bool any = false;
  for (auto& [name, tensor] : fresh.tensors) {
    const auto found = old.tensors.find(name);
    if (found != old.tensors.end() && found->second.sizes() == tensor.sizes() &&
        found->second.scalar_type() == tensor.scalar_type()) {
      tensor = found->second;
      any = true;
    }
  }
  if (!any) return fresh;
  for (auto& [name, scalar] : fresh.scalars)
    if (const auto found = old.scalars.find(name);
        found != old.scalars.end() && found->second.index() == scalar.index())
      scalar = found->second;
  return fresh;
}

void hand_over(const ActivePlugin& from, ActivePlugin& to, config::Carry carry) {
  if (carry == config::Carry::fresh) return;
  State state = from.state();
  if (state.scalars.empty() && state.tensors.empty()) return;
  if (from.slot().type != to.slot().type) state = overlaid(to.state(), state);
  guarded(to.slot(), 0, [&] { to.as<Plugin>().load(StateReader(state)); });
}

}  // namespace

std::unique_ptr<PreparedSwap> Run::prepare(const config::SwapRequest& request) {
  auto swap = std::make_unique<PreparedSwap>();
  swap->request_ = request;
  const plugins::Registry registry = registry_.rescan();
  config::Resolution resolution =
      config::resolve(config::with_swap(config_.resolved, request, registry), registry);
  if (!resolution.config) throw ConfigError(resolution.findings.text());
  swap->config_ = std::move(*resolution.config);
  const config::RunConfig& next = swap->config_;
  if (next.train.batch_size != config_.train.batch_size ||
      next.train.micro_batch_size != config_.train.micro_batch_size ||
      next.train.drop_last != config_.train.drop_last)
    throw ConfigError("a running training keeps its batch size: a swap of data changes the samples alone");

  if (next.workers != config_.workers || next.prefetch != config_.prefetch)
    throw ConfigError("a running training keeps data.workers and data.prefetch: they change with a resume");
  const std::vector<const config::SlotConfig*> now = config_.slots(), then = next.slots();
  check_same_slots(now, then);
  std::map<const events::Subscriber*, const events::Subscriber*> replacements;
  swap->parts_.reserve(now.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (!replaces(request.slot, *then[i])) continue;
    ActivePlugin plugin = make_plugin(*then[i], registry);
    check_set_up(plugin);
    PreparedSwap::Part& part = swap->parts_.emplace_back(PreparedSwap::Part{
        &plugins_[i], const_cast<config::SlotConfig*>(now[i]), std::move(plugin), *then[i], {}});
    replacements.emplace(&part.place->subscriber(), &part.plugin.subscriber());
    if (swap->text_.empty())
      swap->text_ = request.slot + ": " + part.config.type + " " + part.plugin.manifest().version +
                    ", generation " + std::to_string(part.plugin.generation());
  }
  open(*swap);
  if (request.carry == config::Carry::state)
    for (PreparedSwap::Part& part : swap->parts_) part.own = part.plugin.state();
  swap->table_ = bus_->table_with(replacements);
  return swap;
}

/// Everything that plugins do before their first step.
void Run::open(PreparedSwap& swap) {
  const config::RunConfig& next = swap.config_;
  const auto filling = [&](const config::SlotConfig& slot) -> ActivePlugin& {
    for (PreparedSwap::Part& part : swap.parts_)
      if (part.config.slot == slot.slot) return part.plugin;
    return plugin_of(slot);
  };
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
        open_dataset(part.config.slot.substr(5), *splits(part.config.slot), plugin);
      } else if (kind == "sampler") {
        open_sampler(plugin, next.train, filling(next.train.dataset).as<Dataset>());
      } else if (kind == "model") {
        swap.network_ = plugin.as<Model>().build({schema_, config_.seed});
        swap.network_->to(device_);
      } else if (kind == "dropout") {
        swap.dropout_ = open_dropout(part.config, plugin.as<Dropout>(),
                                     swap.network_ ? *swap.network_ : *network_, scale_);
      } else if (kind == "loss") {
        plugin.as<Loss>().check(network_->output_shape(), schema_);
      } else if (kind == "metric") {
        plugin.as<Metric>().check(network_->output_shape(), schema_);
      } else if (kind == "optimizer") {
        auto& optimizer = plugin.as<Optimizer>();
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
  check_momentum(swap.curve_ ? *swap.curve_ : *curve_, filling(next.optimizer).as<Optimizer>(), next);
  if (!data) return;
  ActivePlugin& loss = filling(next.loss);
  for (const auto& [name, split] : splits_) {
    const config::SplitConfig& config = *splits("data." + name);
    Split made = make_split(name, {&config, &filling(config.dataset).as<Dataset>(),
                                   split.sampler ? &filling(next.sampler) : nullptr, &loss});
    if (made.loader->steps_per_epoch() != split.loader->steps_per_epoch() ||
        made.loader->samples_per_epoch() != split.loader->samples_per_epoch())
      throw ConfigError("[data." + name + "] would have " + std::to_string(made.loader->samples_per_epoch()) +
                        " samples an epoch in place of " + std::to_string(split.loader->samples_per_epoch()) +
                        ": a running training keeps their number");
    swap.splits_.emplace(name, std::move(made));
  }
}

void Run::commit(PreparedSwap& swap) {
  std::size_t out = 0;  // of them have been told to go
  try {
    for (; out < swap.parts_.size(); ++out)
      bus_->call_alone(swap.parts_[out].place->subscriber(), Event::swap_out, context_);
    for (PreparedSwap::Part& part : swap.parts_) {
      for (const Event event : set_up) bus_->call_alone(part.plugin.subscriber(), event, context_);
      hand_over(*part.place, part.plugin, swap.request_.carry);
      bus_->call_alone(part.plugin.subscriber(), Event::swap_in, context_);
    }
    if (swap.network_) swap.network_->adopt(weights());
    if (swap.curve_) place_curve(swap);
    outside_.settle(*swap.parts_.front().place);
  } catch (...) {
    for (std::size_t i = 0; i < out; ++i) come_back(*swap.parts_[i].place);
    throw;
  }
  exchange(swap);
  ++swaps_;
}

/// Tells a plugin that was told to go that it stays.
void Run::come_back(ActivePlugin& plugin) {
  try {
    bus_->call_alone(plugin.subscriber(), Event::swap_in, context_);
  } catch (const Error& error) {
    outputs_.log(LogLevel::warning, error.what());
  }
}

/// Where the curve of a schedule that comes in begins, and its scale.
void Run::place_curve(PreparedSwap& swap) {
  const std::int64_t step = loop_->updates();
  auto& schedule = swap.parts_.front().plugin.as<Schedule>();
  const config::SlotConfig& slot = swap.parts_.front().config;
  CurvePlace place;
  switch (swap.request_.carry) {
    case config::Carry::state: place = curve_place_; break;
    case config::Carry::restart: place.start = step; break;
    case config::Carry::splice: {
      const double before = guarded(config_.schedule, step, [&] { return curve_->factor(step); });
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
  guarded(slot, step, [&] { swap.curve_.emplace(schedule, scale_from(place.start), place); });
  swap.curve_place_ = place;
}

/// Everything that a swap brings against what the run has in its place; the same again takes it back.
void Run::exchange(PreparedSwap& swap) {
  for (PreparedSwap::Part& part : swap.parts_) {
    std::swap(*part.place, part.plugin);
    std::swap(*part.slot, part.config);
  }
  std::swap(config_.resolved, swap.config_.resolved);
  if (swap.network_) std::swap(network_, swap.network_);
  if (swap.dropout_) std::swap(dropout_, swap.dropout_);
  if (swap.network_ || swap.dropout_) network_->set_dropout(dropout_.get(), config_.seed);
  for (auto& [name, split] : swap.splits_) std::swap(splits_[name], split);
  if (swap.curve_) {
    std::swap(curve_, swap.curve_);
    std::swap(curve_place_, swap.curve_place_);
  }
  bus_->exchange(swap.table_);
  connect();
  if (!swap.splits_.empty()) parts_.train->seek(context_.clock_.epoch, context_.clock_.step_in_epoch);
  for (PreparedSwap::Part& part : swap.parts_) outside_.use(*part.place);
}

void Run::check_weights() const {
  if (config_.guard.nan == config::GuardConfig::Nan::off) return;
  if (const std::optional<std::string> bad = first_infinite(weights()))
    throw NumericError(
        *bad + " holds a value that is not finite after step " + std::to_string(context_.clock_.step) +
        ": lower optimizer.lr or add trainer.grad_clip, and resume from the last checkpoint, which "
        "stays; set guard.nan = \"off\" where such a value is meant");
}

void Run::roll_back(PreparedSwap& swap, const Snapshot& before) {
  exchange(swap);
  for (PreparedSwap::Part& part : swap.parts_) come_back(*part.place);
  go_back(before.states);
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
  parts_.train->seek(context_.clock_.epoch, context_.clock_.step_in_epoch);
}

}  // namespace trainyard::train
