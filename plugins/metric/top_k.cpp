// The share of targets that are among the k largest scores.
#include <ATen/ops/topk.h>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/mean_metric.hpp>

#include "hits.hpp"
#include "ignore_index.hpp"

namespace {

using namespace trainyard;

class TopK final : public MeanMetric {
 public:
  struct Options {
    std::int64_t k = 5;
    std::optional<std::int64_t> ignore_index;
  };
  static void describe(Manifest<Options>& m) {
    m.name("top_k").version("1.0.0").summary(
        "Share of samples (or tokens) whose class is among the k largest scores.");
    m.option("k", &Options::k, "how many scores count; the value is named after it: top_5").min(1);
    metrics::describe_ignore_index(m);
  }
  explicit TopK(const Options& options) : options_(options) {}

  std::vector<std::string> names() const override { return {"top_" + std::to_string(options_.k)}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    refuse_several_labels("metric top_k", schema, "take metric precision_at_k");
    if (schema.classes <= 0 || !has_scores(output, schema.target.shape, schema.classes))
      throw ConfigError("metric top_k needs a score for each class; " + shapes_text(output, schema));
    if (options_.k > schema.classes)
      throw ConfigError("metric top_k has k = " + std::to_string(options_.k) + ", but the data has only " +
                        std::to_string(schema.classes) + " classes; lower k");
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    if (const auto hits = metrics::count_hits(output, batch.target, options_.ignore_index, options_.k))
      return add(static_cast<double>(hits->found), static_cast<double>(hits->of));
    const at::Tensor largest =
        std::get<1>(at::topk(output, options_.k, -1, /*largest=*/true, /*sorted=*/false));
    add_hits(largest.eq(batch.target.unsqueeze(-1)).any(-1), batch.target, options_.ignore_index);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(TopK)
