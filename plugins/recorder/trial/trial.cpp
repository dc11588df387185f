// The recorder of a trial: takes tensors at the steps that collections and rules ask for, shows them to the
// rules on a thread of its own, writes them on another, and does in the loop what a rule's action says. After
// SageMaker Debugger (Rauschmayr et al., "Amazon SageMaker Debugger: A System for Real-Time Insights into
// Machine Learning Model Training", MLSys 2021).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>

#include <trainyard/host.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/recorder.hpp>
#include <trainyard/state.hpp>

#include "capture.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "phases.hpp"
#include "plan.hpp"
#include "store.hpp"
#include "watcher.hpp"

namespace {

using namespace trainyard;
using namespace trial;
using std::chrono::milliseconds;

constexpr milliseconds sampling_interval{500};
/// A checkpoint waits so long for the rules to have seen what came before it.
constexpr milliseconds checkpoint_patience{1000};
/// The end of a run waits so long for them, and for the disk.
constexpr milliseconds end_patience{10000};

class TrialRecorder final : public Recorder {
 public:
  using Options = trial::Options;
  static void describe(Manifest<Options>& m) {
    using enum Event;
    using R = TrialRecorder;
    m.name("trial").version("1.1.0").summary(
        "Records tensors of a run as a trial, runs rules over it and acts on what they find.");
    m.needs("prefers losses where save = true and dry_run = false");
    Options::describe(m);
    m.hook<&R::fit_start>(fit_start);
    m.hook<&R::before_load>(before_load);
    m.hook<&R::before_fetch>(before_fetch);
    m.hook<&R::after_fetch>(after_fetch);
    m.hook<&R::batch_start>(batch_start);
    m.hook<&R::before_forward>(before_forward);
    m.hook<&R::after_forward>(after_forward);
    m.hook<&R::before_loss>(before_loss);
    m.hook<&R::after_loss>(after_loss);
    m.hook<&R::before_backward>(before_backward);
    m.hook<&R::after_backward>(after_backward);
    m.hook<&R::micro_end>(micro_end);
    m.hook<&R::before_step>(before_step).writes(Region::hyper | Region::control);
    m.hook<&R::step_ended>(after_step);
    m.hook<&R::step_ended>(step_skipped);
    m.hook<&R::batch_end>(batch_end);
    m.hook<&R::eval_batch_start>(eval_batch_start);
    m.hook<&R::eval_batch_end>(eval_batch_end);
    m.hook<&R::eval_end>(eval_end);
    m.hook<&R::safe_point>(safe_point).writes(Region::control);
    m.hook<&R::before_checkpoint>(before_checkpoint);
    m.hook<&R::swap_out>(swap_out);
    m.hook<&R::swap_in>(swap_in);
    m.hook<&R::fit_end>(fit_end);
  }
  explicit TrialRecorder(const Options& options)
      : options_(options), storing_(options.save && !options.dry_run) {}

  void open(const RunInfo& run) override {
    const auto most = static_cast<std::size_t>(options_.queue);
    opened_ = std::chrono::steady_clock::now();
    loader_workers_ = run.loader_workers;
    saved_ = saved_collections(options_);
    agenda_.emplace(saved_, known_collections(saved_));
    watcher_.emplace(known_collections(saved_), most, host(), run.directory, !options_.dry_run);
    store_.emplace(run.directory + "/trial", saved_, options_.tensorboard, most, host());
  }

  void attach(std::vector<NamedRule> rules, const RunScale& scale) override {
    const auto scales_lr = [](const NamedRule& each) { return each.rule->common.action == "lr_scale"; };
    wants_shared_lr_ = host().run().ranks != nullptr && std::ranges::any_of(rules, scales_lr);
    agenda_->set_rules(rules, scale);
    watcher_->attach(std::move(rules), scale);
    capture_.forget_names();
    next_ = 0;  // whatever is next now
    sample();
  }

  // What a checkpoint holds.

  void save(StateWriter& state) const override {
    state.scalar("evaluations", evaluations_);
    state.scalar("samples", samples_.load());
    state.scalar("lr", lr_);
    state.scalar("shared_lr", shared_lr_);
    state.scalar("skip", skip_);
    state.scalar("dropped", dropped_.load());
    state.scalar("verdicts", text_of(pending_));
  }
  void load(const StateReader& state) override {
    const bool any = state.has_scalar("evaluations");
    evaluations_ = any ? state.integer("evaluations") : 0;
    samples_ = any ? state.integer("samples") : 0;
    lr_ = any ? state.number("lr") : 1.0;
    shared_lr_ = any && state.version() != "1.0.0" && state.boolean("shared_lr");  // 1.0.0 did not know
    skip_ = any && state.boolean("skip");
    dropped_ = any ? state.integer("dropped") : 0;
    pending_ = any ? firings_of(state.text("verdicts")) : std::vector<Firing>();
    if (watcher_) watcher_->take();  // of steps that are no more
    capture_.drop();
    late_.reset();
    begun_ = false;
    next_ = 0;
  }

