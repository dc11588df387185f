// Goes wrong at an event of a step; also writes what it did not declare.
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class FaultyHook final : public Hook {
 public:
  struct Options {
    std::string at = "before_step";
    std::int64_t step = 1;
    std::string way = "nothing";
    std::string touch = "nothing";
    std::int64_t rank = -1;
  };
  static constexpr Event events[] = {Event::fit_start,     Event::after_fetch,    Event::batch_start,
                                     Event::after_forward, Event::after_backward, Event::before_step,
                                     Event::after_step,    Event::batch_end,      Event::eval_start,
                                     Event::safe_point,    Event::fit_end,        Event::shutdown};
  static void describe(Manifest<Options>& m) {
    m.name("faulty").version("1.0.0").summary("Goes wrong where it is told.");
    std::vector<std::string> names = {"construction"};
    for (const Event event : events) {
      names.emplace_back(name(event));
      m.hook<&FaultyHook::called>(event);
    }
    m.option("at", &Options::at, "event").one_of(names);
    m.option("step", &Options::step, "number of the step");
    m.option("way", &Options::way, "how it goes wrong").one_of(faulty::ways);
    m.option("touch", &Options::touch, "what it writes without a word")
        .one_of({"nothing", "model", "model_below_autograd", "grads", "optimizer", "hyper", "batch"});
    m.option("rank", &Options::rank, "which alone does; -1: all");
  }
  explicit FaultyHook(const Options& options) : options_(options) {
    if (options_.at == "construction" && faulty::on_rank(options_.rank)) faulty::go_wrong(options_.way);
  }

  void called(StepContext& context) {
    if (name(context.event()) != options_.at || context.step_number() < options_.step ||
        !faulty::on_rank(options_.rank))
      return;
    touch(context);
    faulty::go_wrong(options_.way);
  }

 private:
  void touch(StepContext& context) {
    const at::NoGradGuard no_grad;
    if (options_.touch == "model") context.network().parameters()[1].tensor.mul_(1.5);
    // As a fused kernel does it: the version of the tensor stays.
    if (options_.touch == "model_below_autograd")
      context.network().parameters()[0].tensor.mutable_data_ptr<float>()[0] += 0.25F;
    if (options_.touch == "grads") context.network().parameters()[0].tensor.mutable_grad().mul_(0.5);
    if (options_.touch == "hyper") context.optimizer().groups()[0].lr *= 0.5;
    if (options_.touch == "batch") context.batch().inputs[0].add_(1.0);
    if (options_.touch == "optimizer") {
      State state;
      StateWriter writer(state);
      context.optimizer().save(writer);
      for (auto& [name, tensor] : state.tensors) tensor.add_(1);
    }
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(FaultyHook)
