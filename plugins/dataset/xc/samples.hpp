// Samples of few features and few labels, in memory as they are: one behind the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace xc {

/// Views, and what keeps them: memory of its own, or a file that is mapped.
struct Samples {
  std::int64_t features = 0, classes = 0;
  std::span<const std::int64_t> entries_end, labels_end;  ///< [size + 1]: sample i has [i] .. [i + 1)
  std::span<const std::int32_t> index;                    ///< features, ascending within a sample
  std::span<const float> value;
  std::span<const std::int32_t> label;  ///< ascending within a sample
  std::shared_ptr<const void> owner;

  std::int64_t size() const { return std::ssize(labels_end) - 1; }
  std::int64_t entries_of(std::int64_t sample) const { return length(entries_end, sample); }
  std::int64_t labels_of(std::int64_t sample) const { return length(labels_end, sample); }

 private:
  static std::int64_t length(std::span<const std::int64_t> end, std::int64_t sample) {
    const auto i = static_cast<std::size_t>(sample);
    return end[i + 1] - end[i];
  }
};

/// The same while it grows.
struct NewSamples {
  std::int64_t features = 0, classes = 0;
  std::vector<std::int64_t> entries_end = {0}, labels_end = {0};
  std::vector<std::int32_t> index;
  std::vector<float> value;
  std::vector<std::int32_t> label;

  std::int64_t size() const { return std::ssize(labels_end) - 1; }

  /// What was appended to index, value and label is a sample.
  void end_sample() {
    entries_end.push_back(std::ssize(index));
    labels_end.push_back(std::ssize(label));
  }

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

  static Samples done(NewSamples made) {
    const auto all = std::make_shared<const NewSamples>(std::move(made));
    return {all->features, all->classes, all->entries_end, all->labels_end,
            all->index,    all->value,   all->label,       all};
  }
};

}  // namespace xc
