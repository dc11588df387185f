// What one network said of the samples of one distribution, beside what the parent said of the same inputs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace audit {

/// Expected calibration error (Guo et al., "On Calibration of Modern Neural Networks", ICML 2017): the mean distance of
/// confidence and accuracy over 15 equal ranges of confidence, by the number of samples in each.
class Calibration {
 public:
  void add(double confidence, bool right);
  double error() const;

 private:
  static constexpr std::size_t ranges = 15;
  struct Range {
    std::int64_t samples = 0, right = 0;
    double confidence = 0.0;
  };
  std::array<Range, ranges> ranges_;
};

/// What a network said of some samples, [samples, classes], in double precision on the CPU.
struct Said {
  at::Tensor logits, probabilities;

  Said(const at::Tensor& single);  // NOLINT(google-explicit-constructor): the same numbers
};

class Outcome {
 public:
  explicit Outcome(std::int64_t classes = 0)
      : of_class_(static_cast<std::size_t>(classes)), wrong_(static_cast<std::size_t>(classes)) {}

  /// Takes logits [samples, classes] of this network and of the parent for the same inputs, and the labels; all on the CPU.
  void add(const Said& mine, const Said& parents, const at::Tensor& labels);

  std::int64_t samples() const { return samples_; }
  double error() const { return share(wrong_in_all_); }
  /// The share of samples of which network and parent say the same class.
  double match() const { return share(matches_); }
  /// Mean distances between what both say: of probabilities in the l2 and the largest norm, and of logits in the l2 norm.
  double distance() const { return mean(distance_); }
  double largest() const { return mean(largest_); }
  double logit_distance() const { return mean(logits_); }
  double calibration_error() const { return calibration_.error(); }
  std::size_t classes() const { return of_class_.size(); }
  std::int64_t of_class(std::size_t label) const { return of_class_[label]; }
  /// The share of the samples of a class that are taken for another one.
  double error_of_class(std::size_t label) const {
    return of_class_[label] == 0 ? 0.0
                                 : static_cast<double>(wrong_[label]) / static_cast<double>(of_class_[label]);
  }

 private:
  double mean(double sum) const { return samples_ == 0 ? 0.0 : sum / static_cast<double>(samples_); }
  double share(std::int64_t count) const { return mean(static_cast<double>(count)); }

  std::int64_t samples_ = 0, wrong_in_all_ = 0, matches_ = 0;
  double distance_ = 0.0, largest_ = 0.0, logits_ = 0.0;  ///< sums
  std::vector<std::int64_t> of_class_, wrong_;
  Calibration calibration_;
};

}  // namespace audit
