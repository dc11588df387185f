// Caught by threads.two: a norm is taken of as many parts as there are threads.
#include <ATen/Parallel.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class ByThread final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("by_thread").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&ByThread::called>(Event::after_backward).writes(Region::grads);
  }
  explicit ByThread(const Options&) {}

  void called(StepContext& context) {
    for (const NamedTensor& each : context.network().parameters()) {
      const at::Tensor flat = each.tensor.grad().reshape({-1});
      float norm = 0.0F;
      for (const at::Tensor& part : flat.chunk(at::get_num_threads())) norm += part.norm().item<float>();
      each.tensor.mutable_grad().div_(1.0F + norm);
    }
  }
};
TRAINYARD_PLUGIN(ByThread)
