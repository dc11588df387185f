#include "core/engine/train/run.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <set>

#include <trainyard/model.hpp>
#include <trainyard/recorder.hpp>

#include "core/engine/distributed/together.hpp"
#include "core/engine/events/exit_watch.hpp"
#include "core/engine/events/spans.hpp"
#include "core/engine/save/load.hpp"
#include "core/engine/train/device.hpp"
#include "core/engine/train/finite_check.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/guarded_plugins.hpp"
#include "core/engine/train/memory.hpp"
#include "core/engine/train/opening.hpp"
#include "core/engine/train/precision.hpp"
#include "core/engine/train/strict_state.hpp"
#include "core/engine/train/weights.hpp"
#include "core/runfile/live_config.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::train {
namespace {

/// Returns the name under which a checkpoint says that a plugin is disabled. It holds for that very code:
/// once mended, the plugin is called again.
std::string disabled_as(const ActivePlugin& plugin) {
  return "disabled/" + plugin.slot().address() + "/" + plugin.file().digest;
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

void set_threads(const config::RunConfig& config) {
  if (config.threads.intra_op > 0) at::set_num_threads(config.threads.intra_op);
  // It can be set once per process: a second run in the process keeps the first one's.
  if (config.threads.inter_op > 0 &&
      static_cast<int>(at::get_num_interop_threads()) != config.threads.inter_op)
    at::set_num_interop_threads(config.threads.inter_op);
}

void set_deterministic(config::RunKeys::Deterministic mode) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(mode != config::RunKeys::Deterministic::off,
                                     mode == config::RunKeys::Deterministic::warn);
  context.setDeterministicCuDNN(mode != config::RunKeys::Deterministic::off);
  context.setBenchmarkCuDNN(mode == config::RunKeys::Deterministic::off);
}

/// Sets the plugins of the run that want to be told of spans.
void watch_spans(Live& live) {
  std::vector<events::Spans::Watcher> watchers;
  for (ActivePlugin& plugin : live.layer.plugins)
    if (auto* const watcher = dynamic_cast<SpanWatcher*>(&plugin.as<Plugin>()))
      watchers.push_back({watcher, &plugin.subscriber().disabled});
  events::spans.set_watchers(live.bus.get(), std::move(watchers));
}

}  // namespace

Run::Run(config::RunConfig given, const plugins::Registry& registry, HostOutputs outputs,
         distributed::World* world, std::optional<report::Learned> learned, Data data)
    : registry_(registry), outputs_(std::move(outputs)), live_{.config = std::move(given)} {
  live_.learned = std::move(learned);
  config::RunConfig& config = live_.config;
  config::keep_training(config);
  live_.device = make_device(config.run.device, world);
  live_.world = world;
  file_ = config::toml_file(config.resolved);
  config.resolved.erase("swap");  // the plan is not part of the live configuration
  live_.config_text = config::toml_file(config.resolved);
  keep_large_blocks();
  set_threads(config);
  set_deterministic(config.run.deterministic);
  if (world != nullptr) world->connect(live_.device);
  outputs_.seed = config.run.seed;
  outputs_.run = {config.run.output_dir, live_.device.str(), world};
  outputs_.batches = [this](std::string_view split, std::int64_t count) {
    return first_batches(split, count);
  };
  outputs_.thread_failed = [this] { thread_failed_ = true; };
  outputs_.metric = [this](std::string name, double value) {
    if (loop_) loop_->add_metric(std::move(name), value);
  };

  for (const config::SlotConfig& slot : config.slots)
    live_.layer.plugins.push_back(make_plugin(slot, registry_));
  if (data == Data::opened) open();
}

/// Ends the executor first: after an error its threads may still work on what is destroyed later.
Run::~Run() {
  if (ActivePlugin* const executor = live_.layer.own("executor"); executor != nullptr)
    const ActivePlugin gone = std::move(*executor);
}

