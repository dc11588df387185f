// Boosting in the space of functions (Friedman, "Greedy Function Approximation: A Gradient Boosting Machine", Annals of
// Statistics 2001) by Newton's steps (Chen and Guestrin, "XGBoost", KDD 2016): a step of the run is a round. Its
// micro-batches are joined, the loss is differentiated twice by the network's outputs, and the network adds a member
// (mixins/grows.hpp). The optimizer's learning rate, as the schedule and hooks have it, is the member's.
#include <string>
#include <utility>
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

/// Finds the network of the run to be one that grows.
Grows& growing(Workbench& bench) {
  if (auto* const grows = dynamic_cast<Grows*>(&bench.network())) return *grows;
  throw ConfigError(
      "adds members to a network that grows, and this one has weights that are to be moved: set "
      "model = { type = \"trees\" }, or executor = { type = \"eager\" }");
}

/// What a network grows by: rows as the pass had them, which hooks may have put back since, and derivatives of the loss
/// that they add up to. These are undefined where hooks leave the batch out, or nothing in it counts.
struct Round {
  Batch batch;
  executors::Derivatives by;
};

/// A pass over the batch of a step, with the events of a micro-batch.
class Pass {
 public:
  Pass(Workbench& bench, StepWork& work, executors::Curvature curvature)
      : bench_(bench), work_(work), batch_(work.micros.front()), curvature_(curvature) {}

  Round run() {
    if (batch_.weight <= 0.0) return {};
    within(Event::micro_start, Event::micro_end, [this] {
      if (!within(Event::before_forward, Event::after_forward, [this] { forward(); })) return;
      within(Event::before_loss, Event::after_loss, [this] { grade(); });
      bench_.report(graded_, batch_);
      within(Event::before_backward, Event::after_backward, [this] { differentiate(); });
    });
    return std::move(round_);
  }

 private:
  /// Returns false where a hook asked for the rest to be left out.
  template <class Body>
  bool within(Event opening, Event closing, const Body& body) {
    bench_.fire(opening, work_, 0, graded_);
    const bool begins = !bench_.take(Control::skip_micro);
    if (begins) body();
    bench_.fire(closing, work_, 0, graded_);
    return !bench_.take(Control::skip_micro) && begins;
  }

  void forward() {
    round_.batch = batch_;
    margins_ = growing(bench_).margins(batch_).detach().requires_grad_(true);
    graded_.output = margins_;
  }

  void grade() {
    const auto margins = [this](const Batch&, const ForwardContext&) { return graded_.output; };
    graded_ = bench_.grade(batch_, work_.pass(0), margins);
  }

  /// A loss is a mean, by the weight of the batch.
  void differentiate() {
    round_.by = executors::derivatives(graded_.loss, margins_, curvature_);
    round_.by.first = round_.by.first.mul(batch_.weight);
    round_.by.second = round_.by.second.mul_(batch_.weight).clamp_min_(least_curvature);
  }

  Workbench& bench_;
  StepWork& work_;
  Batch& batch_;
  executors::Curvature curvature_;
  at::Tensor margins_;
  Graded graded_;
  Round round_;
};

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
             "second derivatives of an output: its own and the magnitudes of those with the sample's others, "
             "added "
             "up, as XGBoost's softmax does; or its own alone");
  }
  explicit Boosting(const Options& options) : options_(options) {}

  void check_ranks(Workbench&, std::int64_t ranks) const override {
    throw ConfigError("has a network grow on one rank, and this run has " + std::to_string(ranks) +
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
      const Round round = Pass(bench, one, options_.curvature).run();
      update = bench.update([&] {
        const double rate = bench.optimizer().groups().front().lr;
        if (round.by.first.defined()) growing(bench).grow(round.batch, round.by.first, round.by.second, rate);
      });
    }
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Boosting)
