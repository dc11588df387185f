// The mean over targets of -log p, p the probability that the network gives the target: cross entropy in natural
// logarithms, whatever smoothing and weights the run's loss has.
#include "log_likelihood.hpp"

namespace {

using namespace trainyard;

class LogLoss final : public MeanMetric {
 public:
  struct Options {
    std::optional<std::int64_t> ignore_index;
  };
  static void describe(Manifest<Options>& m) {
    m.name("log_loss")
        .version("1.0.0")
        .summary(
            "Mean of -log of the probability of the target, without the smoothing and weights of the loss.");
    metrics::describe_ignore_index(m);
  }
  explicit LogLoss(const Options& options) : options_(options) {}

  std::vector<std::string> names() const override { return {"log_loss"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    metrics::require_class_scores("metric log_loss", output, schema);
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const at::Tensor counts = metrics::counts_of(batch.target, options_.ignore_index);
    add(metrics::log_probabilities(output, batch.target, counts).sum().neg(), counts.sum());
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(LogLoss)
