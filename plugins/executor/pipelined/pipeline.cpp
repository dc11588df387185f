#include "pipeline.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/graph/cut.hpp>

#include "../layers.hpp"

namespace pipelined {

using namespace trainyard;
namespace {

std::string path(const char* what, std::int64_t stage, std::int64_t unit) {
  return std::string(what) + "/" + std::to_string(stage) + "/" + std::to_string(unit) + "/";
}

/// With their strides, which a state does not keep: what is computed from them has other bits with others, and a rank
/// expects what the next one hands on to lie in memory as it did before.
void save_tensors(StateWriter& state, const std::string& prefix, const Tensors& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& each = tensors[i];
    if (!each.defined()) continue;
    state.tensor(prefix + std::to_string(i), each.detach());
    if (!each.is_contiguous() && each.is_non_overlapping_and_dense())
      state.tensor(prefix + "strides/" + std::to_string(i), at::tensor(each.strides(), at::kLong));
  }
}

Tensors load_tensors(const StateReader& state, const std::string& prefix, std::size_t count) {
  Tensors tensors(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    if (!state.has_tensor(prefix + number)) continue;
    tensors[i] = state.tensor(prefix + number).detach();
    if (!state.has_tensor(prefix + "strides/" + number)) continue;
    const at::Tensor kept = state.tensor(prefix + "strides/" + number).cpu();
    const std::vector<std::int64_t> strides(kept.const_data_ptr<std::int64_t>(),
                                            kept.const_data_ptr<std::int64_t>() + kept.numel());
    tensors[i] = at::empty_strided(tensors[i].sizes(), strides, tensors[i].options()).copy_(tensors[i]);
  }
  return tensors;
}

void save_unit(StateWriter& state, const std::string& prefix, const Unit& unit) {
  save_tensors(state, prefix + "input/", unit.batch.inputs);
  if (unit.batch.target.defined()) state.tensor(prefix + "target", unit.batch.target);
  state.tensor(prefix + "indices", at::tensor(unit.batch.indices, at::kLong));
  state.scalar(prefix + "inputs", static_cast<std::int64_t>(unit.batch.inputs.size()));
  state.scalar(prefix + "weight", unit.batch.weight);
  state.scalar(prefix + "step", static_cast<std::int64_t>(unit.pass.step));
  state.scalar(prefix + "micro", static_cast<std::int64_t>(unit.pass.micro));
  state.scalar(prefix + "first", unit.pass.part.first);
  state.scalar(prefix + "samples", unit.pass.part.samples);
  state.scalar(prefix + "before", unit.pass.part.before);
  state.scalar(prefix + "factor", unit.factor);
  if (unit.momentum) state.scalar(prefix + "momentum", *unit.momentum);
}

UnitHandle load_unit(const StateReader& state, const std::string& prefix) {
  auto unit = std::make_shared<Unit>();
  Batch& batch = unit->batch;
  batch.inputs =
      load_tensors(state, prefix + "input/", static_cast<std::size_t>(state.integer(prefix + "inputs")));
  if (state.has_tensor(prefix + "target")) batch.target = state.tensor(prefix + "target");
  const at::Tensor indices = state.tensor(prefix + "indices").cpu();
  batch.indices.assign(indices.data_ptr<std::int64_t>(), indices.data_ptr<std::int64_t>() + indices.numel());
  batch.weight = state.number(prefix + "weight");
  unit->pass = {.training = true,
                .step = static_cast<std::uint64_t>(state.integer(prefix + "step")),
                .micro = static_cast<std::uint32_t>(state.integer(prefix + "micro")),
                .part = {.first = state.integer(prefix + "first"),
                         .count = batch.size(),
                         .samples = state.integer(prefix + "samples"),
                         .before = state.integer(prefix + "before")}};
  unit->factor = state.number(prefix + "factor");
  if (state.has_scalar(prefix + "momentum")) unit->momentum = state.number(prefix + "momentum");
  return unit;
}

/// Seconds from its making on.
class Watch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begun_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begun_ = Clock::now();
};

}  // namespace

