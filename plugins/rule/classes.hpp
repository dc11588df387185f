// Labels and predictions of a classification, counted.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trainyard/state.hpp>

#include "findings.hpp"

namespace rules {

using namespace trainyard;

/// How often a label was predicted as what. Labels below 0 are left out: losses ignore them, too.
class ClassCounts {
 public:
  static constexpr std::int64_t none = -1;  ///< prediction where only labels are known

  /// Labels alone, or with predictions: as many numbers as labels, classes as integers or the score of class
  /// 1 of two, or a score for each class in one dimension more, the last one or the second. Predictions may
  /// be of the first labels only: nodes are recorded of the first micro-batch, labels of the whole batch.
  void add(const TensorRecord& labels, const TensorRecord* predictions) {
    at::Tensor label = values_of(labels).to(at::kLong);
    at::Tensor predicted = label;
    if (predictions != nullptr) {
      const at::Tensor& scores = values_of(*predictions);
      if (scores.dim() > 0 && label.dim() > 0 && scores.size(0) < label.size(0))
        label = label.narrow(0, 0, scores.size(0));
      predicted = classes(scores, label, labels.name);
    }
    label = label.contiguous();
    predicted = predicted.contiguous();
    const auto* label_of = label.const_data_ptr<std::int64_t>();
    const auto* predicted_of = predicted.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < label.numel(); ++i) {
      if (label_of[i] < 0) continue;
      ++counts_[{label_of[i], predictions == nullptr ? none : predicted_of[i]}];
      ++total_;
    }
  }

  std::int64_t total() const { return total_; }
  const std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>& counts() const { return counts_; }
  /// By label.
  std::map<std::int64_t, std::int64_t> of_labels() const {
    std::map<std::int64_t, std::int64_t> labels;
    for (const auto& [pair, count] : counts_) labels[pair.first] += count;
    return labels;
  }
  std::int64_t count(std::int64_t label, std::int64_t predicted) const {
    const auto found = counts_.find({label, predicted});
    return found == counts_.end() ? 0 : found->second;
  }

  void save(StateWriter& state) const {
    at::Tensor rows = at::empty({static_cast<std::int64_t>(counts_.size()), 3}, at::kLong);
    auto* cell = rows.mutable_data_ptr<std::int64_t>();
    for (const auto& [pair, count] : counts_) {
      *cell++ = pair.first;
      *cell++ = pair.second;
      *cell++ = count;
    }
    state.tensor("counts", rows);
  }
  void load(const StateReader& state) {
    *this = {};
    const at::Tensor& rows = state.tensor("counts");
    const auto* cell = rows.const_data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < rows.size(0); ++row, cell += 3) {
      counts_[{cell[0], cell[1]}] = cell[2];
      total_ += cell[2];
    }
  }

 private:
  static at::Tensor classes(const at::Tensor& predictions, const at::Tensor& label, const std::string& name) {
    if (predictions.numel() != label.numel()) {
      const bool second =
          predictions.dim() == label.dim() + 1 &&
          predictions.sizes().slice(0, static_cast<std::size_t>(label.dim())) != label.sizes();
      const at::Tensor best = predictions.argmax(second ? 1 : -1);
      if (best.numel() == label.numel()) return best;
      throw PluginError("predictions of " + std::to_string(predictions.numel()) + " numbers do not fit the " +
                        std::to_string(label.numel()) + " labels of \"" + name +
                        "\"; expected as many, or scores for each class");
    }
    return predictions.is_floating_point() ? predictions.gt(0).to(at::kLong) : predictions.to(at::kLong);
  }

  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> counts_;
  std::int64_t total_ = 0;
};

}  // namespace rules
