#include <trainyard/testing/run.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/helpers/eager.hpp>

namespace trainyard::testing {
namespace {

class PlainSgd final : public Optimizer {
 public:
  void step() override {
    const at::NoGradGuard untracked;
    for (ParamGroup& group : groups_)
      for (at::Tensor& param : group.params)
        if (param.grad().defined()) param.sub_(param.grad(), group.lr);
  }
};

class PlainLoss final : public Loss {
 public:
  void check(const std::vector<std::int64_t>&, const BatchSchema&) const override {}
  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    if (batch.target.is_floating_point())
      return at::mse_loss(output.reshape(batch.target.sizes()), batch.target);
    return at::cross_entropy_loss(output, batch.target);
  }
};

std::vector<NamedTensor> copies(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> result;
  for (const NamedTensor& each : tensors)
    result.push_back({each.name, each.tensor.defined() ? each.tensor.detach().clone() : at::Tensor()});
  return result;
}

std::vector<NamedTensor> gradients_of(const Network& network) {
  std::vector<NamedTensor> result = network.parameters();
  for (NamedTensor& each : result) each.tensor = each.tensor.grad();
  return result;
}

/// Returns the name of the first that differs; empty: all are the same.
std::string changed(const std::vector<NamedTensor>& before, const std::vector<NamedTensor>& now) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    const at::Tensor &a = before[i].tensor, &b = now[i].tensor;
    if (a.defined() != b.defined() || (a.defined() && !a.equal(b.detach()))) return before[i].name;
  }
  return {};
}

}  // namespace

BatchSchema tiny_schema(std::int64_t classes) {
  BatchSchema schema;
  schema.inputs = {{.name = "features", .shape = {4}}};
  schema.target = {.name = "target", .shape = {}, .dtype = classes > 0 ? at::kLong : at::kFloat};
  schema.classes = classes;
  return schema;
}

std::unique_ptr<Network> tiny_network(const BatchSchema& schema, std::uint64_t seed) {
  GraphBuilder b(schema, seed);
  const ValueId hidden = b.dropout(b.relu(b.linear(b.input(), "fc1", 8)), "fc1.dropout");
  return std::make_unique<GraphNetwork>(
      b.finish(b.linear(hidden, "fc2", std::max<std::int64_t>(schema.classes, 1))));
}

Batch tiny_batch(const BatchSchema& schema, std::int64_t size, std::uint64_t seed) {
  const RandomStream stream(seed, "testing/batch");
  Batch batch;
  for (std::size_t i = 0; i < schema.inputs.size(); ++i) {
    std::vector<std::int64_t> shape = schema.inputs[i].shape;
    shape.insert(shape.begin(), size);
    batch.inputs.push_back(at::empty(shape, at::kFloat));
    fill_normal(batch.inputs.back(), stream.at(i), 0.0, 1.0);
  }
  const at::Tensor sums = batch.input().reshape({size, -1}).sum(1);
  batch.target = sums;
  if (schema.classes > 0)
    batch.target = sums.add(static_cast<double>(schema.classes) / 2.0)
                       .floor()
                       .clamp(0, schema.classes - 1)
                       .to(at::kLong);
  for (std::int64_t i = 0; i < size; ++i) batch.indices.push_back(i);
  batch.weight = static_cast<double>(size);
  return batch;
}

/// The loop, its context and its workbench.
class TinyRun::Work final : public StepContext, public Workbench {
 public:
  explicit Work(const Setup& setup) : setup_(setup), schema_(tiny_schema(setup.classes)) {
    services_ = &book_;
    micros_ = setup.micros;
    clock_.total_steps = setup.steps;
    const std::int64_t a_step = setup.micros * setup.samples;
    run_scale_ = {.steps_per_epoch = std::max<std::int64_t>(1, setup.steps / 2),
                  .samples_per_epoch = std::max<std::int64_t>(1, setup.steps / 2) * a_step,
                  .samples_per_step = a_step,
                  .total_steps = setup.steps};
    own_network_ = tiny_network(schema_, setup.seed);
    loss_plugin_ = &own_loss_;
    executor_ = &own_executor_;
  }

  // These set up the run.

