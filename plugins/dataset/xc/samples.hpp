// Samples of few features and few labels, in memory as they are: one behind the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace xc {

struct Samples {
  std::int64_t features = 0, classes = 0;
  std::vector<std::int64_t> entries_end = {0}, labels_end = {0};  ///< [size + 1]: sample i has [i] .. [i + 1)
  std::vector<std::int32_t> index;                                ///< features, ascending within a sample
  std::vector<float> value;
  std::vector<std::int32_t> label;  ///< ascending within a sample

  std::int64_t size() const { return static_cast<std::int64_t>(labels_end.size()) - 1; }

  /// What was appended to index, value and label is a sample.
  void end_sample() {
    entries_end.push_back(static_cast<std::int64_t>(index.size()));
    labels_end.push_back(static_cast<std::int64_t>(label.size()));
  }

  std::int64_t entries_of(std::int64_t sample) const { return length(entries_end, sample); }
  std::int64_t labels_of(std::int64_t sample) const { return length(labels_end, sample); }

  /// Each sample to length 1; one of nothing but zeros stays.
  void normalise() {
    for (std::size_t i = 0; i + 1 < entries_end.size(); ++i) {
      const std::span<float> values(value.data() + entries_end[i], value.data() + entries_end[i + 1]);
      double squares = 0.0;
      for (const float each : values) squares += static_cast<double>(each) * each;
      if (squares == 0.0) continue;
      for (float& each : values) each = static_cast<float>(each / std::sqrt(squares));
    }
  }

 private:
  static std::int64_t length(const std::vector<std::int64_t>& end, std::int64_t sample) {
    const auto i = static_cast<std::size_t>(sample);
    return end[i + 1] - end[i];
  }
};

}  // namespace xc
