// The mean of -log softmax(output)[target]; with label smoothing s the target's share is 1 - s + s/classes
// and that of each other class s/classes (Szegedy et al., CVPR 2016, section 7).
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/div.h>
#include <ATen/ops/ne.h>

#include <trainyard/loss.hpp>

#include <trainyard/helpers/shape_text.hpp>

namespace {

using namespace trainyard;

class CrossEntropy final : public Loss {
 public:
  struct Options {
    double label_smoothing = 0.0;
    std::optional<std::int64_t> ignore_index;
  };
  static void describe(Manifest<Options>& m) {
    m.name("cross_entropy").version("1.0.0").summary("Softmax and cross entropy over class scores (logits).");
    m.option("label_smoothing", &Options::label_smoothing,
             "share of the target spread evenly over all classes")
        .range(0.0, 1.0);
    m.option("ignore_index", &Options::ignore_index,
             "targets of this value do not count (padding); by default every target counts");
  }
  explicit CrossEntropy(const Options& options) : options_(options) {}

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    if (schema.classes <= 0)
      throw ConfigError("loss cross_entropy needs classes, but the data has a regression target; use mse");
    std::vector<std::int64_t> expected = schema.target.shape;
    expected.push_back(schema.classes);
    const bool fits = output.size() == expected.size() && output.back() >= schema.classes &&
                      std::equal(output.begin(), output.end() - 1, expected.begin());
    if (!fits)
      throw ConfigError("loss cross_entropy needs a model output of shape " + shape_text(expected) +
                        " for each sample (the last number: classes of the data), but the model gives " +
                        shape_text(output));
  }

  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    const at::Tensor scores = rows(output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16
                                       ? output.to(at::kFloat)
                                       : output);
    const at::Tensor target = batch.target.dim() == 1 ? batch.target : batch.target.reshape(-1);
    if (!options_.ignore_index)
      return at::cross_entropy_loss(scores, target, {}, at::Reduction::Mean, -100, options_.label_smoothing);
    // A micro-batch may hold nothing that counts: its loss is 0, where ATen's mean is NaN.
    const at::Tensor sum = at::cross_entropy_loss(scores, target, {}, at::Reduction::Sum,
                                                  *options_.ignore_index, options_.label_smoothing);
    return at::div(sum, at::ne(target, *options_.ignore_index).sum().clamp_min(1));
  }

  double weight(const Batch& batch) const override {
    if (!options_.ignore_index) return static_cast<double>(batch.target.numel());
    return at::ne(batch.target, *options_.ignore_index).sum().item<double>();
  }

 private:
  /// [n, ..., classes] as [n * ..., classes].
  static at::Tensor rows(const at::Tensor& output) {
    return output.dim() == 2 ? output : output.reshape({-1, output.size(-1)});
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(CrossEntropy)