Pipeline::Pipeline(const Graph& graph, std::span<const int> stage_of_node, const Weights& weights,
                   const Method& method, int workers, Judge& judge)
    : Pipeline(graph, stage_of_node, weights, method, workers, nullptr, judge) {}

Pipeline::Pipeline(const Graph& graph, std::span<const int> stage_of_node, const Weights& weights,
                   const Method& method, Line& line, Judge& judge)
    : Pipeline(graph, stage_of_node, weights, method, line.size(), &line, judge) {}

Pipeline::Pipeline(const Graph& graph, std::span<const int> stage_of_node, const Weights& weights,
                   const Method& method, int workers, Line* line, Judge& judge)
    : judge_(judge), line_(line) {
  const std::vector<Graph> parts = cut(graph, stage_of_node);
  std::vector<double> costs;
  for (const Graph& part : parts) {
    costs.push_back(1.0);  // what a call costs, in multiply-adds
    for (const Node& node : part.nodes) {
      const NodeCost node_cost = cost(part, node);
      costs.back() += 1e4 + static_cast<double>(node_cost.multiply_adds + 2 * node_cost.parameters);
    }
    std::vector<std::string>& names = names_.emplace_back();
    for (const GraphValue& value : part.values)
      if (value.initializer.defined()) names.push_back(value.name);
  }
  worker_of_stage_ = executors::balanced(costs, workers);
  const auto stages = std::ssize(parts);
  for (std::int64_t s = 0; s < stages; ++s) {
    const bool own = line == nullptr || place(s) == line->place();
    stages_.push_back(own ? std::make_unique<Stage>(parts[static_cast<std::size_t>(s)], weights, s, stages,
                                                    method,
                                                    [&judge](Tensors& gradients) { judge.clip(gradients); })
                          : nullptr);
  }
  forward_ = std::vector<Channel<Message>>(stages_.size());
  backward_ = std::vector<Channel<Message>>(stages_.size());
  costs_.resize(stages_.size());
  make_workers();
}

/// Of this rank.
void Pipeline::make_workers() {
  int newest = -1;
  for (std::int64_t s = 0; s < size(); ++s) {
    if (!is_own(s)) continue;
    if (workers_.empty() || place(s) != newest) workers_.push_back({s, s, {}});
    newest = place(s);
    workers_.back().last = s + 1;
  }
  measures_ = workers_.size() > 1;
  for (std::size_t w = 0; w + 1 < workers_.size(); ++w)
    workers_[w].thread = std::jthread([this, w](const std::stop_token& stop) { serve(workers_[w], stop); });
}

Pipeline::~Pipeline() {
  fail();
  workers_.clear();  // asks them to stop, and joins
}

void Pipeline::feed(std::vector<UnitHandle> units) {
  const std::int64_t from = fed_;
  fed_ += static_cast<std::int64_t>(units.size());
  units_.insert(units_.end(), units.begin(), units.end());
  run(from, fed_, std::move(units));
  const std::int64_t in_flight = fed_ - backwards(0);
  while (static_cast<std::int64_t>(units_.size()) > in_flight) units_.pop_front();
}

void Pipeline::drain() {
  if (fed_ == 0) return;
  run(fed_, fed_ + 2 * (size() - 1), {});
  units_.clear();
  drained_ += std::exchange(fed_, 0);
}