void Run::open() {
  open_data();
  std::vector<events::Subscriber*> subscribers;
  for (ActivePlugin& plugin : live_.layer.plugins) subscribers.push_back(&plugin.subscriber());
  live_.bus = std::make_unique<events::Bus>(std::move(subscribers), live_.scale,
                                            live_.world != nullptr ? live_.world->size() : 1);
  set_inspectors();
  live_.context.clock_.total_steps = live_.scale.total_steps;
  live_.context.run_scale_ = live_.scale;
  live_.bus->fire(Event::init, live_.context);
}

/// Opens the data, and takes the length of the run from them.
void Run::open_data() {
  const config::RunConfig& config = live_.config;
  std::map<std::string, Split>& splits = live_.layer.made.splits;
  Opening opening(live_, config, live_.layer);
  opening.open(Opening::Stage::data);
  const Filled<Dataset> training = filled<Dataset>("data.train");
  live_.schema = guarded(*training.slot, 0, [&] { return training.plugin->schema(); });
  for (const char* name : {"train", "val", "test"})
    if (config.split(name) != nullptr) splits[name] = opening.split(name);
  const data::Loader& loader = *splits["train"].loader;
  live_.scale = {.steps_per_epoch = loader.steps_per_epoch(),
                 .samples_per_epoch = loader.samples_per_epoch(),
                 .samples_per_step = config.train.batch_size,
                 .tokens_per_sample = live_.schema.tokens_per_sample};
  if (config.trainer.max_duration.unit != Duration::Unit::seconds)
    live_.scale.total_steps = in_steps(config.trainer.max_duration, live_.scale, "trainer.max_duration");
}

void Run::set_inspectors() {
  using Nan = config::GuardKeys::Nan;
  const config::GuardKeys& guard = live_.config.guard;
  if (guard.strict_state) {
    live_.inspectors.push_back(std::make_unique<StrictState>(live_.context, StrictState::Look::whole));
    live_.bus->lend_copies();
    unsaved_ = std::make_unique<UnsavedState>([this](const std::string& text) { warn(text); });
  }
  if (guard.nan != Nan::off)
    live_.inspectors.push_back(
        std::make_unique<FiniteCheck>(live_.context, guard.nan == Nan::disable ? events::Answer::disable
                                                     : guard.nan == Nan::abort ? events::Answer::abort
                                                                               : events::Answer::rollback));
  std::vector<events::Inspector*> pointers;
  for (const auto& inspector : live_.inspectors) pointers.push_back(inspector.get());
  live_.bus->inspect(std::move(pointers));
  if (guard.strict_state || guard.look_for_writes.count <= 0.0) return;
  sample_ = std::make_unique<StrictState>(live_.context, StrictState::Look::sample);
  live_.bus->sample(sample_.get());
}

const plugins::PluginFile& Run::find_plugin(const std::string& slot, const std::string& kind,
                                            const std::string& type, const plugins::Registry& registry) {
  const std::vector<const plugins::PluginFile*> files = registry.find(kind, type);
  if (files.size() != 1)
    throw PluginError("[" + slot + "] " + std::to_string(files.size()) + " plugins are called \"" + type +
                      "\" of kind " + kind + "; one was expected");
  return *files.front();
}

const plugins::LoadedPlugin& Run::code_of(const plugins::PluginFile& file) {
  const std::string key = file.path + ":" + file.digest;
  auto loaded = code_.find(key);
  if (loaded == code_.end()) loaded = code_.emplace(key, plugins::load(file)).first;
  return loaded->second;
}

ActivePlugin Run::make_plugin(const config::SlotConfig& slot, const plugins::Registry& registry) {
  const plugins::PluginFile& file = find_plugin(slot.slot, slot.kind, slot.type, registry);
  PartCode parts;
  load_parts(slot.slot, file.manifest, slot.options, registry, parts);
  return {slot, file, code_of(file), std::move(parts), outputs_};
}

