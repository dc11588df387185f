#include "core/engine/train/loop.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <trainyard/error.hpp>

#include "core/engine/distributed/together.hpp"
#include "core/engine/events/spans.hpp"
#include "core/engine/train/device.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/loss_meter.hpp"
#include "core/engine/train/precision.hpp"

namespace trainyard::train {
namespace {

/// Time in plugins is measured every so many steps: a prime, so that work done every 50 or 64 steps is
/// neither always nor never among them. The first steps are left out, as they set up what later ones find.
constexpr std::int64_t timed_one_in = 31, first_timed = 8;

/// Restores the context's batch whatever happens, so that it keeps none that is gone.
class BatchScope {
 public:
  explicit BatchScope(LoopContext& context) : context_(context), before_(context.batch_) {}
  ~BatchScope() { context_.batch_ = before_; }
  BatchScope(const BatchScope&) = delete;
  BatchScope& operator=(const BatchScope&) = delete;

 private:
  LoopContext& context_;
  Batch* before_;
};

/// Returns the batch's weight; on several ranks that of the whole batch, as if every sample counts.
double weight_of(const data::StepData& data, const LoopParts& parts, bool in_parts) {
  if (parts.world == nullptr || in_parts) return data.weight;
  return static_cast<double>(data.samples * std::max<std::int64_t>(1, parts.scale.tokens_per_sample));
}

/// Gives all ranks the running means of the first one, as each rank's are of its own samples.
void share_buffers(const LoopParts& parts) {
  if (parts.world == nullptr) return;
  std::vector<at::Tensor> buffers;
  for (const NamedTensor& buffer : parts.network.plugin->buffers()) buffers.push_back(buffer.tensor);
  distributed::take_from_first(*parts.world, buffers);
}

void reset_metrics(const LoopParts& parts) {
  reset(parts.metrics, parts.context->number_);
  for (const MetricSlots& metrics : parts.member_metrics) reset(metrics, parts.context->number_);
}

/// Merges the results of several ranks, none of which has a batch left.
void merge_ranks(const LoopParts& parts, LossMeter& losses) {
  if (parts.world == nullptr) return;
  losses.merge(*parts.world);
  merge(parts.metrics, parts.context->number_, *parts.world);
}

/// Reports the metrics under "of", and those of each of several members under "MEMBER/of"; none for a member
/// that is no longer trained.
template <class TakeLoss, class Put>
void each_metric(LoopParts& parts, MetricValues& latest, const std::string& of, const TakeLoss& take_loss,
                 const Put& put) {
  each_value(parts.metrics, parts.context->number_, of, put);
  for (std::size_t member = 0; member < parts.member_metrics.size(); ++member) {
    const std::optional<double> loss = take_loss(member);
    const std::string prefix = std::to_string(member) + "/" + of;
    if (!loss) {  // no longer trained: its old values would pass for new ones
      const auto is_old = [&](const auto& each) { return each.first.starts_with(prefix + "/"); };
      std::erase_if(latest, is_old);
      std::erase_if(parts.context->metrics(), is_old);
      continue;
    }
    put(prefix + "/loss", *loss);
    each_value(parts.member_metrics[member], parts.context->number_, prefix, put);
  }
}

}  // namespace

Loop::Loop(LoopParts& parts)
    : parts_(parts), context_(*parts_.context), brackets_(parts), bench_(parts, seconds_) {
  const config::TrainerKeys& trainer = parts_.config->trainer;
  if (trainer.eval_interval)
    evaluate_every_ = in_steps(*trainer.eval_interval, parts_.scale, "trainer.eval_interval");
  if (const Duration& every = parts_.config->guard.look_for_writes; every.count > 0.0)
    look_every_ = in_steps(every, parts_.scale, "guard.look_for_writes");
  using enum Control;
  if (parts_.world != nullptr)
    for (const Control control : {stop_epoch, stop_run, evaluate, checkpoint})
      shared_ |= static_cast<unsigned>(control);
  context_.share(shared_);
  context_.on_request = [this](std::string_view plugin, Control control, std::string_view reason) {
    if (looking_ || ending_) return;  // the request has no effect
    parts_.host->journal(plugin, control_names[std::countr_zero(static_cast<unsigned>(control))], reason);
  };
}

/// Runs the body again from where the run went back to, if it can recover from an error.
template <class Body>
void Loop::recovering(Body&& body) {
  for (;;) {
    try {
      return body();
    } catch (const Error& error) {
      if (!parts_.host->recover(error)) throw;
      ending_.reset();  // whatever ends the run does so again
    }
  }
}

Ending Loop::fit(const std::function<void()>& restore) {
  ending_.reset();
  started_ = logged_at_ = SteadyClock::now();
  brackets_.bracket(Event::fit_start, Event::fit_end, [&] {
    restore();
    bench_.open();
    parts_.train.plugin->seek(context_.clock_.epoch, context_.clock_.step_in_epoch);
    if (context_.clock_.step > 0 && !joined_) last_saved_ = context_.clock_.step;  // it came from there
    if (signalled()) interrupt(Ending::signal);  // the signal came while the run was being built
    recovering([&] { train(); });
    if (parts_.saver != nullptr) parts_.saver->drain();
    settle_checkpoints();
  });
  return ending_.value_or(Ending::completed);
}

void Loop::train() {
  while (!ending_ && (in_epoch_ || !finished())) run_epoch();
  if (ending_ == Ending::signal || ending_ == Ending::wall_time) return settle(Executor::Pause::checkpoint);
  settle(Executor::Pause::end);
  for (const EvaluationSplit& split : parts_.evaluations)  // a resume repeats what a signal cuts short
    if (&split != &parts_.evaluations.front() || last_evaluated_ != context_.clock_.step)
      if (evaluate(split).empty()) return interrupt(Ending::signal);
  if (!parts_.host->closing()) interrupt(Ending::signal);
}

/// Returns true at the end. A stop stays in the state: a run killed after its last checkpoint also ends.
bool Loop::finished() {
  if (!ending_ && context_.asked(Control::stop_run)) ending_ = Ending::stopped;
  return ending_ || (parts_.scale.total_steps > 0 && context_.clock_.step >= parts_.scale.total_steps);
}

void Loop::run_epoch() {
  end_epoch_ = end_epoch_ && in_epoch_;
  const auto steps = [&] {
    in_epoch_ = true;
    recovering([&] { run_steps(); });
  };
  // A run that was resumed in the middle of an epoch has begun it already.
  if (in_epoch_)
    brackets_.close_after(Event::epoch_end, steps);
  else
    brackets_.bracket(Event::epoch_start, Event::epoch_end, steps);
  in_epoch_ = false;
  if (!end_epoch_ && context_.clock_.step_in_epoch < parts_.train.plugin->steps_per_epoch()) return;
  ++context_.clock_.epoch;
  context_.clock_.step_in_epoch = 0;
  if (end_epoch_) parts_.train.plugin->seek(context_.clock_.epoch, 0);
}

/// Runs steps to the end of the epoch, or of the training.
void Loop::run_steps() {
  if (stage_ != Stage::settled)
    after_batch();
  else if (std::exchange(arrived_, false))
    parts_.host->at_safe_point();  // makes what is due at this safe point after the saved state
  while (!finished() && !end_epoch_ &&
         context_.clock_.step_in_epoch < parts_.train.plugin->steps_per_epoch()) {
    run_step();
    after_batch();
  }
}

void Loop::run_step() {
  arrived_ = false;  // from here on safe points are reached by steps
  parts_.host->begin_step();
  context_.number_ = context_.clock_.step + 1;
  const bool logging = parts_.host->log_due(context_.number_);
  const bool watched = events::spans.begin_step(context_.number_);
  seconds_.timing = watched || context_.number_ % timed_one_in == first_timed;
  seconds_.timed_steps += seconds_.timing;
  parts_.bus->set_timing(seconds_.timing);
  parts_.bus->set_sampling(look_every_ > 0 && context_.clock_.step % look_every_ == 0);
  const events::SpanScope span(Span::What::step, "step");

  data::StepData data;
  const BatchScope batch_scope(context_);
  brackets_.bracket(Event::before_fetch, Event::after_fetch, [&] {
    const Timer timer(seconds_, &PhaseSeconds::data);
    const events::SpanScope waiting(Span::What::phase, "data");
    data = guarded(*parts_.train.slot, context_.number_, [&] { return *parts_.train.plugin->next(); });
    for (Batch& batch : data.batches)
      move_to(parts_.device, floats_of(parts_.config->trainer.precision), batch);
    context_.batch_ = &data.batches.front();
  });
  brackets_.bracket(Event::batch_start, Event::batch_end, [&] {
    Clock& clock = context_.clock_;
    if (logging) reset_metrics(parts_);
    StepWork work{.micros = data.batches,
                  .weight = weight_of(data, parts_, bench_.ranks().in_parts()),
                  .step = clock.step,
                  .before = clock.samples,
                  .samples = data.samples,
                  .first = data.first,
                  .first_micro = data.first_micro};
    const bool skip = context_.take(Control::skip_batch);
    if (parts_.world != nullptr)
      bench_.step_together(work, logging, skip, ends());
    else if (!skip)
      bench_.step(work, logging);
    ++clock.step;
    ++clock.step_in_epoch;
    clock.samples += data.samples;
    clock.tokens += data.samples * parts_.scale.tokens_per_sample;
    const bool followed = bench_.ranks().followed();
    bench_.ranks().end();
    stage_ = Stage::stepped;
    if (followed) throw DistributedError("the other ranks wait behind this step");
    if (logging) log_point();
    stage_ = Stage::logged;
  });
}

/// Does what comes between two steps: evaluation, the safe point, and a checkpoint, which is last so that it
/// holds what hooks and commands did at the safe point, and nothing has to be fired twice.
void Loop::after_batch() {
  const std::int64_t step = context_.clock_.step;
  if (stage_ < Stage::evaluated) {
    const bool last = context_.asked(Control::stop_run) || step == parts_.scale.total_steps;
    const bool compared = last && parts_.saver != nullptr && parts_.saver->keeps_best();
    if (context_.take(Control::evaluate) || compared || (evaluate_every_ > 0 && step % evaluate_every_ == 0))
      evaluation_due_ = !parts_.evaluations.empty() && last_evaluated_ != step;
    if (evaluation_due_) {
      if (evaluate(parts_.evaluations.front()).empty()) return interrupt(Ending::signal);
      last_evaluated_ = step;
      evaluation_due_ = false;
    }
    stage_ = Stage::evaluated;
  }
  if (stage_ < Stage::polled) {
    brackets_.fire(Event::safe_point);
    poll();
    stage_ = Stage::polled;
  }
  const std::int64_t every = parts_.saver != nullptr ? parts_.saver->every() : 0;
  if (context_.take(Control::checkpoint)) {
    parts_.host->pausing("for a checkpoint that was asked for");
    stage_ = Stage::saving;
  } else if (finished() || (every != 0 && step % every == 0)) {
    stage_ = Stage::saving;
  }
  if (stage_ == Stage::saving) checkpoint();
  stage_ = Stage::settled;
}

void Loop::poll() {
  parts_.owner->check_threads();
  if (parts_.bus->stale())
    for (const events::Subscriber* disabled : parts_.bus->rebuild())
      parts_.host->journal(disabled->participant.id, "disabled", disabled->error);
  settle_checkpoints();
  parts_.host->at_safe_point();
  end_epoch_ = context_.take(Control::stop_epoch);
  const unsigned ended = parts_.world != nullptr ? bench_.ranks().agreed() : ends();
  if ((ended & by_signal) != 0) return interrupt(Ending::signal);
  if ((ended & by_wall_time) != 0) return interrupt(Ending::wall_time);
  if ((ended & by_time) != 0) ending_ = Ending::completed;
}

/// Returns, as bits, what this rank knows of the run's end, and whether it has orders for all ranks.
unsigned Loop::ends() const {
  const config::TrainerKeys& trainer = parts_.config->trainer;
  unsigned ends = caught() ? by_signal : 0U;
  if (parts_.world != nullptr && parts_.host->has_orders()) ends |= by_orders;
  if (trainer.max_wall_time && elapsed() >= trainer.max_wall_time->count) ends |= by_wall_time;
  if (trainer.max_duration.unit == Duration::Unit::seconds && seconds_trained() >= trainer.max_duration.count)
    ends |= by_time;
  return ends;
}

/// Ends the training such that it can be resumed where it stands.
void Loop::interrupt(Ending ending) {
  if (ending == Ending::signal) brackets_.fire(Event::signal);
  ending_ = ending;
  checkpoint();
  stage_ = evaluation_due_ ? Stage::logged : Stage::settled;
}

void Loop::checkpoint() {
  if (parts_.saver == nullptr || last_saved_ == context_.clock_.step) return;
  const events::SpanScope span(Span::What::phase, "checkpoint");
  settle(Executor::Pause::checkpoint);
  if (parts_.world != nullptr)  // the first rank saves those of all ranks
    context_.waiting()["ranks"] |=
        distributed::any(*parts_.world, context_.waiting_bits()) & ~context_.waiting_bits();
  brackets_.fire(Event::before_checkpoint);
  if (context_.take(Control::skip_checkpoint) && !finished()) return;
  parts_.saver->save();
  last_saved_ = context_.clock_.step;
  settle_checkpoints();
}

/// Settles the run before something looks at its weights or keeps them.
void Loop::settle(Executor::Pause pause) {
  bench_.settle(pause);
  share_buffers(parts_);
}

void Loop::request(Control control, std::string_view who, std::string_view why) {
  context_.ask(control, who);
  parts_.host->journal(who, control_names[std::countr_zero(static_cast<unsigned>(control))], why);
}

void Loop::settle_checkpoints() {
  if (parts_.saver == nullptr) return;
  while (std::optional<Saved> saved = parts_.saver->take_committed()) {
    last_checkpoint_ = std::move(*saved);
    brackets_.fire(Event::after_checkpoint);
  }
}

void Loop::save(StateWriter& state) const {
  const Clock& clock = context_.clock_;
  state.scalar("step", clock.step);
  state.scalar("epoch", clock.epoch);
  state.scalar("step_in_epoch", clock.step_in_epoch);
  state.scalar("in_epoch", in_epoch_);
  state.scalar("end_epoch", end_epoch_);
  state.scalar("samples", clock.samples);
  state.scalar("tokens", clock.tokens);
  state.scalar("seconds", seconds_trained());
  state.scalar("evaluation_due", evaluation_due_);
  state.scalar("last_evaluated", last_evaluated_);
  bench_.save(state);
  for (const auto& [who, bits] : context_.requests())
    if (bits != 0) state.scalar(requests_of + who, static_cast<std::int64_t>(bits));
  for (const auto& [who, bits] : context_.waiting())
    if (bits != 0) state.scalar(waiting_of + who, static_cast<std::int64_t>(bits));
  for (const auto& [name, value] : latest_) state.scalar("latest/" + name, value);
  for (const auto& [name, value] : extra_) state.scalar("extra/" + name, value);
}

void Loop::load(const State& saved) {
  const StateReader state(saved);
  Clock& clock = context_.clock_;
  clock.step = state.integer("step");
  clock.epoch = state.integer("epoch");
  clock.step_in_epoch = state.integer("step_in_epoch");
  in_epoch_ = state.boolean("in_epoch");
  end_epoch_ = state.boolean("end_epoch");
  clock.samples = state.integer("samples");
  clock.tokens = state.integer("tokens");
  context_.number_ = clock.step;
  last_saved_ = -1;  // the run takes another course from here
  arrived_ = true;
  forget_step();
  seconds_before_ = state.number("seconds") - elapsed();
  evaluation_due_ = state.boolean("evaluation_due");
  stage_ = evaluation_due_ ? Stage::logged : Stage::settled;
  last_evaluated_ = state.integer("last_evaluated");
  bench_.load(state);
  const auto read = [&](std::string_view prefix, auto& values, auto&& value_of) {
    values.clear();
    for (auto each = saved.scalars.lower_bound(prefix);
         each != saved.scalars.end() && each->first.starts_with(prefix); ++each)
      values.emplace(each->first.substr(prefix.size()), value_of(each->first));
  };
  const auto number = [&](const std::string& name) { return state.number(name); };
  read("latest/", latest_, number);
  read("extra/", extra_, number);
  const auto bits = [&](const std::string& name) { return static_cast<unsigned>(state.integer(name)); };
  read(requests_of, context_.requests(), bits);
  LoopContext::Requests waiting;
  read(waiting_of, waiting, bits);
  context_.waiting().clear();
  for (const auto& [who, asked] : waiting)  // the saved run may have had other ranks, perhaps one
    for (unsigned bit = 1; bit < by_signal; bit <<= 1)
      if ((asked & bit) != 0) context_.ask(static_cast<Control>(bit), who);
  context_.metrics() = latest_;
  samples_logged_ = clock.samples;
  logged_at_ = SteadyClock::now();
}

/// Forgets what a step or an evaluation that failed has left.
void Loop::forget_step() {
  looking_ = false;
  context_.evaluating_ = false;
  context_.split_ = "train";
  context_.output_.reset();
  context_.loss_.reset();
}

void Loop::drop_step() {
  forget_step();
  context_.number_ = context_.clock_.step;
  last_saved_ = -1;  // as on ranks that join
  bench_.drop_step();
  parts_.train.plugin->seek(context_.clock_.epoch, context_.clock_.step_in_epoch);
}

void Loop::take_position(const Position& position) {
  stage_ = position.stage;
  arrived_ = false;
  joined_ = true;
  bench_.ranks().set_agreed(position.agreed);
  parts_.train.plugin->seek(context_.clock_.epoch, context_.clock_.step_in_epoch);
}

void Loop::log_point() {
  Record record{.what = Record::What::train,
                .step = context_.clock_.step,
                .epoch = context_.clock_.epoch,
                .seconds = seconds_trained()};
  const auto put = [&](std::string name, double value) {
    context_.metrics()[name] = latest_[name] = value;
    record.values.emplace_back(std::move(name), value);
  };
  if (parts_.world != nullptr) merge(parts_.metrics, context_.number_, *parts_.world);
  if (const std::optional<double> loss = bench_.take_loss()) put("train/loss", *loss);
  each_metric(
      parts_, latest_, "train", [&](std::size_t member) { return bench_.take_loss(member); }, put);
  put("lr", parts_.optimizer.plugin->groups().front().lr);
  if (bench_.gradient_norm().defined()) put("gradient_norm", bench_.gradient_norm().item().toDouble());
  if (const std::optional<double> scale = bench_.fp16_scale()) put("loss_scale", *scale);
  const auto now = SteadyClock::now();
  put("samples_per_second", static_cast<double>(context_.clock_.samples - samples_logged_) /
                                std::chrono::duration<double>(now - logged_at_).count());
  logged_at_ = now;
  samples_logged_ = context_.clock_.samples;
  for (const auto& [name, value] : std::exchange(extra_, {})) put(name, value);
  parts_.host->record(std::move(record));
}

MetricValues Loop::evaluate(const EvaluationSplit& split) {
  const auto began = SteadyClock::now();
  const MetricValues values = pass_over(split);
  if (values.empty()) return values;
  parts_.host->record({.what = Record::What::eval,
                       .step = context_.clock_.step,
                       .epoch = context_.clock_.epoch,
                       .seconds = seconds_trained(),
                       .values = {values.begin(), values.end()}});
  logged_at_ += SteadyClock::now() - began;  // throughput counts training only
  return values;
}

MetricValues Loop::evaluate_silently(const EvaluationSplit& split) {
  looking_ = true;
  return pass_over(split);
}

/// Counts each member's result on a batch, if an open executor has several; returns the leader's.
Graded Loop::evaluate(const Batch& batch, const ForwardContext& pass, std::vector<LossMeter>& losses) {
  if (losses.empty() || !bench_.is_open()) return bench_.evaluate(batch, pass);
  const std::vector<Graded> all = bench_.evaluate_all(batch, pass);
  for (std::size_t member = 0; member < losses.size(); ++member) {
    const Graded& graded = all.at(member);
    if (!graded.loss.defined()) continue;
    losses[member].add(graded.loss, batch.weight);
    update(parts_.member_metrics[member], context_.number_, graded.output, graded.loss, batch);
  }
  return all.at(parts_.executor.plugin->leader());
}

MetricValues Loop::pass_over(const EvaluationSplit& split) {
  const std::int64_t step_done = context_.clock_.step;
  const events::SpanScope span(Span::What::phase, "evaluation");
  settle(Executor::Pause::evaluation);
  seconds_.timing = false;  // only training is timed
  const at::NoGradGuard no_grad;
  reset_metrics(parts_);
  // If a signal cuts this pass short, the values of the last one would pass for new ones.
  std::erase_if(context_.metrics(),
                [&](const auto& each) { return each.first.starts_with(split.name + "/"); });
  LossMeter losses;
  std::vector<LossMeter> member_losses(parts_.member_metrics.size());
  context_.evaluating_ = true;
  context_.split_ = split.name;
  ForwardContext pass{.step = static_cast<std::uint64_t>(step_done)};
  auto of_training = std::exchange(extra_, {});  // kept for the next log point
  MetricValues values;
  brackets_.bracket(Event::eval_start, Event::eval_end, [&] {
    split.loader->seek(0, 0);
    parts_.owner->begin_evaluation();
    const auto ranks = static_cast<std::uint32_t>(parts_.world != nullptr ? parts_.world->size() : 1);
    while (std::optional<data::StepData> step = split.loader->next()) {
      const BatchScope batch_scope(context_);
      pass.micro =
          static_cast<std::uint32_t>(step->step) * ranks + static_cast<std::uint32_t>(step->first_micro);
      for (Batch& batch : step->batches) {
        move_to(parts_.device, floats_of(parts_.config->trainer.precision), batch);
        context_.batch_ = &batch;
        brackets_.bracket(Event::eval_batch_start, Event::eval_batch_end, [&] {
          if (context_.take(Control::skip_batch) || batch.weight <= 0.0) return;
          Graded graded = evaluate(batch, pass, member_losses);
          context_.output_ = std::move(graded.output);
          context_.loss_ = std::move(graded.loss);
          losses.add(context_.loss_, batch.weight);
          update(parts_.metrics, context_.number_, context_.output_, context_.loss_, batch);
        });
        context_.output_.reset();
        context_.loss_.reset();
      }
      if (signalled()) break;
    }
    parts_.owner->end_evaluation();
    if (signalled()) return;  // half a pass gives no value
    merge_ranks(parts_, losses);
    values[split.name + "/loss"] = losses.take().value_or(std::nan(""));
    const auto put = [&](std::string name, double value) { values[std::move(name)] = value; };
    each_metric(
        parts_, latest_, split.name, [&](std::size_t member) { return member_losses[member].take(); }, put);
    for (const auto& [name, value] : values) context_.metrics()[name] = latest_[name] = value;
  });
  context_.evaluating_ = false;
  context_.split_ = "train";
  for (const auto& [name, value] : std::exchange(extra_, std::move(of_training)))
    if (!values.empty()) values[name] = latest_[name] = value;
  if (parts_.world == nullptr) return values;
  // Hooks made values of one rank's batches: all ranks use those of the first.
  values = distributed::from_first(*parts_.world, values);
  for (const auto& [name, value] : values) context_.metrics()[name] = latest_[name] = value;
  return values;
}

}  // namespace trainyard::train