/// The caller's thread feeds, and has the last of the stages.
void Pipeline::run(std::int64_t from, std::int64_t to, std::vector<UnitHandle> units) {
  {
    const std::lock_guard lock(mutex_);
    balance();
    from_ = from;
    to_ = to;
    ++round_;
    busy_ = static_cast<std::int64_t>(workers_.size()) - 1;
  }
  changed_.notify_all();
  std::exception_ptr own;
  try {
    const Worker& last = workers_.back();
    for (std::int64_t c = from; c < to; ++c, ++cycles_) {
      if (!units.empty() && is_own(0)) {
        UnitHandle& unit = units[static_cast<std::size_t>(c - from)];
        Tensors inputs = unit->batch.inputs;
        forward_.front().push({std::move(unit), std::move(inputs)});
      }
      cycle(c, last.first, last.last);
      if (line_ != nullptr) take_from_others(c);
    }
  } catch (const Closed&) {  // another thread says why
  } catch (...) {
    own = std::current_exception();
    fail();
  }
  const auto all_done = [&] { return busy_ == 0; };
  spin(all_done);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, all_done);
  if (own) std::rethrow_exception(own);
  if (failed_) std::rethrow_exception(failed_);
}

/// Once, when all stages were seen at work a number of times: workers get runs of stages that take about as long. Which
/// worker has a stage is nothing to the outcome.
void Pipeline::balance() {
  constexpr std::int64_t enough = 64;  // cycles with all stages at work
  if (!measures_ || cycles_ < 2 * (size() - 1) + enough) return;
  measures_ = false;
  std::vector<double> seconds;
  for (const Cost& each : costs_) seconds.push_back(each.forward + each.backward);
  const std::vector<int> worker_of_stage =
      executors::balanced(seconds, static_cast<std::int64_t>(workers_.size()));
  for (Worker& each : workers_) each.first = size(), each.last = 0;
  for (std::int64_t s = 0; s < size(); ++s) {
    Worker& worker = workers_[static_cast<std::size_t>(worker_of_stage[static_cast<std::size_t>(s)])];
    worker.first = std::min(worker.first, s);
    worker.last = s + 1;
  }
}

void Pipeline::serve(const Worker& worker, const std::stop_token& stop) {
  at::init_num_threads();
  for (std::int64_t done = 0;; ++done) {
    std::int64_t from = 0, to = 0;
    const auto called = [&] { return round_ > done; };
    spin(called);
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, called)) return;
      from = from_;
      to = to_;
    }
    std::exception_ptr failed;
    try {
      for (std::int64_t c = from; c < to; ++c) cycle(c, worker.first, worker.last);
    } catch (const Closed&) {
    } catch (...) {
      failed = std::current_exception();
      fail();
    }
    const std::lock_guard lock(mutex_);
    if (failed && !failed_) failed_ = failed;
    --busy_;
    changed_.notify_all();
  }
}

void Pipeline::fail() {
  for (Channel<Message>& each : forward_) each.close();
  for (Channel<Message>& each : backward_) each.close();
}

void Pipeline::cycle(std::int64_t number, std::int64_t first, std::int64_t last) {
  for (std::int64_t s = first; s < last; ++s) {
    if (is_fed(forward_unit(number, s))) run_forward(s);
    if (is_fed(backward_unit(number, s))) run_backward(s);
  }
}

/// What neighbouring ranks have handed on in this cycle, for the next one.
void Pipeline::take_from_others(std::int64_t cycle) {
  const std::int64_t first = workers_.back().first, last = workers_.back().last;
  const auto take = [&](Line::Side& side, std::int64_t number, Channel<Message>& channel) {
    if (is_fed(number)) channel.push(side.in->take(unit(number)));
    side.out->settle();
  };
  if (first > 0)
    take(line_->ahead(), forward_unit(cycle, first - 1), forward_[static_cast<std::size_t>(first)]);
  if (last < size())
    take(line_->behind(), backward_unit(cycle, last), backward_[static_cast<std::size_t>(last - 1)]);
}

void Pipeline::run_forward(std::int64_t s) {
  const std::size_t at = static_cast<std::size_t>(s);
  Message in = forward_[at].pop();
  const Watch watch;
  Message out = stages_[at]->forward(std::move(in));
  if (s + 1 == size()) {
    Tensors& outputs = stages_[at]->newest();
    outputs = {judge_.loss(*out.unit, outputs.front())};
  }
  if (measures_) costs_[at].forward = std::min(costs_[at].forward, watch.seconds());
  if (s + 1 == size()) return;
  if (is_own(s + 1))
    forward_[at + 1].push(std::move(out));
  else
    line_->behind().out->give(out);
}