/// Loads the code of the plugins among a plugin's options, and of those among theirs.
void Run::load_parts(const std::string& slot, const ManifestData& manifest, const Table& options,
                     const plugins::Registry& registry, PartCode& parts) {
  for (const OptionSpec& spec : manifest.options) {
    const Value* list = spec.plugins.empty() ? nullptr : options.find(spec.name);
    if (list == nullptr) continue;
    for (const Value& part : list->as<Array>()) {
      const auto& table = part.as<Table>();
      const std::string& type = table.find("type")->as<std::string>();
      const plugins::PluginFile& file = find_plugin(slot, spec.plugins, type, registry);
      parts.emplace(std::pair(spec.plugins, type), code_of(file));
      load_parts(slot, file.manifest, table, registry, parts);
    }
  }
}

void Run::build_model() try {
  Opening(live_, live_.config, live_.layer).open(Opening::Stage::model);
  Opened& made = live_.layer.made;
  if (made.dropout) made.network->set_dropout(made.dropout.get(), live_.config.run.seed);
  live_.context.network_ = made.network.get();
  shards_ = Shards::of(*made.network, live_.world, live_.config);
  live_.bus->fire(Event::model_ready, live_.context);
} catch (const events::BlamedError& error) {
  if (error.code() != ExitCode::config || error.blame().slot == "model") throw;
  // The message names model and data, as the plugin does not fit the network or a batch.
  throw events::BlamedError(error.code(), error.blame(),
                            error.why() + " (model \"" + live_.config.at("model").type + "\", data \"" +
                                live_.config.at("data.train").type + "\")");
}

Loop& Run::build_loop(LoopParts parts) {
  Opening opening(live_, live_.config, live_.layer);
  opening.open(Opening::Stage::loop);
  opening.check_momentum();
  if (const std::int64_t end = schedule().end(); end < live_.scale.total_steps)
    warn("[schedule] the budget of " + live_.config.at("schedule").type + " ends at step " +
         std::to_string(end) + ": the run goes on to step " + std::to_string(live_.scale.total_steps) +
         " at its last factor");
  live_.context.optimizer_ = filled<Optimizer>("optimizer").plugin;
  live_.bus->fire(Event::optimizer_ready, live_.context);

  parts.config = &live_.config;
  parts.bus = live_.bus.get();
  parts.context = &live_.context;
  parts.device = live_.device;
  parts.world = live_.world;
  parts.scale = live_.scale;
  parts.owner = this;
  parts_ = std::move(parts);
  connect();
  loop_ = std::make_unique<Loop>(parts_);
  return *loop_;
}

/// Called after every step: it looks at the plugins, which are cold by then, only if a thread of one failed.
void Run::check_threads() {
  report::ExitWatch::stepped();
  if (unsaved_) unsaved_->inspect(live_.layer.plugins);
  if (!thread_failed_.load(std::memory_order_relaxed)) [[likely]]
    return;
  thread_failed_ = false;
  for (ActivePlugin& plugin : live_.layer.plugins) {
    if (!plugin.services().thread_failed()) continue;
    thread_failed_ = true;  // another one's thread may have failed, too
    guarded(plugin.slot(), clock().step,
            [&] { throw PluginError("in a thread of its own: " + plugin.services().take_thread_error()); });
  }
}

void Run::connect() {
  thread_failed_ = true;  // look at new plugins: they may have had threads before
  Opened& made = live_.layer.made;
  parts_.network = {&live_.config.at("model"), made.network.get()};
  parts_.dropout = made.dropout.get();
  parts_.loss = filled<Loss>("loss");
  parts_.optimizer = filled<Optimizer>("optimizer");
  parts_.schedule = {&live_.config.at("schedule"), &*made.curve};
  parts_.executor = filled<Executor>("executor");
  parts_.compressor = {live_.config.find("distributed.compressor"), made.compressor.get()};
  parts_.asks_at_before_step = std::ranges::any_of(live_.layer.plugins, [](const ActivePlugin& plugin) {
    return std::ranges::any_of(plugin.manifest().hooks, [](const HookSpec& hook) {
      return hook.event == Event::before_step && hook.writes.contains(Region::control);
    });
  });
  parts_.train = {&live_.config.at("data.train"), made.splits["train"].loader.get()};
  live_.context.network_ = parts_.network.plugin;
  live_.context.optimizer_ = parts_.optimizer.plugin;
  connect_metrics();
  attach_rules(live_.layer);
  watch_spans(live_);
  parts_.evaluations.clear();
  for (const char* name : {"val", "test"})
    if (const auto split = made.splits.find(name); split != made.splits.end())
      parts_.evaluations.push_back({name, split->second.loader.get()});
}

