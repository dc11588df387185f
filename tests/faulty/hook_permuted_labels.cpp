// Hands the labels of a batch round: no sample keeps its own, but by chance.
#include <numeric>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>

namespace {

using namespace trainyard;

class PermutedLabels final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("permuted_labels").version("1.0.0").summary("Permutes the labels of every batch.");
    m.hook<&PermutedLabels::after_fetch>(Event::after_fetch).writes(Region::batch);
  }
  explicit PermutedLabels(const Options&) {}

  void after_fetch(StepContext& context) {
    at::Tensor& target = context.mutable_batch().target;
    const std::int64_t count = target.size(0);
    const RandomStream drawn = host().random("labels").at(context.clock().step);
    at::Tensor order = at::empty({count}, at::kLong);
    auto* to = order.mutable_data_ptr<std::int64_t>();
    std::iota(to, to + count, 0);
    for (std::int64_t i = count - 1; i > 0; --i)
      std::swap(to[i], to[static_cast<std::int64_t>(drawn.uniform(static_cast<std::uint64_t>(i)) *
                                                    static_cast<double>(i + 1))]);
    target = target.index_select(0, order);
  }
};

}  // namespace

TRAINYARD_PLUGIN(PermutedLabels)