void Pipeline::run_backward(std::int64_t s) {
  const std::size_t at = static_cast<std::size_t>(s);
  const bool last = s + 1 == size();
  const Message given = last ? Message{stages_[at]->passed().front().unit,
                                       {at::ones_like(stages_[at]->passed().front().outputs.front())}}
                             : backward_[at].pop();
  const Watch watch;
  Message out = stages_[at]->backward(given);
  if (measures_) costs_[at].backward = std::min(costs_[at].backward, watch.seconds());
  if (s > 0) {
    if (is_own(s - 1))
      backward_[at - 1].push(std::move(out));
    else
      line_->ahead().out->give(out);
  }
  if (last) judge_.passed_back(*given.unit);
}

void Pipeline::save(StateWriter& state) const {
  state.scalar("stages", size());
  state.scalar("fed", fed_);
  for (std::size_t i = 0; i < units_.size(); ++i)
    save_unit(state, "unit/" + std::to_string(backwards(0) + static_cast<std::int64_t>(i)) + "/", *units_[i]);
  for (std::int64_t s = 0; s < size(); ++s) {
    if (!is_own(s)) continue;
    const std::size_t at = static_cast<std::size_t>(s);
    save_tensors(state, path("before", s, 0), stages_[at]->before());
    std::int64_t unit = backwards(s);
    for (const Stage::Passed& each : stages_[at]->passed()) {
      save_tensors(state, path("input", s, unit), each.inputs);
      save_tensors(state, path("weight", s, unit++), each.weights);
    }
    unit = forwards(s);
    for (const Message& each : forward_[at].items())
      save_tensors(state, path("forward", s, unit++), each.tensors);
    unit = backwards(s);
    for (const Message& each : backward_[at].items())
      save_tensors(state, path("backward", s, unit++), each.tensors);
  }
}

void Pipeline::load(const StateReader& state) {
  fed_ = state.integer("fed");
  if (fed_ < 0)
    throw ConfigError("the state says that " + std::to_string(fed_) +
                      " samples went in: it is of no pipeline");
  if (fed_ == 0 && state.integer("stages") != size()) return;
  if (state.integer("stages") != size())
    throw ConfigError("what is in flight is of a pipeline of " + std::to_string(state.integer("stages")) +
                      " stages, and this one has " + std::to_string(size()) +
                      ": keep model and executor.stages, or begin from the weights alone");
  for (std::int64_t unit = backwards(0); unit < fed_; ++unit)
    units_.push_back(load_unit(state, "unit/" + std::to_string(unit) + "/"));
  const auto handle = [&](std::int64_t unit) {
    return units_[static_cast<std::size_t>(unit - backwards(0))];
  };
  for (std::int64_t s = 0; s < size(); ++s) {
    if (!is_own(s)) continue;
    const std::size_t at = static_cast<std::size_t>(s);
    Stage& stage = *stages_[at];
    const Tensors before = load_tensors(state, path("before", s, 0), stage.before().size());
    for (std::size_t i = 0; i < before.size(); ++i)
      if (before[i].defined()) stage.before()[i].copy_(before[i]);
    for (std::int64_t unit = backwards(s); unit < forwards(s); ++unit)
      stage.repeat(handle(unit), load_tensors(state, path("input", s, unit), stage.inputs()),
                   load_tensors(state, path("weight", s, unit), stage.parameters().size()));
    for (std::int64_t unit = forwards(s); s > 0 && unit < forwards(s - 1); ++unit)
      forward_[at].push({handle(unit), load_tensors(state, path("forward", s, unit), stage.inputs())});
    for (std::int64_t unit = backwards(s); s + 1 < size() && unit < backwards(s + 1); ++unit)
      backward_[at].push({handle(unit), load_tensors(state, path("backward", s, unit), stage.outputs())});
  }
}

}  // namespace pipelined