  // The frame of the run.

  void fit_start(StepContext&) { start(); }
  void swap_in(StepContext&) { start(); }
  void swap_out(StepContext&) { stop(checkpoint_patience); }
  void before_load(StepContext&) {
    if (watcher_) watcher_->clear();
  }
  void fit_end(StepContext&) {
    push(capture_.finish());
    push_late();
    if (storing_) store_->end();
    stop(end_patience);
    for (const std::string& found : agenda_->never_seen()) tell_missed(found);
    for (const Firing& firing : std::exchange(pending_, {})) write_journal(firing);
    if (const std::int64_t dropped = dropped_; dropped > 0)
      host().log(LogLevel::warning,
                 std::to_string(dropped) + " records were dropped in all, as " + "recorder.queue was full");
    if (const std::int64_t lost = store_->lost(); lost > 0)
      host().log(LogLevel::warning, std::to_string(lost) + " records were not stored");
  }

  // The steps.

  void batch_start(StepContext& context) {
    if (sampled_) phases_.step();
    if (context.clock().step < next_) [[likely]]
      return;
    const std::int64_t step = context.clock().step;
    if (!begun_) begin(step);
    next_ = agenda_->next(step + 1);
    std::shared_ptr<Plan> plan = agenda_->at(Mode::train, step);
    if (!plan) return;
    loss_.reset();
    loss_shares_ = 0.0;
    capture_.begin(std::move(plan), {.mode = Mode::train,
                                     .mode_step = step,
                                     .step = step + evaluations_,
                                     .seconds = seconds(),
                                     .tensors = {}});
    capture_.expect_all(context);
    capture_.inputs(context.batch());
    capture_.weights(context);
    capture_.optimizer(context);
  }

  void before_forward(StepContext& context) {
    if (sampled_) phases_.begin();
    if (capture_.active() && context.micro() == 0 && context.repeats() == 0)
      capture_.watch(context.network());
  }
  void after_forward(StepContext&) {
    capture_.unwatch();
    if (sampled_) phases_.end(Part::forward);
  }
  /// Of a micro-batch that is left out there is no output.
  void before_loss(StepContext& context) {
    if (sampled_) phases_.begin();
    if (capture_.active() && context.micro() == 0 && context.repeats() == 0)
      capture_.output(context.output());
  }
  void after_loss(StepContext& context) {
    if (sampled_) phases_.end(Part::loss);
    if (!capture_.active() || context.repeats() > 0) return;
    const at::Tensor loss = at::mul(context.loss().detach().to(at::kDouble), context.loss_share());
    loss_ = loss_.defined() ? at::add(loss_, loss) : loss;
    loss_shares_ += context.loss_share();
  }
  void micro_end(StepContext& context) {
    if (capture_.active() && context.repeats() == 0 && context.micro() == context.micros() - 1)
      capture_.gradients(context, /*scaled=*/true);
  }
  void batch_end(StepContext&) {
    step_now_ = 1 + step_now_;
    push_late();
    if (!capture_.active()) return;
    capture_.loss(loss_.defined() ? at::div(loss_, loss_shares_) : loss_);
    push(capture_.finish());
  }

  // Evaluations: the values they end with, and the tensors of their first batch.

  void eval_batch_start(StepContext& context) {
    if (sampled_) phases_.pause();
    if (std::exchange(evaluating_, true)) return;
    std::shared_ptr<Plan> plan = agenda_->at(Mode::eval, evaluations_);
    if (!plan) return;
    capture_.begin(std::move(plan), {.mode = Mode::eval, .mode_step = 0, .step = 0, .tensors = {}});
    capture_.inputs(context.batch());
    capture_.watch(context.network());
  }
  void eval_batch_end(StepContext&) { capture_.unwatch(); }
  void eval_end(StepContext& context) {
    evaluating_ = false;
    if (!begun_) begin(context.clock().step);
    const std::int64_t number = evaluations_++;
    if (!capture_.active()) return;
    StepRecord& head = capture_.head();
    head.mode_step = number;
    head.step = context.clock().step + number;
    head.seconds = seconds();
    const std::string prefix = std::string(context.split()) + "/";
    for (const auto& [name, value] : context.metrics()) {
      if (!name.starts_with(prefix)) continue;
      const at::Tensor number = at::full({}, value, at::kDouble);
      capture_.scalar("metric/" + name, number);
      if (name == prefix + "loss") capture_.scalar("loss_output_0", number);
    }
    push(capture_.finish());
  }

  // What rules have found, and what is done about it.

