// Fine-grained pipelined back-propagation: README.md.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/executor.hpp>
#include <trainyard/helpers/check_rows.hpp>
#include <trainyard/helpers/gather.hpp>
#include <trainyard/host.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/state.hpp>

#include "../rows.hpp"
#include "layers.hpp"
#include "line.hpp"
#include "pipeline.hpp"

#include "lib/printed.hpp"

namespace {
enum class Mode : std::uint8_t { sim, threads, dist };
enum class Keep : std::uint8_t { in_flight, drain };
}  // namespace

template <>
struct trainyard::Words<Mode> {
  static constexpr std::string_view words[] = {"sim", "threads", "dist"};
};
template <>
struct trainyard::Words<Keep> {
  static constexpr std::string_view words[] = {"in_flight", "drain"};
};
template <>
struct trainyard::Words<pipelined::Mitigation> {
  static constexpr std::string_view words[] = {"none", "stash",   "sc",      "lwpv",
                                               "lwpw", "lwpv+sc", "lwpw+sc", "gsc"};
};

namespace {

using namespace trainyard;
using pipelined::Line, pipelined::Mitigation, pipelined::Pipeline, pipelined::Tensors, pipelined::Unit;

/// Between two pauses, where hooks may look at all weights.
constexpr Event of_a_step[] = {Event::epoch_start, Event::before_fetch,  Event::after_fetch,
                               Event::batch_start, Event::before_reduce, Event::after_reduce,
                               Event::before_step, Event::after_step,    Event::step_skipped,
                               Event::batch_end,   Event::safe_point,    Event::epoch_end};

std::string number(double value) {
  return lib::printed("%.6g", value);
}

/// What optimizer.type = "sgd" is told, at its defaults where the run file is silent.
struct Sgd {
  double momentum = 0.0;

