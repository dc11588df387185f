// Plain gradient descent with a count for its state, that goes wrong at a moment of a swap.
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class Troubled final : public Optimizer {
 public:
  struct Options {
    std::string at = "never";
    std::int64_t step = 1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("troubled").version("1.0.0").summary("Goes wrong while it is swapped, or soon after.");
    m.option("at", &Options::at, "moment")
        .one_of(
            {"never", "construction", "open", "load", "save", "swap_out", "swap_in", "step", "not_finite"});
    m.option("step", &Options::step, "which of its steps: of step and nan").min(1);
    m.hook<&Troubled::swap_out>(Event::swap_out);
    m.hook<&Troubled::swap_in>(Event::swap_in);
  }
  explicit Troubled(const Options& options) : options_(options) { trouble("construction"); }

  void open(std::vector<ParamGroup> groups) override {
    trouble("open");
    Optimizer::open(std::move(groups));
  }
  void step() override {
    ++own_steps_;
    ++steps_;
    const at::NoGradGuard no_grad;
    const bool due = own_steps_ == options_.step;
    for (ParamGroup& group : groups_)
      for (at::Tensor& param : group.params) {
        if (!param.grad().defined()) continue;
        param.add_(param.grad(), -group.lr);
        if (due && options_.at == "not_finite")
          param.flatten()[0].fill_(std::numeric_limits<double>::quiet_NaN());
        if (due) trouble("step");  // half of the parameters have their step behind them
      }
  }
  void save(StateWriter& state) const override {
    if (!std::exchange(saved_, true)) trouble("save");  // what is saved at the end of the run is no swap
    state.scalar("steps", steps_);
    state.scalar("in_use", in_use_);
  }
  void load(const StateReader& state) override {
    trouble("load");
    steps_ = state.integer("steps");
    in_use_ = state.boolean("in_use");
  }
  void swap_out(StepContext&) {
    trouble("swap_out");
    in_use_ = false;
  }
  void swap_in(StepContext&) {
    trouble("swap_in");
    in_use_ = true;
  }

 private:
  void trouble(const char* moment) const {
    if (options_.at == moment) faulty::go_wrong("throw");
  }

  Options options_;
  std::int64_t steps_ = 0, own_steps_ = 0;
  bool in_use_ = true;
  mutable bool saved_ = false;
};

}  // namespace

TRAINYARD_PLUGIN(Troubled)
