// Compares the time of steps with a prediction.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace drift {

/// Says when the running median of the last steps has been off the prediction by more than a share for so many
/// steps in a row.
class Watch {
 public:
  enum class Finding : std::uint8_t { none, off, back };

  /// The median is of the last `window` steps.
  Watch(double predicted, double tolerance, std::int64_t steps, std::int64_t window)
      : predicted_(predicted),
        tolerance_(tolerance),
        steps_(static_cast<std::size_t>(steps)),
        window_(static_cast<std::size_t>(window)) {}

  /// Takes the seconds of a step. Returns `off` once the prediction has failed, and `back` once it holds again.
  Finding add(double seconds) {
    last_.push_back(seconds);
    if (last_.size() > window_) last_.pop_front();
    const bool now = std::abs(error()) > tolerance_;
    row_ = now == off_ ? 0 : row_ + 1;
    if (row_ < steps_) return Finding::none;
    row_ = 0;
    off_ = now;
    return now ? Finding::off : Finding::back;
  }

  double median() const {
    std::vector<double> sorted(last_.begin(), last_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }
  /// Returns by which share of the prediction steps are slower: below 0, faster.
  double error() const { return median() / predicted_ - 1.0; }

 private:
  double predicted_, tolerance_;
  std::size_t steps_, window_, row_ = 0;
  std::deque<double> last_;
  bool off_ = false;
};

}  // namespace drift