  void add(MadePlugin& plugin) {
    for (const HookSpec& hook : plugin.manifest().hooks) hooks_.push_back({&plugin, &hook});
    std::ranges::stable_sort(
        hooks_, {}, [](const Hook& each) { return std::pair(each.spec->phase, each.spec->priority); });
  }
  void use(std::unique_ptr<Network> network) {
    must_not_have_begun();
    own_network_ = std::move(network);
  }
  void use(Loss& loss) { loss_plugin_ = &loss; }
  void use(Executor& executor) { executor_ = &executor; }
  void use(Optimizer& optimizer) {
    must_not_have_begun();
    optimizer_ = &optimizer;
    optimizer.common.lr = setup_.lr;
  }
  void use(Dropout& dropout) {
    plan_.emplace(dropout, own_network_->dropout_places(), run_scale_);
    own_network_->set_dropout(&*plan_, setup_.seed);
  }

  std::unique_ptr<Network> build(std::uint64_t seed) override { return tiny_network(schema_, seed); }

  // These run the loop.

  void begin() {
    const at::NoGradGuard untracked;
    if (std::exchange(begun_, true)) return;
    call(Event::init);
    network_ = own_network_.get();
    call(Event::model_ready);
    if (optimizer_ == nullptr) {
      own_optimizer_.common.lr = setup_.lr;
      optimizer_ = &own_optimizer_;
    }
    optimizer_->open(make_groups(network_->parameters(), optimizer_->common));
    call(Event::optimizer_ready);
    executor_->open(*this);
    call(Event::fit_start);
  }

  void one_step() {
    const at::NoGradGuard untracked;
    begin();
    if (clock_.step_in_epoch == 0) call(Event::epoch_start);
    number_ = clock_.step + 1;
    repeats_ = 0;
    call(Event::before_fetch);
    std::vector<Batch> micros;
    for (int i = 0; i < setup_.micros; ++i)
      micros.push_back(tiny_batch(schema_, setup_.samples,
                                  setup_.seed + 1 + static_cast<std::uint64_t>(clock_.samples + i)));
    StepWork work{.micros = micros,
                  .step = clock_.step,
                  .before = clock_.samples,
                  .samples = run_scale_.samples_per_step};
    for (const Batch& each : micros) work.weight += each.weight;
    batch_ = micros.data();
    call(Event::after_fetch);
    call(Event::batch_start);
    if (!take(Control::skip_batch)) {
      const at::AutoGradMode tracked(true);
      executor_->step(*this, work);
    }
    batch_ = micros.data();
    ++clock_.step;
    clock_.samples += run_scale_.samples_per_step;
    const bool ended = ++clock_.step_in_epoch == run_scale_.steps_per_epoch;
    call(Event::batch_end);
    batch_ = nullptr;
    call(Event::safe_point);
    if (!ended) return;
    call(Event::epoch_end);
    clock_.step_in_epoch = 0;
    ++clock_.epoch;
  }

  void evaluation() {
    const at::NoGradGuard untracked;
    begin();
    evaluating_ = true;
    split_ = "val";
    call(Event::eval_start);
    double sum = 0.0;
    for (std::uint32_t i = 0; i < 4; ++i) {
      Batch batch = tiny_batch(schema_, setup_.samples, setup_.seed + 1000 + i);
      batch_ = &batch;
      call(Event::eval_batch_start);
      const ForwardContext pass{.step = static_cast<std::uint64_t>(clock_.step), .micro = i};
      const Graded graded = executor_->evaluate(*this, batch, pass);
      output_ = graded.output;
      loss_ = graded.loss;
      sum += loss_.item().toDouble();
      call(Event::eval_batch_end);
      batch_ = nullptr;
    }
    output_.reset();
    book_.values["val/loss"] = sum / 4.0;
    call(Event::eval_end);
    evaluating_ = false;
    split_ = "train";
  }

  void finish() {
    const at::NoGradGuard untracked;
    begin();
    executor_->settle(*this, Executor::Pause::end);
    call(Event::fit_end);
    call(Event::shutdown);
  }

  void call(Event event) {
    event_ = event;
    events_.push_back(event);
    for (const Hook& hook : hooks_)
      if (hook.spec->event == event && due(*hook.spec)) call(hook);
    caller_ = nullptr;
  }

  // Workbench.

  void backward(StepWork& work, std::size_t micro, const ForwardPass& forward) override {
    if (micro == 0)
      for (const NamedTensor& each : network_->parameters()) each.tensor.mutable_grad().reset();
    enter(work, micro);
    call(Event::micro_start);
    run_micro(work.micros[micro], work.pass(micro), forward);
    call(Event::micro_end);
    output_.reset();
  }

