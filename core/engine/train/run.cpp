#include "core/engine/train/run.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <trainyard/model.hpp>
#include <trainyard/recorder.hpp>

#include "core/engine/events/exit_watch.hpp"
#include "core/engine/events/spans.hpp"
#include "core/engine/train/device.hpp"
#include "core/engine/train/finite_check.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/guarded_plugins.hpp"
#include "core/engine/train/memory.hpp"
#include "core/engine/train/opening.hpp"
#include "core/engine/train/precision.hpp"
#include "core/engine/train/strict_state.hpp"
#include "core/rundir/codecs.hpp"
#include "core/runfile/live_config.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::train {
namespace {

void set_threads(const config::RunConfig& config) {
  if (config.threads.intra_op > 0) at::set_num_threads(config.threads.intra_op);
  // It can be set once per process: a second run in the process keeps the first one's.
  const int between = config.threads.inter_op;
  if (between > 0 && static_cast<int>(at::get_num_interop_threads()) != between)
    at::set_num_interop_threads(between);
  at::globalContext().setFlushDenormal(config.threads.flush_denormals);  // threads begun later have it, too
}

void set_deterministic(config::RunKeys::Deterministic mode) {
  const bool on = mode != config::RunKeys::Deterministic::off;
  at::globalContext().setDeterministicAlgorithms(on, mode == config::RunKeys::Deterministic::warn);
  at::globalContext().setDeterministicCuDNN(on);
  at::globalContext().setBenchmarkCuDNN(!on);
}

/// Sets the plugins of the run that want to be told of spans.
void watch_spans(Live& live) {
  std::vector<events::Spans::Watcher> watchers;
  for (ActivePlugin& plugin : live.layer.plugins)
    if (auto* const watcher = dynamic_cast<SpanWatcher*>(&plugin.as<Plugin>()))
      watchers.push_back({watcher, &plugin.subscriber().disabled});
  events::spans.set_watchers(live.bus.get(), std::move(watchers));
}

const plugins::PluginFile& find_plugin(const std::string& slot, const std::string& kind,
                                       const std::string& type, const plugins::Registry& registry) {
  const std::vector<const plugins::PluginFile*> files = registry.find(kind, type);
  if (files.size() != 1)
    throw PluginError("[" + slot + "] " + std::to_string(files.size()) + " plugins are called \"" + type +
                      "\" of kind " + kind + "; one was expected");
  return *files.front();
}

}  // namespace

