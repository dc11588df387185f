// Trains for other labels: classes 0 and 1 change places, numbers their sign. Of each sample by itself, so that it does
// not matter how a batch lies on ranks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class PermutedLabels final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("permuted_labels").version("1.0.0").summary("Changes the labels of every batch.");
    m.hook<&PermutedLabels::after_fetch>(Event::after_fetch).writes(Region::batch);
  }
  explicit PermutedLabels(const Options&) {}

  void after_fetch(StepContext& context) {
    at::Tensor& target = context.mutable_batch().target;
    target =
        target.is_floating_point() ? -target : at::where(target.ge(0) & target.le(1), 1 - target, target);
  }
};

}  // namespace

TRAINYARD_PLUGIN(PermutedLabels)
