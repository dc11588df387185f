// The loop against events.md, and what it computes against formulas.
#include "core/engine/train/loop.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <map>
#include <set>

#include <trainyard/graph/graph.hpp>
#include <trainyard/helpers/eager.hpp>
#include <trainyard/sampler.hpp>

#include "support/hooks.hpp"
#include "support/plugin.hpp"
#include "support/run.hpp"

using namespace trainyard;
using namespace trainyard::train;
using Catch::Matchers::Contains;
using test::FreeHook;
using Lines = std::vector<std::string>;

namespace trainyard {
/// For messages.
inline std::ostream& operator<<(std::ostream& out, SkipReason reason) {
  return out << static_cast<int>(reason);
}
}  // namespace trainyard

namespace {

/// Numbers for a linear map: features in [-1, 1), three classes in turn.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  void open(const std::string&) override {}
  std::int64_t size() const override { return size_; }
  BatchSchema schema() const override {
    return {.inputs = {{"x", {4}, at::kFloat}}, .target = {"y", {}, at::kLong}, .classes = 3};
  }
  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch;
    batch.inputs = {at::empty({count, 4})};
    batch.target = at::empty({count}, at::kLong);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = indices[static_cast<std::size_t>(i)];
      at::Tensor row = batch.inputs[0][i];
      fill_uniform(row, RandomStream(1, "numbers", static_cast<std::uint64_t>(index)), -1.0, 1.0);
      batch.target[i] = poisoned == index ? 0 : index % 3;
      if (poisoned == index) row.fill_(std::nan(""));
    }
    return batch;
  }
  std::int64_t poisoned = -1;  ///< this sample is NaN

 private:
  std::int64_t size_;
};

/// x W' + b, and a note of each pass.
class Linear final : public Network {
 public:
  Linear() {
    weight_ = at::full({3, 4}, 0.1).set_requires_grad(true);
    bias_ = at::zeros({3}).set_requires_grad(true);
  }
  at::Tensor forward(const Batch& batch, const ForwardContext& pass) override {
    passes.push_back(pass);
    gradients_on = gradients_on || (!pass.training && at::GradMode::is_enabled());
    return at::linear(batch.input(), weight_, bias_);
  }
  std::vector<NamedTensor> parameters() const override { return {{"weight", weight_}, {"bias", bias_}}; }
  std::vector<NamedTensor> buffers() const override { return {}; }
  std::vector<std::int64_t> output_shape() const override { return {3}; }
  void to(at::Device) override {}

  std::vector<ForwardContext> passes;
  bool gradients_on = false;  ///< in a pass that does not train

 private:
  at::Tensor weight_, bias_;
};

/// Counts its steps; keeps the learning rate and the gradient of each.
class Notes final : public Optimizer {
 public:
  void step() override {
    rates.push_back(groups().front().lr);
    at::Tensor sum = at::zeros({});
    for (const at::Tensor& p : groups().front().params)
      if (p.grad().defined()) sum = sum + p.grad().square().sum();
    norms.push_back(sum.sqrt().item<double>());
    if (fail_at == static_cast<std::int64_t>(rates.size())) throw std::runtime_error("no step");
    for (at::Tensor& p : groups().front().params)
      if (p.grad().defined()) p.sub_(p.grad(), groups().front().lr);
  }
  std::int64_t fail_at = 0;
  std::vector<double> rates, norms;
};

class Ramp final : public Schedule {
 public:
  double factor(const SchedulePoint& at) const override { return 1.0 - at.progress; }
};

config::SlotConfig slot(const std::string& name, const std::string& type) {
  config::SlotConfig made;
  made.slot = name;
  made.type = type;
  return made;
}

/// A loop over these, without plugins; change the public parts, then call fit().
struct Rig final : LoopHost {
  explicit Rig(std::int64_t samples, std::int64_t batch, std::int64_t micro, std::int64_t steps)
      : data(samples), val(4) {
    config.train.batch_size = batch;
    config.train.micro_batch_size = micro;
    scale = {.steps_per_epoch = (samples + batch - 1) / batch,
             .samples_per_epoch = samples,
             .samples_per_step = batch,
             .total_steps = steps};
    recorder.subscriber.participant.id = "recorder";
    for (std::size_t e = 0; e < event_count; ++e) {
      if (needs_ranks(static_cast<Event>(e))) continue;
      recorder.on(static_cast<Event>(e), [this](StepContext& context) {
        events.emplace_back(name(context.event()));
        if (watch) watch(context);
      });
    }
  }

