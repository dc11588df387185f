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

std::int64_t interval(const CheckpointCommon& common, const RunScale& scale) {
  return common.interval ? in_steps(*common.interval, scale, "checkpoint.interval") : 0;
}

}  // namespace

Checkpoints::Checkpoints(Run& run, const std::string& folder)
    : run_(run),
      plugin_(&run.checkpointer()),
      store_(folder, retention(plugin_->as<Checkpointer>().common, run.scale())),
      every_(interval(plugin_->as<Checkpointer>().common, run.scale())) {
  open(*plugin_);
}

template <class Call>
void Checkpoints::call(Call&& call) {
  guarded(plugin_->slot(), run_.clock().step, [&] { call(plugin_->as<Checkpointer>()); });
}

CheckpointParts Checkpoints::parts() {
  return {.every = every_,
          .save =
              [this] {
                run_.check_weights();  // ahead of everything that could let go of the last good one
                Snapshot snapshot = run_.snapshot();
                complete_(snapshot);
                call([&](Checkpointer& plugin) { plugin.take(std::move(snapshot)); });
              },
          .committed = [this] { return committed(); },
          .drain = [this] { call([](Checkpointer& plugin) { plugin.drain(); }); }};
}

void Checkpoints::open(ActivePlugin& plugin) {
  const CheckpointCommon& common = plugin.as<Checkpointer>().common;
  retention(common, run_.scale());  // throws for what this run cannot count
  interval(common, run_.scale());
  guarded(plugin.slot(), 0, [&] { plugin.as<Checkpointer>().open(store_); });
}

void Checkpoints::settle(ActivePlugin& plugin) {
  guarded(plugin.slot(), run_.clock().step, [&] { plugin.as<Checkpointer>().drain(); });
}

void Checkpoints::use(ActivePlugin& plugin) {
  plugin_ = &plugin;
  const CheckpointCommon& common = plugin.as<Checkpointer>().common;
  store_.set_retention(retention(common, run_.scale()));
  every_ = interval(common, run_.scale());
  run_.set_checkpoint_interval(every_);
}

bool Checkpoints::committed() {
  if (waiting_.empty()) waiting_ = store_.take_committed();
  if (waiting_.empty()) return false;
  last_ = std::move(waiting_.front());
  last_step_ = checkpoint::step_of(last_).value_or(-1);
  waiting_.erase(waiting_.begin());
  return true;
}

}  // namespace trainyard::train
