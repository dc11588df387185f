#include "core/engine/train/loop.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <utility>

#include <trainyard/error.hpp>

#include "core/engine/train/autocast.hpp"
#include "core/engine/train/gradients.hpp"
#include "core/engine/train/guard.hpp"

namespace trainyard::train {
namespace {

/// Every so many steps the time inside plugins is taken; two clock reads a call would cost more than the
/// calls.
constexpr std::int64_t timed_one_in = 32;

/// Adds the length of a scope where `seconds` is not null.
class Timer {
 public:
  explicit Timer(double* seconds) : seconds_(seconds) {
    if (seconds_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~Timer() {
    if (seconds_ != nullptr)
      *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_;
};

/// Whatever happens, the context does not keep a batch that is gone.
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

}  // namespace

Loop::Loop(LoopParts& parts) : parts_(parts), context_(*parts_.context) {
  const config::RunConfig& config = *parts_.config;
  for (const NamedTensor& parameter : parts_.network.plugin->parameters())
    parameters_.push_back(parameter.tensor);
  if (config.trainer.precision == config::TrainerKeys::Precision::fp16_mixed) scaler_.emplace();
  if (config.trainer.eval_interval)
    evaluate_every_ = in_steps(*config.trainer.eval_interval, parts_.scale, "trainer.eval_interval");
  context_.on_request = [this](std::string_view plugin, Control control, std::string_view reason) {
    parts_.journal(plugin, control_names[std::countr_zero(static_cast<unsigned>(control))], reason);
  };
}

template <class Body>
void Loop::bracket(Event open, const Event& close, Body&& body) {
  close_after(close, [&] {
    fire(open);
    body();
  });
}

template <class Body>
void Loop::close_after(const Event& close, Body&& body) {
  try {
    body();
  } catch (...) {
    try {
      fire(close);
    } catch (const Error& error) {
      parts_.journal("host", "error while closing after an error", error.what());
    }
    throw;
  }
  fire(close);
}

/// Where the run can go back from an error, the body goes on from there.
template <class Body>
void Loop::recovering(Body&& body) {
  for (;;) {
    try {
      return body();
    } catch (const Error& error) {
      if (!parts_.recover(error)) throw;
      ending_.reset();  // whatever ends the run does so again
    }
  }
}

Ending Loop::fit(const std::function<void()>& restore) {
  ending_.reset();
  started_ = logged_at_ = SteadyClock::now();
  bracket(Event::fit_start, Event::fit_end, [&] {
    restore();
    parts_.train.plugin->seek(context_.clock_.epoch, context_.clock_.step_in_epoch);
    if (context_.clock_.step > 0) last_saved_ = context_.clock_.step;  // it came from there
    if (signalled()) interrupt(Ending::signal);  // it came while the run was being built
    recovering([&] { train(); });
    parts_.checkpoint.drain();
    settle_checkpoints();
  });
  return ending_.value_or(Ending::completed);
}

void Loop::train() {
  while (!ending_ && (in_epoch_ || !finished())) run_epoch();
  if (ending_ != Ending::signal && ending_ != Ending::wall_time) evaluate_all();
  if (ending_ != Ending::signal && ending_ != Ending::wall_time) parts_.closing();
}

/// At the end of a training. What a signal cuts short is made anew when the run is resumed.
void Loop::evaluate_all() {
  for (const EvaluationSplit& split : parts_.evaluations)
    if (&split != &parts_.evaluations.front() || last_evaluated_ != context_.clock_.step)
      if (evaluate(split).empty()) return interrupt(Ending::signal);
}

/// What ends a run stays in its state: one that was killed after its last checkpoint ends the same way.
bool Loop::finished() {
  if (!ending_ && context_.asked(Control::stop_run)) ending_ = Ending::stopped;
  if (!ending_ && parts_.config->early_stopping && evaluations_without_gain_ >= patience())
    ending_ = Ending::early_stopping;
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
    close_after(Event::epoch_end, steps);
  else
    bracket(Event::epoch_start, Event::epoch_end, steps);
  in_epoch_ = false;
  if (!end_epoch_ && context_.clock_.step_in_epoch < parts_.train.plugin->steps_per_epoch()) return;
  ++context_.clock_.epoch;
  context_.clock_.step_in_epoch = 0;
  if (end_epoch_) parts_.train.plugin->seek(context_.clock_.epoch, 0);
}

/// To the end of the epoch, or of the training.
void Loop::run_steps() {
  if (evaluation_due_)
    after_batch();
  else if (std::exchange(arrived_, false))
    parts_.control();  // what comes at this safe point after what was loaded was saved
  while (!finished() && !end_epoch_ &&
         context_.clock_.step_in_epoch < parts_.train.plugin->steps_per_epoch()) {
    run_step();
    after_batch();
  }
}

void Loop::run_step() {
  arrived_ = false;  // what comes from here on comes by steps
  context_.number_ = context_.clock_.step + 1;
  logging_ = parts_.log_due(context_.number_);
  timing_ = context_.number_ % timed_one_in == 0;
  seconds_.timed_steps += timing_;
  parts_.bus->set_timing(timing_);

  data::StepData step;
  const BatchScope batch_scope(context_);
  bracket(Event::before_fetch, Event::after_fetch, [&] {
    const Timer timer(timing_ ? &seconds_.data : nullptr);
    step = guarded(*parts_.train.slot, context_.number_, [&] { return *parts_.train.plugin->next(); });
    for (Batch& batch : step.batches) move_to_device(batch);
    context_.batch_ = &step.batches.front();
  });
  bracket(Event::batch_start, Event::batch_end, [&] {
    if (logging_) reset_metrics();
    if (!context_.take(Control::skip_batch)) update(step);
    Clock& clock = context_.clock_;
    ++clock.step;
    ++clock.step_in_epoch;
    clock.samples += step.samples;
    clock.tokens += step.samples * parts_.scale.tokens_per_sample;
    if (logging_) log_point();
  });
}

void Loop::compute_gradients(data::StepData& step) {
  clear_gradients(parameters_);
  context_.micros_ = static_cast<int>(step.batches.size());
  context_.loss_scale_ = scaler_ ? static_cast<double>(scaler_->scale()) : 1.0;
  StepPart part{.before = context_.clock_.samples};
  for (const Batch& batch : step.batches) part.samples += batch.size();
  for (std::size_t i = 0; i < step.batches.size(); ++i) {
    Batch& batch = step.batches[i];
    part.first += std::exchange(part.count, batch.size());
    context_.micro_ = static_cast<int>(i);
    context_.batch_ = &batch;
    context_.loss_share_ = step.weight > 0.0 ? batch.weight / step.weight : 0.0;
    bracket(Event::micro_start, Event::micro_end, [&] { run_micro(batch, part); });
    context_.output_.reset();
    context_.loss_.reset();
  }
}

/// What the schedule says of the step to come, into the optimizer's groups.
void Loop::set_rates() {
  const auto [factor, momentum] = guarded(*parts_.schedule.slot, context_.number_, [&] {
    return std::pair(parts_.schedule.plugin->factor(updates_), parts_.schedule.plugin->momentum(updates_));
  });
  for (ParamGroup& group : parts_.optimizer.plugin->groups()) {
    group.lr = group.base_lr * factor;
    group.momentum = momentum;
  }
}

void Loop::update(data::StepData& step) {
  context_.repeats_ = 0;
  do {
    compute_gradients(step);
    const at::NoGradGuard no_grad;
    const bool finite = prepare_gradients();
    set_rates();
    context_.skip_reason_ = SkipReason::guard;  // until the step is done: what throws on the way skips it
    Event closing = Event::step_skipped;
    bracket(Event::before_step, closing, [&] {
      const bool skip = context_.take(Control::skip_step);
      const bool repeat = context_.take(Control::repeat_step);
      context_.skip_reason_ = !finite  ? SkipReason::overflow
                              : skip   ? SkipReason::plugin
                              : repeat ? SkipReason::repeat
                                       : SkipReason::guard;
      if (!finite || skip || repeat) return;
      const Timer timer(timing_ ? &seconds_.optimizer : nullptr);
      guarded(*parts_.optimizer.slot, context_.number_, [&] { parts_.optimizer.plugin->step(); });
      ++updates_;
      context_.skip_reason_ = SkipReason::none;
      closing = Event::after_step;
    });
    if (context_.skip_reason_ != SkipReason::repeat && scaler_) scaler_->update(finite);
  } while (context_.skip_reason_ == SkipReason::repeat && repeated());
}

/// Counts a repetition of the step, within bounds.
bool Loop::repeated() {
  if (context_.repeats_ == most_repeats)
    throw PluginError("step " + std::to_string(context_.number_) + " was to be repeated a " +
                      std::to_string(most_repeats + 1) + "th time; " + std::to_string(most_repeats) +
                      " are allowed: the plugin that asks for repeat_step at before_step does not end");
  ++context_.repeats_;
  return true;
}

void Loop::run_micro(Batch& batch, const StepPart& part) {
  const config::RunConfig& config = *parts_.config;
  if (batch.weight <= 0.0) return;  // nothing in it counts; its mean would be 0/0
  const ForwardContext pass{.training = true,
                            .step = static_cast<std::uint64_t>(context_.clock_.step),
                            .micro = static_cast<std::uint32_t>(context_.micro_),
                            .part = part};
  {
    const AutocastScope autocast(parts_.device.type(), config.trainer.precision);
    bracket(Event::before_forward, Event::after_forward, [&] {
      if (context_.asked(Control::skip_micro)) return;
      const Timer timer(timing_ ? &seconds_.model : nullptr);
      context_.output_ = guarded(*parts_.network.slot, context_.number_,
                                 [&] { return parts_.network.plugin->forward(batch, pass); });
    });
    if (context_.take(Control::skip_micro)) return;
    bracket(Event::before_loss, Event::after_loss, [&] {
      const Timer timer(timing_ ? &seconds_.loss : nullptr);
      context_.loss_ = guarded(*parts_.loss.slot, context_.number_,
                               [&] { return parts_.loss.plugin->forward(context_.output_, batch); });
    });
  }
  const bool first_pass = context_.repeats_ == 0;  // what a repetition looks at is not the training's loss
  if (!loss_meter_.add(context_.loss_, first_pass ? batch.weight : 0.0))
    refuse_loss(context_.loss_.item().toDouble());
  bracket(Event::before_backward, Event::after_backward, [&] {
    if (context_.take(Control::skip_micro)) return;
    const Timer timer(timing_ ? &seconds_.backward : nullptr);
    guarded(*parts_.network.slot, context_.number_,
            [&] { context_.loss_.backward(backward_root(context_.loss_share_ * context_.loss_scale_)); });
  });
  if (!logging_ || !first_pass) return;
  const at::NoGradGuard no_grad;
  const at::Tensor output = context_.output_.detach().to(at::kFloat);
  update_metrics(output, context_.loss_.detach(), batch);
}

void Loop::refuse_loss(double loss) const {
  throw NumericError("the training loss is " + std::to_string(loss) + " at step " +
                     std::to_string(context_.number_) +
                     ": lower optimizer.lr, add trainer.grad_clip, or look at the data of this batch");
}

/// The gradient that backward starts from carries share and scale, so that weighting a micro-batch costs
/// nothing.
at::Tensor Loop::backward_root(double factor) {
  if (!root_.defined() || factor != root_factor_ || root_.scalar_type() != context_.loss_.scalar_type()) {
    root_ = at::full({}, factor, context_.loss_.options());
    root_factor_ = factor;
  }
  return root_;
}

/// Unscales and clips. False where fp16 overflowed: the step is to be skipped.
bool Loop::prepare_gradients() {
  if (!scaler_ && !parts_.config->grad_clip) return true;
  std::vector<at::Tensor> gradients = gradients_of(parameters_);
  if (scaler_) {
    if (!scaler_->unscale(gradients)) return false;
  }
  if (parts_.config->grad_clip) gradient_norm_ = clip(gradients, *parts_.config->grad_clip);
  return true;
}

/// What comes between one step and the next: evaluation, the safe point, and a checkpoint, which is last so
/// that it holds what hooks and commands of the safe point did, and nothing has to be fired twice.
void Loop::after_batch() {
  const std::int64_t step = context_.clock_.step;
  if (context_.take(Control::evaluate) || (evaluate_every_ > 0 && step % evaluate_every_ == 0))
    evaluation_due_ = !parts_.evaluations.empty() && last_evaluated_ != step;
  if (evaluation_due_) {
    const auto values = evaluate(parts_.evaluations.front());
    if (values.empty()) return interrupt(Ending::signal);
    watch(values);
    last_evaluated_ = step;
    evaluation_due_ = false;
  }
  fire(Event::safe_point);
  poll();
  const std::int64_t every = parts_.checkpoint.every;
  if (!context_.take(Control::checkpoint) && (every == 0 || (step % every != 0 && !finished()))) return;
  checkpoint();
}

void Loop::poll() {
  parts_.check_threads();
  if (parts_.bus->stale())
    for (const events::Subscriber* disabled : parts_.bus->rebuild())
      parts_.journal(disabled->participant.id, "disabled", disabled->error);
  settle_checkpoints();
  parts_.control();
  end_epoch_ = context_.take(Control::stop_epoch);
  const config::RunConfig& config = *parts_.config;
  if (signalled()) return interrupt(Ending::signal);
  if (config.trainer.max_wall_time && elapsed() >= config.trainer.max_wall_time->count)
    return interrupt(Ending::wall_time);
  if (config.trainer.max_duration.unit == Duration::Unit::seconds &&
      seconds_trained() >= config.trainer.max_duration.count)
    ending_ = Ending::completed;
}

/// Ends the training such that it can be resumed where it stands.
void Loop::interrupt(Ending ending) {
  if (ending == Ending::signal) fire(Event::signal);
  ending_ = ending;
  checkpoint();
}

void Loop::checkpoint() {
  if (!parts_.checkpoint.save || last_saved_ == context_.clock_.step) return;
  fire(Event::before_checkpoint);
  if (context_.take(Control::skip_checkpoint) && !ending_) return;
  parts_.checkpoint.save();
  last_saved_ = context_.clock_.step;
  settle_checkpoints();
}

void Loop::request(Control control, std::string_view who, std::string_view why) {
  context_.set_requests(context_.requests() | static_cast<unsigned>(control));
  parts_.journal(who, control_names[std::countr_zero(static_cast<unsigned>(control))], why);
}

void Loop::settle_checkpoints() {
  while (parts_.checkpoint.committed()) fire(Event::after_checkpoint);
}

void Loop::save(StateWriter& state) const {
  const Clock& clock = context_.clock_;
  state.scalar("step", clock.step);
  state.scalar("updates", updates_);
  state.scalar("epoch", clock.epoch);
  state.scalar("step_in_epoch", clock.step_in_epoch);
  state.scalar("in_epoch", in_epoch_);
  state.scalar("end_epoch", end_epoch_);
  state.scalar("samples", clock.samples);
  state.scalar("tokens", clock.tokens);
  state.scalar("requests", static_cast<std::int64_t>(context_.requests()));
  state.scalar("seconds", seconds_trained());
  state.scalar("evaluation_due", evaluation_due_);
  state.scalar("last_evaluated", last_evaluated_);
  state.scalar("best", best_);
  state.scalar("evaluations_without_gain", evaluations_without_gain_);
  loss_meter_.save(state);
  if (scaler_) scaler_->save(state);
  for (const auto& [name, value] : latest_) state.scalar("latest/" + name, value);
  for (const auto& [name, value] : extra_) state.scalar("extra/" + name, value);
}

void Loop::load(const State& saved) {
  const StateReader state(saved);
  Clock& clock = context_.clock_;
  clock.step = state.integer("step");
  updates_ = state.integer("updates");
  clock.epoch = state.integer("epoch");
  clock.step_in_epoch = state.integer("step_in_epoch");
  in_epoch_ = state.boolean("in_epoch");
  end_epoch_ = state.boolean("end_epoch");
  clock.samples = state.integer("samples");
  clock.tokens = state.integer("tokens");
  context_.number_ = clock.step;
  // Another course leads on from here, and nothing of a step or an evaluation that failed.
  last_saved_ = -1;
  arrived_ = true;
  context_.evaluating_ = false;
  context_.split_ = "train";
  context_.output_.reset();
  context_.loss_.reset();
  context_.set_requests(static_cast<unsigned>(state.integer("requests")));
  seconds_before_ = state.number("seconds") - elapsed();
  evaluation_due_ = state.boolean("evaluation_due");
  last_evaluated_ = state.integer("last_evaluated");
  best_ = state.number("best");
  evaluations_without_gain_ = state.integer("evaluations_without_gain");
  loss_meter_.load(state);
  if (scaler_) scaler_->load(state);
  const auto numbers = [&](const std::string& prefix) {
    std::map<std::string, double, std::less<>> values;
    for (auto each = saved.scalars.lower_bound(prefix);
         each != saved.scalars.end() && each->first.starts_with(prefix); ++each)
      values.emplace(each->first.substr(prefix.size()), state.number(each->first));
    return values;
  };
  latest_ = numbers("latest/");
  extra_ = numbers("extra/");
  context_.metrics() = latest_;
  samples_logged_ = clock.samples;
  logged_at_ = SteadyClock::now();
}

void Loop::reset_metrics() {
  for (const Filled<Metric>& each : parts_.metrics)
    guarded(*each.slot, context_.number_, [&] { each.plugin->reset(); });
}

void Loop::update_metrics(const at::Tensor& output, const at::Tensor& loss, const Batch& batch) {
  for (const Filled<Metric>& each : parts_.metrics)
    guarded(*each.slot, context_.number_, [&] { each.plugin->update(output, loss, batch); });
}

/// Gives "train/accuracy", or "train/top_k.top_5" of a metric with several values.
template <class Take>
void Loop::each_metric_value(const std::string& prefix, Take&& take) {
  for (const Filled<Metric>& each : parts_.metrics)
    guarded(*each.slot, context_.number_, [&] {
      const std::vector<std::string> names = each.plugin->names();
      const std::vector<double> values = each.plugin->compute();
      for (std::size_t i = 0; i < values.size(); ++i)
        take(prefix + "/" + each.slot->id + (values.size() == 1 ? "" : "." + names.at(i)), values[i]);
    });
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
  if (const std::optional<double> loss = loss_meter_.take()) {
    // On a GPU this is the first look at the loss. An overflow of fp16 is the scaler's business.
    if (!scaler_ && !std::isfinite(*loss)) refuse_loss(*loss);
    put("train/loss", *loss);
  }
  each_metric_value("train", put);
  put("lr", parts_.optimizer.plugin->groups().front().lr);
  if (gradient_norm_.defined()) put("gradient_norm", gradient_norm_.item().toDouble());
  if (scaler_) put("loss_scale", static_cast<double>(scaler_->scale()));
  const auto now = SteadyClock::now();
  put("samples_per_second", static_cast<double>(context_.clock_.samples - samples_logged_) /
                                std::chrono::duration<double>(now - logged_at_).count());
  logged_at_ = now;
  samples_logged_ = context_.clock_.samples;
  for (const auto& [name, value] : std::exchange(extra_, {})) put(name, value);
  parts_.record(std::move(record));
}

MetricValues Loop::evaluate(const EvaluationSplit& split) {
  const auto began = SteadyClock::now();
  const MetricValues values = look(split);
  if (values.empty()) return values;
  Record record{.what = Record::What::eval,
                .step = context_.clock_.step,
                .epoch = context_.clock_.epoch,
                .seconds = seconds_trained()};
  record.values.assign(values.begin(), values.end());
  parts_.record(std::move(record));
  logged_at_ += SteadyClock::now() - began;  // throughput is that of training
  return values;
}

MetricValues Loop::look(const EvaluationSplit& split) {
  const std::int64_t step_done = context_.clock_.step;
  const at::NoGradGuard no_grad;
  reset_metrics();
  // At the end of one that a signal cut short, those of the last one would pass for new.
  std::erase_if(context_.metrics(),
                [&](const auto& each) { return each.first.starts_with(split.name + "/"); });
  LossMeter losses;
  context_.evaluating_ = true;
  context_.split_ = split.name;
  ForwardContext pass{.step = static_cast<std::uint64_t>(step_done)};
  auto of_training = std::exchange(extra_, {});  // for its next log point
  MetricValues values;
  bracket(Event::eval_start, Event::eval_end, [&] {
    split.loader->seek(0, 0);
    while (std::optional<data::StepData> step = split.loader->next()) {
      const BatchScope batch_scope(context_);
      for (Batch& batch : step->batches) {
        move_to_device(batch);
        context_.batch_ = &batch;
        bracket(Event::eval_batch_start, Event::eval_batch_end, [&] {
          if (context_.take(Control::skip_batch) || batch.weight <= 0.0) return;
          const AutocastScope autocast(parts_.device.type(), parts_.config->trainer.precision);
          context_.output_ = guarded(*parts_.network.slot, step_done, [&] {
                               return parts_.network.plugin->forward(batch, pass);
                             }).to(at::kFloat);
          context_.loss_ = guarded(*parts_.loss.slot, step_done,
                                   [&] { return parts_.loss.plugin->forward(context_.output_, batch); });
          losses.add(context_.loss_, batch.weight);
          update_metrics(context_.output_, context_.loss_, batch);
        });
        ++pass.micro;
        context_.output_.reset();
        context_.loss_.reset();
      }
      if (signalled()) return;  // half a pass gives no value
    }
    values[split.name + "/loss"] = losses.take().value_or(std::nan(""));
    each_metric_value(split.name, [&](std::string name, double value) { values[std::move(name)] = value; });
    for (const auto& [name, value] : values) context_.metrics()[name] = latest_[name] = value;
  });
  context_.evaluating_ = false;
  context_.split_ = "train";
  for (const auto& [name, value] : std::exchange(extra_, std::move(of_training)))
    if (!values.empty()) values[name] = latest_[name] = value;
  return values;
}

std::int64_t Loop::patience() const {
  return std::max<std::int64_t>(1, parts_.config->early_stopping->patience);
}

void Loop::watch(const MetricValues& values) {
  if (!parts_.config->early_stopping) return;
  const config::EarlyStopping& rule = *parts_.config->early_stopping;
  const bool maximize = rule.mode == config::EarlyStopping::Mode::max;
  const auto found = values.find(rule.metric);
  if (found == values.end()) return;
  const double value = maximize ? found->second : -found->second;
  if (!std::isnan(value) && value > best_ + rule.min_delta) {
    best_ = value;
    evaluations_without_gain_ = 0;
    return;
  }
  if (++evaluations_without_gain_ != patience()) return;
  parts_.journal("early_stopping", "stop_run",
                 rule.metric + " did not improve on " + std::to_string(maximize ? best_ : -best_) + " for " +
                     std::to_string(evaluations_without_gain_) + " evaluations");
}

void Loop::move_to_device(Batch& batch) const {
  if (parts_.device.is_cpu()) return;
  for (at::Tensor& input : batch.inputs) input = input.to(parts_.device, /*non_blocking=*/true);
  batch.target = batch.target.to(parts_.device, /*non_blocking=*/true);
}

}  // namespace trainyard::train
