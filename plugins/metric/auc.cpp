// The area under the ROC curve, exact: the share of pairs of a positive and a negative whose scores are in
// the right order, ties counting one half (Hanley and McNeil, Radiology 1982; the Mann-Whitney statistic).
// Every score is kept: 5 bytes a sample.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include <ATen/ops/cat.h>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/mean_metric.hpp>

namespace {

using namespace trainyard;

class Auc final : public Metric {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("auc").version("1.0.0").summary("Area under the ROC curve of a binary classifier, exact.");
  }
  explicit Auc(const Options&) {}

  std::vector<std::string> names() const override { return {"auc"}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    refuse_several_labels("metric auc", schema, "take metric precision_at_k");
    const bool fits =
        output == schema.target.shape || (has_scores(output, schema.target.shape, 1) && output.back() <= 2);
    if (schema.classes != 2 || !fits)
      throw ConfigError("metric auc needs 2 classes and one or two scores a target; " +
                        shapes_text(output, schema));
  }

  void reset() override {
    scores_.clear();
    positive_.clear();
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const bool two = output.dim() == batch.target.dim() + 1 && output.size(-1) == 2;
    const at::Tensor score = two ? output.select(-1, 1).sub(output.select(-1, 0)) : output;
    scores_.push_back(score.reshape(-1).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true));
    positive_.push_back(batch.target.reshape(-1).gt(0));
  }

  std::vector<double> compute() const override {
    constexpr double undefined = std::numeric_limits<double>::quiet_NaN();
    if (scores_.empty()) return {undefined};
    const at::Tensor scores = joined(scores_), positive = joined(positive_);
    const std::span<const float> score(scores.const_data_ptr<float>(),
                                       static_cast<std::size_t>(scores.numel()));
    const bool* is_positive = positive.const_data_ptr<bool>();
    if (std::any_of(score.begin(), score.end(), [](float s) { return std::isnan(s); })) return {undefined};

    std::vector<std::size_t> order(score.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] < score[b]; });
    double right = 0.0, positives = 0.0, negatives = 0.0;  // counts; exact up to 2^52 pairs
    for (std::size_t first = 0; first < order.size();) {
      double tied_positives = 0.0, tied_negatives = 0.0;
      std::size_t last = first;
      for (; last < order.size() && score[order[last]] == score[order[first]]; ++last)
        ++(is_positive[order[last]] ? tied_positives : tied_negatives);
      right += tied_positives * (negatives + 0.5 * tied_negatives);
      positives += tied_positives;
      negatives += tied_negatives;
      first = last;
    }
    return {positives > 0.0 && negatives > 0.0 ? right / (positives * negatives) : undefined};
  }

  void save(StateWriter& state) const override {
    if (scores_.empty()) return;
    state.tensor("scores", joined(scores_));
    state.tensor("positive", joined(positive_));
  }
  void merge(const StateReader& other) override {
    if (!other.has_tensor("scores")) return;
    const at::Tensor& scores = other.tensor("scores");
    const at::Tensor& positive = other.tensor("positive");
    scores_.push_back(scores);
    positive_.push_back(positive);
  }

 private:
  static at::Tensor joined(const std::vector<at::Tensor>& parts) {
    std::vector<at::Tensor> on_cpu;
    on_cpu.reserve(parts.size());
    for (const at::Tensor& part : parts) on_cpu.push_back(part.to(at::kCPU));
    return at::cat(on_cpu);
  }

  std::vector<at::Tensor> scores_, positive_;
};

}  // namespace

TRAINYARD_PLUGIN(Auc)