  Update update(const std::function<void()>& apply) override {
    const at::NoGradGuard untracked;
    for (ParamGroup& group : optimizer_->groups()) group.lr = group.base_lr;
    skip_reason_ = SkipReason::error;
    call(Event::before_step);
    gradients_ = copies(gradients_of(*network_));
    if (take(Control::skip_step))
      skip_reason_ = SkipReason::plugin;
    else if (take(Control::repeat_step))
      skip_reason_ = SkipReason::repeat;
    else
      skip_reason_ = SkipReason::none;
    if (skip_reason_ != SkipReason::none) {
      call(Event::step_skipped);
      if (skip_reason_ == SkipReason::plugin) return Update::skipped;
      if (++repeats_ > most_repeats) throw PluginError("repeat_step was asked for too often");
      return Update::repeat;
    }
    if (apply)
      apply();
    else
      optimizer_->step();
    ++updates_;
    call(Event::after_step);
    return Update::done;
  }

  Network& network() override { return *(network_ != nullptr ? network_ : own_network_.get()); }
  Loss& loss() override { return *loss_plugin_; }
  Optimizer& optimizer() override { return *optimizer_; }
  Graded grade(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward) override {
    return grade(forward ? forward(batch, pass) : network_->forward(batch, pass), batch);
  }
  std::unique_ptr<Network> twin() override {
    std::unique_ptr<Network> twin = network_->twin();
    if (plan_) twin->set_dropout(&*plan_, setup_.seed);
    return twin;
  }
  Graded grade(Network& twin, const Batch& batch, const ForwardContext& pass) override {
    return grade(twin.forward(batch, pass), batch);
  }
  Graded grade(at::Tensor output, const Batch& batch) {
    at::Tensor loss = loss_plugin_->forward(output, batch);
    return {std::move(output), std::move(loss)};
  }
  double loss_scale() const override { return 1.0; }
  void report(const Graded& graded, const Batch&) override { last_loss_ = graded.loss.item().toDouble(); }
  Rate rate(std::int64_t) const override { return {}; }
  std::int64_t updates() const override { return updates_; }
  void clip(std::vector<at::Tensor>&) const override {}
  bool autocasts() const override { return false; }
  std::int64_t accumulation() const override { return 1; }
  bool drops() const override { return plan_.has_value(); }
  Filling filling(std::string_view slot) const override {
    if (slot != "optimizer")
      throw PluginError("asks for the slot \"" + std::string(slot) + "\"; a tiny run has an optimizer alone");
    return {"sgd", {}};
  }
  bool heard(Event event) const override {
    return std::ranges::any_of(hooks_, [&](const Hook& each) { return each.spec->event == event; });
  }
  void fire(Event event, StepWork& work, std::size_t micro, Graded& graded) override {
    enter(work, micro);
    output_ = graded.output;
    loss_ = graded.loss;
    call(event);
    graded = {output_, loss_};
  }
  bool take(Control control) override { return std::erase(asked_, control) > 0; }

  // These show the state of the run.

  std::vector<NamedTensor> weights() const {
    return copies((network_ != nullptr ? network_ : own_network_.get())->parameters());
  }
  Optimizer* its_optimizer() const { return optimizer_; }
  const std::vector<NamedTensor>& gradients() const { return gradients_; }
  const std::vector<Event>& events() const { return events_; }
  const std::vector<Request>& requests() const { return requests_; }
  std::map<std::string, double, std::less<>>& values() { return book_.values; }
  double last_loss() const { return last_loss_; }

 private:
  struct Hook {
    MadePlugin* plugin;
    const HookSpec* spec;
  };
  struct Book final : Services {
    explicit Book(Work& owner) : work(owner) {}
    double metric(std::string_view name) const override {
      const auto found = values.find(name);
      return found == values.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
    }
    const std::map<std::string, double, std::less<>>& metrics() const override { return values; }
    void request(Control control, const Caller& who, std::string_view reason) override {
      if ((controls(work.event()) & static_cast<unsigned>(control)) == 0)
        throw PluginError(std::string(name(work.event())) + " does not take " +
                          controls_text(static_cast<unsigned>(control)) +
                          ", it takes: " + controls_text(controls(work.event())));
      work.asked_.push_back(control);
      work.requests_.push_back({who.id, control, std::string(reason)});
    }
    void withdraw(Control control, const Caller& who) override {
      std::erase(work.asked_, control);
      std::erase_if(work.requests_,
                    [&](const Request& each) { return each.control == control && each.plugin == who.id; });
    }
    Work& work;
    std::map<std::string, double, std::less<>> values;
  };

  void must_not_have_begun() const {
    if (begun_) throw PluginError("the run has begun: give its parts ahead of the first step");
  }

  void enter(StepWork& work, std::size_t micro) {
    micros_ = static_cast<int>(work.micros.size());
    micro_ = static_cast<int>(micro);
    batch_ = &work.micros[micro];
    loss_share_ = work.share(micro);
  }

