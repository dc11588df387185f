// Binary cross entropy on logits: -(pos_weight * t * log sigmoid(x) + (1 - t) * log(1 - sigmoid(x))),
// averaged over all elements.
#include <numeric>

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <trainyard/loss.hpp>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/mixins/grades_members.hpp>

#include "fused.hpp"

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
    if (losses::is_plain(logits) && losses::is_plain(target) && !losses::has_gradient(target))
      return by_kernel(logits, target);
    return by_operators(logits, target, options_.pos_weight);
  }

  at::Tensor forward_members(const at::Tensor& output, const Batch& batch) const override {
    const auto [logits, target] = elementwise_of_members(output, batch.target);
    std::optional<at::Tensor> pos_weight;
    if (options_.pos_weight) pos_weight = at::full({}, *options_.pos_weight, logits.options());
    return at::binary_cross_entropy_with_logits(logits, target.expand_as(logits), {}, pos_weight,
                                                at::Reduction::None)
        .flatten(1)
        .mean(1);
  }

 private:
  static at::Tensor by_operators(const at::Tensor& logits, const at::Tensor& target,
                                 std::optional<double> positive) {
    std::optional<at::Tensor> pos_weight;
    if (positive) pos_weight = at::full({}, *positive, logits.options());
    return at::binary_cross_entropy_with_logits(logits, target, {}, pos_weight, at::Reduction::Mean);
  }

  /// The same on the CPU, with the gradient. The sum is over blocks in their order, whatever the threads.
  at::Tensor by_kernel(const at::Tensor& logits, const at::Tensor& target) const {
    const at::Tensor x = losses::in_a_piece(logits), t = losses::in_a_piece(target);
    const std::int64_t size = x.numel(), blocks = (size + kernels::loss_block - 1) / kernels::loss_block;
    std::vector<double> each(static_cast<std::size_t>(blocks));
    kernels::BinaryCrossEntropy job{.logits = x.const_data_ptr<float>(),
                                    .target = t.const_data_ptr<float>(),
                                    .size = size,
                                    .positive = static_cast<float>(options_.pos_weight.value_or(1.0)),
                                    .scale = 1.0F / static_cast<float>(size),
                                    .loss = each.data()};
    at::Tensor gradient;
    if (losses::has_gradient(logits)) {
      gradient = at::empty(logits.sizes(), logits.options());
      job.gradient = gradient.mutable_data_ptr<float>();
    }
    losses::share_out(blocks, kernels::loss_block,
                      [&job, &kernels = kernels::loss_kernels()](std::int64_t begin, std::int64_t end) {
                        kernels.binary_cross_entropy(job, begin, end);
                      });
    const double loss = std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(size);
    return losses::with_gradient(loss, logits, std::move(gradient),
                                 [target, positive = options_.pos_weight](const at::Tensor& input) {
                                   return by_operators(input, target, positive);
                                 });
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(BceWithLogits)
