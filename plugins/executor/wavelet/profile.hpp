// How long the passes of a training take, by their points: the start, behind each node forward, the turn, behind
// each node backward, and the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace wavelet {

class Profile {
 public:
  /// Of the first `warm_up` passes it is the mean; later ones go through a low pass of 0.9.
  explicit Profile(std::int64_t warm_up) : warm_up_(std::max<std::int64_t>(warm_up, 1)) {}

  /// Seconds from the start to each point, which never fall, the first being 0 and the last the end; `turn` is
  /// the one at which forward ends. A pass with another number of points begins anew.
  void add(const std::vector<double>& elapsed, std::size_t turn) {
    if (elapsed.size() != elapsed_.size()) {
      elapsed_.assign(elapsed.size(), 0.0);
      passes_ = 0;
    }
    turn_ = turn;
    const double gain = ++passes_ <= warm_up_ ? 1.0 / static_cast<double>(passes_) : 0.1;
    for (std::size_t i = 0; i < elapsed.size(); ++i) elapsed_[i] += gain * (elapsed[i] - elapsed_[i]);
  }

  bool empty() const { return elapsed_.empty(); }
  /// Seconds. Not where it is empty, as all below.
  double cycle() const { return elapsed_.back(); }
  double forward() const { return elapsed_[turn_]; }

  /// The last point that is reached at `seconds` from the start, and how long after it that is.
  struct Progress {
    std::size_t point;
    double after;
  };
  Progress place(double seconds) const {
    const auto next = std::upper_bound(elapsed_.begin(), elapsed_.end(), seconds);
    const auto point = static_cast<std::size_t>(std::max<std::ptrdiff_t>(next - elapsed_.begin() - 1, 0));
    return {point, seconds - elapsed_[point]};
  }

 private:
  std::int64_t warm_up_;
  std::int64_t passes_ = 0;
  std::size_t turn_ = 0;
  std::vector<double> elapsed_;
};

}  // namespace wavelet
