#include "core/train/run.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include <trainyard/sampler.hpp>

#include "core/train/device.hpp"
#include "core/train/finite_guard.hpp"
#include "core/train/guard.hpp"
#include "core/train/memory.hpp"
#include "core/train/strict_state.hpp"

namespace trainyard::train {
namespace {

void set_threads(const config::RunConfig& config) {
  if (config.intra_op_threads > 0) at::set_num_threads(config.intra_op_threads);
  // May be set once a process: a second run in it keeps the first's.
  if (config.inter_op_threads > 0 &&
      static_cast<int>(at::get_num_interop_threads()) != config.inter_op_threads)
    at::set_num_interop_threads(config.inter_op_threads);
}

void set_deterministic(config::Deterministic mode) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(mode != config::Deterministic::off, mode == config::Deterministic::warn);
  context.setDeterministicCuDNN(mode != config::Deterministic::off);
  context.setBenchmarkCuDNN(mode == config::Deterministic::off);
}

std::string text(const std::vector<std::int64_t>& shape) {
  std::string result = "[";
  for (const std::int64_t length : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(length);
  return result + "]";
}

/// The loader is called within the guard of its dataset: what the sampler throws is the sampler's.
class GuardedSampler final : public Sampler {
 public:
  GuardedSampler(const config::SlotConfig& slot, const Sampler& sampler) : slot_(slot), sampler_(sampler) {}
  void open(const Source&) override {}
  std::int64_t size() const override {
    return guarded(slot_, 0, [&] { return sampler_.size(); });
  }
  void order(std::int64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override {
    guarded(slot_, 0, [&] { sampler_.order(epoch, first, out); });
  }

 private:
  const config::SlotConfig& slot_;
  const Sampler& sampler_;
};

/// A loader's thread has no guard around it; the loop's call is named where it waits for one.
class GuardedDataset final : public Dataset {
 public:
  GuardedDataset(const config::SlotConfig& slot, const Dataset& dataset) : slot_(slot), dataset_(dataset) {}
  void open(const std::string&) override {}
  std::int64_t size() const override { return dataset_.size(); }
  BatchSchema schema() const override { return dataset_.schema(); }
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override {
    return guarded(slot_, 0, [&] { return dataset_.read(indices, context); });
  }

 private:
  const config::SlotConfig& slot_;
  const Dataset& dataset_;
};

/// Likewise within the guard of the model.
class GuardedDropout final : public Dropout {
 public:
  GuardedDropout(const config::SlotConfig& slot, Dropout& dropout) : slot_(slot), dropout_(dropout) {}
  void open(std::span<const DropoutSite> sites) override {
    guarded(slot_, 0, [&] { dropout_.open(sites); });
  }
  at::Tensor apply(const at::Tensor& x, std::size_t site, const RandomStream& random) override {
    return guarded(slot_, 0, [&] { return dropout_.apply(x, site, random); });
  }

 private:
  const config::SlotConfig& slot_;
  Dropout& dropout_;
};

}  // namespace

Run::Run(const config::RunConfig& config, const plugins::Registry& registry, HostOutputs outputs)
    : config_(config),
      registry_(registry),
      outputs_(std::move(outputs)),
      device_(make_device(config.device)) {
  keep_large_blocks();
  set_threads(config);
  set_deterministic(config.deterministic);
  outputs_.seed = config.seed;
  outputs_.metric = [this](std::string name, double value) {
    if (loop_) loop_->add_metric(std::move(name), value);
  };

  for (const config::SlotConfig* slot : config.slots()) add(*slot);
  Dataset& training = open_dataset("train", config.train);
  ActivePlugin& sampler = plugin_of(config.sampler);
  Sampler::Source source{training.size(), RandomStream(config.seed, "sampler"), {}};
  guarded(config.train.dataset, 0, [&] {
    source.labels = training.labels();
    schema_ = training.schema();
  });
  guarded(config.sampler, 0, [&] { sampler.as<Sampler>().open(source); });

  splits_["train"] = make_split("train", config.train, training, &sampler.as<Sampler>());
  if (config.val) splits_["val"] = make_split("val", *config.val, open_dataset("val", *config.val), nullptr);
  if (config.test)
    splits_["test"] = make_split("test", *config.test, open_dataset("test", *config.test), nullptr);

  const data::Loader& loader = *splits_["train"].loader;
  scale_ = {.steps_per_epoch = loader.steps_per_epoch(),
            .samples_per_epoch = loader.samples_per_epoch(),
            .samples_per_step = config.train.batch_size,
            .tokens_per_sample = schema_.tokens_per_sample};
  if (config.max_duration.unit != Duration::Unit::seconds)
    scale_.total_steps = in_steps(config.max_duration, scale_, "trainer.max_duration");

  std::vector<events::Subscriber*> subscribers;
  for (ActivePlugin& plugin : plugins_) subscribers.push_back(&plugin.subscriber());
  bus_ = std::make_unique<events::Bus>(std::move(subscribers), scale_);
  set_inspectors();
  context_.clock_.total_steps = scale_.total_steps;
  context_.run_scale_ = scale_;
  bus_->fire(Event::init, context_);
}

void Run::set_inspectors() {
  using Nan = config::GuardConfig::Nan;
  const config::GuardConfig& guard = config_.guard;
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

void Run::add(const config::SlotConfig& slot) {
  const std::vector<const plugins::PluginFile*> files = registry_.find(slot.kind, slot.type);
  if (files.size() != 1)
    throw PluginError("[" + slot.slot + "] " + std::to_string(files.size()) + " plugins are called \"" +
                      slot.type + "\" of kind " + slot.kind + "; one was expected");
  auto loaded = code_.find(files.front());
  if (loaded == code_.end()) loaded = code_.emplace(files.front(), plugins::load(*files.front())).first;
  plugins_.emplace_back(slot, *files.front(), loaded->second, outputs_);
}

ActivePlugin& Run::plugin_of(const config::SlotConfig& slot) {
  for (ActivePlugin& plugin : plugins_)
    if (plugin.slot().slot == slot.slot) return plugin;
  throw PluginError("[" + slot.slot + "] was not loaded");
}

Dataset& Run::open_dataset(const std::string& name, const config::SplitConfig& split) {
  auto& dataset = plugin_of(split.dataset).as<Dataset>();
  guarded(split.dataset, 0, [&] {
    dataset.open(name);
    if (dataset.size() <= 0) throw DataError("holds no sample");
  });
  return dataset;
}

Run::Split Run::make_split(const std::string& name, const config::SplitConfig& split, const Dataset& dataset,
                           const Sampler* sampler) {
  check_schema(name, guarded(split.dataset, 0, [&] { return dataset.schema(); }));
  const bool training = sampler != nullptr;
  data::LoaderOptions options{
      .batch_size = split.batch_size,
      .micro_batch_size = split.micro_batch_size,
      .drop_last = split.drop_last,
      .epochs = training ? 0 : 1,
      .workers = config_.workers,
      .prefetch = config_.prefetch,
      .pin_memory = device_.is_cuda(),
      .random = RandomStream(config_.seed, "data/" + name),
      .weight = [this, loss = &plugin_of(config_.loss).as<Loss>()](const Batch& batch) {
        return guarded(config_.loss, 0, [&] { return loss->weight(batch); });
      }};
  Split made{&dataset, std::make_unique<GuardedDataset>(split.dataset, dataset), nullptr, nullptr};
  if (sampler != nullptr) made.sampler = std::make_unique<GuardedSampler>(config_.sampler, *sampler);
  if (made.sampler && split.batch_size > made.sampler->size())
    throw ConfigError("data.train.batch_size = " + std::to_string(split.batch_size) + " is more than the " +
                      std::to_string(made.sampler->size()) +
                      " samples of an epoch: no step would ever see a whole batch; make it " +
                      std::to_string(made.sampler->size()) + " or less");
  made.loader = guarded(split.dataset, 0, [&] {
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
  network_ = guarded(config_.model, 0, [&] {
    return plugin_of(config_.model).as<Model>().build({schema_, config_.seed});
  });
  network_->to(device_);
  if (config_.dropout) {
    if (network_->dropout_sites().empty())
      throw ConfigError("[model.dropout] " + config_.dropout->type + ": the model " + config_.model.type +
                        " has no dropout site; drop the table or take a model that has some");
    dropout_ = std::make_unique<GuardedDropout>(*config_.dropout, plugin_of(*config_.dropout).as<Dropout>());
    dropout_->open(network_->dropout_sites());
    network_->set_dropout(dropout_.get(), config_.seed);
  }
  context_.network_ = network_.get();
  bus_->fire(Event::model_ready, context_);
}

Loop& Run::build_loop(LoopParts parts) {
  const std::vector<std::int64_t> output = network_->output_shape();
  auto& loss = plugin_of(config_.loss).as<Loss>();
  guarded(config_.loss, 0, [&] { loss.check(output, schema_); });
  for (const config::SlotConfig& slot : config_.metrics) {
    auto& metric = plugin_of(slot).as<Metric>();
    guarded(slot, 0, [&] { metric.check(output, schema_); });
    parts.metrics.push_back({&slot, &metric});
  }
  optimizer_ = &plugin_of(config_.optimizer).as<Optimizer>();
  guarded(config_.optimizer, 0,
          [&] { optimizer_->open(make_groups(network_->parameters(), optimizer_->common)); });
  guarded(config_.schedule, 0, [&] { curve_.emplace(plugin_of(config_.schedule).as<Schedule>(), scale_); });
  context_.optimizer_ = optimizer_;
  bus_->fire(Event::optimizer_ready, context_);

  parts.config = &config_;
  parts.bus = bus_.get();
  parts.context = &context_;
  parts.device = device_;
  parts.network = network_.get();
  parts.loss = &loss;
  parts.optimizer = optimizer_;
  parts.schedule = &*curve_;
  parts.train = splits_["train"].loader.get();
  parts.scale = scale_;
  for (const char* name : {"val", "test"})
    if (const auto split = splits_.find(name); split != splits_.end())
      parts.evaluations.push_back({name, split->second.loader.get()});
  parts.check_threads = [this] {
    for (ActivePlugin& plugin : plugins_)
      if (plugin.services().thread_failed()) [[unlikely]]
        throw PluginError("[" + plugin.slot().slot + "] " + plugin.slot().type +
                          ", in a thread of its own: " + plugin.services().take_thread_error());
  };
  loop_ = std::make_unique<Loop>(std::move(parts));
  return *loop_;
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
