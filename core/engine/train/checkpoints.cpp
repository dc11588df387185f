#include "core/engine/train/checkpoints.hpp"

#include <numeric>
#include <utility>

#include "core/engine/train/guard.hpp"
#include "core/rundir/folder.hpp"

namespace trainyard::train {
namespace {

checkpoint::Retention retention(const CheckpointCommon& common, const RunScale& scale) {
  checkpoint::Retention kept{.keep_last = common.keep_last, .keep_every = 0, .keep_best = common.keep_best};
  if (common.keep_every) kept.keep_every = in_steps(*common.keep_every, scale, "checkpoint.keep_every");
  return kept;
}

/// Returns the steps between checkpoints: with keep_best and no interval, those between evaluations.
std::int64_t interval(const CheckpointCommon& common, const Run& run) {
  if (common.interval) return in_steps(*common.interval, run.scale(), "checkpoint.interval");
  const std::optional<Duration>& evaluations = run.config().trainer.eval_interval;
  return common.keep_best && evaluations ? in_steps(*evaluations, run.scale(), "trainer.eval_interval") : 0;
}

/// Makes the codec of a checkpointer's options.
checkpoint::StoredBy codec_of(const Checkpointer& plugin) {
  const std::vector<Table>& tables = plugin.common.codec.tables;
  if (tables.size() > 1) throw ConfigError("checkpoint.codec names several codecs; one stores a tensor");
  auto made = make_plugins(plugin.host(), plugin.common.codec);
  if (made.empty()) return {};
  return {tables.front().find("type")->as<std::string>(), std::move(made.front())};
}

bool is_ours(const ActivePlugin& plugin) {
  return plugin.slot().kind == Checkpointer::kind.name;
}

}  // namespace

Checkpoints::Checkpoints(Run& run, LoopHost& host, const std::string& folder, bool writes)
    : run_(run), host_(host), writes_(writes), plugin_(&run.checkpointer()), store_(folder, {}) {
  exchanged();
  open(*plugin_);
}

template <class Call>
void Checkpoints::call(Call&& call) {
  guarded(plugin_->slot(), run_.clock().step, [&] { call(plugin_->as<Checkpointer>()); });
}

void Checkpoints::save() {
  run_.states().check_weights();  // before anything could remove the last good one
  Snapshot snapshot = run_.states().snapshot_of_ranks();
  const Shards* const shards = run_.states().shards();
  if (!writes_ && shards == nullptr) return;
  host_.complete(snapshot);
  if (shards != nullptr) {
    checkpoint::Written written = shards->write(writes_ ? store_.folder_ahead(snapshot.step) : "", snapshot);
    if (writes_) store_.take(snapshot.step, std::move(written));
  }
  if (!writes_) return;
  call([&](Checkpointer& plugin) { plugin.take(std::move(snapshot)); });
}

void Checkpoints::drain() {
  call([](Checkpointer& plugin) { plugin.drain(); });
}

void Checkpoints::check(ActivePlugin& plugin, const Run& run) {
  const CheckpointCommon& common = plugin.as<Checkpointer>().common;
  retention(common, run.scale());
  codec_of(plugin.as<Checkpointer>());
  const std::int64_t every = interval(common, run), all = run.scale().total_steps;
  const std::optional<Duration>& evaluations = run.config().trainer.eval_interval;
  if (!common.keep_best || !evaluations || every == 0 || every >= all) return;
  const std::int64_t evaluated = in_steps(*evaluations, run.scale(), "trainer.eval_interval");
  if (std::lcm(every, evaluated) > all)
    throw ConfigError("checkpoint.keep_best: a checkpoint every " + std::to_string(every) +
                      " steps and an evaluation every " + std::to_string(evaluated) +
                      " meet at no step before the end, so that only the last could be the best; leave "
                      "checkpoint.interval out, which saves at evaluations, or make it a multiple of "
                      "trainer.eval_interval");
}

void Checkpoints::open(ActivePlugin& plugin) {
  if (!is_ours(plugin)) return;
  check(plugin, run_);
  guarded(plugin.slot(), 0, [&] { plugin.as<Checkpointer>().open(store_); });
}

void Checkpoints::exchanged() {
  Checkpointer& writer = plugin_->as<Checkpointer>();
  if (std::exchange(writer_, &writer) == &writer) return;
  const CheckpointCommon& common = writer.common;
  store_.set_retention(retention(common, run_.scale()));
  store_.set_codec(codec_of(writer));
  every_ = interval(common, run_);
}

std::optional<Saved> Checkpoints::take_committed() {
  if (waiting_.empty()) waiting_ = store_.take_committed();
  if (waiting_.empty()) return std::nullopt;
  Saved saved{std::move(waiting_.front()), -1};
  saved.step = checkpoint::step_of(saved.path).value_or(-1);
  waiting_.erase(waiting_.begin());
  return saved;
}

}  // namespace trainyard::train