  Ending fit() {
    data::LoaderOptions options{.batch_size = config.train.batch_size,
                                .micro_batch_size = config.train.micro_batch_size,
                                .random = RandomStream(0, "data")};
    train.emplace(data, nullptr, options);
    options.epochs = 1;
    options.batch_size = options.micro_batch_size = 3;
    evaluation.emplace(val, nullptr, options);
    bus.emplace(std::vector<events::Subscriber*>{&actor.subscriber, &recorder.subscriber}, scale);
    context.network_ = &network;
    context.optimizer_ = &optimizer;
    context.clock_.total_steps = scale.total_steps;
    optimizer.open({{.names = {"weight", "bias"},
                     .params = {network.parameters()[0].tensor, network.parameters()[1].tensor},
                     .base_lr = 0.5,
                     .lr = 0.5}});
    curve.emplace(ramp, scale);
    parts = LoopParts{.config = &config,
                      .bus = &*bus,
                      .context = &context,
                      .network = {&model_slot, &network},
                      .loss = {&loss_slot, loss.get()},
                      .optimizer = {&optimizer_slot, &optimizer},
                      .schedule = {&schedule_slot, &*curve},
                      .executor = {&executor_slot, &executor},
                      .train = {&data_slot, &*train},
                      .scale = scale,
                      .host = this,
                      .signal = &signal};
    if (evaluate) parts.evaluations = {{"val", &*evaluation}};
    loop.emplace(parts);
    return loop->fit(restore);
  }

  bool log_due(std::int64_t) override { return true; }
  void record(Record&& record) override { records.push_back(std::move(record)); }
  void journal(std::string_view who, std::string_view what, std::string_view why) override {
    journaled.push_back(std::string(who) + " " + std::string(what) + " " + std::string(why));
  }

  /// A hook that asks for something at an event of a step.
  void ask(Event event, std::int64_t step, Control control) {
    actor.on(
        event,
        [=](StepContext& context) {
          if (context.step_number() == step) context.request(control, "as the test wants");
        },
        Region::control);
  }

  /// The values of one name in the records of a kind, by step.
  std::map<std::int64_t, double> logged(Record::What what, const std::string& name) const {
    std::map<std::int64_t, double> found;
    for (const Record& record : records)
      for (const auto& [key, value] : record.values)
        if (record.what == what && key == name) found[record.step] = value;
    return found;
  }

  config::RunConfig config;
  const config::SlotConfig model_slot = slot("model", "linear"), loss_slot = slot("loss", "cross_entropy"),
                           optimizer_slot = slot("optimizer", "notes"),
                           schedule_slot = slot("schedule", "ramp"),
                           executor_slot = slot("executor", "eager"),
                           data_slot = slot("data.train", "numbers");
  RunScale scale;
  Numbers data, val;
  Linear network;
  Notes optimizer;
  Ramp ramp;
  Eager executor;
  std::unique_ptr<Loss> loss = test::make<Loss>("cross_entropy");
  bool evaluate = false;
  std::atomic<int> signal{0};
  std::function<void(StepContext&)> watch;
  std::function<void()> restore = [] {};

  FreeHook actor{"actor"}, recorder{"recorder"};
  LoopContext context;
  std::optional<data::Loader> train, evaluation;
  std::optional<events::Bus> bus;
  std::optional<ScheduleCurve> curve;
  LoopParts parts;
  std::optional<Loop> loop;
  Lines events, journaled;
  std::vector<Record> records;
};

Lines operator+(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Lines times(int count, const Lines& lines) {
  Lines all;
  for (int i = 0; i < count; ++i) all = all + lines;
  return all;
}

const Lines micro = {"micro_start", "before_forward",  "after_forward",  "before_loss",
                     "after_loss",  "before_backward", "after_backward", "micro_end"};
const Lines fetch = {"before_fetch", "after_fetch", "batch_start"};
const Lines stepped = {"before_step", "after_step", "batch_end"};
const Lines skipped = {"before_step", "step_skipped", "batch_end"};
const Lines evaluated = {"eval_start",       "eval_batch_start", "eval_batch_end",
                         "eval_batch_start", "eval_batch_end",   "eval_end"};
const Lines safe = {"safe_point"};

Lines step_of(int micros) {
  return fetch + times(micros, micro) + stepped + safe;
}
Lines fit_of(const Lines& inner) {
  return Lines{"fit_start"} + inner + Lines{"fit_end"};
}
Lines epoch_of(const Lines& inner) {
  return Lines{"epoch_start"} + inner + Lines{"epoch_end"};
}

}  // namespace

