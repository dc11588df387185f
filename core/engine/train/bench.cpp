#include "core/engine/train/bench.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/helpers/check_rows.hpp>
#include <trainyard/mixins/reads_rows.hpp>

#include "core/engine/distributed/together.hpp"
#include "core/engine/events/spans.hpp"
#include "core/engine/train/backward.hpp"
#include "core/engine/train/gradients.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/precision.hpp"

namespace trainyard::train {
namespace {

bool is_closing(Event event) {
  return events::opening_of(event) != event;
}

Event closing_of(Event opening) {
  return *std::find_if(std::begin(micro_events), std::end(micro_events),
                       [&](Event event) { return event != opening && events::opening_of(event) == opening; });
}

}  // namespace

Bench::Bench(LoopParts& parts, PhaseSeconds& seconds)
    : parts_(parts), context_(*parts.context), seconds_(seconds), brackets_(parts), ranks_(parts) {
  for (const NamedTensor& parameter : parts_.network.plugin->parameters())
    parameters_.push_back(parameter.tensor);
  if (parts_.config->trainer.precision == config::TrainerKeys::Precision::fp16_mixed) scaler_.emplace();
}

/// Calls the executor within its slot's guard; an error that the host threw below it leaves unchanged.
template <class Call>
decltype(auto) Bench::in_executor(Call&& call) {
  const auto [slot, executor] = parts_.executor;
  thrown_ = nullptr;
  bool is_ours = false;
  try {
    return guarded(*slot, context_.number_, [&]() -> decltype(auto) {
      try {
        return call(*executor);
      } catch (...) {
        is_ours = thrown_ != nullptr && std::current_exception() == thrown_;
        throw;
      }
    });
  } catch (...) {
    if (is_ours) std::rethrow_exception(std::exchange(thrown_, nullptr));
    throw;
  }
}

/// Runs what the executor calls: the thread is in no plugin meanwhile, and errors are not the executor's.
template <class Call>
decltype(auto) Bench::in_host(Call&& call) {
  const events::CallScope scope(nullptr, nullptr);
  try {
    return call();
  } catch (...) {
    thrown_ = std::current_exception();
    throw;
  }
}

void Bench::open() {
  member_losses_.resize(parts_.member_metrics.size());
  ranks_.check_parts();
  set_rates(rate_);  // steps without an update log the last update's rates, as hooks left them
  if (lr_) parts_.optimizer.plugin->groups().front().lr = *std::exchange(lr_, std::nullopt);
  if (parts_.world != nullptr) check_ranks(parts_.world->size());
  in_executor([&](Executor& executor) { executor.open(*this); });
  is_open_ = true;
}

void Bench::check_ranks(std::int64_t ranks) {
  in_executor([&](Executor& executor) { executor.check_ranks(*this, ranks); });
}

void Bench::step(StepWork& work, bool logging) {
  logging_ = logging;
  context_.repeats_ = 0;
  context_.weights_move_ = false;
  try {
    in_executor([&](Executor& executor) { executor.step(*this, work); });
  } catch (...) {
    for (; !open_.empty(); open_.pop_back()) brackets_.close_quietly(closing_of(open_.back()));
    throw;
  }
  if (open_.empty()) return;
  const std::string left(name(std::exchange(open_, {}).back()));
  throw PluginError("[" + parts_.executor.slot->slot + "] " + parts_.executor.slot->type + ", step " +
                    std::to_string(context_.number_) + ": fired " + left +
                    " and not the event that closes it");
}

void Bench::step_together(StepWork& work, bool logging, bool skip, unsigned ends) {
  ranks_.begin(ends);
  if (ranks_.in_parts()) {  // a batch that one rank skips, all skip
    if (distributed::any(*parts_.world, skip ? 1U : 0U) == 0) step(work, logging);
    take_shared(ranks_.end_in_parts(context_.waiting_bits()));
    return context_.agree(ranks_.agreed());
  }
  if (skip) {
    ranks_.check_same_passes();
    clear_gradients(parameters_);
    work.micros = {};
  }
  update_is_of(work);
  step(work, logging);
}

/// Takes the loss of ranks that have parts of the network each.
void Bench::take_shared(const RankStep::Loss& loss) {
  loss_meter_.add_sum(loss.sum, loss.weight);
  if (!std::isfinite(loss.sum)) refuse_loss(loss.sum / loss.weight);
}

Graded Bench::evaluate(const Batch& batch, const ForwardContext& pass) {
  return in_executor([&](Executor& executor) { return executor.evaluate(*this, batch, pass); });
}

std::vector<Graded> Bench::evaluate_all(const Batch& batch, const ForwardContext& pass) {
  return in_executor([&](Executor& executor) { return executor.evaluate_all(*this, batch, pass); });
}

void Bench::settle(Executor::Pause pause) {
  if (is_open_) in_executor([&](Executor& executor) { executor.settle(*this, pause); });
  if (is_open_ && ranks_.in_parts())
    take_shared(ranks_.share_losses());  // of steps that were in flight: the checkpoint holds them
  catch_up();
}

/// Has the optimizer update all rows that it has put off, before something looks at the weights.
void Bench::catch_up() {
  const auto [slot, optimizer] = parts_.optimizer;
  if (auto* const lazy = dynamic_cast<LeavesRows*>(optimizer))
    guarded(*slot, context_.number_, [&] { lazy->catch_up(); });
}

// ---- the host's own way through a step

void Bench::enter(StepWork& work, std::size_t micro) {
  context_.micros_ = static_cast<int>(work.micros.size());
  context_.micro_ = static_cast<int>(micro);
  context_.batch_ = &work.micros[micro];
  context_.loss_scale_ = loss_scale();
  context_.loss_share_ = work.share(micro);
}

void Bench::backward(StepWork& work, std::size_t micro, const ForwardPass& forward) {
  in_host([&] {
    if (micro == 0) clear_gradients(parameters_);
    enter(work, micro);
    const ForwardContext pass = work.pass(micro);
    brackets_.bracket(Event::micro_start, Event::micro_end,
                      [&] { run_micro(work.micros[micro], pass, forward); });
    context_.output_.reset();
    context_.loss_.reset();
  });
}

void Bench::run_micro(Batch& batch, const ForwardContext& pass, const ForwardPass& forward) {
  if (batch.weight <= 0.0) return ranks_.check_same_passes();  // nothing in it counts; its mean would be 0/0
  {
    const AutocastScope autocast(parts_.device.type(), parts_.config->trainer.precision);
    brackets_.bracket(Event::before_forward, Event::after_forward, [&] {
      if (!context_.asked(Control::skip_micro)) context_.output_ = this->forward(batch, pass, forward);
    });
    if (context_.take(Control::skip_micro)) return ranks_.check_same_passes();
    brackets_.bracket(Event::before_loss, Event::after_loss,
                      [&] { context_.loss_ = loss_of(context_.output_, batch); });
  }
  count(context_.loss_, batch);
  brackets_.bracket(Event::before_backward, Event::after_backward, [&] {
    if (context_.take(Control::skip_micro)) return ranks_.check_same_passes();
    const bool last = context_.micro_ + 1 == context_.micros_;
    if (ranks_.sums() && last && ranks_.may_overlap()) ranks_.collect();
    const Timer timer(seconds_, &PhaseSeconds::backward);
    const events::SpanScope span(Span::What::phase, "backward");
    guarded(*parts_.network.slot, context_.number_, [&] {
      train::backward(context_.loss_, backward_root(context_.loss_share_ * context_.loss_scale_));
    });
  });
  take_metrics(parts_.metrics, context_.output_, context_.loss_, batch);
}

at::Tensor Bench::forward(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward) {
  const Timer timer(seconds_, &PhaseSeconds::model);
  const events::SpanScope span(Span::What::phase, "forward");
  if (forward) return guarded(*parts_.executor.slot, context_.number_, [&] { return forward(batch, pass); });
  return guarded(*parts_.network.slot, context_.number_,
                 [&] { return parts_.network.plugin->forward(batch, pass); });
}

at::Tensor Bench::loss_of(const at::Tensor& output, const Batch& batch) {
  const Timer timer(seconds_, &PhaseSeconds::loss);
  const events::SpanScope span(Span::What::phase, "loss");
  return guarded(*parts_.loss.slot, context_.number_,
                 [&] { return parts_.loss.plugin->forward(output, check_rows(batch, output.sizes())); });
}

/// Returns the initial gradient of backward, which carries share and loss scale, so that weighting a
/// micro-batch costs nothing.
at::Tensor Bench::backward_root(double factor) {
  if (!root_.defined() || factor != root_factor_ || root_.scalar_type() != context_.loss_.scalar_type()) {
    root_ = at::full({}, factor, context_.loss_.options());
    root_factor_ = factor;
  }
  return root_;
}

Update Bench::update(const std::function<void()>& apply) {
  return in_host([&] {
    const at::NoGradGuard no_grad;
    if (ranks_.sums() && !sum_up()) return Update::skipped;
    coalesce_gradients(parameters_);
    const bool finite = prepare_gradients();
    set_rates(rate(updates_));
    context_.skip_reason_ = SkipReason::error;  // until the step is done: an error on the way skips it
    Event closing = Event::step_skipped;
    brackets_.bracket(Event::before_step, closing, [&] {
      const SkipReason asked = asked_reason();
      context_.skip_reason_ = finite ? asked : SkipReason::overflow;
      if (context_.skip_reason_ != SkipReason::error) return;
      if (apply)
        guarded(*parts_.executor.slot, context_.number_, apply);
      else
        update_weights();
      if (parts_.bus->heard(Event::after_step, context_)) catch_up();
      ++updates_;
      context_.skip_reason_ = SkipReason::none;
      closing = Event::after_step;
    });
    if (context_.skip_reason_ == SkipReason::repeat) return count_repeat();
    if (scaler_) scaler_->update(finite);
    return context_.skip_reason_ == SkipReason::none ? Update::done : Update::skipped;
  });
}

/// Gives nothing after an error.
void Bench::is_whole(std::size_t parameter) {
  if (!ranks_.sums() || thrown_ || !ranks_.may_overlap()) return;
  in_host([&] { ranks_.give(parameter); });
}

/// Sums the gradients over the ranks. Returns false if no rank trained on this batch.
bool Bench::sum_up() {
  distributed::Tail all;
  brackets_.bracket(Event::before_reduce, Event::after_reduce, [&] {
    const Timer timer(seconds_, &PhaseSeconds::backward);
    const events::SpanScope span(Span::What::phase, "backward");
    all = ranks_.sum_up(context_.waiting_bits());
    loss_meter_.add_sum(all.loss, all.counted);
    if (!scaler_ && !std::isfinite(all.loss)) refuse_loss(all.loss / all.counted);
    context_.agree(all.bits);
  });
  return all.skipped < parts_.world->size();
}

/// Returns what hooks asked for at before_step; `error`: nothing. The ranks' tail is on its way by then, so
/// if hooks may ask, the ranks exchange once more: all of them do the same.
SkipReason Bench::asked_reason() {
  unsigned asked = 0;
  for (const Control control : {Control::skip_step, Control::repeat_step})
    if (context_.take(control)) asked = asked | control;
  if (parts_.world != nullptr && parts_.asks_at_before_step) asked = distributed::any(*parts_.world, asked);
  if ((asked & static_cast<unsigned>(Control::skip_step)) != 0) return SkipReason::plugin;
  return asked != 0 ? SkipReason::repeat : SkipReason::error;
}

void Bench::drop_step() {
  ranks_.drop();
  thrown_ = nullptr;
  clear_gradients(parameters_);
  reopen();
}

/// Unscales and clips. Returns false if fp16 overflowed: the step is to be skipped.
bool Bench::prepare_gradients() {
  const std::optional<config::GradClip>& rule = parts_.config->grad_clip;
  if (!scaler_ && !rule) return true;
  std::vector<at::Tensor> gradients = gradients_of(parameters_);
  if (scaler_ && !scaler_->unscale(gradients)) return false;
  if (rule) gradient_norm_ = train::clip(gradients, *rule);
  return true;
}

/// Writes the rates into the optimizer's groups.
void Bench::set_rates(const Rate& rate) {
  rate_ = rate;
  for (ParamGroup& group : parts_.optimizer.plugin->groups()) {
    group.lr = group.base_lr * rate.factor;
    group.momentum = rate.momentum;
  }
}

void Bench::update_weights() {
  const Timer timer(seconds_, &PhaseSeconds::optimizer);
  const events::SpanScope span(Span::What::phase, "optimizer");
  guarded(*parts_.optimizer.slot, context_.number_, [&] { parts_.optimizer.plugin->step(); });
}

/// Counts a repetition of the step; throws if there are too many.
Update Bench::count_repeat() {
  if (context_.repeats_ == most_repeats)
    throw PluginError("step " + std::to_string(context_.number_) + " was to be repeated a " +
                      std::to_string(most_repeats + 1) + "th time; " + std::to_string(most_repeats) +
                      " are allowed: the plugin that asks for repeat_step at before_step does not end");
  ++context_.repeats_;
  return Update::repeat;
}

// ---- for an executor with a way of its own

Graded Bench::grade(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward) {
  return in_host([&] {
    const AutocastScope autocast(parts_.device.type(), parts_.config->trainer.precision);
    at::Tensor output = this->forward(batch, pass, forward);
    if (!pass.training) output = output.to(floats_of(parts_.config->trainer.precision));
    at::Tensor loss = loss_of(output, batch);
    return Graded{std::move(output), std::move(loss)};
  });
}

std::unique_ptr<Network> Bench::twin() {
  return in_host([&] {
    return guarded(*parts_.network.slot, context_.number_, [&] {
      std::unique_ptr<Network> twin = network().twin();
      if (parts_.dropout != nullptr) twin->set_dropout(parts_.dropout, parts_.config->run.seed);
      return twin;
    });
  });
}

/// Runs off the loop's thread: it times no phases, and its errors already carry the blame of their slots.
Graded Bench::grade(Network& twin, const Batch& batch, const ForwardContext& pass) {
  const events::CallScope scope(nullptr, nullptr);
  const AutocastScope autocast(parts_.device.type(), parts_.config->trainer.precision);
  at::Tensor output =
      guarded(*parts_.network.slot, context_.number_, [&] { return twin.forward(batch, pass); });
  at::Tensor loss = guarded(*parts_.loss.slot, context_.number_, [&] {
    return parts_.loss.plugin->forward(output, check_rows(batch, output.sizes()));
  });
  return {std::move(output), std::move(loss)};
}

void Bench::report(const Graded& graded, const Batch& batch) {
  in_host([&] {
    count(graded.loss, batch);
    take_metrics(parts_.metrics, graded.output, graded.loss, batch);
  });
}

void Bench::report(const Graded& graded, const Batch& batch, std::size_t member) {
  in_host([&] {
    if (context_.repeats_ == 0) member_losses_.at(member).add(graded.loss, batch.weight);
    take_metrics(parts_.member_metrics.at(member), graded.output, graded.loss, batch);
  });
}

Table Bench::run_file(const std::vector<std::string>& set) const {
  return parts_.owner->run_file(set);
}

std::unique_ptr<Network> Bench::build(std::uint64_t seed) {
  return in_host([&] { return parts_.owner->build(seed); });
}

Rate Bench::rate(std::int64_t update) const {
  return guarded(*parts_.schedule.slot, context_.number_, [&] {
    const ScheduleCurve& curve = *parts_.schedule.plugin;
    return Rate{curve.factor(update), curve.momentum(update)};
  });
}

void Bench::clip(std::vector<at::Tensor>& gradients) const {
  if (parts_.config->grad_clip) train::clip(gradients, *parts_.config->grad_clip);
}

bool Bench::autocasts() const {
  return is_mixed(parts_.config->trainer.precision);
}

Filling Bench::filling(std::string_view slot) const {
  const config::SlotConfig* const found = parts_.config->find(slot);
  if (found == nullptr)
    throw PluginError("asks for the slot \"" + std::string(slot) + "\", which the run does not have");
  return {found->type, found->options};
}

void Bench::fire(Event event, StepWork& work, std::size_t micro, Graded& graded) {
  if (!of_micro(event))
    throw PluginError("an executor fires events of micro-batches only, and " + std::string(name(event)) +
                      " is none");
  if (!is_closing(event))
    open_.push_back(event);
  else if (!open_.empty() && closing_of(open_.back()) == event)
    open_.pop_back();
  else
    throw PluginError("fires " + std::string(name(event)) + ", and " +
                      std::string(name(events::opening_of(event))) + " is not open");
  in_host([&] {
    Batch* const before = context_.batch_;
    enter(work, micro);
    context_.output_ = graded.output;
    context_.loss_ = graded.loss;
    context_.weights_move_ = true;
    brackets_.fire(event);
    context_.weights_move_ = false;
    graded = {std::move(context_.output_), std::move(context_.loss_)};
    context_.batch_ = before;  // the batch may be gone once the executor drains
  });
}

// ---- reports of a step

/// Adds a loss to the training's; the loss of a repeated step does not count. Several ranks find out together
/// whether it is finite.
void Bench::count(const at::Tensor& loss, const Batch& batch) {
  const double weight = context_.repeats_ == 0 ? batch.weight : 0.0;
  if (ranks_.sums() || ranks_.in_parts()) return ranks_.count(loss, weight);
  if (!loss_meter_.add(loss, weight)) refuse_loss(loss.item().toDouble());
}

void Bench::take_metrics(const MetricSlots& metrics, const at::Tensor& output, const at::Tensor& loss,
                         const Batch& batch) {
  if (!logging_ || context_.repeats_ != 0 || output.layout() != at::kStrided) return;
  const at::NoGradGuard no_grad;
  const at::ScalarType floats = floats_of(parts_.config->trainer.precision);
  train::update(metrics, context_.number_, output.detach().to(floats), loss.detach(), batch);
}

std::optional<double> Bench::take_loss() {
  const std::optional<double> loss = loss_meter_.take();
  // On a GPU this is the first look at the loss. The scaler handles an overflow of fp16.
  if (loss && !scaler_ && !std::isfinite(*loss)) refuse_loss(*loss);
  return loss;
}

std::optional<double> Bench::take_loss(std::size_t member) {
  return member < member_losses_.size() ? member_losses_[member].take() : std::nullopt;
}

std::optional<double> Bench::fp16_scale() const {
  return scaler_ ? std::optional(static_cast<double>(scaler_->scale())) : std::nullopt;
}

void Bench::refuse_loss(double loss) const {
  throw NumericError("the training loss is " + (std::isnan(loss) ? "nan" : std::to_string(loss)) +
                     " at step " + std::to_string(context_.number_) +
                     ": lower optimizer.lr, add trainer.grad_clip, or look at the data of this batch");
}

void Bench::save(StateWriter& state) const {
  state.scalar("updates", updates_);
  state.scalar("rate", rate_.factor);
  state.scalar("lr", parts_.optimizer.plugin->groups().front().lr);
  if (rate_.momentum) state.scalar("momentum", *rate_.momentum);
  if (gradient_norm_.defined()) state.scalar("gradient_norm", gradient_norm_.item().toDouble());
  loss_meter_.save(state);
  if (scaler_) scaler_->save(state);
  for (std::size_t member = 0; member < member_losses_.size(); ++member) {
    const LossMeter& losses = member_losses_[member];
    state.scalar("members/" + std::to_string(member) + "/loss_sum", losses.sum());
    state.scalar("members/" + std::to_string(member) + "/loss_weight", losses.weight());
  }
}

void Bench::load(const StateReader& state) {
  updates_ = state.integer("updates");
  rate_ = {};
  if (state.has_scalar("rate")) rate_.factor = state.number("rate");
  if (state.has_scalar("lr")) lr_ = state.number("lr");
  if (state.has_scalar("momentum")) rate_.momentum = state.number("momentum");
  gradient_norm_.reset();
  if (state.has_scalar("gradient_norm"))
    gradient_norm_ = at::full({}, state.number("gradient_norm"), at::kDouble);
  loss_meter_.load(state);
  if (scaler_) scaler_->load(state);
  member_losses_.assign(parts_.member_metrics.size(), {});
  for (std::size_t member = 0; member < member_losses_.size(); ++member) {
    const std::string of = "members/" + std::to_string(member) + "/";
    if (state.has_scalar(of + "loss_sum"))
      member_losses_[member].add_sum(state.number(of + "loss_sum"), state.number(of + "loss_weight"));
  }
}

}  // namespace trainyard::train
