#include "core/engine/verbs/training.hpp"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include <trainyard/formats/safetensors.hpp>
#include <trainyard/keeps_data.hpp>

#include "core/engine/distributed/together.hpp"
#include "core/engine/save/load.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/state_copy.hpp"
#include "core/engine/verbs/signal_scope.hpp"
#include "core/rundir/as_left.hpp"
#include "core/rundir/folder.hpp"
#include "lib/sha256.hpp"

namespace trainyard::train {
namespace {

using SteadyClock = std::chrono::steady_clock;

report::Status status_of(Ending ending) {
  switch (ending) {
    case Ending::completed: return report::Status::completed;
    case Ending::signal:
    case Ending::wall_time: return report::Status::interrupted;
    case Ending::stopped: return report::Status::stopped;
  }
  return report::Status::failed;
}

std::vector<report::ReportedPlugin> reported(Run& run) {
  std::vector<report::ReportedPlugin> all;
  for (ActivePlugin& plugin : run.plugins()) {
    const auto report = [&](const plugins::PluginFile& file) {
      all.push_back({plugin.slot().slot, plugin.slot().type, plugin.slot().kind, file.digest, file.path});
    };
    report(plugin.file());
    for (const auto& [name, code] : plugin.services().parts()) report(code.file());
  }
  return all;
}

/// The same before the run exists, to blame plugins for what they do while they are made.
std::vector<report::ReportedPlugin> reported(const config::RunConfig& config,
                                             const plugins::Registry& registry) {
  std::vector<report::ReportedPlugin> all;
  for (const config::SlotConfig& slot : config.slots)
    for (const plugins::PluginFile* file : registry.find(slot.kind, slot.type))
      all.push_back({slot.slot, slot.type, slot.kind, file->digest, file->path});
  return all;
}

std::int64_t bytes_of(const Snapshot& snapshot) {
  std::int64_t bytes = 0;
  for (const State& state : snapshot.states)
    for (const auto& [name, tensor] : state.tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

/// Throws if the disk may fill up: a failed checkpoint would cost the steps since the one before it.
void check_space(const std::string& folder, std::int64_t bytes) {
  constexpr std::int64_t checkpoints = 3;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || static_cast<std::int64_t>(space.available) >= checkpoints * bytes) return;
  throw ConfigError("run.output_dir: " + folder + " has " + std::to_string(space.available >> 20) +
                    " MiB free; a checkpoint of this run takes " + std::to_string(bytes >> 20) +
                    " MiB, and room for three is needed");
}

/// Returns the entries of [[swap]] as requests at steps of this run.
std::vector<control::Entry> entries_of(const std::vector<config::PlannedSwap>& planned, const Run& run) {
  std::vector<control::Entry> entries;
  entries.reserve(planned.size());
  for (const config::PlannedSwap& each : planned)
    entries.push_back({.number = 0,
                       .who = std::string(control::run_file),
                       .step = in_steps(each.at, run.scale(), "swap.at"),
                       .swaps = {each.request}});
  return entries;
}

/// Compares the ranks' weights at the end: a plugin that depends on its rank makes them drift apart.
void compare_weights(distributed::World& world, const std::string& digest,
                     const config::SlotConfig* compressor) {
  const std::vector<std::string> all = world.gather(digest);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      throw DistributedError(
          "rank " + std::to_string(rank) + " has other weights than rank 0 at the end: " +
          (compressor ? "[distributed.compressor] " + compressor->type + " gives them other sums, or " : "") +
          "a plugin writes what differs from rank to rank");
}

bool is_sink(const ActivePlugin& plugin) {
  return plugin.slot().kind == Sink::kind.name;
}

}  // namespace

Training::Training(Beginning& beginning, const plugins::Registry& registry, const TrainOptions& options,
                   Messages& messages, report::FaultReport& faults, distributed::World* world)
    : beginning_(beginning),
      registry_(registry),
      options_(options),
      messages_(messages),
      faults_(faults),
      world_(world),
      first_(world == nullptr || world->rank() == 0),
      newcomer_(beginning.joined.has_value()),
      quarantined_(control::read_quarantine(beginning.home)) {}

void Training::run(report::RunResult& result) {
  load();
  began_ = SteadyClock::now();
  try {
    build();
    plan_swaps();
    leave_out();
    train(result);
  } catch (const std::exception& error) {
    const auto* blamed = dynamic_cast<const events::BlamedError*>(&error);
    if (blamed == nullptr || !blamed->blame().rollback) faults_.write(error);  // else the run may go on
    run_->fail();
    conclude(result);
    throw;
  }
  conclude(result);
}

/// Makes the plugins and opens the data.
void Training::load() {
  const std::vector<config::SlotConfig> all = beginning_.config.slots;
  const std::vector<control::Quarantined> left =
      control::leave_out(beginning_.config, registry_, quarantined_);
  for (const control::Quarantined& each : left)
    beginning_.notes.push_back("left out: [" + each.slot + "] " + each.plugin + ", quarantined since step " +
                               std::to_string(each.step) + " (" + each.reason + "); see quarantine.json");
  faults_.set_plugins(reported(beginning_.config, registry_));
  // A process that replaces a killed rank got its state from other ranks, not from a checkpoint.
  const std::string from = !beginning_.loaded ? "" : newcomer_ ? beginning_.home : beginning_.loaded->path;
  run_.emplace(beginning_.config, registry_, outputs(), world_,
               from.empty() ? std::nullopt : report::learned_beside(from));
  if (first_ && run_->learned()) report::write_learned(beginning_.home, *run_->learned());
  if (world_ != nullptr) compare_data();
  run_->states().set_file(options_.resolved_toml);
  faults_.set_plugins(reported(*run_));
  run_->live().quarantined = quarantined_;
  for (const config::SlotConfig& slot : all)
    if (run_->live().layer.own(slot.address()) == nullptr) run_->live().left_out.push_back(slot.address());
}

/// Returns facts about the data that this rank reads, and about what it learned.
report::Facts Training::data_facts() {
  report::Facts facts;
  for (ActivePlugin& plugin : run_->plugins()) {
    if (plugin.slot().kind != Dataset::kind.name) continue;
    const std::string split = plugin.slot().slot.substr(std::string_view("data.").size());
    std::string read;
    for (const Batch& batch : run_->first_batches(split, 2)) {
      for (const at::Tensor& input : batch.inputs) read += digest(input);
      if (batch.target.defined()) read += digest(batch.target);
    }
    const auto classes = guarded(plugin.slot(), 0, [&] { return plugin.as<Dataset>().labels(); });
    facts.emplace_back("samples of " + split + " differ", std::to_string(run_->samples(split)));
    facts.emplace_back("first batch of " + split + " differs", lib::Sha256::of(read));
    facts.emplace_back("classes of " + split + " differ",
                       lib::Sha256::of({reinterpret_cast<const char*>(classes.data()),
                                        classes.size() * sizeof(std::int64_t)}));
    const auto* const keeps = dynamic_cast<const KeepsFolders*>(&plugin.as<Dataset>());
    for (const auto& [option, identity] :
         report::file_identities(plugin.manifest().options, plugin.slot().options, registry_,
                                 keeps ? keeps->kept_folders() : std::vector<std::string>()))
      facts.emplace_back("file of data." + split + "." + option + " differs", identity);
  }
  if (run_->learned())
    facts.emplace_back("text of what was learned differs", lib::Sha256::of(text_of(*run_->learned())));
  return facts;
}

/// Checks that the ranks read the same data: else one would learn from what the others never see.
void Training::compare_data() {
  facts_ = nlohmann::json(data_facts()).dump();
  const std::string other = newcomer_ ? "the other ranks" : "rank 0";
  const std::vector<std::string> all =
      newcomer_ ? std::vector{beginning_.joined->facts, facts_} : world_->gather(facts_);
  std::string found;
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (const std::string fact = report::difference(all[rank], all.front(), other); !fact.empty())
      found += "rank " + std::to_string(newcomer_ ? world_->rank() : static_cast<int>(rank)) +
               " reads other data than " + other + ": the " + fact + "; ";
  if (!found.empty()) throw DataError(found + "give all ranks the same files");
}

/// Returns what plugins may use at any time once they are made: log, journal, requests for swaps.
HostOutputs Training::outputs() {
  HostOutputs outputs;
  outputs.log = [this](LogLevel level, const std::string& text) { messages_.send(level, text); };
  outputs.journal = [this](std::string_view who, std::string_view what, std::string_view why) {
    write_line(who, what, why);
  };
  outputs.swap = [this](config::SwapRequest request, const std::string& who) {
    if (!commander_)
      throw PluginError("asks for a swap before the training begins; it can from fit_start on");
    commander_->ask(std::move(request), who);
  };
  return outputs;
}

void Training::build() {
  const config::RunKeys& keys = run_->config().run;
  run_->build_model();
  if (keys.load == config::RunKeys::Load::weights) run_->states().load_weights(keys.resume, keys.load_match);
  open_sinks();
  checkpoints_.emplace(*run_, *this, checkpoint_folder(beginning_.directory), first_);
  LoopParts parts;
  parts.host = this;
  parts.saver = &*checkpoints_;
  parts.signal = &SignalScope::caught();
  run_->build_loop(std::move(parts));
  check_space(beginning_.directory.path(), bytes_of(run_->states().snapshot()) *
                                               (run_->states().shards() != nullptr ? world_->size() : 1));
}

void Training::open_sinks() {
  const config::RunConfig& config = run_->config();
  RunInfo info{.name = config.run.name,
               .directory = beginning_.directory.path(),
               .started = report::timestamp(),
               .total_steps = run_->scale().total_steps,
               .steps_per_epoch = run_->scale().steps_per_epoch,
               .loader_workers = config.data.workers,
               .terminal = options_.color,
               .quiet = options_.quiet,
               .resumed_at = beginning_.resumed ? beginning_.loaded->step : 0};
  if (newcomer_)
    info.resumed_at = std::numeric_limits<std::int64_t>::max();  // until it knows the others' step
  sinks_.emplace(std::move(info), sink_entries(), [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  });
  messages_.set_sinks(&*sinks_);
}

/// Plans the swaps of the run file and the open requests; from here on commands are obeyed.
void Training::plan_swaps() {
  report::RunDirectory& directory = beginning_.directory;
  beginning_.ledger.replan(
      beginning_.loaded ? entries_of(beginning_.planned, *run_) : control::ended_of_plan(beginning_.history),
      entries_of(run_->config().swaps, *run_));
  if (!beginning_.loaded && quarantined_.empty()) Swaps(*run_).rehearse();
  if (first_) channel_.emplace(directory.path());
  commander_.emplace(*run_, channel_ ? &*channel_ : nullptr, directory, std::move(beginning_.ledger));
}

/// Disables hooks that the run goes on without, and journals how the run begins.
void Training::leave_out() {
  for (const events::BlamedError& error : beginning_.left_out)
    for (ActivePlugin& plugin : run_->plugins())
      if (plugin.slot().slot == error.blame().slot && plugin.slot().type == error.blame().plugin)
        plugin.subscriber().disable(error.what());
  for (const events::Subscriber* each : run_->bus().rebuild())
    journal(each->participant.id, "disabled", each->error);
  for (const std::string& note : beginning_.notes) journal("host", "resume", note);
}

void Training::train(report::RunResult& result) {
  const Ending ending = run_->loop().fit([this] { restore(); });
  if (ending == Ending::completed) check_schedule();
  run_->states().check_weights();
  result.rows = run_->live().layer.plugin("data.train").as<Dataset>().size();
  for (const FieldSchema& input : run_->live().schema.inputs)
    result.values += c10::multiply_integers(input.shape);
  result.weights_step = best_step_.value_or(run_->clock().step);
  result.model_digest = run_->states().model_digest();
  result.optimizer_digest = run_->states().optimizer_digest();
  if (world_ != nullptr)
    compare_weights(*world_, result.model_digest, run_->config().find("distributed.compressor"));
  if (const std::string live = beginning_.directory.file(control::live_name);
      first_ && run_->live().swaps > 0)
    report::write_atomically(live, run_->live().config_text);
  else if (first_)  // an earlier process of the run may have written it before a rollback
    std::filesystem::remove(live);
  const std::string weights = beginning_.directory.file(checkpoint::weights_name);
  if (const Shards* const shards = run_->states().shards())
    shards->write(weights, run_->states().weights());
  else if (first_)
    write_safetensors(weights, run_->states().weights());
  result.status = status_of(ending);
  result.exit_code = result.status == report::Status::interrupted ? ExitCode::resumable : ExitCode::done;
}

/// Prepares rank recovery: if the checkpointer supports it, killed ranks are replaced from here on.
void Training::survive() {
  if (world_ == nullptr || run_->checkpointer().as<Checkpointer>().replaces_ranks() == nullptr) return;
  if (!world_->has_groups()) world_->replace_lost();
  if (world_->replaces_lost()) return void(recovery_.emplace(*run_, *world_, facts_));
  const char* const why = world_->has_groups() ? "[distributed.compressor] has groups of ranks"
                                               : "`trainyard train --ranks` alone replaces it";
  messages_.send(LogLevel::warning, std::string("a rank that is killed ends the run: ") + why);
}

void Training::restore() {
  survive();
  if (!beginning_.loaded) return;
  const checkpoint::Loaded& loaded = *beginning_.loaded;
  commander_->go_on_with(std::move(beginning_.made));
  run_->states().restore(loaded.states, [this](const std::string& note) {
    journal("host", newcomer_ ? "replacement" : "resume", note);
  });
  if (newcomer_) {
    recovery_->join(*beginning_.joined);
    if (first_) sinks_->go_back(run_->clock().step);
  } else {
    journal("host", "resumed", "from " + loaded.path);
    messages_.send(LogLevel::info, "goes on from step " + std::to_string(loaded.step) + ", " + loaded.path);
  }
  beginning_.loaded.reset();
}

/// Ends the training, whichever way it went: no more commands; plugins leave; sinks get the rest.
void Training::conclude(report::RunResult& result) {
  const Clock& clock = run_->clock();
  result.steps = clock.step;
  result.epochs = clock.epoch;
  result.samples = clock.samples;
  result.seconds += std::chrono::duration<double>(SteadyClock::now() - began_).count();
  TimeUse use = run_->has_loop() ? time_use(*run_) : TimeUse();  // of these seconds
  if (run_->has_loop()) result.metrics.assign(run_->loop().latest().begin(), run_->loop().latest().end());
  if (commander_) result.swaps = commander_->counts();
  commander_.reset();
  channel_.reset();
  run_->shutdown();
  messages_.set_sinks(nullptr);
  if (sinks_) sinks_->close();
  if (run_->has_loop()) result.plugins = plugin_uses(use);
  result.time = std::move(use.phases);
}

std::vector<report::PluginUse> Training::plugin_uses(const TimeUse& use) {
  std::vector<report::PluginUse> uses;
  auto of_plugin = use.plugins.begin();
  for (ActivePlugin& plugin : run_->plugins()) {
    uses.push_back({plugin.slot().id, plugin.slot().kind, plugin.manifest().version, plugin.file().digest,
                    of_plugin->seconds, of_plugin->events});
    ++of_plugin;
    for (const report::SinkThread::Entry& usage : sinks_->usage())
      if (is_sink(plugin) && usage.id == plugin.slot().id) uses.back().seconds += usage.seconds;
  }
  return uses;
}

report::SinkThread::Entry Training::sink_entry(ActivePlugin& plugin) const {
  Sink& sink = plugin.as<Sink>();
  const Duration& interval =
      sink.common.interval.count > 0 ? sink.common.interval : run_->config().logging.interval;
  return {plugin.slot().id, first_ ? &sink : nullptr,
          in_steps(interval, run_->scale(), plugin.slot().slot + ".interval"), plugin.slot().slot,
          plugin.slot().type};
}

std::vector<report::SinkThread::Entry> Training::sink_entries() {
  std::vector<report::SinkThread::Entry> entries;
  for (ActivePlugin& plugin : run_->plugins())
    if (is_sink(plugin)) entries.push_back(sink_entry(plugin));
  return entries;
}

void Training::write_line(std::string_view who, std::string_view what, std::string_view why) {
  const std::int64_t step = run_ ? run_->clock().step : 0;
  beginning_.directory.journal({step, std::string(who), std::string(what), std::string(why), {}});
}

void Training::journal(std::string_view who, std::string_view what, std::string_view why) {
  write_line(who, what, why);
  if (what == "disabled" || what.starts_with("stop"))  // other lines may come every step
    messages_.send(LogLevel::warning, std::string(who) + ": " + std::string(what) + ": " + std::string(why));
}

void Training::at_safe_point() {
  if (options_.kill_at != 0 && run_->clock().step == options_.kill_at) raise(SIGKILL);
  commander_->at_safe_point();
  constexpr std::int64_t early = 1000;  // many times the updates that an executor has in flight
  if (run_->clock().step == early) check_schedule();
}

/// Warns if the executor makes fewer updates than steps: the schedule's curve is then left half way.
void Training::check_schedule() {
  const std::int64_t steps = run_->clock().step, made = run_->loop().bench().updates();
  if (!first_ || 10 * made >= 9 * steps) return;
  const std::int64_t all = run_->scale().total_steps, last = made * all / steps;
  if (run_->schedule().factor(last) == run_->schedule().factor(all)) return;
  run_->warn("[schedule] goes by updates, and the executor made " + std::to_string(made) + " in " +
             std::to_string(steps) + " steps: the curve ends at update " + std::to_string(last) + " of " +
             std::to_string(all) + "; schedule.budget = \"" + std::to_string(last) + "ba\" has it end there");
}

bool Training::recover(const Error& error) {
  if (world_ != nullptr) return recovery_ && recovery_->recover(error);  // the others are ahead, or wait
  if (!commander_->recover(error)) return false;
  sinks_->go_back(run_->clock().step);
  return true;
}

bool Training::closing() {
  commander_->close_watches();
  return !run_->config().trainer.restore_best || restore_best();
}

/// Ends the run with the best weights that it kept, and with their metrics. The checkpoint to go on from is
/// saved already, with the last weights. Returns false if an evaluation was cut short.
bool Training::restore_best() {
  checkpoints_->drain();
  std::string path = first_ ? checkpoint::best(beginning_.directory.path()).value_or("") : "";
  if (world_ != nullptr) path = world_->from_first(path);
  if (path.empty()) {
    messages_.send(LogLevel::warning,
                   "trainer.restore_best: none was kept; the run ends with its last weights");
    return true;
  }
  const std::optional<std::int64_t> step = checkpoint::step_of(path);
  if (step == run_->clock().step) return true;
  StateCopy last(run_->states().snapshot().states);
  run_->states().load_weights(path);
  for (const EvaluationSplit& split : run_->loop().evaluations())
    if (run_->loop().evaluate_silently(split).empty()) {
      run_->states().go_back(last.states());
      return false;
    }
  best_step_ = step;
  journal("host", "restored best", path);
  return true;
}

void Training::complete(Snapshot& snapshot) {
  beginning_.directory.check_there();
  sinks_->flush();  // a resume does not repeat the records before its checkpoint
  commander_->complete(snapshot);
}

void Training::open(ActivePlugin& plugin) {
  checkpoints_->open(plugin);
  if (is_sink(plugin)) sink_entry(plugin);  // throws for what this run cannot count
}

void Training::exchanged() {
  faults_.set_plugins(reported(*run_));
  checkpoints_->exchanged();
  sinks_->exchange(sink_entries(), run_->clock().step);
}

}  // namespace trainyard::train