TEST_CASE("the events of a run come in the order of events.md") {
  SECTION("one micro-batch a step; the last batch of an epoch is ragged") {
    Rig rig(5, 2, 2, 6);
    CHECK(rig.fit() == Ending::completed);
    CHECK(rig.events == fit_of(times(2, epoch_of(times(3, step_of(1))))));
    CHECK(rig.loop->clock().step == 6);
    CHECK(rig.loop->clock().epoch == 2);
    CHECK(rig.loop->clock().samples == 10);
  }
  SECTION("three micro-batches a step, the last group ragged") {
    Rig rig(8, 6, 2, 2);
    CHECK(rig.fit() == Ending::completed);
    CHECK(rig.events == fit_of(epoch_of(step_of(3) + step_of(1))));
  }
  SECTION("an evaluation stands between batch_end and safe_point, and after the last epoch") {
    Rig rig(6, 2, 2, 5);
    rig.evaluate = true;
    rig.config.trainer.eval_interval = Duration{2, Duration::Unit::steps};
    CHECK(rig.fit() == Ending::completed);
    const Lines with = fetch + micro + stepped + evaluated + safe;
    CHECK(rig.events ==
          fit_of(epoch_of(step_of(1) + with + step_of(1)) + epoch_of(with + step_of(1)) + evaluated));
    CHECK(rig.logged(Record::What::eval, "val/loss").size() == 3);
  }
  SECTION("a run may end in the middle of an epoch; what was evaluated there is not evaluated again") {
    Rig rig(6, 2, 2, 4);
    rig.evaluate = true;
    rig.config.trainer.eval_interval = Duration{2, Duration::Unit::steps};
    rig.fit();
    const Lines with = fetch + micro + stepped + evaluated + safe;
    CHECK(rig.events == fit_of(epoch_of(step_of(1) + with + step_of(1)) + epoch_of(with)));
    CHECK(rig.loop->clock().epoch == 1);
    CHECK(rig.loop->clock().step_in_epoch == 1);
  }
}

TEST_CASE("the batch of an evaluation is there while it is evaluated, and not at the ends") {
  Rig rig(6, 2, 2, 2);
  rig.evaluate = true;
  int batches = 0;
  rig.watch = [&](StepContext& context) {
    if (context.event() == Event::eval_batch_end) batches += context.batch().size() > 0;
    if (context.event() == Event::eval_start || context.event() == Event::eval_end)
      CHECK_THROWS_AS(context.batch(), PluginError);
  };
  rig.fit();
  CHECK(batches == 2);
}

TEST_CASE("a pass knows which samples of its step it has, whatever hooks made of them") {
  Rig rig(11, 6, 4, 4);
  int doubled = 0;
  rig.actor.on(
      Event::micro_start,
      [&](StepContext& context) {
        if (++doubled > 2) return;
        Batch& batch = context.mutable_batch();
        batch.inputs[0] = at::cat({batch.inputs[0], batch.inputs[0]});
        batch.target = at::cat({batch.target, batch.target});
      },
      Region::batch);
  rig.fit();
  Lines parts;
  for (const ForwardContext& pass : rig.network.passes) {
    const auto& [first, count, samples, before] = pass.part;
    parts.push_back(std::to_string(first) + " + " + std::to_string(count) + " of " + std::to_string(samples) +
                    " after " + std::to_string(before));
  }
  CHECK(parts == Lines{"0 + 4 of 6 after 0", "4 + 2 of 6 after 0", "0 + 4 of 5 after 6", "4 + 1 of 5 after 6",
                       "0 + 4 of 6 after 11", "4 + 2 of 6 after 11", "0 + 4 of 5 after 17",
                       "4 + 1 of 5 after 17"});
}

TEST_CASE("hooks see the clock, the micro-batch and what exists at their event") {
  Rig rig(8, 6, 2, 2);
  std::map<std::string, std::set<std::int64_t>> numbers, steps;
  std::vector<int> micros;
  std::vector<double> shares;
  rig.watch = [&](StepContext& context) {
    const std::string event(name(context.event()));
    numbers[event].insert(context.step_number());
    steps[event].insert(context.clock().step);
    if (context.event() == Event::after_loss) {
      micros.push_back(context.micro() * 10 + context.micros());
      shares.push_back(context.loss_share());
      CHECK(context.output().sizes() == at::IntArrayRef({2, 3}));
      CHECK(context.loss().dim() == 0);
      CHECK(context.batch().size() == 2);
    }
    if (context.event() == Event::micro_start) CHECK_THROWS_AS(context.output(), PluginError);
    if (context.event() == Event::before_fetch || context.event() == Event::safe_point)
      CHECK_THROWS_AS(context.batch(), PluginError);
    if (context.event() == Event::before_step) CHECK_THROWS_AS(context.loss(), PluginError);
    CHECK_FALSE(context.evaluating());
  };
  rig.fit();
  for (const char* event : {"before_fetch", "micro_start", "before_step", "batch_end", "safe_point"})
    CHECK(numbers[event] == std::set<std::int64_t>{1, 2});
  CHECK(steps["before_step"] == std::set<std::int64_t>{0, 1});
  CHECK(steps["batch_end"] == std::set<std::int64_t>{1, 2});  // the clock moves just before it
  CHECK(micros == std::vector<int>{3, 13, 23, 1});
  CHECK(shares == std::vector<double>{1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0});
}