/// Connects the metrics; each member of the executor has metric objects of its own.
void Run::connect_metrics() {
  parts_.metrics.clear();
  parts_.member_metrics.clear();
  member_metrics_.clear();
  for (const config::SlotConfig& slot : live_.config.of_kind(Metric::kind.name))
    parts_.metrics.push_back(filled<Metric>(slot.slot));
  const std::size_t members = parts_.executor.plugin->members();
  if (members == 1) return;
  parts_.member_metrics.resize(members);
  for (MetricSlots& metrics : parts_.member_metrics)
    for (const config::SlotConfig& slot : live_.config.of_kind(Metric::kind.name)) {
      ActivePlugin& plugin = member_metrics_.emplace_back(make_plugin(slot, registry_));
      auto& metric = plugin.as<Metric>();
      guarded(slot, 0, [&] { metric.check(live_.layer.network().output_shape(), live_.schema); });
      metrics.push_back({&plugin.slot(), &metric});
    }
}

Table Run::run_file(const std::vector<std::string>& set) const {
  config::Resolution resolution =
      config::live_config(config::with_sets(live_.config.resolved, set), registry_);
  if (!resolution.config) throw ConfigError(resolution.findings.text());
  return std::move(resolution.config->resolved);
}

std::unique_ptr<Network> Run::build(std::uint64_t seed) {
  ActivePlugin& model = live_.layer.plugin("model");
  return guarded(model.slot(), 0, [&] {
    std::unique_ptr<Network> network = model.as<Model>().build({live_.schema, seed});
    place(*network, live_);
    if (live_.layer.made.dropout) network->set_dropout(live_.layer.made.dropout.get(), seed);
    return network;
  });
}

std::vector<Batch> Run::first_batches(std::string_view name, std::int64_t count) {
  if (live_.config.split(name) == nullptr)
    throw ConfigError("asks for batches of [data." + std::string(name) + "], which the run does not have");
  // It uses a loader of its own, independent of the run's place in the data.
  const Split split = Opening(live_, live_.config, live_.layer).split(std::string(name), /*whole=*/true);
  split.loader->seek(0, 0);
  std::vector<Batch> batches;
  while (std::ssize(batches) < count) {
    std::optional<data::StepData> step = split.loader->next();
    if (!step) break;
    for (Batch& batch : step->batches) {
      if (std::ssize(batches) == count) break;
      move_to(live_.device, floats_of(live_.config.trainer.precision), batch);
      batches.push_back(std::move(batch));
    }
  }
  return batches;
}

void Run::try_batch() {
  if (shards_) return;  // a pass through sharded tables is a collective
  const at::NoGradGuard no_grad;
  for (const Batch& batch : first_batches("train", 1)) loop_->bench().grade(batch, {}, nullptr);
}

void Run::attach_rules(Layer& layer) {
  if (live_.config.find("recorder") == nullptr) return;
  ActivePlugin& recorder = layer.plugin("recorder");
  std::vector<NamedRule> rules;
  for (const config::SlotConfig& slot : live_.config.of_kind(Rule::kind.name))
    rules.push_back(named_rule(layer.plugin(slot.slot)));
  guarded(recorder.slot(), clock().step,
          [&] { recorder.as<Recorder>().attach(std::move(rules), live_.scale); });
}

