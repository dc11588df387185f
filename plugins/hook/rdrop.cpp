// R-Drop (Wu et al., "R-Drop: Regularized dropout for neural networks", NeurIPS 2021, section 2.2): every
// batch is passed twice through the network, with other dropout masks, and both predictions are drawn to each
// other: loss = mean of both losses + alpha (KL(p1 || p2) + KL(p2 || p1)) / 2. The passes are one of the
// doubled batch, as in the authors' code, so that masks must be drawn by row: not for dropconnect or droppath
// with mode = "batch". The divergence is a mean over all items, those included that a loss ignores.
#include <optional>
#include <utility>

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>

#include <trainyard/context.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>

namespace {

using namespace trainyard;

class RDrop final : public Hook {
 public:
  struct Options {
    double alpha = 1.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("rdrop").version("1.0.0").summary("Two passes with other dropout masks are to agree (R-Drop).");
    m.needs("rows");
    m.option("alpha", &Options::alpha, "weight of the divergence of both predictions").min(0.0);
    m.hook<&RDrop::check_run>(Event::model_ready);
    // After what else changes the batch.
    m.hook<&RDrop::double_batch>(Event::micro_start).writes(Region::batch).priority(90);
    m.hook<&RDrop::add_divergence>(Event::after_loss).writes(Region::outputs);
    m.hook<&RDrop::restore_batch>(Event::micro_end).writes(Region::batch).priority(90);
  }
  explicit RDrop(const Options& options) : options_(options) {}

  /// Refuses networks and data without classes, while the run is built: `trainyard validate` builds it, too.
  void check_run(StepContext& context) {
    for (const Batch& batch : host().batches("train", 1)) check(context.network().output_shape(), batch);
  }

  void double_batch(StepContext& context) {
    Batch& batch = context.mutable_batch();
    check(context.network().output_shape(), batch);
    Batch twice = batch;
    for (at::Tensor& input : twice.inputs) input = at::cat({input, input});
    twice.target = at::cat({batch.target, batch.target});
    twice.indices.insert(twice.indices.end(), batch.indices.begin(), batch.indices.end());
    single_ = std::exchange(batch, std::move(twice));
  }

  void add_divergence(StepContext& context) {
    const at::Tensor score =
        at::log_softmax(context.output(), -1, at::promote_types(context.output().scalar_type(), at::kFloat));
    const std::vector<at::Tensor> log = score.chunk(2);
    const auto items = static_cast<double>(log[0].numel() / log[0].size(-1));
    // KL(p1 || p2) + KL(p2 || p1) = sum (p1 - p2)(log p1 - log p2).
    const at::Tensor both = at::mul(at::sub(at::exp(log[0]), at::exp(log[1])), at::sub(log[0], log[1])).sum();
    at::Tensor& loss = context.mutable_loss();
    loss = at::add(loss, both, options_.alpha / (2.0 * items));
  }

  void restore_batch(StepContext& context) {
    if (!single_) return;
    context.mutable_batch() = std::move(*single_);
    single_.reset();
  }

 private:
  static void check(const std::vector<std::int64_t>& output, const Batch& batch) {
    if (!at::isIntegralType(batch.target.scalar_type(), /*includeBool=*/false))
      throw ConfigError(
          "hook rdrop compares distributions over classes, but the targets of this data are no classes; "
          "leave the hook out");
    if (output.empty() || output.back() < 2)
      throw ConfigError(
          "hook rdrop compares distributions over classes, but the model gives a single score; give it an "
          "output for each class, with loss cross_entropy");
  }

  Options options_;
  std::optional<Batch> single_;  ///< while the batch is doubled
};

}  // namespace

TRAINYARD_PLUGIN(RDrop)