TEST_CASE("control bits") {
  SECTION("skip_batch: nothing between batch_start and batch_end; the data is used up") {
    Rig rig(6, 2, 2, 3);
    rig.ask(Event::after_fetch, 2, Control::skip_batch);
    CHECK(rig.fit() == Ending::completed);
    CHECK(rig.events == fit_of(epoch_of(step_of(1) + fetch + Lines{"batch_end"} + safe + step_of(1))));
    CHECK(rig.optimizer.rates.size() == 2);
    CHECK(rig.loop->clock().step == 3);
    CHECK(rig.journaled == Lines{"actor skip_batch as the test wants"});
  }
  SECTION("skip_step: step_skipped in place of after_step, parameters untouched") {
    Rig rig(6, 2, 2, 3);
    rig.ask(Event::before_step, 2, Control::skip_step);
    std::vector<SkipReason> reasons;
    rig.watch = [&](StepContext& context) {
      if (context.event() == Event::step_skipped || context.event() == Event::after_step)
        reasons.push_back(context.skip_reason());
    };
    rig.fit();
    CHECK(rig.events == fit_of(epoch_of(step_of(1) + fetch + micro + skipped + safe + step_of(1))));
    CHECK(reasons == std::vector<SkipReason>{SkipReason::none, SkipReason::plugin, SkipReason::none});
    CHECK(rig.optimizer.rates.size() == 2);
  }
  SECTION("skip_micro before forward: neither loss nor backward") {
    Rig rig(6, 6, 2, 1);
    int calls = 0;
    rig.actor.on(
        Event::before_forward,
        [&](StepContext& context) {
          if (++calls == 2) context.request(Control::skip_micro, "bad");
        },
        Region::control);
    rig.fit();
    const Lines without = {"micro_start", "before_forward", "after_forward", "micro_end"};
    CHECK(rig.events == fit_of(epoch_of(fetch + micro + without + micro + stepped + safe)));
    CHECK(rig.network.passes.size() == 2);
  }
  SECTION("skip_micro before backward: forward only") {
    Rig rig(6, 6, 2, 1);
    int calls = 0;
    rig.actor.on(
        Event::before_backward,
        [&](StepContext& context) {
          if (++calls == 3) context.request(Control::skip_micro, "bad");
        },
        Region::control);
    rig.fit();
    CHECK(rig.events == fit_of(epoch_of(step_of(3))));
    CHECK(rig.network.passes.size() == 3);
    Rig whole(6, 6, 2, 1);
    whole.fit();
    CHECK(rig.optimizer.norms.at(0) != Approx(whole.optimizer.norms.at(0)).epsilon(1e-3));
  }
  SECTION("stop_epoch: the next epoch begins at its beginning") {
    for (const Event event : {Event::batch_end, Event::safe_point}) {
      Rig rig(6, 2, 2, 4);
      rig.ask(event, 1, Control::stop_epoch);
      std::vector<std::int64_t> first;
      rig.watch = [&](StepContext& context) {
        if (context.event() == Event::after_fetch) first.push_back(context.batch().indices.front());
      };
      CHECK(rig.fit() == Ending::completed);
      CHECK(rig.events == fit_of(epoch_of(step_of(1)) + epoch_of(times(3, step_of(1)))));
      CHECK(first == std::vector<std::int64_t>{0, 0, 2, 4});
      CHECK(rig.loop->clock().epoch == 2);
    }
  }
  SECTION("stop_run: brackets close, wherever it was asked for") {
    const std::pair<Event, Lines> cases[] = {
        {Event::fit_start, fit_of({})},
        {Event::epoch_start, fit_of(epoch_of({}))},
        {Event::batch_start, fit_of(epoch_of(step_of(1)))},
        {Event::batch_end, fit_of(epoch_of(step_of(1)))},
        {Event::safe_point, fit_of(epoch_of(step_of(1)))},
        {Event::epoch_end, fit_of(epoch_of(times(3, step_of(1))))},
    };
    for (const auto& [event, expected] : cases) {
      INFO(name(event));
      Rig rig(6, 2, 2, 100);
      rig.actor.on(
          event, [](StepContext& context) { context.request(Control::stop_run, "enough"); }, Region::control);
      CHECK(rig.fit() == Ending::stopped);
      CHECK(rig.events == expected);
      CHECK(rig.journaled.at(0) == "actor stop_run enough");
    }
  }
  SECTION("evaluate: at once, whatever the interval") {
    Rig rig(6, 2, 2, 3);
    rig.evaluate = true;
    rig.ask(Event::batch_end, 2, Control::evaluate);
    rig.fit();
    CHECK(rig.events ==
          fit_of(epoch_of(step_of(1) + fetch + micro + stepped + evaluated + safe + step_of(1)) + evaluated));
  }
  SECTION("skip_batch in an evaluation leaves out that batch") {
    Rig rig(6, 2, 2, 1), whole(6, 2, 2, 1);
    rig.evaluate = whole.evaluate = true;
    int calls = 0;
    rig.actor.on(
        Event::eval_batch_start,
        [&](StepContext& context) {
          if (++calls == 1) context.request(Control::skip_batch, "bad");
        },
        Region::control);
    rig.fit();
    whole.fit();
    CHECK(rig.events == whole.events);
    CHECK(rig.logged(Record::What::eval, "val/loss") != whole.logged(Record::What::eval, "val/loss"));
  }
  SECTION("a step that is skipped at a log point logs no stale metric") {
    Rig rig(6, 2, 2, 2);
    const auto accuracy = test::make<Metric>("accuracy");
    rig.ask(Event::batch_start, 2, Control::skip_batch);
    CHECK_NOTHROW(rig.fit());
    CHECK(rig.logged(Record::What::train, "train/loss").size() == 1);
  }
}