  void safe_point(StepContext& context) {
    if (!watcher_->fired() && pending_.empty()) [[likely]]
      return;
    collect();
    for (const Firing& firing : std::exchange(pending_, {})) act(context, firing);
  }

  void before_step(StepContext& context) {
    if (sampled_) phases_.begin();
    if (capture_.active() && context.repeats() == 0) capture_.gradients(context, /*scaled=*/false);
    if (std::exchange(skip_, false)) context.request(Control::skip_step, "asked for by a rule");
    if (shares_lr()) share_lr();
    if (lr_ == 1.0) [[likely]]
      return;
    for (ParamGroup& group : context.optimizer().groups()) group.lr *= lr_;
  }

  void before_checkpoint(StepContext& context) {
    if (sampled_) phases_.pause();
    push_late();
    // A rule, or a disk, that hangs is waited for once.
    const milliseconds patience = behind_ ? milliseconds(0) : checkpoint_patience;
    const bool seen = watcher_->drain(patience), stored = !storing_ || store_->drain(patience);
    behind_ = !seen || !stored;
    if (behind_)
      host().log(LogLevel::warning, std::string(seen ? "the disk is" : "rules are") +
                                        " behind the checkpoint of step " +
                                        std::to_string(context.clock().step) +
                                        ": a run that goes on from it leaves out records in between");
    collect();
  }

  // The clock of the phases.

  void before_fetch(StepContext&) {
    if (sampled_) phases_.begin();
  }
  void after_fetch(StepContext&) {
    if (sampled_) phases_.end(Part::data);
  }
  void before_backward(StepContext&) {
    if (sampled_) phases_.begin();
  }
  void after_backward(StepContext&) {
    if (sampled_) phases_.end(Part::backward);
  }
  void step_ended(StepContext&) {
    if (sampled_) phases_.end(Part::optimizer);
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - opened_).count();
  }

  void start() {
    if (started_) return;
    started_ = true;
    fresh_ = true;
    begun_ = false;
    next_ = 0;
    watcher_->start();
    capture_.start(host());
    if (storing_) store_->start();
    sample();
  }

  void stop(milliseconds patience) {
    if (!std::exchange(started_, false)) return;
    push_late();
    sampler_.reset();
    capture_.stop();
    watcher_->stop(patience);
    store_->stop(patience);
    collect();
  }

  /// At the first step after a start, or after the run went elsewhere: what is recorded begins here.
  void begin(std::int64_t step) {
    begun_ = true;
    const std::int64_t here = step + evaluations_;
    step_now_ = here;
    if (storing_) store_->cut(here);
    watcher_->go_back(here);
    if (std::exchange(first_, false)) initialization_ = seconds();
    if (!std::exchange(fresh_, false) || !storing_ || here == 0) return;
    store_->drain(end_patience);
    watcher_->recall(store_->folder(), here);
  }

  /// The thread that looks at the machine: where somebody wants to know.
  void sample() {
    const bool wanted = started_ && (options_.system || agenda_->looks_at_machine());
    if (!wanted) {
      sampler_.reset();
      sampled_ = false;
      return;
    }
    if (sampler_) return;
    sampled_ = true;
    sampler_ = host().thread("system", [this](const std::stop_token& stop) {
      Machine machine;
      std::mutex mutex;
      std::condition_variable_any wake;
      std::unique_lock lock(mutex);
      while (!wake.wait_for(lock, stop, sampling_interval, [&] { return stop.stop_requested(); }))
        push_sample(machine);
    });
  }

  void push_sample(Machine& machine) {
    auto record = std::make_shared<StepRecord>();
    record->mode = Mode::global;
    record->mode_step = samples_++;
    record->step = step_now_;
    record->tensors = machine.sample();
    const Phases::Sample phases = phases_.take();
    record->seconds = seconds();
    for (std::size_t i = 0; i < part_names.size(); ++i)
      record->tensors.push_back(number(std::string("profile/") + part_names[i], phases.parts[i]));
    if (!phases.steps.empty()) record->tensors.push_back(numbers("profile/step_seconds", phases.steps));
    record->tensors.push_back(number("profile/loader_workers", loader_workers_));
    record->tensors.push_back(number("profile/initialization", initialization_));
    std::sort(record->tensors.begin(), record->tensors.end(),
              [](const TensorRecord& a, const TensorRecord& b) { return a.name < b.name; });
    if (!watcher_->push(record)) drop();
    if (storing_ && !store_->push(std::move(record), {})) drop();
  }

  /// One whose tensors are on a device is kept until the step after: by then it is there, and nobody waits.
  void push(Capture::Draft draft) {
    push_late();
    for (const std::string& found : draft.missed) tell_missed(found);
    if (!draft.record) return;
    late_ = std::move(draft);
    if (!late_->late) push_late();
  }

