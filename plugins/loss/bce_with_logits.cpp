// Binary cross entropy on logits: -(pos_weight * t * log sigmoid(x) + (1 - t) * log(1 - sigmoid(x))),
// averaged over all elements.
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/full.h>

#include <trainyard/loss.hpp>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/helpers/grades_members.hpp>

namespace {

using namespace trainyard;

class BceWithLogits final : public Loss, public GradesMembers {
 public:
  struct Options {
    std::optional<double> pos_weight;
  };
  static void describe(Manifest<Options>& m) {
    m.name("bce_with_logits")
        .version("1.0.0")
        .summary("Binary cross entropy over one logit a target (0 to 1).");
    m.option("pos_weight", &Options::pos_weight, "weight of the positive class; by default 1").above(0.0);
  }
  explicit BceWithLogits(const Options& options) : options_(options) {}

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    check_elementwise("loss bce_with_logits", output, schema);
  }

  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    const auto [logits, target] = elementwise(output, batch.target);
    return at::binary_cross_entropy_with_logits(logits, target, {}, pos_weight(logits), at::Reduction::Mean);
  }

  at::Tensor forward_members(const at::Tensor& output, const Batch& batch) const override {
    const auto [logits, target] = elementwise_of_members(output, batch.target);
    return at::binary_cross_entropy_with_logits(logits, target.expand_as(logits), {}, pos_weight(logits),
                                                at::Reduction::None)
        .flatten(1)
        .mean(1);
  }

 private:
  std::optional<at::Tensor> pos_weight(const at::Tensor& logits) const {
    if (!options_.pos_weight) return std::nullopt;
    return at::full({}, *options_.pos_weight, logits.options());
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(BceWithLogits)
