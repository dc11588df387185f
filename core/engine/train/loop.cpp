#include "core/engine/train/loop.hpp"

#include <ATen/core/grad_mode.h>

#include <bit>
#include <cmath>
#include <utility>

#include <trainyard/error.hpp>

#include "core/engine/train/device.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/loss_meter.hpp"

namespace trainyard::train {
namespace {

/// The time inside plugins is taken every so many steps.
constexpr std::int64_t timed_one_in = 32;

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

Loop::Loop(LoopParts& parts)
    : parts_(parts), context_(*parts_.context), brackets_(parts), bench_(parts, seconds_) {
  const config::TrainerKeys& trainer = parts_.config->trainer;
  if (trainer.eval_interval)
    evaluate_every_ = in_steps(*trainer.eval_interval, parts_.scale, "trainer.eval_interval");
  context_.on_request = [this](std::string_view plugin, Control control, std::string_view reason) {
    parts_.host->journal(plugin, control_names[std::countr_zero(static_cast<unsigned>(control))], reason);
  };
}

/// Where the run can go back from an error, the body goes on from there.
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
    if (context_.clock_.step > 0) last_saved_ = context_.clock_.step;  // it came from there
    if (signalled()) interrupt(Ending::signal);  // it came while the run was being built
    recovering([&] { train(); });
    if (parts_.saver != nullptr) parts_.saver->drain();
    settle_checkpoints();
  });
  return ending_.value_or(Ending::completed);
}

void Loop::train() {
  while (!ending_ && (in_epoch_ || !finished())) run_epoch();
  if (ending_ != Ending::signal && ending_ != Ending::wall_time) bench_.settle(Executor::Pause::end);
  if (ending_ != Ending::signal && ending_ != Ending::wall_time) evaluate_all();
  if (ending_ != Ending::signal && ending_ != Ending::wall_time) parts_.host->closing();
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
    brackets_.close_after(Event::epoch_end, steps);
  else
    brackets_.bracket(Event::epoch_start, Event::epoch_end, steps);
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
    parts_.host->at_safe_point();  // what comes at this safe point after what was loaded was saved
  while (!finished() && !end_epoch_ &&
         context_.clock_.step_in_epoch < parts_.train.plugin->steps_per_epoch()) {
    run_step();
    after_batch();
  }
}

void Loop::run_step() {
  arrived_ = false;  // what comes from here on comes by steps
  context_.number_ = context_.clock_.step + 1;
  const bool logging = parts_.host->log_due(context_.number_);
  seconds_.timing = context_.number_ % timed_one_in == 0;
  seconds_.timed_steps += seconds_.timing;
  parts_.bus->set_timing(seconds_.timing);

  data::StepData data;
  const BatchScope batch_scope(context_);
  brackets_.bracket(Event::before_fetch, Event::after_fetch, [&] {
    const Timer timer(seconds_, &PhaseSeconds::data);
    data = guarded(*parts_.train.slot, context_.number_, [&] { return *parts_.train.plugin->next(); });
    for (Batch& batch : data.batches) move_to(parts_.device, batch);
    context_.batch_ = &data.batches.front();
  });
  brackets_.bracket(Event::batch_start, Event::batch_end, [&] {
    Clock& clock = context_.clock_;
    if (logging) reset(parts_.metrics, context_.number_);
    if (!context_.take(Control::skip_batch)) {
      StepWork work{data.batches, data.weight, clock.step, clock.samples};
      bench_.step(work, logging);
    }
    ++clock.step;
    ++clock.step_in_epoch;
    clock.samples += data.samples;
    clock.tokens += data.samples * parts_.scale.tokens_per_sample;
    if (logging) log_point();
  });
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
  brackets_.fire(Event::safe_point);
  poll();
  const std::int64_t every = parts_.saver != nullptr ? parts_.saver->every() : 0;
  if (!context_.take(Control::checkpoint) && (every == 0 || (step % every != 0 && !finished()))) return;
  checkpoint();
}

void Loop::poll() {
  parts_.owner->check_threads();
  if (parts_.bus->stale())
    for (const events::Subscriber* disabled : parts_.bus->rebuild())
      parts_.host->journal(disabled->participant.id, "disabled", disabled->error);
  settle_checkpoints();
  parts_.host->at_safe_point();
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
  if (ending == Ending::signal) brackets_.fire(Event::signal);
  ending_ = ending;
  checkpoint();
}

