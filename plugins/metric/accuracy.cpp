// The share of targets that the largest score names; with one score a target (binary), of those on its right
// side of 0.
#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/mean_metric.hpp>

#include "hits.hpp"
#include "ignore_index.hpp"

namespace {

using namespace trainyard;

class Accuracy final : public MeanMetric {
 public:
  struct Options {
    std::optional<std::int64_t> ignore_index;
  };
  static void describe(Manifest<Options>& m) {
    m.name("accuracy")
        .version("1.0.0")
        .summary("Share of samples (or tokens) whose class has the largest score.");
    metrics::describe_ignore_index(m);
  }
  explicit Accuracy(const Options& options) : options_(options) {}

  std::vector<std::string> names() const override { return {"accuracy"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    refuse_several_labels("metric accuracy", schema, "take metric precision_at_k");
    const bool many = schema.classes > 0 && has_scores(output, schema.target.shape, schema.classes);
    const bool one =
        schema.classes == 2 &&
        (output == schema.target.shape || (has_scores(output, schema.target.shape, 1) && output.back() == 1));
    if (!many && !one)
      throw ConfigError("metric accuracy needs a score for each class, or one for two classes; " +
                        shapes_text(output, schema));
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const at::Tensor& target = batch.target;
    const bool one = output.dim() == target.dim() || output.size(-1) == 1;
    if (!one)
      if (const auto hits = metrics::count_hits(output, target, options_.ignore_index, 1))
        return add(static_cast<double>(hits->found), static_cast<double>(hits->of));
    const at::Tensor found = one ? output.reshape(target.sizes()).gt(0) : output.argmax(-1);
    add_hits(found.eq(target), target, options_.ignore_index);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Accuracy)
