// Multi-sample dropout (Inoue, "Multi-sample dropout for accelerated training and better generalization",
// 2019, section 3): one pass through the network up to a dropout site, `samples` masks there and passes
// through what comes after it; the loss is the mean of theirs. The copies are rows of one larger batch from
// the last of the run's sites on; at the others elements are dropped as in standard dropout.
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>

#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class MultiSample final : public Dropout {
 public:
  struct Options {
    std::int64_t samples = 8;
  };
  static void describe(Manifest<Options>& m) {
    m.name("multi_sample").version("1.0.0").summary("Several masks at the last site, mean of their losses.");
    m.option("samples", &Options::samples, "masks at the last of the sites").range(2, 1000);
    // Within what else changes the batch of a micro-batch.
    m.hook<&MultiSample::repeat_targets>(Event::before_loss).writes(Region::batch).priority(95);
    m.hook<&MultiSample::restore_batch>(Event::micro_end).writes(Region::batch).priority(95);
  }
  explicit MultiSample(const Options& options) : options_(options) {}

  void open(const DropoutPlaces& places) override {
    for (std::size_t site = 0; site < places.sites.size(); ++site)
      if (places.sites[site].active) last_ = site;
    const DropoutSite& last = places.sites[last_];
    if (!last.head)
      throw ConfigError(
          "model.dropout: multi_sample repeats the rows at the last of its sites, \"" + last.id +
          "\", but more of the network than that site leads to the output (it lies in a branch); "
          "end model.dropout.sites with a site before the last layers, or take type = \"standard\"");
  }

  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    const bool copies = site == last_ && call.pass.training;
    std::vector<std::int64_t> shape = x.sizes().vec();
    if (copies) shape.insert(shape.begin(), options_.samples);
    const at::Tensor y = at::mul(x, masks_.inverted(shape, 1.0 - call.p, x, call.random));
    repeated_ = repeated_ || copies;
    return copies ? y.flatten(0, 1) : y;
  }

  void repeat_targets(StepContext& context) {
    if (!std::exchange(repeated_, false)) return;  // p is 0 at this step
    Batch& batch = context.mutable_batch();
    Batch copies = batch;
    copies.target =
        at::cat(std::vector<at::Tensor>(static_cast<std::size_t>(options_.samples), batch.target));
    for (std::int64_t sample = 1; sample < options_.samples; ++sample)
      copies.indices.insert(copies.indices.end(), batch.indices.begin(), batch.indices.end());
    single_ = std::exchange(batch, std::move(copies));
  }

  /// After the metrics, which see all copies.
  void restore_batch(StepContext& context) {
    repeated_ = false;
    if (!single_) return;
    context.mutable_batch() = std::move(*single_);
    single_.reset();
  }

 private:
  Options options_;
  DropoutMasks masks_;
  std::size_t last_ = 0;
  bool repeated_ = false;        ///< the rows of this pass
  std::optional<Batch> single_;  ///< while the targets are repeated
};

}  // namespace

TRAINYARD_PLUGIN(MultiSample)
