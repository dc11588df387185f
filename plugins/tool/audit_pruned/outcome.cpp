#include "outcome.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/softmax.h>

namespace audit {
namespace {

/// Returns where the largest of `count` numbers is; of equal ones the first.
std::int64_t largest_of(const double* numbers, std::int64_t count) {
  return std::max_element(numbers, numbers + count) - numbers;
}

}  // namespace

void Calibration::add(double confidence, bool right) {
  const auto place = static_cast<std::size_t>(confidence * ranges);
  Range& range = ranges_[std::min(place, ranges - 1)];
  ++range.samples;
  range.right += right ? 1 : 0;
  range.confidence += confidence;
}

double Calibration::error() const {
  double sum = 0.0;
  std::int64_t samples = 0;
  for (const Range& range : ranges_) {
    sum += std::abs(range.confidence - static_cast<double>(range.right));
    samples += range.samples;
  }
  return samples == 0 ? 0.0 : sum / static_cast<double>(samples);
}

Said::Said(const at::Tensor& single)
    : logits(single.to(at::kDouble).contiguous()), probabilities(at::softmax(logits, 1).contiguous()) {}

void Outcome::add(const Said& mine, const Said& parents, const at::Tensor& labels) {
  const auto* label = labels.const_data_ptr<std::int64_t>();
  const std::int64_t classes = mine.logits.size(1);
  const auto* const p = mine.probabilities.const_data_ptr<double>();
  const auto* const q = parents.probabilities.const_data_ptr<double>();
  const auto* const own = mine.logits.const_data_ptr<double>();
  const auto* const theirs = parents.logits.const_data_ptr<double>();
  for (std::int64_t i = 0; i < mine.logits.size(0); ++i) {
    const double *const a = p + i * classes, *const b = q + i * classes;
    const double *const x = own + i * classes, *const y = theirs + i * classes;
    double squares = 0.0, most = 0.0, of_logits = 0.0;
    for (std::int64_t c = 0; c < classes; ++c) {
      squares += (a[c] - b[c]) * (a[c] - b[c]);
      most = std::max(most, std::abs(a[c] - b[c]));
      of_logits += (x[c] - y[c]) * (x[c] - y[c]);
    }
    const std::int64_t said = largest_of(x, classes);
    const bool right = said == label[i];
    ++samples_;
    wrong_in_all_ += right ? 0 : 1;
    matches_ += said == largest_of(y, classes) ? 1 : 0;
    distance_ += std::sqrt(squares);
    largest_ += most;
    logits_ += std::sqrt(of_logits);
    const auto place = static_cast<std::size_t>(label[i]);
    ++of_class_[place];
    wrong_[place] += right ? 0 : 1;
    calibration_.add(a[said], right);
  }
}

}  // namespace audit
