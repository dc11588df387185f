// The mean of the squared differences, over all elements.
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/sub.h>

#include <trainyard/loss.hpp>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/mixins/grades_members.hpp>

namespace {

using namespace trainyard;

class Mse final : public Loss, public GradesMembers {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("mse").version("1.0.0").summary("Mean squared error.");
  }
  explicit Mse(const Options&) {}

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    check_elementwise("loss mse", output, schema);
  }

  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    const auto [values, target] = elementwise(output, batch.target);
    return at::mse_loss(values, target, at::Reduction::Mean);
  }

  at::Tensor forward_members(const at::Tensor& output, const Batch& batch) const override {
    const auto [values, target] = elementwise_of_members(output, batch.target);
    return at::sub(values, target).square().flatten(1).mean(1);
  }
};

}  // namespace

TRAINYARD_PLUGIN(Mse)
