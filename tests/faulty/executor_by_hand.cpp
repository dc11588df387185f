// Goes its own way through a step, with gradients that it adds up itself: with nothing late it has to come to
// the bits of `eager`.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include <trainyard/executor.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

namespace {

using namespace trainyard;

class ByHand final : public Executor {
 public:
  struct Options {
    bool late = false;
    std::int64_t every = 1;
    bool leaves_open = false, closes_twice = false;
    std::int64_t throws_within = -1;
    std::int64_t refuses_to_open = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("by_hand").version("1.0.0").summary("Adds the gradients of its micro-batches up by itself.");
    m.option("late", &Options::late, "leaves the update of each step in flight until the next, or a pause");
    m.option("every", &Options::every, "steps from one update to the next, which is of all of them").min(1);
    m.option("leaves_open", &Options::leaves_open, "never fires micro_end");
    m.option("closes_twice", &Options::closes_twice, "fires each micro_end twice");
    m.option("throws_within", &Options::throws_within, "the step, from 0, at whose micro_start it throws");
    m.option("refuses_to_open", &Options::refuses_to_open, "the opening, from 1, that it refuses");
    constexpr Event fired[] = {Event::micro_start, Event::after_forward, Event::before_forward,
                               Event::micro_end};
    m.fires(fired);
    m.provides("batch").provides("hyper");
  }
  explicit ByHand(const Options& options) : options_(options) {}

  void open(Workbench& bench) override {
    if (++opened_ == options_.refuses_to_open) throw ConfigError("does not like this network");
    parameters_.clear();
    for (const NamedTensor& each : bench.network().parameters()) parameters_.push_back(each.tensor);
  }

  void step(Workbench& bench, StepWork& work) override {
    for (bool again = true; again;) {
      std::vector<at::Tensor> before;
      if (work.step % options_.every == 0 || in_flight_.empty()) {
        before = std::exchange(in_flight_, {});
        in_flight_.assign(parameters_.size(), {});
      }
      for (std::size_t i = 0; i < work.micros.size(); ++i) add(bench, work, i);
      if (options_.late) return void(apply(bench, std::move(before)));
      if ((work.step + 1) % options_.every != 0) return;
      again = apply(bench, std::exchange(in_flight_, {})) == Update::repeat;
    }
  }

  void settle(Workbench& bench, Pause) override { apply(bench, std::exchange(in_flight_, {})); }

 private:
  void add(Workbench& bench, StepWork& work, std::size_t i) {
    Graded graded;
    bench.fire(Event::micro_start, work, i, graded);
    const Batch& batch = work.micros[i];
    if (work.step == options_.throws_within) throw std::runtime_error("lost count");
    if (batch.weight > 0.0) {
      bench.fire(Event::before_forward, work, i, graded);
      const bool skip = bench.take(Control::skip_micro);
      if (!skip) graded = bench.grade(batch, work.pass(i));
      bench.fire(Event::after_forward, work, i, graded);
      if (!skip && !bench.take(Control::skip_micro)) backward(bench, work, i, graded);
    }
    if (!options_.leaves_open) bench.fire(Event::micro_end, work, i, graded);
    if (options_.closes_twice) bench.fire(Event::micro_end, work, i, graded);
  }

  void backward(Workbench& bench, StepWork& work, std::size_t i, const Graded& graded) {
    bench.report(graded, work.micros[i]);
    const at::Tensor root = at::full({}, work.share(i) * bench.loss_scale(), graded.loss.options());
    const auto gradients = torch::autograd::grad({graded.loss}, parameters_, {root}, {}, false, true);
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      at::Tensor& sum = in_flight_[p];
      if (gradients[p].defined()) sum = sum.defined() ? sum.add_(gradients[p]) : gradients[p];
    }
  }

  Update apply(Workbench& bench, const std::vector<at::Tensor>& gradients) {
    if (gradients.empty()) return Update::skipped;
    for (std::size_t p = 0; p < gradients.size(); ++p) parameters_[p].mutable_grad() = gradients[p];
    return bench.update();
  }

  Options options_;
  std::int64_t opened_ = 0;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> in_flight_;  ///< gradients without their update; empty: none
};

}  // namespace

TRAINYARD_PLUGIN(ByHand)
