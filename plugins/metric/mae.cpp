// The mean absolute error, over all elements.
#include <numeric>

#include <trainyard/helpers/elementwise.hpp>
#include <trainyard/helpers/mean_metric.hpp>

#include "../loss/fused.hpp"
#include "target_units.hpp"

namespace {

using namespace trainyard;

class Mae final : public MeanMetric, public metrics::InTargetUnits {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("mae").version("1.0.0").summary("Mean absolute error, in the units of the data's files.");
  }
  explicit Mae(const Options&) {}

  std::vector<std::string> names() const override { return {"mae"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    check_elementwise("metric mae", output, schema);
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const auto [values, target] = elementwise(output, batch.target);
    if (losses::is_plain(values) && losses::is_plain(target))
      return add(absolute_error(losses::in_a_piece(values), losses::in_a_piece(target)),
                 static_cast<double>(target.numel()));
    add(values.sub(target).abs_().sum(at::kDouble), static_cast<double>(target.numel()));
  }

  std::vector<double> compute() const override { return {unit() * mean()}; }

 private:
  /// Both float, on the CPU and without gaps.
  static double absolute_error(const at::Tensor& values, const at::Tensor& target) {
    const std::int64_t blocks = (values.numel() + kernels::loss_block - 1) / kernels::loss_block;
    std::vector<double> each(static_cast<std::size_t>(blocks));
    const kernels::AbsoluteError job{values.const_data_ptr<float>(), target.const_data_ptr<float>(),
                                     values.numel(), each.data()};
    losses::share_out(blocks, kernels::loss_block,
                      [&job, &kernels = kernels::loss_kernels()](std::int64_t begin, std::int64_t end) {
                        kernels.absolute_error(job, begin, end);
                      });
    return std::accumulate(each.begin(), each.end(), 0.0);
  }
};

}  // namespace

TRAINYARD_PLUGIN(Mae)