  void run_micro(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward) {
    call(Event::before_forward);
    if (!take(Control::skip_micro)) output_ = forward ? forward(batch, pass) : network_->forward(batch, pass);
    call(Event::after_forward);
    if (take(Control::skip_micro) || !output_.defined()) return;
    call(Event::before_loss);
    loss_ = loss_plugin_->forward(output_, batch);
    call(Event::after_loss);
    last_loss_ = loss_.item().toDouble();
    call(Event::before_backward);
    if (!take(Control::skip_micro)) loss_.backward(at::full({}, loss_share_, loss_.options()));
    call(Event::after_backward);
  }

  /// Tests a cadence by the number of the step, or of the epoch where the cadence is in those.
  bool due(const HookSpec& spec) const {
    if (spec.cadence.every.empty()) return true;
    const std::optional<Duration> every = Duration::parse(spec.cadence.every);
    const std::int64_t steps = every ? every->steps(run_scale_).value_or(0) : 0;
    if (steps < 1) throw PluginError("a hook's every = \"" + spec.cadence.every + "\" is less than a step");
    return number_ > 0 && number_ % steps == 0;
  }

  void call(const Hook& hook) {
    const std::string id = hook.plugin->manifest().name;
    const Caller caller{id.c_str(), hook.spec->writes};
    const std::vector<NamedTensor> weights = copies(own_network_->parameters());
    const std::vector<NamedTensor> gradients = copies(gradients_of(*own_network_));
    caller_ = &caller;
    hook.spec->call(hook.plugin->self(), *this);
    caller_ = nullptr;
    const auto check = [&](Region region, const std::string& tensor) {
      if (tensor.empty() || hook.spec->writes.contains(region)) return;
      throw PluginError(id + " changed " + tensor + " at " + std::string(name(event_)) +
                        ", and did not declare it: add .writes(Region::" + std::string(name(region)) + ")");
    };
    check(Region::model, changed(weights, own_network_->parameters()));
    check(Region::grads, changed(gradients, gradients_of(*own_network_)));
  }

  Setup setup_;
  BatchSchema schema_;
  std::unique_ptr<Network> own_network_;
  PlainSgd own_optimizer_;
  PlainLoss own_loss_;
  Eager own_executor_;
  std::optional<DropoutPlan> plan_;
  Loss* loss_plugin_;
  Executor* executor_;
  Book book_{*this};
  std::vector<Hook> hooks_;
  std::vector<Control> asked_;
  std::vector<Request> requests_;
  std::vector<Event> events_;
  std::vector<NamedTensor> gradients_;
  std::int64_t updates_ = 0;
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();
  bool begun_ = false;
};

TinyRun::TinyRun(const Setup& setup) : work_(std::make_unique<Work>(setup)) {}
TinyRun::~TinyRun() = default;

void TinyRun::add(MadePlugin& plugin) {
  work_->add(plugin);
}
void TinyRun::use(std::unique_ptr<Network> network) {
  work_->use(std::move(network));
}
void TinyRun::use(Loss& loss) {
  work_->use(loss);
}
void TinyRun::use(Dropout& dropout) {
  work_->use(dropout);
}
void TinyRun::use(Executor& executor) {
  work_->use(executor);
}
void TinyRun::use(Optimizer& optimizer) {
  work_->use(optimizer);
}
void TinyRun::step(int count) {
  for (int i = 0; i < count; ++i) work_->one_step();
}
void TinyRun::evaluate() {
  work_->evaluation();
}
void TinyRun::finish() {
  work_->finish();
}
void TinyRun::fire(Event event) {
  work_->begin();
  work_->call(event);
}
const RunScale& TinyRun::scale() const {
  return work_->scale();
}
const Clock& TinyRun::clock() const {
  return work_->clock();
}
Network& TinyRun::network() {
  return work_->network();
}
Optimizer& TinyRun::optimizer() {
  work_->begin();
  return work_->optimizer();
}
std::vector<NamedTensor> TinyRun::weights() const {
  return work_->weights();
}
const std::vector<NamedTensor>& TinyRun::gradients() const {
  return work_->gradients();
}
double TinyRun::loss() const {
  return work_->last_loss();
}
const std::vector<Event>& TinyRun::events() const {
  return work_->events();
}
const std::vector<TinyRun::Request>& TinyRun::requests() const {
  return work_->requests();
}
std::map<std::string, double, std::less<>>& TinyRun::metrics() {
  return work_->values();
}

}  // namespace trainyard::testing
