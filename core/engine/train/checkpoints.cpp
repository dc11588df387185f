#include "core/engine/train/checkpoints.hpp"

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
    : run_(run),
      host_(host),
      writes_(writes),
      plugin_(&run.checkpointer()),
      store_(folder, retention(plugin_->as<Checkpointer>().common, run.scale())),
      every_(interval(plugin_->as<Checkpointer>().common, run)) {
  store_.set_codec(codec_of(plugin_->as<Checkpointer>()));
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

void Checkpoints::open(ActivePlugin& plugin) {
  if (!is_ours(plugin)) return;
  const CheckpointCommon& common = plugin.as<Checkpointer>().common;
  retention(common, run_.scale());  // throws for what this run cannot count
  interval(common, run_);
  codec_of(plugin.as<Checkpointer>());
  guarded(plugin.slot(), 0, [&] { plugin.as<Checkpointer>().open(store_); });
}

void Checkpoints::settle(ActivePlugin& plugin) {
  if (!is_ours(plugin)) return;
  guarded(plugin.slot(), run_.clock().step, [&] { plugin.as<Checkpointer>().drain(); });
}

void Checkpoints::use(ActivePlugin& plugin) {
  if (!is_ours(plugin)) return;
  plugin_ = &plugin;
  const CheckpointCommon& common = plugin.as<Checkpointer>().common;
  store_.set_retention(retention(common, run_.scale()));
  store_.set_codec(codec_of(plugin.as<Checkpointer>()));
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