  static Sgd of(const Workbench& bench) {
    const auto [type, options] = bench.filling("optimizer");
    if (type != "sgd")
      throw ConfigError(
          "the stages update their weights by stochastic gradient descent with momentum, and "
          "optimizer.type is \"" +
          type + "\": set it to \"sgd\"");
    const Value* nesterov = options.find("nesterov");
    if (nesterov != nullptr && nesterov->as<bool>())
      throw ConfigError(
          "optimizer.nesterov = true is spike compensation for a delay of one, which no stage has: "
          "set it to false, and executor.mitigation = \"sc\"");
    if (value(options, "dampening") != 0.0)
      throw ConfigError("optimizer.dampening is " + number(value(options, "dampening")) +
                        ", and the stages know none: set it to 0");
    return {value(options, "momentum")};
  }
  static double value(const Table& options, std::string_view name) {
    const Value* given = options.find(name);
    if (given == nullptr) return 0.0;
    if (const auto* integer = given->get_if<std::int64_t>()) return static_cast<double>(*integer);
    return given->as<double>();
  }
};

class Pipelined final : public Executor, pipelined::Judge {
 public:
  struct Options {
    Mode mode = Mode::sim;
    std::int64_t workers = 2;
    std::int64_t stages = 0;
    std::int64_t update_size = 1;
    Mitigation mitigation = Mitigation::sc;
    double horizon_scale = 1.0;
    std::optional<std::int64_t> reference_batch_size;
    Keep checkpoint = Keep::in_flight;
  };
  static void describe(Manifest<Options>& m) {
    m.name("pipelined")
        .version("1.0.0")
        .summary(
            "Layers as stages of a pipeline that is never drained: updates of a few samples, with delayed "
            "gradients.");
    m.needs("graph").needs("rows").needs("no model.dropout");
    m.needs("fp32").needs("trainer.precision != bf16-mixed | fp16-mixed");
    m.needs("optimizer.type = sgd").needs("optimizer.nesterov = false").needs("optimizer.dampening = 0");
    m.needs("optimizer.momentum != 0 where mitigation = lwpv | lwpv+sc | gsc");
    m.needs("no batch_norm where update_size = 1").needs("no tied_weights where stages != 1");
    m.needs("distributed where mode = dist").needs("one rank where mode = sim | threads");
    m.needs("run.device = cpu where mode = dist").needs("distributed.shares = none where mode = dist");
    m.provides("batch").provides("outputs").provides("divides_network where mode = dist");
    m.provides("losses").provides("predictions where stages = 1");  // else outputs are of earlier steps
    constexpr Event fired[] = {Event::before_loss, Event::after_loss, Event::before_backward,
                               Event::after_backward};
    m.fires(fired);
    m.option("mode", &Options::mode,
             "sim: on the loop's thread; threads: the same to the bit, on several; dist: on several ranks");
    m.option("workers", &Options::workers, "threads that share the stages, with mode = \"threads\"").min(1);
    m.option("stages", &Options::stages, "0: each layer is one; else so many, of about the same cost").min(0);
    m.option("update_size", &Options::update_size,
             "samples that go through together, an update of every stage")
        .min(1);
    m.option("mitigation", &Options::mitigation,
             "of the delay: stash weights, spike compensation, weight prediction by velocity or weights");
    m.option("horizon_scale", &Options::horizon_scale, "factor on the delay that is made up for").min(0.0);
    m.option("reference_batch_size", &Options::reference_batch_size,
             "batch size that optimizer.lr and momentum are for: scaled to update_size; left out: taken as "
             "they are")
        .range(1, 1'000'000'000);
    m.option("checkpoint", &Options::checkpoint,
             "in_flight: evaluations and checkpoints leave the pipeline as it is, and every stage keeps the "
             "weights of its forward passes for that; drain: it runs empty first");
  }
  explicit Pipelined(const Options& options) : options_(options) {}

  void check_ranks(Workbench& bench, std::int64_t ranks) const override {
    const Graph* const graph = bench.network().graph();
    if (options_.mode != Mode::dist || graph == nullptr) return;
    check_norms(*graph);
    const int stages = std::ranges::max(pipelined::stage_of_nodes(*graph, options_.stages)) + 1;
    if (stages < ranks)
      throw ConfigError("the model has " + std::to_string(stages) + " stages, and " + std::to_string(ranks) +
                        " ranks are to share them: take fewer ranks");
  }

  void open(Workbench& bench) override {
    check(bench);
    bench_ = &bench;
    const Graph& graph = *bench.network().graph();
    const std::vector<int> stage_of_node = pipelined::stage_of_nodes(graph, options_.stages);
    check_norms(graph);
    const Sgd sgd = Sgd::of(bench);
    const pipelined::Method method = method_of(sgd);
    if (!carried_ && pipeline_) {  // parts were replaced: what is in flight goes on with them
      StateWriter writer(carried_.emplace());
      save(writer);
    }
    weights_ = weights_of(bench.optimizer());
    std::unique_ptr<Pipeline> made = make(graph, stage_of_node, method);
    if (carried_) {
      for (auto& [name, tensor] : carried_->tensors)  // a checkpoint lies in the memory of the CPU
        tensor = tensor.to(at::Device(host().run().device));
      made->load(StateReader(*carried_));
    }
    carried_.reset();
    pipeline_ = std::move(made);
    counted_.clear();
    for (std::int64_t s = 0; s < pipeline_->size(); ++s) counted_.push_back(pipeline_->updates(s));
    log_plan(method, bench.optimizer().groups().front().base_lr);
  }

  void step(Workbench& bench, StepWork& work) override {
    for (const NamedTensor& each : bench.network().parameters()) each.tensor.mutable_grad().reset();
    std::vector<pipelined::UnitHandle> units = units_of(bench, work);
    const auto feed = [&] {
      pipeline_->feed(std::move(units));
      const auto heard = [&](Event event) { return bench.heard(event); };
      if (line_ && std::ranges::any_of(of_a_step, heard)) share(bench);
    };
    if (bench.update(feed) == Update::repeat)
      throw PluginError(
          "a hook wants the gradients of a batch again, and its samples are in the pipeline: take the "
          "executor \"eager\" with it");
  }

  void settle(Workbench& bench, Pause pause) override {
    if (options_.checkpoint == Keep::drain || pause == Pause::end || pause == Pause::exchange)
      pipeline_->drain();
    count_updates(bench.optimizer());
    if (!line_) return;
    share(bench);
    if (pause != Pause::evaluation) gather_in_flight();
  }

  bool divides_network() const override { return options_.mode == Mode::dist; }

  void save(StateWriter& state) const override {
    if (pipeline_ && !line_) return pipeline_->save(state);
    const std::optional<State>& kept = pipeline_ ? of_all_ : carried_;
    if (!kept) return;
    for (const auto& [name, value] : kept->scalars) state.scalar(name, value);
    for (const auto& [name, tensor] : kept->tensors) state.tensor(name, tensor);
  }
  void load(const StateReader& state) override {
    pipeline_.reset();
    carried_.reset();
    if (state.has_scalar("stages")) carried_ = state.state();
  }

 private:
  // ---- what it can run

  void check(const Workbench& bench) const {
    const RunFacts& run = host().run();
    if (options_.mode != Mode::dist && run.ranks != nullptr)
      throw ConfigError("trains on one rank, and this run has " + std::to_string(run.ranks->size()) +
                        ": set executor.mode = \"dist\", which has the stages on all of them");
    if (options_.mode == Mode::dist && run.ranks == nullptr)
      throw ConfigError(
          "executor.mode = \"dist\" has the stages on several ranks, and this run has one: start it with "
          "--ranks 2, "
          "or set executor.mode to \"sim\" or \"threads\"");
    if (options_.mode == Mode::dist && run.device != "cpu")
      throw ConfigError(
          "executor.mode = \"dist\" hands tensors on in the memory of the CPU, and run.device is \"" +
          run.device + "\": set it to \"cpu\"");
    if (bench.autocasts())
      throw ConfigError("runs in the precision of the weights: set trainer.precision = \"fp32\"");
    if (bench.drops())
      throw ConfigError(
          "its stages have no dropout: leave [model.dropout] out, or take the executor \"eager\"");
  }

  void check_norms(const Graph& graph) const {
    if (options_.update_size > 1) return;
    for (const Node& node : graph.nodes)
      if (node.op == "BatchNormalization")
        throw ConfigError(
            "node \"" + node.name +
            "\" normalises over the batch, and executor.update_size = 1 leaves it a single sample: "
            "take a model with layer or group normalisation, or an update_size of 2 or more");
  }

  pipelined::Method method_of(const Sgd& sgd) const {
    const Mitigation m = options_.mitigation;
    if (sgd.momentum == 0.0 && (pipelined::predicts_by_velocity(m) || m == Mitigation::gsc))
      throw ConfigError(
          "executor.mitigation \"" + std::string(Words<Mitigation>::words[static_cast<std::size_t>(m)]) +
          "\" goes by the velocity, and optimizer.momentum is 0: give a momentum, or take \"lwpw\"");
    pipelined::Method method{.mitigation = m,
                             .horizon_scale = options_.horizon_scale,
                             .momentum = sgd.momentum,
                             .update_size = static_cast<double>(options_.update_size),
                             .keeps_weights = options_.checkpoint == Keep::in_flight};
    if (options_.reference_batch_size) method.from_size = static_cast<double>(*options_.reference_batch_size);
    return method;
  }

  /// With the momentum buffers of the run's optimizer, which thereby has what an executor after this one needs.
  static pipelined::Weights weights_of(const Optimizer& optimizer) {
    State state;
    StateWriter writer(state);
    optimizer.save(writer);
    pipelined::Weights weights;
    for (const ParamGroup& group : optimizer.groups())
      for (std::size_t i = 0; i < group.names.size(); ++i) {
        const at::Tensor weight = group.params[i].detach();
        const auto buffer = state.tensors.find("momentum_buffer/" + group.names[i]);
        weights[group.names[i]] = {
            .weight = weight,
            .velocity = buffer == state.tensors.end() ? at::zeros_like(weight) : buffer->second,
            .lr = group.base_lr,
            .decay = group.weight_decay};
      }
    return weights;
  }

  /// The optimizer starts its buffers anew where it believes that it made no update.
  void count_updates(Optimizer& optimizer) {
    State state;
    StateWriter writer(state);
    optimizer.save(writer);
    for (std::int64_t s = 0; s < pipeline_->size(); ++s) {
      const std::int64_t now = pipeline_->updates(s);
      const std::int64_t before = std::exchange(counted_[static_cast<std::size_t>(s)], now);
      for (const std::string& name : pipeline_->names(s))
        if (const auto count = state.scalars.find("step/" + name); count != state.scalars.end())
          count->second = std::get<std::int64_t>(count->second) + now - before;
    }
    optimizer.load(StateReader(state));
  }

  // ---- of several ranks

  std::unique_ptr<Pipeline> make(const Graph& graph, const std::vector<int>& stage_of_node,
                                 const pipelined::Method& method) {
    auto& judge = static_cast<Judge&>(*this);
    if (options_.mode == Mode::dist) {
      if (!line_) line_ = std::make_unique<Line>(*host().run().ranks);
      return std::make_unique<Pipeline>(graph, stage_of_node, weights_, method, *line_, judge);
    }
    const int workers = options_.mode == Mode::threads ? static_cast<int>(options_.workers) : 1;
    return std::make_unique<Pipeline>(graph, stage_of_node, weights_, method, workers, judge);
  }

  /// What the stages of each rank have come to, with their velocities, for all.
  void share(Workbench& bench) {
    std::map<std::string_view, at::Tensor> buffers;
    const std::vector<NamedTensor> named = bench.network().buffers();
    for (const NamedTensor& each : named) buffers.emplace(each.name, each.tensor);
    std::vector<Tensors> of_place(static_cast<std::size_t>(line_->size()));
    for (std::int64_t s = 0; s < pipeline_->size(); ++s)
      for (const std::string& name : pipeline_->names(s)) {
        Tensors& own = of_place[static_cast<std::size_t>(pipeline_->place(s))];
        if (const auto weight = weights_.find(name); weight != weights_.end())
          own.insert(own.end(), {weight->second.weight, weight->second.velocity});
        else if (const auto buffer = buffers.find(name); buffer != buffers.end())
          own.push_back(buffer->second);
      }
    line_->share(of_place);
  }

  void gather_in_flight() {
    State own;
    StateWriter writer(own);
    pipeline_->save(writer);
    of_all_.emplace();
    for (std::vector<State>& each : gather(line_->ranks(), std::vector<State>{std::move(own)})) {
      of_all_->scalars.merge(each.front().scalars);
      of_all_->tensors.merge(each.front().tensors);
    }
  }

  void log_plan(const pipelined::Method& method, double lr) {
    const pipelined::Rates rates = method.rates(lr, std::nullopt);
    std::string text = std::to_string(pipeline_->size()) + " stages" +
                       (line_ ? " on " + std::to_string(line_->size()) + " ranks" : "") + ", delays " +
                       std::to_string(pipelined::delay(0, pipeline_->size())) + " to 0; updates of " +
                       std::to_string(options_.update_size) + " at lr " + number(rates.lr) + ", momentum " +
                       number(rates.momentum);
    if (method.from_size)
      text += ", from lr " + number(lr) + ", momentum " + number(method.momentum) + " at a batch size of " +
              number(*method.from_size);
    if (std::exchange(told_, text) != text) host().log(LogLevel::info, text);
  }

  // ---- what it is fed

  std::vector<pipelined::UnitHandle> units_of(Workbench& bench, const StepWork& work) const {
    const Rate rate = bench.rate(bench.updates());
    std::vector<pipelined::UnitHandle> units;
    for (std::size_t i = 0; i < work.micros.size(); ++i) {
      const Batch& micro = work.micros[i];
      for (std::int64_t row = 0; row < micro.size(); row += options_.update_size) {
        auto unit = std::make_shared<Unit>();
        unit->batch =
            executors::rows_of(bench.loss(), micro, row, std::min(options_.update_size, micro.size() - row));
        if (unit->batch.weight <= 0.0) continue;  // nothing in it counts
        unit->pass = work.pass(i);
        unit->pass.micro = static_cast<std::uint32_t>(units.size());
        unit->pass.part.first += row;
        unit->pass.part.count = unit->batch.size();
        unit->factor = rate.factor;
        unit->momentum = rate.momentum;
        units.push_back(std::move(unit));
      }
    }
    return units;
  }

  // ---- behind the last stage

  at::Tensor loss(const Unit& unit, const at::Tensor& output) override {
    const at::AutoGradMode tracked(true);
    shown_ = unit.batch;
    graded_ = {output, {}};
    fire(Event::before_loss, unit);
    graded_.loss = bench_->loss().forward(graded_.output, check_rows(shown_, graded_.output.sizes()));
    fire(Event::after_loss, unit);
    bench_->report(graded_, shown_);
    fire(Event::before_backward, unit);
    if (bench_->take(Control::skip_micro))
      throw PluginError(
          "a hook wants a micro-batch left out, and it is in the pipeline: take the executor \"eager\" "
          "with it");
    return graded_.loss;
  }
  void passed_back(const Unit& unit) override {
    fire(Event::after_backward, unit);
    graded_ = {};
  }
  void clip(Tensors& gradients) override { bench_->clip(gradients); }

  /// The unit's share of its step is that of its samples.
  void fire(Event event, const Unit& unit) {
    const StepPart& part = unit.pass.part;
    StepWork work{
        .micros = {&shown_, 1},
        .weight = shown_.weight * static_cast<double>(part.samples) / static_cast<double>(part.count),
        .step = static_cast<std::int64_t>(unit.pass.step),
        .before = part.before,
        .samples = part.samples,
        .first = part.first,
        .first_micro = unit.pass.micro};
    bench_->fire(event, work, 0, graded_);
  }

  const Options options_;
  Workbench* bench_ = nullptr;
  std::unique_ptr<Line> line_;  ///< null: a single rank
  pipelined::Weights weights_;
  std::unique_ptr<Pipeline> pipeline_;
  std::optional<State> of_all_;        ///< in flight on all ranks, since the last pause
  std::optional<State> carried_;       ///< of a pipeline that is still to be made
  std::vector<std::int64_t> counted_;  ///< updates of each stage that the optimizer knows of
  Batch shown_;                        ///< to hooks, with what is known of it
  Graded graded_;
  std::string told_;
};

}  // namespace

TRAINYARD_PLUGIN(Pipelined)