Snapshot Run::snapshot() const {
  Snapshot snapshot{.step = live_.context.clock_.step, .states = {}, .metrics = loop_->latest()};
  State run{.owner = "run", .version = TRAINYARD_SDK_VERSION, .scalars = {}, .tensors = {}};
  StateWriter writer(run);
  loop_->save(writer);
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

Snapshot Run::snapshot_of_ranks() const {
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
void Run::leave_out(const State& run, const std::function<void(const std::string&)>& note) {
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
void Run::drop_requests(const State& run) {
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

void Run::restore(const std::vector<State>& given, const std::function<void(const std::string&)>& note) {
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

void Run::go_back(const std::vector<State>& states) {
  for (const events::Subscriber* disabled : live_.bus->rebuild())
    parts_.host->journal(disabled->participant.id, "disabled", disabled->error);
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
  parts_.train.plugin->seek(live_.context.clock_.epoch, live_.context.clock_.step_in_epoch);
}

State Run::buffers() const {
  State state{.owner = "model", .version = {}, .scalars = {}, .tensors = {}};
  for (const NamedTensor& each : live_.layer.made.network->buffers())
    state.tensors.emplace(each.name, each.tensor);
  return state;
}

std::vector<State> Run::early_states() const {
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

std::vector<State> Run::common_states(bool weights) const {
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

std::vector<State> Run::own_states() const {
  std::vector<State> own;
  for (const ActivePlugin& plugin : live_.layer.plugins)
    if (plugin.slot().kind == Compressor::kind.name) own.push_back(plugin.state());
  std::erase_if(own, [](const State& each) { return each.scalars.empty() && each.tensors.empty(); });
  return own;
}

void Run::take_own_states(const std::vector<std::vector<State>>& of_ranks) {
  std::vector<State> saved;
  for (const std::vector<State>& own : of_ranks) saved.insert(saved.end(), own.begin(), own.end());
  for (ActivePlugin& plugin : live_.layer.plugins)
    if (plugin.slot().kind == Compressor::kind.name && !saved.empty())
      guarded(plugin.slot(), clock().step, [&] { plugin.as<Compressor>().load_all(saved); });
}

void Run::take_over(const std::vector<State>& states) {
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

void Run::check_weights() const {
  if (live_.config.guard.nan == config::GuardKeys::Nan::off) return;
  if (const std::optional<std::string> bad = first_infinite(weights()))
    throw NumericError(
        *bad + " holds a value that is not finite after step " + std::to_string(clock().step) +
        ": lower optimizer.lr or add trainer.grad_clip, and resume from the last checkpoint, which "
        "stays; set guard.nan = \"off\" where such a value is meant");
}

void Run::settle() {
  if (copying_) std::exchange(copying_, nullptr)->settle();
}

std::int64_t Run::samples(const std::string& split) const {
  const auto found = live_.layer.made.splits.find(split);
  return found == live_.layer.made.splits.end() ? 0 : found->second.samples();
}

std::vector<NamedTensor> Run::weights() const {
  const Network& network = *live_.layer.made.network;
  std::vector<NamedTensor> all = network.parameters();
  const std::vector<NamedTensor> buffers = network.buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

void Run::load_weights(const std::string& path, const std::vector<std::string>& patterns) {
  copy_weights(weights(),
               checkpoint::load_weights(path, shards_ ? shards_->rows.wanted() : RowsWanted(all_rows)), path,
               patterns);
}

std::string Run::model_digest() const {
  State state;
  for (const NamedTensor& each : weights()) state.tensors.emplace(each.name, each.tensor);
  return shards_ ? shards_->rows.digest(std::move(state)) : digest(state);
}

State Run::optimizer_state() const {
  State state;
  StateWriter writer(state);
  live_.context.optimizer_->save(writer);
  return state;
}

std::string Run::optimizer_digest() const {
  return shards_ ? shards_->rows.digest(optimizer_state()) : digest(optimizer_state());
}

void Run::fire_quietly(Event event) {
  if (!live_.bus) return;  // nothing was opened
  try {
    live_.bus->fire(event, live_.context);
  } catch (const Error& error) {
    warn(error.what());
  }
}

void Run::tell(const ActivePlugin& plugin, Event event) {
  try {
    live_.bus->call_alone(plugin.subscriber(), event, live_.context);
  } catch (const Error& error) {
    warn(error.what());
  }
}

}  // namespace trainyard::train