Run::Run(config::RunConfig given, const plugins::Registry& registry, HostOutputs outputs,
         distributed::World* world, std::optional<report::Learned> learned, Data data)
    : registry_(registry), outputs_(std::move(outputs)), live_{.config = std::move(given)}, states_(live_) {
  checkpoint::find_codecs_in(registry);
  live_.learned = std::move(learned);
  config::RunConfig& config = live_.config;
  config::keep_training(config);
  live_.device = make_device(config.run.device, world);
  live_.world = world;
  states_.set_file(config::toml_file(config.resolved));
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
                 .samples_per_step = std::min(config.train.batch_size, loader.samples_per_epoch()),
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

const plugins::LoadedPlugin& Run::code_of(const plugins::PluginFile& file) {
  const std::string object = file.path + ":" + file.digest + ":", key = object + std::to_string(file.place);
  if (const auto known = code_.find(key); known != code_.end()) return known->second;
  const auto beside = code_.lower_bound(object);  // another plugin of the file
  const bool loaded = beside != code_.end() && beside->first.starts_with(object);
  return code_.emplace(key, plugins::load(file, loaded ? &beside->second : nullptr)).first->second;
}

ActivePlugin Run::make_plugin(const config::SlotConfig& slot, const plugins::Registry& registry) {
  const plugins::PluginFile& file = find_plugin(slot.slot, slot.kind, slot.type, registry);
  PartCode parts;
  load_parts(slot.slot, file.manifest, slot.options, registry, parts);
  return {slot, code_of(file), std::move(parts), outputs_};
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
  states_.set_shards(Shards::of(*made.network, live_.world, live_.config));
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
  if (live_.world == nullptr && !live_.config.distributed.shares.empty())
    warn("[distributed] shares are for several ranks: one trains, which has the whole batch");
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
  states_.set_loop(*loop_, *parts_.host);
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
  attach_rules(live_.config, live_.layer);
  watch_spans(live_);
  parts_.evaluations.clear();
  for (const char* name : {"val", "test"})
    if (const auto split = made.splits.find(name); split != made.splits.end())
      parts_.evaluations.push_back({name, split->second.loader.get()});
}

/// Connects the metrics; each member of the executor has metric objects of its own.
void Run::connect_metrics() {
  parts_.metrics.clear();
  member_metrics_.clear();
  for (const config::SlotConfig& slot : live_.config.of_kind(Metric::kind.name))
    parts_.metrics.push_back(filled<Metric>(slot.address()));
  const std::size_t members = parts_.executor.plugin->members();
  parts_.member_metrics.assign(members == 1 ? 0 : members, {});
  for (MetricSlots& metrics : parts_.member_metrics)
    for (const config::SlotConfig& slot : live_.config.of_kind(Metric::kind.name)) {
      ActivePlugin& plugin = member_metrics_.emplace_back(make_plugin(slot, registry_));
      Opening(live_, live_.config, live_.layer).open(plugin);
      metrics.push_back({&plugin.slot(), &plugin.as<Metric>()});
    }
}

Table Run::run_file(const std::vector<std::string>& set) const {
  config::Resolution resolution =
      config::live_config(config::with_sets(live_.config.resolved, set), registry_);
  if (!resolution.config) throw ConfigError(resolution.findings.text());
  return std::move(resolution.config->resolved);
}

std::unique_ptr<Network> Run::build(std::uint64_t seed) {
  std::unique_ptr<Network> network = build_network(live_, live_.config, live_.layer, seed);
  if (live_.layer.made.dropout) network->set_dropout(live_.layer.made.dropout.get(), seed);
  return network;
}

std::vector<Batch> Run::first_batches(std::string_view name, std::int64_t count) {
  if (live_.config.split(name) == nullptr)
    throw ConfigError("asks for batches of [data." + std::string(name) + "], which the run does not have");
  // It uses a loader of its own, independent of the run's place in the data.
  const Split split = Opening(live_, live_.config, live_.layer).split(std::string(name), /*whole=*/true);
  split.loader->seek(0, 0);
  // All there are of the training split, which goes on epoch after epoch, are those of one.
  std::int64_t steps = count == INT64_MAX && name == "train" ? split.loader->steps_per_epoch() : INT64_MAX;
  std::vector<Batch> batches;
  while (std::ssize(batches) < count && steps-- > 0) {
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
  if (states_.shards() != nullptr) return;  // a pass through sharded tables is a collective
  const at::NoGradGuard no_grad;
  for (const Batch& batch : first_batches("train", 1)) loop_->bench().grade(batch, {}, nullptr);
}

void Run::attach_rules(const config::RunConfig& config, Layer& layer) {
  if (config.find("recorder") == nullptr) return;
  ActivePlugin& recorder = layer.plugin("recorder");
  std::vector<NamedRule> rules;
  for (const config::SlotConfig& slot : config.of_kind(Rule::kind.name))
    rules.push_back(named_rule(layer.plugin(slot.address())));
  guarded(recorder.slot(), clock().step,
          [&] { recorder.as<Recorder>().attach(std::move(rules), live_.scale); });
}

std::int64_t Run::samples(const std::string& split) const {
  const auto found = live_.layer.made.splits.find(split);
  return found == live_.layer.made.splits.end() ? 0 : found->second.samples();
}

void Run::fire_quietly(Event event) {
  if (!live_.bus) return;  // nothing was opened
  try {
    live_.bus->fire(event, live_.context);
  } catch (const Error& error) {
    warn(error.what());
  }
}

void Run::fire_swap(const ActivePlugin& plugin, Event event) {
  try {
    live_.bus->call_alone(plugin.subscriber(), event, live_.context);
  } catch (const Error& error) {
    warn(error.what());
  }
}

}  // namespace trainyard::train