  /// Silence of a rule means that all is well only where it had something to look at.
  void tell_missed(const std::string& found) {
    const std::string text = found + ": the network or the executor has none";
    host().log(LogLevel::warning, text);
    host().journal("not recorded", text);
  }

  void push_late() {
    if (!late_) return;
    Capture::Taken taken = capture_.complete(*std::exchange(late_, std::nullopt));
    if (taken.for_rules && !watcher_->push(taken.record)) drop();
    if (storing_ && !store_->push(std::move(taken.record), std::move(taken.wants))) drop();
  }

  void drop() {
    if (dropped_++ == 0)
      host().log(LogLevel::warning,
                 "records are dropped, as recorder.queue = " + std::to_string(options_.queue) +
                     " of them wait already: a rule or the disk does not keep up");
  }

  void collect() {
    for (Firing& firing : watcher_->take()) pending_.push_back(std::move(firing));
  }

  void write_journal(const Firing& firing) {
    std::string names;
    for (const std::string& name : firing.finding.tensors) names += (names.empty() ? "" : ", ") + name;
    host().journal("rule_fired", firing.text() + (names.empty() ? "" : " [" + names + "]") +
                                     "; action: " + firing.action + (options_.dry_run ? ", not taken" : ""));
  }

  void act(StepContext& context, const Firing& firing) {
    write_journal(firing);
    if (options_.dry_run) return;
    const std::string why = "rule " + firing.text();
    const std::string& action = firing.action;
    if (action == "checkpoint_and_stop") context.request(Control::checkpoint, why);
    if (action == "checkpoint_and_stop" || action == "stop") context.request(Control::stop_run, why);
    if (action == "skip_step") skip_ = true;
    if (action == "lr_scale" && (!shares_lr() || host().run().ranks->rank() == 0))
      set_lr(lr_ * firing.lr_scale, why);
    if (action != "swap") return;
    try {
      host().swap(firing.swap.slot, firing.swap.type, firing.swap.set);
    } catch (const Error& error) {
      host().log(LogLevel::error, "rules." + firing.rule + ".swap: " + error.what());
    }
  }

  void set_lr(double factor, const std::string& why) {
    lr_ = factor;
    host().journal("lr_scale",
                   "the learning rate is multiplied by " + std::to_string(lr_) + " from here on: " + why);
  }

  /// Whether the ranks take the factor of rank 0 at every step. Ranks that did so once do it until the end, also after
  /// the rule was swapped out, since it may have fired on some of them only.
  bool shares_lr() const { return wants_shared_lr_ || (shared_lr_ && host().run().ranks != nullptr); }

  /// The threads of the rules find something sooner on one rank than on another. All ranks take the factor of
  /// the first one at the same step, so that their weights stay the same.
  void share_lr() {
    shared_lr_ = true;
    Ranks& ranks = *host().run().ranks;
    const at::Tensor factor = at::full({}, lr_, at::device(host().run().device).dtype(at::kDouble));
    ranks.broadcast(factor, 0)->wait();
    if (const double first = factor.item().toDouble(); first != lr_) set_lr(first, "as on rank 0");
  }

  Options options_;
  std::vector<SavedCollection> saved_;
  std::optional<Agenda> agenda_;
  bool storing_;
  Capture capture_;
  Phases phases_;
  std::optional<Watcher> watcher_;
  std::optional<Store> store_;
  std::chrono::steady_clock::time_point opened_;
  int loader_workers_ = 0;
  std::shared_ptr<void> sampler_;

  std::int64_t next_ = 0;  ///< step at which something is due
  bool started_ = false;   ///< the threads are there
  bool begun_ = false;     ///< and know at which step they begin
  bool fresh_ = true;      ///< rules have seen nothing since the start
  bool first_ = true;      ///< no step was seen yet
  bool evaluating_ = false;
  bool sampled_ = false;
  bool behind_ = false;  ///< rules or disk were, at the last checkpoint
  at::Tensor
      loss_;  ///< the sum over the micro-batches that were seen, each times its share; where their tensors are
  double loss_shares_ = 0.0;  ///< of them: a rank has a part of the step's, a pipeline that of other steps
  std::optional<Capture::Draft> late_;  ///< a record that is not handed on yet
  std::atomic<double> initialization_{0.0};
  std::atomic<std::int64_t> step_now_{0};

  std::int64_t evaluations_ = 0;
  std::atomic<std::int64_t> samples_{0}, dropped_{0};
  double lr_ = 1.0;               ///< product of what rules did to the learning rate
  bool wants_shared_lr_ = false;  ///< several ranks train, and a rule that the run has may scale the rate
  bool shared_lr_ = false;        ///< the ranks have shared the factor at a step
  bool skip_ = false;
  std::vector<Firing> pending_;  ///< whose actions are to come
};

}  // namespace

TRAINYARD_PLUGIN(TrialRecorder)
