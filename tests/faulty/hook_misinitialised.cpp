// Gives parameters bad values before training.
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/pattern.hpp>

namespace {

using namespace trainyard;

class Misinitialised final : public Hook {
 public:
  struct Options {
    std::string parameters = "*";
    double mean = 0.0;
    double std = 0.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("misinitialised").version("1.0.0").summary("Draws parameters from a normal distribution.");
    m.option("parameters", &Options::parameters, "pattern of their names");
    m.option("mean", &Options::mean, "of the distribution");
    m.option("std", &Options::std, "of the distribution").min(0.0);
    m.hook<&Misinitialised::model_ready>(Event::model_ready).writes(Region::model);
  }
  explicit Misinitialised(const Options& options) : options_(options) {}

  void model_ready(StepContext& context) {
    const at::NoGradGuard no_grad;
    for (const NamedTensor& each : context.network().parameters()) {
      if (!fits(options_.parameters, each.name)) continue;
      at::Tensor tensor = each.tensor;
      fill_normal(tensor, host().random(each.name), options_.mean, options_.std);
    }
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Misinitialised)