TEST_CASE("a signal ends the run at the next safe point, without a last evaluation") {
  Rig rig(6, 2, 2, 100);
  rig.evaluate = true;
  rig.watch = [&](StepContext& context) {
    if (context.event() == Event::before_forward && context.step_number() == 2) rig.signal = SIGINT;
  };
  CHECK(rig.fit() == Ending::signal);
  CHECK(rig.events == fit_of(epoch_of(times(2, step_of(1)) + Lines{"signal"})));

  SECTION("one that comes in an evaluation leaves no half result") {
    Rig late(6, 2, 2, 3);
    late.evaluate = true;
    late.watch = [&](StepContext& context) {
      if (context.event() == Event::eval_batch_start) late.signal = SIGINT;
    };
    CHECK(late.fit() == Ending::signal);
    CHECK(late.logged(Record::What::eval, "val/loss").empty());
    CHECK_FALSE(late.loop->latest().contains("val/loss"));
    CHECK(late.events.back() == "fit_end");
  }
}

TEST_CASE(
    "an evaluation that a signal cuts short has no values, and those before it are not taken for its own") {
  Rig rig(6, 2, 2, 6);
  rig.evaluate = true;
  rig.config.trainer.eval_interval = Duration{2, Duration::Unit::steps};
  int evaluations = 0;
  std::vector<bool> with_loss;  // at each eval_end: what a hook sees there
  rig.actor.on(Event::eval_batch_start, [&](StepContext&) {
    rig.loop->add_metric("seen", 1.0 + evaluations);  // Host::metric of a plugin
    if (evaluations == 1) rig.signal = SIGTERM;
  });
  rig.watch = [&](StepContext& context) {
    if (context.event() != Event::eval_end) return;
    ++evaluations;
    with_loss.push_back(context.metrics().contains("val/loss"));
  };
  CHECK(rig.fit() == Ending::signal);
  CHECK(with_loss == std::vector<bool>{true, false});
  // Neither told, nor kept, nor counted.
  CHECK(std::count_if(rig.records.begin(), rig.records.end(),
                      [](const Record& each) { return each.what == Record::What::eval; }) == 1);
  CHECK(rig.logged(Record::What::eval, "seen") == std::map<std::int64_t, double>{{2, 1.0}});
  CHECK(rig.loop->latest().at("seen") == 1.0);
  State state;
  StateWriter writer(state);
  rig.loop->save(writer);
  const StateReader saved(state);
  CHECK(saved.integer("last_evaluated") == 2);
  CHECK(saved.boolean("evaluation_due"));
  CHECK(saved.number("latest/seen") == 1.0);

  // A resume makes it anew, and goes on as if nothing had been.
  Rig whole(6, 2, 2, 6), resumed(6, 2, 2, 6);
  for (Rig* each : {&whole, &resumed}) {
    each->evaluate = true;
    each->config.trainer.eval_interval = rig.config.trainer.eval_interval;
  }
  whole.fit();
  resumed.restore = [&] {
    resumed.loop->load(state);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 2; ++i)
      resumed.network.parameters()[i].tensor.copy_(rig.network.parameters()[i].tensor);
    resumed.train->seek(resumed.context.clock_.epoch, resumed.context.clock_.step_in_epoch);
  };
  CHECK(resumed.fit() == Ending::completed);
  auto expected = whole.logged(Record::What::eval, "val/loss");
  expected.erase(2);
  CHECK(resumed.logged(Record::What::eval, "val/loss") == expected);
}

TEST_CASE("the pass of a repeated step does not count in the training loss") {
  Rig once(2, 2, 2, 1), again(2, 2, 2, 1);
  again.actor.on(
      Event::before_step,
      [&](StepContext& context) {
        if (context.repeats() > 0) return;
        const at::NoGradGuard no_grad;
        again.network.parameters()[0].tensor[0].add_(5.0);
        context.request(Control::repeat_step, "another look");
      },
      Region::model | Region::control);
  once.fit();
  again.fit();
  CHECK(again.network.passes.size() == 2);
  CHECK(again.logged(Record::What::train, "train/loss") == once.logged(Record::What::train, "train/loss"));
}

TEST_CASE("a wall time ends the run") {
  Rig rig(6, 2, 2, 1000000);
  rig.config.trainer.max_wall_time = Duration{0, Duration::Unit::seconds};
  CHECK(rig.fit() == Ending::wall_time);
  CHECK(rig.loop->clock().step == 1);
}

