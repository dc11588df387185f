#include "core/engine/train/rank_step.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trainyard/error.hpp>
#include <trainyard/helpers/sparse.hpp>

#include "core/engine/train/shards.hpp"

namespace trainyard::train {

void RankStep::check_parts() const {
  if (!in_parts()) return;
  const std::string because =
      ": the ranks of the executor \"" + parts_.executor.slot->type + "\" have parts of the network each";
  if (parts_.compressor.plugin != nullptr)
    throw ConfigError("[distributed.compressor] cannot be had, as no gradients are summed" + because);
  if (!parameters_of(*parts_.network.plugin).sharded.empty())
    throw ConfigError("the tables of the model cannot lie in parts on the ranks" + because);
  if (!parts_.config->distributed.shares.empty())
    throw ConfigError("[distributed] shares cannot be had, as each rank has all of a batch" + because);
  if (parts_.world->replaces_lost())
    throw ConfigError("the checkpointer cannot replace a rank that is lost: what is in flight goes with it" +
                      because);
}

void RankStep::begin(unsigned ends) {
  ends_ = ends;
  agreed_ = 0;
  if (in_parts())
    reduction_.reset();  // made for an executor before
  else
    make_reduction();
}

/// Makes the reduction; anew if the compressor was replaced.
void RankStep::make_reduction() {
  Compressor* const compressor = parts_.compressor.plugin;
  if (reduction_ && reduction_->compressor() == compressor) return;
  const auto [parameters, sharded] = parameters_of(*parts_.network.plugin);
  sharded_ = sharded;
  reduction_.reset();  // its hooks go first
  reduction_ = std::make_unique<distributed::Reduction>(
      *parts_.world, parameters,
      distributed::make_layout(parameters, parts_.config->distributed.bucket_bytes(), compressor), compressor,
      [world = parts_.world] { world->settle(); });
}

void RankStep::start(const StepWork& work, double loss_scale) {
  if (!reduction_) return;
  reduction_->start(work.step, loss_scale);
  share_weight_ = work.weight;
  own_weight_ = 0.0;
  for (const Batch& micro : work.micros) own_weight_ += micro.weight;
  skips_ = work.micros.empty();
}

bool RankStep::may_overlap() const {
  const events::Bus& bus = *parts_.bus;
  return !bus.heard(Event::after_backward) && !bus.heard(Event::micro_end) &&
         !bus.heard(Event::before_reduce);
}

void RankStep::check_same_passes() const {
  if (!sharded_.empty())
    throw PluginError(
        "step " + std::to_string(parts_.context->number_) +
        ": a rank leaves a micro-batch out, and the tables of the model lie in parts on the ranks: all "
        "make the same passes");
}

distributed::Tail RankStep::sum_up(unsigned bits) {
  distributed::Tail all = reduction_->finish({.loss = own_loss_.sum(),
                                              .counted = own_loss_.weight(),
                                              .weight = own_weight_,
                                              .skipped = skips_ ? 1 : 0,
                                              .bits = bits | ends_},
                                             share_weight_);
  if (parts_.world->replaces_lost()) agree_to_update();
  own_loss_ = {};
  for (at::Tensor& parameter : sharded_)
    if (parameter.grad().defined() && all.weight > 0.0)
      stored(parameter.grad()).mul_(share_weight_ / all.weight);
  agreed_ |= all.bits;
  return all;
}

/// Makes all ranks change the weights or none, even if one is lost now: a rank that has the sum waits until
/// it knows that all have it. A rank that gets to know it updates; one that does not, because a rank was
/// lost, asks the others whether one of them did. (Skeen, "Nonblocking Commit Protocols", SIGMOD 1981:
/// prepared, then committed.)
void RankStep::agree_to_update() {
  has_gradients_ = true;
  try {
    parts_.world->all_reduce(at::zeros({1}))->wait();
  } catch (const Error& error) {
    parts_.host->update_as_others(error);
    followed_ = true;
  }
  has_gradients_ = false;
  updating_ = true;
}

RankStep::Loss RankStep::share_losses(unsigned bits) {
  const at::Tensor own = at::empty({3}, at::kDouble),
                   all = at::empty({std::int64_t{3} * parts_.world->size()}, at::kDouble);
  double* const mine = own.mutable_data_ptr<double>();
  mine[0] = own_loss_.sum();
  mine[1] = own_loss_.weight();
  mine[2] = static_cast<double>(bits);
  own_loss_ = {};
  parts_.world->all_gather(all, own)->wait();
  Loss loss;
  for (int rank = 0; rank < parts_.world->size(); ++rank) {
    const double* const theirs = all.const_data_ptr<double>() + std::ptrdiff_t{3} * rank;
    loss.sum += theirs[0];
    loss.weight += theirs[1];
    agreed_ |= static_cast<unsigned>(theirs[2]);
  }
  return loss;
}

void RankStep::drop() {
  end();
  own_loss_ = {};
  reduction_.reset();  // an exchange may still write into its buckets
}

}  // namespace trainyard::train
