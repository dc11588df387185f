#include "staged.hpp"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/graph/cut.hpp>
#include <trainyard/loss.hpp>

#include "../rows.hpp"

namespace wavelet {
namespace {

bool is_statistic(const GraphValue& value) {
  return value.initializer.defined() && !value.trainable && value.initializer.is_floating_point();
}

Graph with_own_statistics(Graph graph) {
  for (GraphValue& value : graph.values)
    if (is_statistic(value)) value.initializer = value.initializer.clone();
  return graph;
}

}  // namespace

Staged::Staged(Host& host, Ranks& ranks, Workbench& bench)
    : host_(host),
      ranks_(ranks),
      bench_(bench),
      parts_(cut(*bench.network().graph(), stage_of_nodes(*bench.network().graph(), ranks.size()))),
      exchange_(ranks, bench.network(), parts_) {}

Staged::Passes Staged::passes_of(const StepWork& work, std::int64_t parts, Part& part) const {
  Passes passes;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < work.micros.size(); ++i) {
    const Batch& micro = work.micros[i];
    if (micro.weight <= 0.0) continue;
    for (std::int64_t p = 0; p < parts; ++p) {
      const std::int64_t first = micro.size() * p / parts, count = micro.size() * (p + 1) / parts - first;
      auto pass = std::make_shared<Pass>(Pass{.part = &part, .context = work.pass(i)});
      if (count == 0) continue;
      pass->batch = parts == 1 ? micro : executors::rows_of(bench_.loss(), micro, first, count);
      pass->context.micro = number++;
      pass->context.part.first += first;
      pass->context.part.count = count;
      pass->share = work.weight > 0.0 ? pass->batch.weight / work.weight : 0.0;
      if (pass->batch.weight > 0.0) passes.push_back(std::move(pass));
    }
  }
  return passes;
}

/// The last rank knows; what any of them reports counts.
void Staged::report(const Passes& passes) {
  if (ranks_.rank() + 1 < ranks_.size()) return;
  for (const auto& pass : passes) bench_.report(pass->graded, pass->batch);
}

void Staged::exchange(Stage& stage, std::int64_t end, Part& part, const Passes& passes) {
  const bool newest = end > newest_ && !passes.empty();
  if (newest) newest_ = end;
  exchange_.all([&]() -> StageExchange::Made {
    stage.finish(end);
    return {part.take_gradients(), newest ? passes.back()->statistics : Tensors()};
  });
}

Round::Round(Host& host, Ranks& ranks, Workbench& bench, const StagedOptions& options)
    : Staged(host, ranks, bench),
      waves_(options.waves),
      part_(own(), /*copies=*/false),
      stage_(host, ranks, bench.loss(), own(), options.waves, options.threads) {}

void Round::step(StepWork& work) {
  bool repeated = false;
  do {
    const Passes passes = passes_of(work, waves_, part_);
    stage_.launch(passes);
    exchange(stage_, stage_.launched(), part_, passes);
    if (!std::exchange(repeated, true)) report(passes);
  } while (bench_.update() == Update::repeat);
}

Rolling::Rolling(Host& host, Ranks& ranks, Workbench& bench, const StagedOptions& options)
    : Staged(host, ranks, bench),
      waves_(static_cast<std::size_t>(options.waves)),
      graph_(with_own_statistics(own())),
      stage_(host, ranks, bench.loss(), graph_, options.waves, options.threads) {
  for (std::size_t w = 0; w < waves_; ++w) parts_.push_back(std::make_unique<Part>(graph_, /*copies=*/true));
}

void Rolling::step(StepWork& work) {
  if (flights_.size() == waves_) land();
  if (flights_.empty()) take_statistics();
  Flight& flight = flights_.emplace_back();
  flight.micros.assign(work.micros.begin(), work.micros.end());
  flight.work = work;
  flight.work.micros = flight.micros;
  flight.part = parts_[static_cast<std::size_t>(begun_++) % waves_].get();
  launch(flight);
}

void Rolling::settle() {
  while (!flights_.empty()) land();
}

/// Somebody may have changed those of the network at a pause.
void Rolling::take_statistics() {
  const c10::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> now;
  for (const NamedTensor& each : bench_.network().buffers()) now[each.name] = each.tensor;
  for (const GraphValue& value : graph_.values)
    if (is_statistic(value)) at::Tensor(value.initializer).copy_(now.at(value.name));
}

void Rolling::launch(Flight& flight) {
  const c10::NoGradGuard no_grad;
  flight.part->read(bench_.network());
  flight.version = bench_.updates();
  flight.passes = passes_of(flight.work, 1, *flight.part);
  stage_.launch(flight.passes);
  flight.end = stage_.launched();
}

void Rolling::land() {
  Flight& flight = flights_.front();
  bool repeated = false;
  for (;;) {
    exchange(stage_, flight.end, *flight.part, flight.passes);
    if (!std::exchange(repeated, true)) report(flight.passes);
    most_behind_ = std::max(most_behind_, bench_.updates() - flight.version);
    if (bench_.update() != Update::repeat) break;
    launch(flight);
  }
  flights_.pop_front();
}

}  // namespace wavelet
