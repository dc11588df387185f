#include "core/engine/train/run.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include <trainyard/recorder.hpp>
#include <trainyard/sampler.hpp>

#include "core/engine/train/device.hpp"
#include "core/engine/train/finite_guard.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/guarded_plugins.hpp"
#include "core/engine/train/memory.hpp"
#include "core/engine/train/strict_state.hpp"
#include "core/engine/train/weights.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::train {
namespace {

/// Under which a checkpoint says that a plugin is disabled: that very code stays so, once mended it is
/// called.
std::string disabled_as(const ActivePlugin& plugin) {
  return "disabled/" + plugin.slot().address() + "/" + plugin.file().digest;
}

void set_threads(const config::RunConfig& config) {
  if (config.threads.intra_op > 0) at::set_num_threads(config.threads.intra_op);
  // May be set once a process: a second run in it keeps the first's.
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

std::string text(const std::vector<std::int64_t>& shape) {
  std::string result = "[";
  for (const std::int64_t length : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(length);
  return result + "]";
}

events::BlamedError thread_failure(ActivePlugin& plugin, std::int64_t step) {
  const config::SlotConfig& slot = plugin.slot();
  return {ExitCode::plugin,
          {.slot = slot.slot, .plugin = slot.type, .event = {}, .hook = false, .step = step},
          "[" + slot.slot + "] " + slot.type +
              ", in a thread of its own: " + plugin.services().take_thread_error()};
}

}  // namespace

Run::Run(config::RunConfig given, const plugins::Registry& registry, HostOutputs outputs)
    : config_(std::move(given)),
      registry_(registry),
      outputs_(std::move(outputs)),
      device_(make_device(config_.run.device)) {
  const config::RunConfig& config = config_;
  file_ = config::toml_file(config.resolved);
  config_.resolved.erase("swap");  // a plan, which is no part of the live configuration
  config_text_ = config::toml_file(config.resolved);
  keep_large_blocks();
  set_threads(config);
  set_deterministic(config.run.deterministic);
  outputs_.seed = config.run.seed;
  outputs_.metric = [this](std::string name, double value) {
    if (loop_) loop_->add_metric(std::move(name), value);
  };

  for (const config::SlotConfig& slot : config.slots) plugins_.push_back(make_plugin(slot, registry_));
  ActivePlugin& loss = plugin_of("loss");
  ActivePlugin& sampler = plugin_of("data.sampler");
  ActivePlugin& training = plugin_of("data.train");
  open_dataset("train", training);
  guarded(training.slot(), 0, [&] { schema_ = training.as<Dataset>().schema(); });
  open_sampler(sampler, training);
  splits_["train"] = make_split("train", {&config.train, &training, &sampler, &loss});
  for (const auto& [name, split] : {std::pair("val", &config.val), {"test", &config.test}})
    if (*split) {
      ActivePlugin& dataset = plugin_of(std::string("data.") + name);
      open_dataset(name, dataset);
      splits_[name] = make_split(name, {&**split, &dataset, nullptr, &loss});
    }

  const data::Loader& loader = *splits_["train"].loader;
  scale_ = {.steps_per_epoch = loader.steps_per_epoch(),
            .samples_per_epoch = loader.samples_per_epoch(),
            .samples_per_step = config.train.batch_size,
            .tokens_per_sample = schema_.tokens_per_sample};
  if (config.trainer.max_duration.unit != Duration::Unit::seconds)
    scale_.total_steps = in_steps(config.trainer.max_duration, scale_, "trainer.max_duration");

  std::vector<events::Subscriber*> subscribers;
  for (ActivePlugin& plugin : plugins_) subscribers.push_back(&plugin.subscriber());
  bus_ = std::make_unique<events::Bus>(std::move(subscribers), scale_);
  set_inspectors();
  context_.clock_.total_steps = scale_.total_steps;
  context_.run_scale_ = scale_;
  bus_->fire(Event::init, context_);
}

void Run::set_inspectors() {
  using Nan = config::GuardKeys::Nan;
  const config::GuardKeys& guard = config_.guard;
  if (guard.strict_state) inspectors_.push_back(std::make_unique<StrictState>(context_));
  if (guard.nan != Nan::off)
    inspectors_.push_back(
        std::make_unique<FiniteGuard>(context_, guard.nan == Nan::disable ? events::Answer::disable
                                                : guard.nan == Nan::abort ? events::Answer::abort
                                                                          : events::Answer::rollback));
  std::vector<events::Inspector*> pointers;
  for (const auto& inspector : inspectors_) pointers.push_back(inspector.get());
  bus_->inspect(std::move(pointers));
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

/// The code of the plugins among the options of a plugin, and of those among theirs.
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

ActivePlugin& Run::plugin_of(std::string_view slot) {
  for (ActivePlugin& plugin : plugins_)
    if (plugin.slot().slot == slot) return plugin;
  throw PluginError("[" + std::string(slot) + "] was not loaded");
}

void Run::open_dataset(const std::string& name, ActivePlugin& plugin) {
  guarded(plugin.slot(), 0, [&] {
    auto& dataset = plugin.as<Dataset>();
    dataset.open(name);
    if (dataset.size() <= 0) throw DataError("holds no sample");
  });
}

void Run::open_sampler(ActivePlugin& sampler, ActivePlugin& training) const {
  Sampler::Source source{0, RandomStream(config_.run.seed, "sampler"), {}};
  guarded(training.slot(), 0, [&] {
    source.size = training.as<Dataset>().size();
    source.labels = training.as<Dataset>().labels();
  });
  guarded(sampler.slot(), 0, [&] { sampler.as<Sampler>().open(source); });
}

Run::Split Run::make_split(const std::string& name, const Sources& sources) const {
  const config::BatchKeys& split = *sources.batch;
  const config::SlotConfig& slot = sources.dataset->slot();
  const auto& dataset = sources.dataset->as<Dataset>();
  check_schema(name, guarded(slot, 0, [&] { return dataset.schema(); }));
  data::LoaderOptions options{
      .batch_size = split.batch_size,
      .micro_batch_size = split.micro_batch_size,
      .drop_last = split.drop_last,
      .epochs = sources.sampler != nullptr ? 0 : 1,
      .workers = config_.data.workers,
      .prefetch = config_.data.prefetch,
      .pin_memory = device_.is_cuda(),
      .random = RandomStream(config_.run.seed, "data/" + name),
      .weight = [slot = sources.loss->slot(), loss = &sources.loss->as<Loss>()](const Batch& batch) {
        return guarded(slot, 0, [&] { return loss->weight(batch); });
      }};
  Split made{&dataset, std::make_unique<GuardedDataset>(slot, dataset), nullptr, nullptr};
  if (sources.sampler != nullptr)
    made.sampler = std::make_unique<GuardedSampler>(sources.sampler->slot(), sources.sampler->as<Sampler>());
  if (made.sampler && split.batch_size > made.sampler->size())
    throw ConfigError("data.train.batch_size = " + std::to_string(split.batch_size) + " is more than the " +
                      std::to_string(made.sampler->size()) +
                      " samples of an epoch: no step would ever see a whole batch; make it " +
                      std::to_string(made.sampler->size()) + " or less");
  made.loader = guarded(slot, 0, [&] {
    return std::make_unique<data::Loader>(*made.guarded, made.sampler.get(), std::move(options));
  });
  return made;
}

void Run::check_schema(const std::string& name, const BatchSchema& schema) const {
  const auto differs = [&](const std::string& what, const std::string& here, const std::string& there) {
    if (here != there)
      throw DataError("[data." + name + "] " + what + " is " + here + ", in [data.train] it is " + there +
                      ": the splits must describe the same kind of sample");
  };
  for (std::size_t i = 0; i < std::min(schema.inputs.size(), schema_.inputs.size()); ++i)
    differs("the shape of input " + schema.inputs[i].name, text(schema.inputs[i].shape),
            text(schema_.inputs[i].shape));
  differs("the number of inputs", std::to_string(schema.inputs.size()),
          std::to_string(schema_.inputs.size()));
  differs("the number of classes", std::to_string(schema.classes), std::to_string(schema_.classes));
  differs("the vocabulary", std::to_string(schema.vocabulary), std::to_string(schema_.vocabulary));
}

void Run::build_model() {
  ActivePlugin& model = plugin_of("model");
  network_ = guarded(model.slot(), 0, [&] { return model.as<Model>().build({schema_, config_.run.seed}); });
  network_->to(device_);
  if (config_.find("model.dropout") != nullptr) {
    const Filled<Dropout> dropout = filled<Dropout>("model.dropout");
    dropout_ = open_dropout(*dropout.slot, *dropout.plugin, *network_, scale_);
    network_->set_dropout(dropout_.get(), config_.run.seed);
  }
  context_.network_ = network_.get();
  bus_->fire(Event::model_ready, context_);
}

Loop& Run::build_loop(LoopParts parts) {
  const std::vector<std::int64_t> output = network_->output_shape();
  const Filled<Loss> loss = filled<Loss>("loss");
  guarded(*loss.slot, 0, [&] { loss.plugin->check(output, schema_); });
  for (const config::SlotConfig& slot : config_.of_kind(Metric::kind.name))
    guarded(slot, 0, [&] { plugin_of(slot.slot).as<Metric>().check(output, schema_); });
  const Filled<Optimizer> optimizer = filled<Optimizer>("optimizer");
  optimizer_ = optimizer.plugin;
  guarded(*optimizer.slot, 0,
          [&] { optimizer_->open(make_groups(network_->parameters(), optimizer_->common)); });
  if (config_.find("recorder") != nullptr) open_recorder(plugin_of("recorder"));
  place_curve({});
  check_momentum(*curve_, *optimizer_, config_);
  if (curve_->end() < scale_.total_steps)
    outputs_.log(LogLevel::warning, "[schedule] the budget of " + config_.at("schedule").type +
                                        " ends at step " + std::to_string(curve_->end()) +
                                        ": the run goes on to step " + std::to_string(scale_.total_steps) +
                                        " at its last factor");
  context_.optimizer_ = optimizer_;
  bus_->fire(Event::optimizer_ready, context_);

  parts.config = &config_;
  parts.bus = bus_.get();
  parts.context = &context_;
  parts.device = device_;
  parts.scale = scale_;
  parts.settle = [this] { settle(); };
  parts.check_threads = [this] {
    for (ActivePlugin& plugin : plugins_)
      if (plugin.services().thread_failed()) [[unlikely]]
        throw thread_failure(plugin, context_.clock_.step);
  };
  parts_ = std::move(parts);
  connect();
  loop_ = std::make_unique<Loop>(parts_);
  return *loop_;
}

/// Tells the loop who fills its slots.
void Run::connect() {
  parts_.network = {&config_.at("model"), network_.get()};
  parts_.loss = filled<Loss>("loss");
  parts_.optimizer = filled<Optimizer>("optimizer");
  parts_.schedule = {&config_.at("schedule"), &*curve_};
  parts_.train = {&config_.at("data.train"), splits_["train"].loader.get()};
  context_.network_ = parts_.network.plugin;
  context_.optimizer_ = optimizer_ = parts_.optimizer.plugin;
  parts_.metrics.clear();
  for (const config::SlotConfig& slot : config_.of_kind(Metric::kind.name))
    parts_.metrics.push_back(filled<Metric>(slot.slot));
  attach_rules();
  parts_.evaluations.clear();
  for (const char* name : {"val", "test"})
    if (const auto split = splits_.find(name); split != splits_.end())
      parts_.evaluations.push_back({name, split->second.loader.get()});
}

void Run::open_recorder(ActivePlugin& plugin) const {
  const RunInfo info{.name = config_.run.name,
                     .directory = config_.run.output_dir,
                     .started = {},
                     .total_steps = scale_.total_steps,
                     .steps_per_epoch = scale_.steps_per_epoch,
                     .loader_workers = config_.data.workers};
  guarded(plugin.slot(), 0, [&] { plugin.as<Recorder>().open(info); });
}

/// Tells the recorder which rules there are; with `swap`, once that is made.
void Run::attach_rules(PreparedSwap* swap) {
  if (config_.find("recorder") == nullptr) return;
  ActivePlugin& recorder = filling(swap, "recorder");
  std::vector<NamedRule> rules;
  for (const config::SlotConfig& slot : config_.of_kind(Rule::kind.name))
    rules.push_back(named_rule(filling(swap, slot.slot)));
  guarded(recorder.slot(), context_.clock_.step,
          [&] { recorder.as<Recorder>().attach(std::move(rules), scale_); });
}

Snapshot Run::snapshot() const {
  Snapshot snapshot{.step = context_.clock_.step, .states = {}, .metrics = loop_->latest()};
  State run{.owner = "run", .version = TRAINYARD_SDK_VERSION, .scalars = {}, .tensors = {}};
  StateWriter writer(run);
  loop_->save(writer);
  writer.scalar("config", config_text_);
  writer.scalar("file", file_);
  writer.scalar("swaps", swaps_);
  writer.scalar("curve_start", curve_place_.start);
  writer.scalar("curve_gain", curve_place_.gain);
  State model{.owner = "model", .version = {}, .scalars = {}, .tensors = {}};
  for (const NamedTensor& each : weights()) model.tensors.emplace(each.name, each.tensor);
  for (const ActivePlugin& plugin : plugins_) {
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

void Run::check_momentum(const ScheduleCurve& curve, const Optimizer& optimizer,
                         const config::RunConfig& config) {
  if (!curve.momentum(0) || optimizer.has_momentum()) return;
  throw ConfigError("[schedule] " + config.at("schedule").type + " cycles the momentum, and the optimizer " +
                    config.at("optimizer").type +
                    ", as its options are, has none: give it one, or switch the cycling off");
}

/// Sets the schedule's curve to where it stands in the run.
void Run::place_curve(CurvePlace place) {
  const config::SlotConfig& slot = config_.at("schedule");
  guarded(slot, 0,
          [&] { curve_.emplace(plugin_of(slot.slot).as<Schedule>(), scale_from(place.start), place); });
  curve_place_ = place;
}

RunScale Run::scale_from(std::int64_t step) const {
  RunScale rest = scale_;
  if (rest.total_steps > 0) rest.total_steps -= step;
  return rest;
}

/// Those that were disabled when a run was saved.
void Run::leave_out(const State& run, const std::function<void(const std::string&)>& note) {
  bool any = false;
  for (ActivePlugin& plugin : plugins_) {
    events::Subscriber& subscriber = plugin.subscriber();
    const auto error = run.scalars.find(disabled_as(plugin));
    if (error == run.scalars.end() || subscriber.disabled) continue;
    subscriber.disabled = any = true;
    subscriber.error = std::get<std::string>(error->second);
    note(plugin.slot().address() + " (" + plugin.slot().type + ") stays disabled: " + subscriber.error);
  }
  if (any) bus_->rebuild();
}

void Run::restore(const std::vector<State>& states, const std::function<void(const std::string&)>& note) {
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
  bus_->fire(Event::before_load, context_);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : model->tensors) tensors.push_back({name, tensor});
  copy_weights(weights(), tensors, "the checkpoint");
  loop_->load(*run);
  swaps_ = StateReader(*run).integer("swaps");
  place_curve({StateReader(*run).integer("curve_start"), StateReader(*run).number("curve_gain")});
  for (ActivePlugin& plugin : plugins_) {
    if (!plugin.has_state()) continue;
    const std::string address = plugin.slot().address();
    const State* const state = take(address);
    const auto type = run->scalars.find("type/" + address);
    if (type == run->scalars.end() || type->second != Scalar(plugin.slot().type))
      note(address + " (" + plugin.slot().type + ") is not in the checkpoint: it begins anew");
    else if (state != nullptr)
      guarded(plugin.slot(), 0, [&] { plugin.as<Plugin>().load(StateReader(*state)); });
  }
  for (const auto& [owner, state] : saved)
    note("the run has no " + std::string(owner) + " any more: its state is left");
  bus_->fire(Event::after_load, context_);
}

std::int64_t Run::samples(const std::string& split) const {
  const auto found = splits_.find(split);
  return found == splits_.end() ? 0 : found->second.dataset->size();
}

std::vector<NamedTensor> Run::weights() const {
  std::vector<NamedTensor> all = network_->parameters();
  const std::vector<NamedTensor> buffers = network_->buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

std::string Run::model_digest() const {
  State state;
  for (const NamedTensor& each : weights()) state.tensors.emplace(each.name, each.tensor);
  return digest(state);
}

std::string Run::optimizer_digest() const {
  State state;
  StateWriter writer(state);
  optimizer_->save(writer);
  return digest(state);
}

void Run::fire_quietly(Event event) {
  try {
    bus_->fire(event, context_);
  } catch (const Error& error) {
    outputs_.log(LogLevel::warning, error.what());
  }
}

void Run::fail() {
  fire_quietly(Event::exception);
}

void Run::shutdown() {
  fire_quietly(Event::shutdown);
}

}  // namespace trainyard::train
