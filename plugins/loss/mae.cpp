// The mean of the absolute differences, over all elements.
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/sub.h>

#include <trainyard/loss.hpp>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/mixins/grades_members.hpp>

namespace {

using namespace trainyard;

class Mae final : public Loss, public GradesMembers {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("mae").version("1.0.0").summary("Mean absolute error: targets far off count less than with mse.");
  }
  explicit Mae(const Options&) {}

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    check_elementwise("loss mae", output, schema);
  }

  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    const auto [values, target] = elementwise(output, batch.target);
    return at::l1_loss(values, target, at::Reduction::Mean);
  }

  at::Tensor forward_members(const at::Tensor& output, const Batch& batch) const override {
    const auto [values, target] = elementwise_of_members(output, batch.target);
    return at::sub(values, target).abs().flatten(1).mean(1);
  }
};

}  // namespace

TRAINYARD_PLUGIN(Mae)