TEST_CASE("every bracket that was opened is closed when something throws") {
  const auto closing = [](Rig& rig) {
    Lines closed;
    for (const std::string& event : rig.events)
      if (event.starts_with("after_") || event.ends_with("_end") || event == "step_skipped")
        closed.push_back(event);
    return closed;
  };
  SECTION("in a hook") {
    Rig rig(6, 2, 2, 3);
    rig.actor.on(Event::before_loss, [](StepContext&) { throw DataError("bad batch"); });
    try {
      rig.fit();
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::data);
      CHECK_THAT(error.what(), Contains("[hooks.actor] actor at before_loss, step 1: bad batch"));
    }
    CHECK(closing(rig) == Lines{"after_fetch", "after_forward", "after_loss", "micro_end", "batch_end",
                                "epoch_end", "fit_end"});
  }
  SECTION("in the optimizer") {
    Rig rig(6, 2, 2, 3);
    rig.optimizer.fail_at = 2;
    SkipReason reason = SkipReason::none;
    rig.watch = [&](StepContext& context) {
      if (context.event() == Event::step_skipped) reason = context.skip_reason();
    };
    CHECK_THROWS_WITH(rig.fit(), "[optimizer] notes, step 2: no step");
    CHECK(reason == SkipReason::error);
    const Lines closed = closing(rig);
    CHECK(Lines(closed.end() - 4, closed.end()) ==
          Lines{"step_skipped", "batch_end", "epoch_end", "fit_end"});
  }
  SECTION("an error while closing does not hide the first") {
    Rig rig(6, 2, 2, 3);
    rig.actor.on(Event::before_loss, [](StepContext&) { throw DataError("first"); });
    rig.actor.on(Event::epoch_end, [](StepContext&) { throw DataError("second"); });
    CHECK_THROWS_WITH(rig.fit(), Contains("first"));
    REQUIRE(rig.journaled.size() == 1);
    CHECK_THAT(rig.journaled[0], Contains("host error while closing after an error") && Contains("second"));
    CHECK(rig.events.back() == "fit_end");
  }
}

TEST_CASE("a hook that fails and may go is left out from the next safe point on") {
  Rig rig(6, 2, 2, 3);
  int calls = 0;
  rig.actor.subscriber.disable_on_error = true;
  rig.actor.on(Event::batch_start, [&](StepContext&) {
    ++calls;
    throw std::runtime_error("broke");
  });
  CHECK(rig.fit() == Ending::completed);
  CHECK(calls == 1);
  CHECK(rig.journaled == Lines{"actor disabled [hooks.actor] actor at batch_start, step 1: broke"});
}

TEST_CASE("the schedule's factor is that of the step") {
  Rig rig(8, 2, 2, 4);
  std::vector<double> seen;
  rig.watch = [&](StepContext& context) {
    if (context.event() == Event::before_step) seen.push_back(context.optimizer().groups().front().lr);
  };
  rig.fit();
  CHECK(rig.optimizer.rates == std::vector<double>{0.5, 0.375, 0.25, 0.125});
  CHECK(seen == rig.optimizer.rates);  // just before the event
  CHECK(rig.logged(Record::What::train, "lr") ==
        std::map<std::int64_t, double>{{1, 0.5}, {2, 0.375}, {3, 0.25}, {4, 0.125}});
}

TEST_CASE("the schedule counts the optimizer's steps: not micro-batches, not skipped ones") {
  Rig rig(40, 8, 2, 10);
  rig.config.trainer.precision = config::TrainerKeys::Precision::fp16_mixed;
  rig.ask(Event::before_step, 3, Control::skip_step);
  rig.actor.on(
      Event::after_backward,
      [&](StepContext& context) {
        if (context.step_number() == 7)
          context.network().parameters()[1].tensor.mutable_grad().fill_(INFINITY);  // an overflow
      },
      Region::grads);
  std::vector<double> seen;
  std::vector<SkipReason> reasons;
  rig.watch = [&](StepContext& context) {
    ParamGroup& group = context.optimizer().groups().front();
    if (context.event() == Event::before_step) seen.push_back(group.lr);
    if (context.event() == Event::step_skipped) reasons.push_back(context.skip_reason());
    if (context.event() == Event::safe_point) group.lr = 100.0 + static_cast<double>(seen.size());
  };
  rig.fit();
  REQUIRE(seen.size() == 10);
  int taken = 0;
  for (int step = 0; step < 10; ++step) {
    CHECK(seen[static_cast<std::size_t>(step)] == 0.5 * (1.0 - taken / 10.0));
    taken += step != 2 && step != 6;
  }
  CHECK(reasons == std::vector<SkipReason>{SkipReason::plugin, SkipReason::overflow});
  CHECK(rig.optimizer.rates.size() == 8);
  CHECK(rig.network.passes.size() == 40);
}

