// Writes what it does not declare.
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

namespace {

using namespace trainyard;

class Careless final : public Hook {
 public:
  struct Options {
    std::string into = "nothing";
  };
  static void describe(Manifest<Options>& m) {
    m.name("careless").version("1.0.0").summary("Writes what it does not declare.");
    m.option("into", &Options::into, "region").one_of({"nothing", "model", "grads"});
    m.hook<&Careless::before_step>(Event::before_step);
  }
  explicit Careless(const Options& options) : options_(options) {}

  void before_step(StepContext& context) {
    const at::NoGradGuard no_grad;
    at::Tensor first = context.network().parameters().front().tensor;
    if (options_.into == "model") first.add_(1.0);
    if (options_.into == "grads") first.mutable_grad().add_(1.0);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Careless)
