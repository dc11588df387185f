#include "core/engine/train/opening.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <trainyard/doubles.hpp>
#include <trainyard/executor.hpp>
#include <trainyard/helpers/shape_text.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/linked_samples.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/mixins/reads_dataset.hpp>
#include <trainyard/mixins/reads_run_file.hpp>
#include <trainyard/model.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/recorder.hpp>
#include <trainyard/transform.hpp>

#include "core/engine/distributed/reduction.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/guarded_plugins.hpp"
#include "core/engine/train/precision.hpp"
#include "core/runfile/rank_place.hpp"

namespace trainyard::train {
namespace {

constexpr const char* row_names[] = {"one a sample", "offsets", "free"};

View part_of(const std::string& split, const std::string& take, std::int64_t size) {
  return {"data." + split + ".take = \"" + take + "\"",
          *config::parse_take(take.empty() ? "first 100%" : take), size};
}

/// Moves a new network to the run's device and precision.
void place(Network& network, const Live& run) {
  if (floats_of(run.config.trainer.precision) == at::kDouble) {
    auto* const doubles = dynamic_cast<ComputesInDoubles*>(&network);
    if (doubles == nullptr)
      throw ConfigError(
          "its network does not compute in double precision, and trainer.precision is \"fp64\": set it to "
          "\"fp32\", or take another model");
    doubles->to_doubles();
  }
  network.to(run.device);
}

/// Returns the network that a transform makes of another.
std::unique_ptr<Network> transformed(std::unique_ptr<Network> network, const Transform& transform,
                                     const ModelContext& context) {
  const bool has_graph = network->graph() != nullptr;
  network = transform.apply(std::move(network), context);
  if (!network) throw PluginError("handed on no network");
  if (has_graph && network->graph() == nullptr)
    throw PluginError("handed on a network without a graph, where the one that it was given has one");
  return network;
}

}  // namespace

/// Plugins of other kinds are not called before the run's first step.
const Opening::Row Opening::rows[] = {
    {Dataset::kind, Stage::data, &Opening::dataset},
    {Sampler::kind, Stage::data, &Opening::sampler},
    {Model::kind, Stage::model, &Opening::network},
    {Transform::kind, Stage::model, &Opening::network},
    {Dropout::kind, Stage::model, &Opening::dropout},
    {Loss::kind, Stage::loop, &Opening::loss},
    {Metric::kind, Stage::loop, &Opening::metric},
    {Optimizer::kind, Stage::loop, &Opening::optimizer},
    {Schedule::kind, Stage::loop, &Opening::schedule},
    {Recorder::kind, Stage::loop, &Opening::recorder},
    {Compressor::kind, Stage::loop, &Opening::compressor},
};

const Opening::Row* Opening::row_of(const ActivePlugin& plugin) {
  const auto* row =
      std::ranges::find(rows, plugin.slot().kind, [](const Row& each) { return each.kind.name; });
  return row == std::end(rows) ? nullptr : row;
}

void Opening::open(Stage stage) {
  std::vector<ActivePlugin*> plugins;
  for (ActivePlugin& plugin : layer_.plugins)
    if (const Row* row = row_of(plugin); row != nullptr && row->stage == stage) plugins.push_back(&plugin);
  // The training split comes first: the others use what it learns.
  std::ranges::stable_partition(plugins,
                                [](const ActivePlugin* each) { return each->slot().slot == "data.train"; });
  for (ActivePlugin* plugin : plugins) open(*plugin);
}

void Opening::open(ActivePlugin& plugin) {
  if (const Row* row = row_of(plugin)) guarded(plugin.slot(), 0, [&] { (this->*row->open)(plugin); });
}

void Opening::dataset(ActivePlugin& plugin) {
  auto& dataset = plugin.as<Dataset>();
  const std::string split = plugin.slot().slot.substr(5), &type = plugin.slot().type;  // of "data.train"
  auto* const learns = dynamic_cast<Learns*>(&dataset);
  const bool known = run_.learned && run_.learned->type == type;
  if (learns != nullptr && known) learns->use(run_.learned->values);
  if (const std::string& take = config_.split(split)->take; learns != nullptr && !take.empty())
    learns->set_taken([split, take](std::int64_t size) { return part_of(split, take, size).samples(); });
  dataset.open(split);
  if (learns != nullptr && !known && split == "train") run_.learned = {type, learns->learned()};
  if (dataset.size() <= 0) throw DataError("holds no sample");
}

std::vector<std::int64_t> Opening::taken(const std::string& split) {
  ActivePlugin& plugin = layer_.plugin("data." + split);
  open(plugin);
  return guarded(plugin.slot(), 0, [&] {
    return part_of(split, config_.split(split)->take, plugin.as<Dataset>().size()).samples();
  });
}

void Opening::sampler(ActivePlugin& plugin) {
  Sampler::Source source{0, RandomStream(run_.config.run.seed, "sampler"), {}, {}};
  ActivePlugin& training = layer_.plugin("data.train");
  std::optional<View> view;
  guarded(training.slot(), 0, [&] {
    source.size = source.all = training.as<Dataset>().size();
    source.labels = training.as<Dataset>().labels();
    view = view_of("train", training.as<Dataset>());
  });
  if (view) {
    source.size = view->size();
    source.samples = view->samples();
    source.labels = view->of(source.labels);
  }
  plugin.as<Sampler>().open(source);
}

/// The model comes first, and its network has been through all transforms: one that a swap brings without the
/// model has it made anew.
void Opening::network(ActivePlugin&) {
  if (!layer_.made.network) layer_.made.network = build_network(run_, config_, layer_, run_.config.run.seed);
}

void Opening::dropout(ActivePlugin& plugin) {
  layer_.made.dropout = open_dropout(plugin.slot(), plugin.as<Dropout>(), layer_.network(), run_.scale);
}

void Opening::loss(ActivePlugin& plugin) {
  plugin.as<Loss>().check(layer_.network().output_shape(), run_.schema);
}

void Opening::metric(ActivePlugin& plugin) {
  plugin.as<Metric>().check(layer_.network().output_shape(), run_.schema);
  if (auto* const reads = dynamic_cast<ReadsDataset*>(&plugin.as<Metric>()))
    reads->read_dataset(layer_.plugin("data.train").as<Dataset>());
}

void Opening::optimizer(ActivePlugin& plugin) {
  auto& optimizer = plugin.as<Optimizer>();
  // A network that a swap brings takes over these very tensors.
  optimizer.open(make_groups(run_.layer.network().parameters(), optimizer.common));
}

void Opening::schedule(ActivePlugin& plugin) {
  place_curve(layer_.made, plugin, run_.scale, {});
}

void Opening::compressor(ActivePlugin& plugin) {
  auto& compressor = plugin.as<Compressor>();
  if (run_.world == nullptr && config::ranks_of(config_.resolved) > 1) return;  // checked only, not trained
  if (run_.world == nullptr) throw ConfigError("needs a run of several ranks, and this is one of a single");
  layer_.made.compressor = std::make_unique<GuardedCompressor>(plugin.slot(), compressor);
  std::vector<BucketPlan> plans;
  for (distributed::Layout::Bucket& bucket :
       distributed::make_layout(layer_.network().parameters(), config_.distributed.bucket_bytes(),
                                &compressor)
           .buckets)
    if (bucket.compressed) plans.push_back(std::move(bucket.plan));
  compressor.open(*run_.world, plans, run_.scale);
}

void Opening::recorder(ActivePlugin& plugin) {
  plugin.as<Recorder>().open({.name = run_.config.run.name,
                              .directory = run_.config.run.output_dir,
                              .started = {},
                              .total_steps = run_.scale.total_steps,
                              .steps_per_epoch = run_.scale.steps_per_epoch,
                              .loader_workers = run_.config.data.workers});
}

Split Opening::split(const std::string& name, bool whole) {
  const config::BatchKeys& batch = *config_.split(name);
  ActivePlugin& plugin = layer_.plugin("data." + name);
  const config::SlotConfig& slot = plugin.slot();
  const auto& dataset = plugin.as<Dataset>();
  check_schema(name, guarded(slot, 0, [&] { return dataset.schema(); }));
  Split made{&dataset, view_of(name, dataset), nullptr};
  ActivePlugin* const sampler = name == "train" ? &layer_.plugin("data.sampler") : nullptr;
  if (sampler != nullptr) {
    const std::int64_t samples = guarded(sampler->slot(), 0, [&] { return sampler->as<Sampler>().size(); });
    const auto& features = layer_.plugin("model").manifest().provides;
    const bool takes_all = std::ranges::find(features, "grows") != features.end();
    if (batch.batch_size > samples && !takes_all)
      throw ConfigError("data.train.batch_size = " + std::to_string(batch.batch_size) + " is more than the " +
                        std::to_string(samples) +
                        " samples of an epoch: no step would ever see a whole batch; make it " +
                        std::to_string(samples) + " or less");
  }
  ActivePlugin& loss = layer_.plugin("loss");
  int ranks = run_.world != nullptr && !whole ? run_.world->size() : 1;
  // In evaluations each rank has its own batches; of a step a part, or all of it in equal micro-batches.
  std::int64_t micro_batch_size = batch.micro_batch_size;
  if (sampler != nullptr && layer_.plugin("executor").as<Executor>().divides_network())
    micro_batch_size *= std::exchange(ranks, 1);
  data::LoaderOptions options{
      .batch_size = batch.batch_size * (sampler != nullptr ? 1 : ranks),
      .micro_batch_size = micro_batch_size,
      .rank = ranks > 1 ? run_.world->rank() : 0,
      .ranks = ranks,
      .shares =
          ranks > 1 && sampler != nullptr ? run_.config.distributed.shares : std::vector<std::int64_t>(),
      .drop_last = batch.drop_last,
      .epochs = sampler != nullptr ? 0 : 1,
      .workers = run_.config.data.workers,
      .prefetch = run_.config.data.prefetch,
      .pin_memory = run_.device.is_cuda(),
      .random = RandomStream(run_.config.run.seed, "data/" + name),
      .view = made.view,
      .weight = [slot = loss.slot(), loss = &loss.as<Loss>()](
                    const Batch& batch) { return guarded(slot, 0, [&] { return loss->weight(batch); }); },
      .within_dataset = guard_of(slot),
      .within_sampler = guard_of(sampler != nullptr ? sampler->slot() : slot)};
  made.loader = guarded(slot, 0, [&] {
    return std::make_unique<data::Loader>(dataset, sampler != nullptr ? &sampler->as<Sampler>() : nullptr,
                                          std::move(options));
  });
  return made;
}

std::optional<View> Opening::view_of(const std::string& split, const Dataset& dataset) const {
  const std::string& text = config_.split(split)->take;
  const auto* const linked = dynamic_cast<const LinkedSamples*>(&dataset);
  if (linked != nullptr && split == "train" && text.find("fold") != text.npos)
    if (const std::string mend = linked->parted_by(); !mend.empty())
      throw ConfigError("data.train.take = \"" + text +
                        "\" is no honest test: the samples of one fold are seen with those of the others, " +
                        "as edges are that messages go over; leave take out, and part the data by " + mend);
  const auto* const learns = dynamic_cast<const Learns*>(&dataset);
  const auto ungraded = learns != nullptr ? learns->ungraded() : std::vector<std::int64_t>();
  if (text.empty() && ungraded.empty()) return std::nullopt;
  View view = part_of(split, text, dataset.size());
  if (!ungraded.empty()) view.leave_out("data." + split, ungraded);
  return view;
}

void Opening::check_schema(const std::string& name, const BatchSchema& schema) const {
  const BatchSchema& training = run_.schema;
  const auto differs = [&](const std::string& what, const std::string& here, const std::string& there) {
    if (here != there)
      throw DataError("[data." + name + "] " + what + " is " + here + ", in [data.train] it is " + there +
                      ": the splits must describe the same kind of sample");
  };
  for (std::size_t i = 0; i < std::min(schema.inputs.size(), training.inputs.size()); ++i) {
    const FieldSchema &here = schema.inputs[i], &there = training.inputs[i];
    differs("the shape of input " + here.name, shape_text(here.shape), shape_text(there.shape));
    differs("the kind of rows of input " + here.name, row_names[static_cast<std::size_t>(here.rows)],
            row_names[static_cast<std::size_t>(there.rows)]);
    differs("the number of ids of input " + here.name, std::to_string(here.cardinality),
            std::to_string(there.cardinality));
  }
  differs("the number of inputs", std::to_string(schema.inputs.size()),
          std::to_string(training.inputs.size()));
  differs("the number of classes", std::to_string(schema.classes), std::to_string(training.classes));
  differs("the vocabulary", std::to_string(schema.vocabulary), std::to_string(training.vocabulary));
  differs("whether there are targets", schema.has_target ? "yes" : "no", training.has_target ? "yes" : "no");
}

void Opening::check_momentum() {
  if (!layer_.curve().first->momentum(0) || layer_.plugin("optimizer").as<Optimizer>().has_momentum()) return;
  throw ConfigError("[schedule] " + config_.at("schedule").type + " cycles the momentum, and the optimizer " +
                    config_.at("optimizer").type +
                    ", as its options are, has none: give it one, or switch the cycling off");
}

std::unique_ptr<Network> build_network(const Live& run, const config::RunConfig& config, Layer& layer,
                                       std::uint64_t seed) {
  const ModelContext context{run.schema, seed};
  ActivePlugin& model = layer.plugin("model");
  std::unique_ptr<Network> network =
      guarded(model.slot(), 0, [&] { return model.as<Model>().build(context); });
  for (const config::SlotConfig& slot : config.of_kind(Transform::kind.name))
    network = guarded(slot, 0, [&] {
      const auto& transform = layer.plugin(slot.address()).as<Transform>();
      if (const auto* const reads = dynamic_cast<const ReadsRunFile*>(&transform))
        reads->read_run_file(config.resolved);
      return transformed(std::move(network), transform, context);
    });
  guarded(model.slot(), 0, [&] { place(*network, run); });
  return network;
}

void place_curve(Opened& to, ActivePlugin& schedule, RunScale scale, CurvePlace place, std::int64_t step) {
  if (scale.total_steps > 0) scale.total_steps -= place.start;
  guarded(schedule.slot(), step, [&] { to.curve.emplace(schedule.as<Schedule>(), scale, place); });
  to.curve_place = place;
}

}  // namespace trainyard::train
