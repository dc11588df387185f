// Spoils one step in so many, in turn by each of the faults that it is given: what a watch over steps has to find.
#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/roll.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>

namespace {

using namespace trainyard;

class Spoiling final : public Hook {
 public:
  struct Options {
    std::int64_t apart = 200, from = 400;
    std::vector<std::string> faults = {"labels", "inputs", "gradient"};
  };
  static void describe(Manifest<Options>& m) {
    m.name("spoiling").version("1.0.0").summary("Spoils some steps.");
    m.option("apart", &Options::apart, "steps from one that is spoilt to the next").min(1);
    m.option("from", &Options::from, "the first one").min(1);
    m.option("faults", &Options::faults, "labels, inputs, gradient, rate, nan");
    m.hook<&Spoiling::spoil_batch>(Event::after_fetch).writes(Region::batch);
    m.hook<&Spoiling::spoil_gradient>(Event::before_step).writes(Region::grads | Region::hyper).priority(0);
  }
  explicit Spoiling(const Options& options) : options_(options) {}

  void spoil_batch(StepContext& context) {
    const std::string fault = fault_at(context.step_number());
    Batch& batch = context.mutable_batch();
    if (fault == "labels") batch.target = at::roll(batch.target, 1);
    if (fault == "inputs") batch.inputs.front() = batch.inputs.front() * 10.0;
  }
  void spoil_gradient(StepContext& context) {
    const at::NoGradGuard no_grad;
    const std::string fault = fault_at(context.step_number());
    const auto parameters = context.network().parameters();
    const auto place = static_cast<std::size_t>(context.step_number() / options_.apart) % parameters.size();
    const at::Tensor gradient = parameters[place].tensor.grad();
    if (fault == "gradient") gradient.mul_(50.0);
    if (fault == "nan") gradient.view(-1)[0] = std::numeric_limits<double>::quiet_NaN();
    if (fault != "rate") return;
    for (ParamGroup& group : context.optimizer().groups()) group.lr *= 30.0;
  }

 private:
  /// Empty: the step is left as it is.
  std::string fault_at(std::int64_t step) {
    const std::int64_t past = step - options_.from;
    if (past < 0 || past % options_.apart != 0) return {};
    const std::string& fault =
        options_.faults[static_cast<std::size_t>(past / options_.apart) % options_.faults.size()];
    return fault;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Spoiling)