void Loop::checkpoint() {
  if (parts_.saver == nullptr || last_saved_ == context_.clock_.step) return;
  bench_.settle(Executor::Pause::checkpoint);
  brackets_.fire(Event::before_checkpoint);
  if (context_.take(Control::skip_checkpoint) && !ending_) return;
  parts_.saver->save();
  last_saved_ = context_.clock_.step;
  settle_checkpoints();
}

void Loop::request(Control control, std::string_view who, std::string_view why) {
  context_.set_requests(context_.requests() | static_cast<unsigned>(control));
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
  state.scalar("requests", static_cast<std::int64_t>(context_.requests()));
  state.scalar("seconds", seconds_trained());
  state.scalar("evaluation_due", evaluation_due_);
  state.scalar("last_evaluated", last_evaluated_);
  state.scalar("best", best_);
  state.scalar("evaluations_without_gain", evaluations_without_gain_);
  bench_.save(state);
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
  bench_.load(state);
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

void Loop::log_point() {
  Record record{.what = Record::What::train,
                .step = context_.clock_.step,
                .epoch = context_.clock_.epoch,
                .seconds = seconds_trained()};
  const auto put = [&](std::string name, double value) {
    context_.metrics()[name] = latest_[name] = value;
    record.values.emplace_back(std::move(name), value);
  };
  if (const std::optional<double> loss = bench_.take_loss()) put("train/loss", *loss);
  each_value(parts_.metrics, context_.number_, "train", put);
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
  const MetricValues values = look(split);
  if (values.empty()) return values;
  Record record{.what = Record::What::eval,
                .step = context_.clock_.step,
                .epoch = context_.clock_.epoch,
                .seconds = seconds_trained()};
  record.values.assign(values.begin(), values.end());
  parts_.host->record(std::move(record));
  logged_at_ += SteadyClock::now() - began;  // throughput is that of training
  return values;
}

MetricValues Loop::look(const EvaluationSplit& split) {
  const std::int64_t step_done = context_.clock_.step;
  bench_.settle(Executor::Pause::evaluation);
  seconds_.timing = false;  // what is timed is training
  const at::NoGradGuard no_grad;
  reset(parts_.metrics, context_.number_);
  // At the end of one that a signal cut short, those of the last one would pass for new.
  std::erase_if(context_.metrics(),
                [&](const auto& each) { return each.first.starts_with(split.name + "/"); });
  LossMeter losses;
  context_.evaluating_ = true;
  context_.split_ = split.name;
  ForwardContext pass{.step = static_cast<std::uint64_t>(step_done)};
  auto of_training = std::exchange(extra_, {});  // for its next log point
  MetricValues values;
  brackets_.bracket(Event::eval_start, Event::eval_end, [&] {
    split.loader->seek(0, 0);
    while (std::optional<data::StepData> step = split.loader->next()) {
      const BatchScope batch_scope(context_);
      for (Batch& batch : step->batches) {
        move_to(parts_.device, batch);
        context_.batch_ = &batch;
        brackets_.bracket(Event::eval_batch_start, Event::eval_batch_end, [&] {
          if (context_.take(Control::skip_batch) || batch.weight <= 0.0) return;
          Graded graded = bench_.evaluate(batch, pass);
          context_.output_ = std::move(graded.output);
          context_.loss_ = std::move(graded.loss);
          losses.add(context_.loss_, batch.weight);
          update(parts_.metrics, context_.number_, context_.output_, context_.loss_, batch);
        });
        ++pass.micro;
        context_.output_.reset();
        context_.loss_.reset();
      }
      if (signalled()) return;  // half a pass gives no value
    }
    values[split.name + "/loss"] = losses.take().value_or(std::nan(""));
    each_value(parts_.metrics, context_.number_, split.name,
               [&](std::string name, double value) { values[std::move(name)] = value; });
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
  parts_.host->journal("early_stopping", "stop_run",
                       rule.metric + " did not improve on " + std::to_string(maximize ? best_ : -best_) +
                           " for " + std::to_string(evaluations_without_gain_) + " evaluations");
}

}  // namespace trainyard::train