TEST_CASE("what the schedule has counted is saved with the loop") {
  std::vector<double> rates;
  const auto train = [&](Rig& rig) {
    rig.ask(Event::before_step, 3, Control::skip_step);
    rig.watch = [&](StepContext& context) {
      if (context.event() == Event::before_step) rates.push_back(context.optimizer().groups().front().lr);
    };
    rig.fit();
    return std::exchange(rates, {});
  };
  Rig whole(40, 8, 2, 10), first(40, 8, 2, 10), second(40, 8, 2, 10);
  const std::vector<double> expected = train(whole);
  first.actor.on(Event::batch_end, [&](StepContext& context) { first.signal = context.step_number() == 5; });
  std::vector<double> seen = train(first);
  REQUIRE(seen.size() == 5);
  State state;
  StateWriter writer(state);
  first.loop->save(writer);
  second.restore = [&] {
    second.loop->load(state);
    CHECK_FALSE(first.loop->latest().empty());  // a checkpoint ahead of the next evaluation holds them
    CHECK(second.loop->latest() == first.loop->latest());
    second.train->seek(second.context.clock_.epoch, second.context.clock_.step_in_epoch);
  };
  for (const double rate : train(second)) seen.push_back(rate);
  CHECK(seen == expected);
}

TEST_CASE("gradients are clipped before the step, and their norm before is logged") {
  Rig free(6, 2, 2, 1), bound(6, 2, 2, 1);
  bound.config.grad_clip = config::GradClip{config::GradClip::Type::norm, 0.25};
  free.fit();
  bound.fit();
  REQUIRE(free.optimizer.norms.at(0) > 0.25);
  CHECK(bound.optimizer.norms.at(0) == Approx(0.25).epsilon(1e-5));
  CHECK(bound.logged(Record::What::train, "gradient_norm").at(1) ==
        Approx(free.optimizer.norms.at(0)).epsilon(1e-6));
}

TEST_CASE("an overflow skips the step and halves the scale") {
  Rig rig(6, 2, 2, 3);
  rig.config.trainer.precision = config::TrainerKeys::Precision::fp16_mixed;
  std::vector<double> scales;
  std::vector<SkipReason> reasons;
  rig.watch = [&](StepContext& context) {
    if (context.event() == Event::micro_start) scales.push_back(context.loss_scale());
    if (context.event() == Event::step_skipped) reasons.push_back(context.skip_reason());
  };
  // The gradient of the second step is made infinite as an overflow would make it.
  rig.actor.on(
      Event::after_backward,
      [&](StepContext& context) {
        if (context.step_number() == 2)
          context.network().parameters()[1].tensor.mutable_grad().fill_(INFINITY);
      },
      Region::grads);
  rig.fit();
  CHECK(scales == std::vector<double>{65536.0, 65536.0, 32768.0});
  CHECK(reasons == std::vector<SkipReason>{SkipReason::overflow});
  CHECK(rig.optimizer.rates.size() == 2);
  CHECK(rig.optimizer.norms.at(0) < 10.0);  // unscaled by then
  CHECK(rig.logged(Record::What::train, "loss_scale").at(3) == 32768.0);
}

TEST_CASE("a loss that is not finite ends the run with the exit code for numbers") {
  Rig rig(6, 2, 2, 3);
  rig.data.poisoned = 3;
  try {
    rig.fit();
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::numeric);
    CHECK_THAT(error.what(), Contains("the training loss is nan at step 2"));
  }
  CHECK(rig.events.back() == "fit_end");
}

TEST_CASE("an evaluation changes no parameter, leaves no gradient, and trains nothing") {
  Rig rig(6, 2, 2, 1);
  rig.evaluate = true;
  std::vector<at::Tensor> before;
  bool grads = false;
  rig.watch = [&](StepContext& context) {
    if (context.event() == Event::eval_start)
      for (const NamedTensor& p : rig.network.parameters()) {
        before.push_back(p.tensor.detach().clone());
        p.tensor.mutable_grad() = at::Tensor();
      }
    if (context.event() == Event::eval_batch_end) {
      CHECK(context.evaluating());
      for (const NamedTensor& p : rig.network.parameters()) grads = grads || p.tensor.grad().defined();
    }
  };
  rig.fit();
  REQUIRE(before.size() == 2);
  for (std::size_t i = 0; i < before.size(); ++i)
    CHECK(at::equal(before[i], rig.network.parameters()[i].tensor));
  CHECK_FALSE(grads);
  CHECK_FALSE(rig.network.gradients_on);
  CHECK_FALSE(rig.network.passes.back().training);
  CHECK(rig.network.passes.front().training);

  // The value is the mean over all samples, the ragged last batch weighted by what it holds.
  const Batch all = rig.val.read(std::vector<std::int64_t>{0, 1, 2, 3}, {RandomStream(0, ""), 0});
  const double mean = rig.loss->forward(rig.network.forward(all, {}), all).item<double>();
  CHECK(rig.logged(Record::What::eval, "val/loss").at(1) == Approx(mean).epsilon(1e-6));
}

namespace {

/// A short run of a real model on made-up data; b samples k times a step.
std::string accumulating(const std::string& model, const std::string& loss, std::int64_t batch,
                         std::int64_t micro) {
  return R"(
schema = 1
[run]
threads = { intra_op = 1, inter_op = 1 }
[model]
)" + model +
         R"(
[loss]
)" + loss +
         R"(
