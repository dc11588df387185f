// Writes NaN, or infinity, into regions that it declares.
#include <limits>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class Poison final : public Hook {
 public:
  struct Options {
    std::string into = "model";
    std::int64_t step = 1, rank = -1;
    bool infinite = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("poison").version("1.0.0").summary("Writes NaN where it is told.");
    m.option("into", &Options::into, "region").one_of({"model", "grads", "outputs"});
    m.option("step", &Options::step, "number of the step");
    m.option("rank", &Options::rank, "which alone does; -1: all");
    m.option("infinite", &Options::infinite, "infinity in place of NaN");
    m.hook<&Poison::after_step>(Event::after_step).writes(Region::model);
    m.hook<&Poison::before_step>(Event::before_step).writes(Region::grads);
    m.hook<&Poison::after_forward>(Event::after_forward).writes(Region::outputs);
  }
  explicit Poison(const Options& options) : options_(options) {}

  void after_step(StepContext& context) {
    if (!due("model", context)) return;
    const at::NoGradGuard no_grad;
    spoil(context.network().parameters().back().tensor);
  }
  void before_step(StepContext& context) {
    if (!due("grads", context)) return;
    const at::NoGradGuard no_grad;
    spoil(context.network().parameters().back().tensor.mutable_grad());
  }
  void after_forward(StepContext& context) {
    if (due("outputs", context)) context.mutable_output() = context.output().mul(value());
  }

 private:
  double value() const {
    return options_.infinite ? std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::quiet_NaN();
  }
  bool due(const char* region, const StepContext& context) const {
    return options_.into == region && context.step_number() == options_.step &&
           faulty::on_rank(options_.rank);
  }
  void spoil(const at::Tensor& tensor) const { tensor.flatten()[0].fill_(value()); }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Poison)
