#include "stage.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/helpers/check_rows.hpp>
#include <trainyard/helpers/shape_text.hpp>
#include <trainyard/loss.hpp>

#include "../layers.hpp"

namespace wavelet {
namespace {

/// Passes whose inputs may come while others are under way.
constexpr std::int64_t ahead = 2;

/// A tensor for a value of a graph, for so many samples.
at::Tensor form_of(const GraphValue& value, std::int64_t samples) {
  std::vector<std::int64_t> sizes = value.shape;
  for (std::int64_t& each : sizes)
    if (each < 0) each *= -samples;
  return at::empty(sizes, value.dtype);
}

const GraphValue& value_of(const Graph& graph, ValueId id) {
  return graph.values[static_cast<std::size_t>(id)];
}

}  // namespace

std::vector<int> stage_of_nodes(const Graph& graph, int stages) {
  const executors::Layers layers = executors::layers_of(graph);
  const std::vector<int> stage_of_layer = executors::balanced(layers.costs, stages);
  std::vector<int> stage_of_node;
  for (const int layer : layers.of_node)
    stage_of_node.push_back(stage_of_layer[static_cast<std::size_t>(layer)]);
  return stage_of_node;
}

Stage::Stage(Host& host, Ranks& ranks, const Loss& loss, const Graph& graph, std::int64_t waves, int threads)
    : number_(ranks.rank()),
      stages_(ranks.size()),
      threads_(threads),
      loss_(loss),
      graph_(graph),
      order_(ranks.rank(), ranks.size(), waves) {
  for (const GraphValue& value : graph.values)
    if (value.initializer.defined() && !value.trainable && value.initializer.is_floating_point())
      statistics_.push_back(value.initializer.detach());
  for (int front = 0; front + 1 < stages_; ++front)
    for (const bool onward : {true, false}) {
      std::unique_ptr<RankGroup> pair = ranks.group({front, front + 1});
      if (!pair) continue;
      const bool gives = (number_ == front) == onward;
      // A gradient is there when the next one is made; activations, when their gradient comes back.
      auto wire = std::make_unique<Wire>(std::move(pair), onward ? 0 : 1, onward ? waves : 1);
      (onward  ? gives ? activations_out_ : activations_in_
       : gives ? gradients_out_
               : gradients_in_) = std::move(wire);
    }
  thread_ =
      host.thread("stage " + std::to_string(number_), [this](const std::stop_token& stop) { run(stop); });
}

Stage::~Stage() = default;

void Stage::launch(const std::vector<std::shared_ptr<Pass>>& passes) {
  const std::lock_guard lock(mutex_);
  passes_.insert(passes_.end(), passes.begin(), passes.end());
  launched_ += std::ssize(passes);
  changed_.notify_all();
}

void Stage::finish(std::int64_t count) {
  std::unique_lock lock(mutex_);
  wanted_ = std::max(wanted_, count);
  changed_.notify_all();
  changed_.wait(lock, [&] { return thrown_ || order_.backwards() >= count; });
  if (thrown_) std::rethrow_exception(thrown_);
}

/// By its number of all. Within the lock.
Pass& Stage::of(std::int64_t number) {
  return *passes_[static_cast<std::size_t>(number - order_.backwards())];
}

void Stage::run(const std::stop_token& stop) {
  at::set_num_threads(threads_);
  for (;;) {
    std::unique_lock lock(mutex_);
    Next next = Next::nothing;
    const auto there_is = [&] {
      next = thrown_ ? Next::nothing : order_.next(launched_, wanted_);
      return next != Next::nothing;
    };
    if (!changed_.wait(lock, stop, there_is) || stop.stop_requested()) return;
    try {
      expect_inputs(std::min(launched_, order_.forwards() + ahead));
      Pass& pass = of(next == Next::forward ? order_.forwards() : order_.backwards());
      lock.unlock();
      next == Next::forward ? forward(pass) : backward(pass);
      lock.lock();
      if (next == Next::backward) passes_.pop_front();
      order_.done(next);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      thrown_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

void Stage::expect_inputs(std::int64_t end) {
  for (; activations_in_ && expected_ < end; ++expected_) {
    Tensors message;
    for (const ValueId id : graph_.inputs)
      message.push_back(form_of(value_of(graph_, id), of(expected_).batch.size()));
    activations_in_->expect(std::move(message));
  }
}

void Stage::forward(Pass& pass) {
  pass.inputs = activations_in_ ? activations_in_->take() : pass.batch.inputs;
  pass.outputs = pass.part->forward(pass.inputs, pass.context, /*is_first=*/number_ == 0);
  for (const at::Tensor& each : statistics_) pass.statistics.push_back(each.clone());
  if (!activations_out_) return turn(pass);
  Tensors message, gradients;
  for (std::size_t i = 0; i < pass.outputs.size(); ++i) {
    message.push_back(pass.outputs[i].detach().contiguous());
    const GraphValue& value = value_of(graph_, graph_.outputs[i]);
    const at::Tensor form = form_of(value, pass.batch.size());
    if (message.back().sizes() != form.sizes() || message.back().scalar_type() != form.scalar_type())
      throw PluginError("\"" + value.name + "\", which goes to the next stage, has the shape " +
                        shape_text(message.back().sizes().vec()) + ", and the graph says " +
                        shape_text(form.sizes().vec()));
    if (form.is_floating_point()) gradients.push_back(form);
  }
  activations_out_->give(message);
  gradients_in_->expect(std::move(gradients));
}

/// The last stage: from the output to the gradient that backward begins with.
void Stage::turn(Pass& pass) {
  const at::AutoGradMode tracked(true);
  const at::Tensor output = pass.outputs.front();
  const at::Tensor loss = loss_.forward(output, check_rows(pass.batch, output.sizes()));
  pass.graded = {output.detach(), loss.detach()};
  pass.outputs = {loss};
}

void Stage::backward(Pass& pass) {
  const Tensors inputs = std::exchange(pass.inputs, {}), outputs = std::exchange(pass.outputs, {});
  Tensors given;
  if (gradients_in_) {
    Tensors message = gradients_in_->take();
    auto next = message.begin();
    for (const at::Tensor& each : outputs) given.push_back(each.is_floating_point() ? *next++ : at::Tensor());
  } else {
    given = {at::full({}, pass.share, outputs.front().options().requires_grad(false))};
  }
  const Tensors back = pass.part->backward(inputs, outputs, given);
  if (!gradients_out_) return;
  Tensors message;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].is_floating_point())
      message.push_back(back[i].defined() ? back[i].contiguous() : at::zeros_like(inputs[i].detach()));
  gradients_out_->give(message);
}

}  // namespace wavelet
