#include "timing.hpp"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/graph/network.hpp>
#include <trainyard/random.hpp>

#include "../../executor/compiled/plan.hpp"
#include "stopwatch.hpp"
#include "weights.hpp"

namespace tensat {

using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::ValueId;

namespace {

/// Of its own, so that nothing of a run is changed by what is tried; joined weights lie as they would in a run.
Graph copied(const Graph& graph) {
  Graph made = graph;
  for (GraphValue& value : made.values)
    if (value.initializer.defined()) value.initializer = value.initializer.detach().clone();
  lay_behind_each_other(made);
  return made;
}

class Repeated final : public Pass {
 public:
  Repeated(const Graph& graph, const Way& way, const std::vector<std::string>& wants)
      : way_(way), network_(copied(graph)) {
    const Graph& its = *network_.graph();
    for (const ValueId id : its.inputs) {
      const GraphValue& value = its.values[static_cast<std::size_t>(id)];
      std::vector<std::int64_t> shape = value.shape;
      for (std::int64_t& size : shape)
        if (size < 0) size *= -way.samples;
      at::Tensor input = at::zeros(shape, at::TensorOptions(value.dtype));
      if (value.dtype == at::kFloat)
        trainyard::fill_normal(input, trainyard::RandomStream(1, value.name), 0.0, 1.0);
      if (way.training && std::ranges::find(wants, value.name) != wants.end()) {
        input.set_requires_grad(true);
        to_.push_back(input);
      }
      batch_.inputs.push_back(std::move(input));
    }
    batch_.indices.resize(static_cast<std::size_t>(way.samples));
    for (const trainyard::NamedTensor& each : network_.parameters()) to_.push_back(each.tensor);
    if (!way.compiled) return;
    compiled::PlanKey key{
        .inputs = {}, .training = way.training, .copies = {}, .threads = at::get_num_threads()};
    for (const at::Tensor& input : batch_.inputs) key.inputs.push_back(input.sizes().vec());
    plan_ = std::make_shared<compiled::Plan>(network_, key,
                                             compiled::Choices{.fuses = way.fuses, .winograd = way.winograd});
  }

  void run() override {
    const c10::AutoGradMode tracks(way_.training);
    const trainyard::ForwardContext context{.training = way_.training, .part = {}};
    std::vector<at::Tensor> outputs;
    if (plan_)
      outputs = {plan_->forward(batch_, context)};
    else
      outputs = network_.forward_all(batch_.inputs, context);
    if (!way_.training) return;
    std::erase_if(outputs, [](const at::Tensor& each) { return !each.requires_grad(); });
    if (outputs.empty() || to_.empty()) return;
    if (ones_.size() != outputs.size()) {
      ones_.clear();
      for (const at::Tensor& each : outputs) ones_.push_back(at::ones_like(each));
    }
    torch::autograd::grad(outputs, to_, ones_, std::nullopt, false, /*allow_unused=*/true);
  }

 private:
  Way way_;
  trainyard::GraphNetwork network_;
  trainyard::Batch batch_;
  std::vector<at::Tensor> to_, ones_;
  std::shared_ptr<compiled::Plan> plan_;
};

}  // namespace

std::string Way::text() const {
  std::string text = compiled ? "compiled" : "eager";
  if (compiled && !fuses) text += " fuse=none";
  if (compiled && !winograd) text += " winograd=false";
  return text + (training ? " training" : " inference");
}

std::unique_ptr<Pass> make_pass(const Graph& graph, const Way& way, const std::vector<std::string>& wants) {
  return std::make_unique<Repeated>(graph, way, wants);
}

std::vector<Seconds> seconds_of(std::span<Pass* const> passes, int rounds, double inner,
                                const std::function<bool()>& stop) {
  std::vector<int> calls(passes.size(), 1);
  std::vector<std::vector<double>> all(passes.size());
  std::vector<bool> is_short(passes.size());
  for (std::size_t i = 0; i < passes.size(); ++i) {
    passes[i]->run();
    double once = 1e9;
    // One call alone may have waited for a thread that slept.
    for (int attempt = 0; attempt < 3 && (attempt == 0 || once < 20.0 * inner); ++attempt) {
      const auto begin = Clock::now();
      passes[i]->run();
      once = std::min(once, seconds_since(begin));
    }
    is_short[i] = once < inner;
    calls[i] = static_cast<int>(std::clamp(inner / std::max(once, 1e-9), 1.0, 1e5));
  }
  for (int round = 0; round < rounds && !(round > 2 && stop && stop()); ++round)
    for (std::size_t k = 0; k < passes.size(); ++k) {
      const std::size_t i = round % 2 == 0 ? k : passes.size() - 1 - k;
      if (is_short[i]) passes[i]->run();  // threads are awake then, as within a network
      double least = 1e9;
      for (int call = 0; call < calls[i]; ++call) {
        const auto begin = Clock::now();
        passes[i]->run();
        least = std::min(least, seconds_since(begin));
      }
      all[i].push_back(least);
    }
  std::vector<Seconds> made;
  for (std::vector<double>& each : all) {
    std::ranges::sort(each);
    made.push_back({each.front(), each[each.size() / 4], each[each.size() / 2]});
  }
  return made;
}

Compared compared(Pass& first, Pass& second, int rounds, double inner, const std::function<bool()>& stop) {
  Compared made{.first = 1e9, .second = 1e9};
  std::vector<double> ratios;
  Pass* const both[] = {&first, &second};
  for (int round = 0; round < rounds && !(stop && stop()); ++round) {
    const std::vector<Seconds> found = seconds_of(both, 2, inner);
    made.first = std::min(made.first, found[0].least);
    made.second = std::min(made.second, found[1].least);
    ratios.push_back(found[1].least / found[0].least);
  }
  std::ranges::sort(ratios);
  if (!ratios.empty()) made.ratio = ratios[ratios.size() / 2];
  return made;
}

}  // namespace tensat