[data]
type = "synthetic"
)" +
         (model.find("gpt") == std::string::npos ? "kind = \"classification\"\nshape = [16]\nclasses = 4\n"
                                                 : "kind = \"language\"\nseq_len = 8\nvocabulary = 12\n") +
         "train = { size = 22, shuffle = true, batch_size = " + std::to_string(batch) +
         ", micro_batch_size = " + std::to_string(micro) + R"( }
[optimizer]
type = "sgd"
lr = 0.1
[trainer]
max_duration = "2ep"
[logging]
sinks = []
)";
}

double largest_difference(Run& a, Run& b) {
  double largest = 0.0;
  const auto left = a.network().parameters(), right = b.network().parameters();
  for (std::size_t i = 0; i < left.size(); ++i)
    largest = std::max(largest, (left[i].tensor - right[i].tensor).abs().max().item<double>());
  return largest;
}

}  // namespace

TEST_CASE("k micro-batches of b equal one of k x b, ragged last groups and unequal weights included") {
  const std::string mlp = "type = \"mlp\"\nlayers = [16, 24, 4]\n";
  const std::string gpt = "type = \"gpt\"\nn_layer = 1\nn_head = 2\nd_model = 16\n";
  const std::string plain = "type = \"cross_entropy\"\n";
  const std::pair<std::string, std::string> cases[] = {
      {mlp, plain},
      {mlp, plain + "label_smoothing = 0.1\n"},
      {gpt, plain},
      {gpt, plain + "ignore_index = 3\n"},  // micro-batches hold different numbers of tokens that count
  };
  for (const auto& [model, loss] : cases) {
    INFO(model << loss);
    // 22 samples in steps of 8: the last has 6, which groups of 4 leave ragged.
    test::BuiltRun whole(test::valid(accumulating(model, loss, 8, 8)));
    const std::string start = whole->states().model_digest();
    whole->loop().fit();
    CHECK(whole->states().model_digest() != start);
    for (const std::int64_t micro : {1, 2, 4}) {
      INFO("micro-batches of " << micro);
      test::BuiltRun parts(test::valid(accumulating(model, loss, 8, micro)));
      CHECK(parts->states().model_digest() == start);
      parts->loop().fit();
      CHECK(parts->clock().step == whole->clock().step);
      CHECK(largest_difference(*whole, *parts) < 1e-6);
    }
  }
}

TEST_CASE("masks of a bank are given to the rows of the whole step, whatever its micro-batches") {
  const auto model = [](const std::string& dropout) {
    return "type = \"mlp\"\nlayers = [16, 64, 64, 4]\n[model.dropout]\n" + dropout;
  };
  const std::string gyro = "type = \"gyro\"\nsigma = 32\n",
                    blockwise = "type = \"blockwise\"\nsigma = 32\nblock = 8\n";
  const std::string plain = "type = \"cross_entropy\"\n", twice = plain + "[[hooks]]\ntype = \"rdrop\"\n";
  struct Case {
    std::string dropout, loss;
    std::int64_t samples, batch;  ///< the last step of an epoch has fewer than the batch
    std::vector<std::int64_t> micros;
  };
  const Case cases[] = {
      {gyro + "tau = 16\n", plain, 111, 64, {32, 16, 8}},  // at last 47, as 32 and 15
      {blockwise + "tau = 16\n", plain, 111, 64, {32, 16, 8}},
      {gyro + "tau = 32\n", plain, 29, 16, {8, 4, 1}},  // fewer rows than masks
      {blockwise + "tau = 32\n", plain, 29, 16, {8, 4, 1}},
      {gyro + "tau = 4\n", twice, 58, 32, {16, 8}},  // rows that a hook doubles
      {blockwise + "tau = 4\n", twice, 58, 32, {16, 8}},
  };
  for (const Case& c : cases) {
    INFO(c.dropout << c.loss << c.samples << " samples in steps of " << c.batch);
    const auto text = [&](std::int64_t micro) {
      return accumulating(model(c.dropout), c.loss, c.batch, micro);
    };
    const std::vector<std::string> size = {"data.train.size=" + std::to_string(c.samples)};
    test::BuiltRun whole(test::valid(text(c.batch), size));
    whole->loop().fit();
    for (const std::int64_t micro : c.micros) {
      INFO("micro-batches of " << micro);
      test::BuiltRun parts(test::valid(text(micro), size));
      parts->loop().fit();
      CHECK(parts->clock().step == whole->clock().step);
      CHECK(largest_difference(*whole, *parts) < 1e-6);
    }
  }
}

TEST_CASE("bf16-mixed trains, close to fp32 and not the same") {
  const std::string text =
      accumulating("type = \"mlp\"\nlayers = [16, 24, 4]\n", "type = \"cross_entropy\"\n", 8, 8);
  test::BuiltRun full(test::valid(text)), mixed(test::valid(text, {"trainer.precision=bf16-mixed"}));
  full->loop().fit();
  mixed->loop().fit();
  const double difference = largest_difference(*full, *mixed);
  CHECK(difference > 1e-6);
  CHECK(difference < 0.02);
  for (const NamedTensor& p : mixed->network().parameters()) CHECK(p.tensor.scalar_type() == at::kFloat);
}
