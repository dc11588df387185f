// The mean of -log softmax(output)[target]; with label smoothing s the target's share is 1 - s + s/classes
// and that of each other class s/classes (Szegedy et al., CVPR 2016, section 7). Of several labels each has a
// like share of the target, and a sample without any counts for nothing. With class weights
// it is the weighted mean, as torch.nn.CrossEntropyLoss has it. Of a sparse output (Network::forward) the softmax is
// over what it stores.
#include <cmath>

#include <ATen/ops/div.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <trainyard/loss.hpp>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/shape_text.hpp>
#include <trainyard/mixins/grades_members.hpp>

#include "class_loss.hpp"
#include "stored_softmax.hpp"

namespace {

using namespace trainyard;

class CrossEntropy final : public Loss, public GradesMembers {
 public:
  struct Options {
    double label_smoothing = 0.0;
    std::optional<std::int64_t> ignore_index;
    std::vector<double> class_weights;
    bool multi_label = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("cross_entropy").version("1.0.0").summary("Softmax and cross entropy over class scores (logits).");
    m.option("label_smoothing", &Options::label_smoothing,
             "share of the target spread evenly over all classes")
        .range(0.0, 1.0);
    m.option("ignore_index", &Options::ignore_index,
             "targets of this value do not count (padding); by default every target counts");
    m.option("class_weights", &Options::class_weights,
             "weight of each class, one a score of the model; the loss is the weighted mean; by default 1")
        .min(0.0);
    m.option("multi_label", &Options::multi_label,
             "a sample has several labels, each with a like share of the target, filled up with -1");
  }
  explicit CrossEntropy(const Options& options)
      : options_(options), mean_{options.label_smoothing, options.ignore_index, weights_of(options)} {}

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    if (schema.classes <= 0)
      throw ConfigError("loss cross_entropy needs classes, but the data has a regression target; use mse");
    check_labels(schema);
    std::vector<std::int64_t> expected = schema.target.shape;
    if (options_.multi_label) expected.clear();
    expected.push_back(schema.classes);
    const bool fits = output.size() == expected.size() && output.back() >= schema.classes &&
                      std::equal(output.begin(), output.end() - 1, expected.begin());
    if (!fits)
      throw ConfigError("loss cross_entropy needs a model output of shape " + shape_text(expected) +
                        " for each sample (the last number: classes of the data), but the model gives " +
                        shape_text(output));
    check_weights(output.back());
  }

  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    if (output.layout() == at::kSparseCsr) return of_stored(output, batch);
    const at::ScalarType type = output.scalar_type();
    const at::Tensor scores = type == at::kHalf || type == at::kBFloat16 ? output.to(at::kFloat) : output;
    if (options_.multi_label) return of_labels(scores, batch.target);
    return mean_.of(scores, batch.target.dim() == 1 ? batch.target : batch.target.reshape(-1));
  }

  at::Tensor forward_members(const at::Tensor& output, const Batch& batch) const override {
    if (options_.multi_label) {
      std::vector<at::Tensor> each;
      for (const at::Tensor& own : output.unbind(0)) each.push_back(forward(own, batch));
      return at::stack(each);
    }
    return mean_.of_members(output, batch.target.reshape(-1));
  }

  double weight(const Batch& batch) const override {
    if (options_.multi_label)
      return at::ne(batch.target, no_label).reshape({batch.target.size(0), -1}).any(1).sum().item<double>();
    if (!options_.ignore_index && !mean_.weights.defined()) return static_cast<double>(batch.target.numel());
    return mean_.weight_of(batch.target);
  }

 private:
  static at::Tensor weights_of(const Options& options) {
    for (const double weight : options.class_weights)
      if (std::isinf(weight)) throw ConfigError("loss.class_weights has an infinite weight");
    return options.class_weights.empty() ? at::Tensor() : at::tensor(options.class_weights, at::kFloat);
  }

  /// One a score: those of a padded vocabulary, too.
  void check_weights(std::int64_t scores) const {
    const std::int64_t count = std::ssize(options_.class_weights);
    if (count == 0) return;
    if (options_.multi_label)
      throw ConfigError(
          "loss.class_weights is for one label a target: leave it out, or set multi_label = false");
    if (count != scores)
      throw ConfigError("loss.class_weights has " + std::to_string(count) + " weights, and the model gives " +
                        std::to_string(scores) + " scores: it needs one for each");
  }

  void check_labels(const BatchSchema& schema) const {
    if (!options_.multi_label)
      return refuse_several_labels("loss cross_entropy", schema, "set loss.multi_label = true");
    if (!has_several_labels(schema))
      throw ConfigError(
          "loss.multi_label is for targets of several labels a sample, but those of the data (\"" +
          schema.target.name + "\") have the shape " + shape_text(schema.target.shape) + ": set it to false");
    if (options_.ignore_index)
      throw ConfigError(
          "loss.ignore_index is for one label a target, and with multi_label = true those of -1 do not count "
          "as it "
          "is: leave it out");
  }

  /// scores [n, classes], labels [n, most].
  at::Tensor of_labels(const at::Tensor& scores, const at::Tensor& labels) const {
    const at::Tensor blank = labels.eq(no_label);
    const at::Tensor count = at::ne(labels, no_label).sum(1);
    const at::Tensor log = at::log_softmax(scores, -1);
    const at::Tensor of_label = log.gather(1, labels.masked_fill(blank, 0)).masked_fill(blank, 0.0);
    at::Tensor each = of_label.sum(1).div(count.clamp_min(1));
    if (options_.label_smoothing > 0.0)
      each = each.mul(1.0 - options_.label_smoothing).add(log.mean(1), options_.label_smoothing);
    const at::Tensor none = count.eq(0);
    return at::div(each.masked_fill(none, 0.0).sum().neg(), none.logical_not().sum().clamp_min(1));
  }

  at::Tensor of_stored(const at::Tensor& output, const Batch& batch) const {
    if (options_.label_smoothing > 0.0)
      throw ConfigError(
          "loss.label_smoothing gives every class a share of the target, but the model gives scores of a "
          "few classes a sample: set it to 0, or have the model give all");
    if (mean_.weights.defined())
      throw ConfigError(
          "loss.class_weights is for models that score every class, and this one gives scores of a few a "
          "sample: leave it out");
    if (output.size(0) != batch.target.size(0) || batch.target.dim() != (options_.multi_label ? 2 : 1))
      throw PluginError("the model gives sparse scores of " + std::to_string(output.size(0)) +
                        " samples for targets of shape " + shape_text(batch.target.sizes().vec()));
    return losses::stored_cross_entropy(output, batch.target,
                                        options_.multi_label ? no_label : options_.ignore_index);
  }

  Options options_;
  losses::ClassLoss mean_;
};

}  // namespace

TRAINYARD_PLUGIN(CrossEntropy)
