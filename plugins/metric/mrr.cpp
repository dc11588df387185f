// The mean reciprocal rank of edges among their negatives (Voorhees, "The TREC-8 question answering track
// report", 1999; as of edges: Hu et al., "Open Graph Benchmark", NeurIPS 2020, section 5).
#include "link_ranks.hpp"

namespace {

using namespace trainyard;

class Mrr final : public MeanMetric {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("mrr").version("1.0.0").summary("Mean of 1 / rank of an edge among its negatives.");
  }
  explicit Mrr(const Options&) {}

  std::vector<std::string> names() const override { return {"mrr"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    metrics::require_links("metric mrr", output, schema);
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const at::Tensor ranks = metrics::link_ranks(output, batch.target);
    add(ranks.reciprocal().sum(), static_cast<double>(ranks.size(0)));
  }
};

}  // namespace

TRAINYARD_PLUGIN(Mrr)
