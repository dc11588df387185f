// The share of edges whose rank among their own negatives is k at most, as the Open Graph Benchmark has it
// beside the mean reciprocal rank. (Its Hits@K of sets such as ogbl-collab is another: there all edges have
// the same negatives.)
#include "link_ranks.hpp"

namespace {

using namespace trainyard;

class HitsAtK final : public MeanMetric {
 public:
  struct Options {
    std::int64_t k = 1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("hits_at_k")
        .version("1.0.0")
        .summary("Share of edges that rank among the first k with their negatives.");
    m.option("k", &Options::k, "how many ranks count; the value is named after it: hits_1").min(1);
  }
  explicit HitsAtK(const Options& options) : options_(options) {}

  std::vector<std::string> names() const override { return {"hits_" + std::to_string(options_.k)}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    metrics::require_links("metric hits_at_k", output, schema);
    const std::int64_t negatives = schema.target.shape.front() - 1;
    if (options_.k > negatives)
      throw ConfigError("metric hits_at_k has k = " + std::to_string(options_.k) + ", and an edge " +
                        std::to_string(negatives) +
                        " negatives, so that each would be a hit: lower k, or set more "
                        "data.negatives");
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const at::Tensor hits = metrics::link_ranks(output, batch.target).le(static_cast<double>(options_.k));
    add(hits.sum(), static_cast<double>(hits.size(0)));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(HitsAtK)
