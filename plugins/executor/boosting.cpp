// Boosting in the space of functions (Friedman, "Greedy Function Approximation: A Gradient Boosting Machine", Annals of
// Statistics 2001) by Newton's steps (Chen and Guestrin, "XGBoost", KDD 2016): a step of the run is a round. Its
// micro-batches are joined, the loss is differentiated twice by the network's outputs, and the network adds a member
// (mixins/grows.hpp). The optimizer's learning rate, as the schedule and hooks have it, is the member's.
#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ops/cat.h>

#include <trainyard/executor.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/mixins/grows.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>

#include "derivatives.hpp"

template <>
struct trainyard::Words<executors::Curvature> {
  static constexpr std::string_view words[] = {"row_sums", "diagonal"};
};

namespace {

using namespace trainyard;

constexpr double least_curvature = 1e-16;  // as XGBoost has it

/// The micro-batches of a step as one.
Batch joined(const StepWork& work) {
  Batch all;
  const auto cat = [&](auto&& of) {
    std::vector<at::Tensor> parts;
    for (const Batch& each : work.micros) parts.push_back(of(each));
    return parts.front().defined() ? at::cat(parts) : at::Tensor();
  };
  for (std::size_t i = 0; i < work.micros.front().inputs.size(); ++i)
    all.inputs.push_back(cat([i](const Batch& each) { return each.inputs[i]; }));
  all.target = cat([](const Batch& each) { return each.target; });
  for (const Batch& each : work.micros) {
    all.indices.insert(all.indices.end(), each.indices.begin(), each.indices.end());
    all.weight += each.weight;
  }
  return all;
}

class Boosting final : public Executor {
 public:
  struct Options {
    executors::Curvature curvature = executors::Curvature::row_sums;
  };
  static void describe(Manifest<Options>& m) {
    m.name("boosting")
        .version("1.0.0")
        .summary("A step is a round of boosting: the network adds a member by two derivatives of the loss.");
    for (const char* const need :
         {"grows", "rows", "one rank", "trainer.precision = fp32 | fp64", "optimizer.type = sgd",
          "optimizer.momentum = 0", "optimizer.weight_decay = 0", "optimizer.groups = none",
          "no model.dropout", "no trainer.grad_clip"})
      m.needs(need);
    m.fires(micro_events);
    for (const char* const feature : {"batch", "outputs", "losses", "predictions", "hyper"})
      m.provides(feature);
    m.option("curvature", &Options::curvature,
             "second derivatives of an output: its own and the magnitudes of those with the sample's other "
             "outputs, "
             "added up, as XGBoost's softmax does; or its own alone");
  }
  explicit Boosting(const Options& options) : options_(options) {}

  void check_ranks(Workbench&, std::int64_t ranks) const override {
    throw ConfigError("grows trees on one rank, and this run has " + std::to_string(ranks) +
                      ": start it without --ranks");
  }

  void open(Workbench& bench) override {
    (void)growing(bench);
    if (bench.autocasts())
      throw ConfigError("computes in the precision of the weights: set trainer.precision = \"fp32\"");
    if (bench.drops())
      throw ConfigError("a network that grows has no places for dropout: leave [model.dropout] out");
  }

  void step(Workbench& bench, StepWork& work) override {
    std::vector<Batch> whole;
    StepWork one = work;
    if (work.micros.size() > 1) one.micros = whole = {joined(work)};
    Update update = Update::repeat;
    while (update == Update::repeat) {
      const executors::Derivatives found = differentiated(bench, one);
      update = bench.update([&] { grow(bench, one.micros.front(), found); });
    }
  }

 private:
  static Grows& growing(Workbench& bench) {
    if (auto* const grows = dynamic_cast<Grows*>(&bench.network())) return *grows;
    throw ConfigError(
        "adds members to a network that grows, and this one has weights that are to be moved: set model = { "
        "type = "
        "\"trees\" }, or executor = { type = \"eager\" }");
  }

  /// Derivatives of the loss that the samples add up to; undefined where hooks leave the batch out, or nothing in it counts.
  executors::Derivatives differentiated(Workbench& bench, StepWork& work) const {
    Batch& batch = work.micros.front();
    executors::Derivatives found;
    if (batch.weight <= 0.0) return found;
    Graded graded;
    const auto within = [&](Event opening, Event closing, const auto& body) {
      bench.fire(opening, work, 0, graded);
      const bool begins = !bench.take(Control::skip_micro);
      if (begins) body();
      bench.fire(closing, work, 0, graded);
      return !bench.take(Control::skip_micro) && begins;
    };
    (void)within(Event::micro_start, Event::micro_end, [&] {
      at::Tensor margins;
      const ForwardContext pass = work.pass(0);
      if (!within(Event::before_forward, Event::after_forward, [&] {
            margins = growing(bench).margins(batch).detach().requires_grad_(true);
            graded.output = margins;
          }))
        return;
      (void)within(Event::before_loss, Event::after_loss, [&] {
        graded = bench.grade(batch, pass, [&](const Batch&, const ForwardContext&) { return graded.output; });
      });
      bench.report(graded, batch);
      (void)within(Event::before_backward, Event::after_backward, [&] {
        found = executors::derivatives(graded.loss, margins, options_.curvature);
        found.first = found.first.mul(batch.weight);
        found.second = found.second.mul_(batch.weight).clamp_min_(least_curvature);
      });
    });
    return found;
  }

  static void grow(Workbench& bench, const Batch& batch, const executors::Derivatives& by) {
    if (!by.first.defined()) return;
    growing(bench).grow(batch, by.first, by.second, bench.optimizer().groups().front().lr);
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Boosting)
