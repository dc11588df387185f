// How long ranks take to sum a gradient: a ring over one link, or what was measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fit.hpp"

namespace srifty {

/// A link between neighbours of a ring.
struct Link {
  double latency = 0.0;    ///< seconds a message
  double bandwidth = 0.0;  ///< bytes a second
};

/// Returns the seconds in which `ranks` ranks sum `bytes` bytes in a ring: 2 (n - 1) messages of an n-th each.
inline double ring_seconds(double ranks, double bytes, const Link& link) {
  const double messages = 2.0 * (ranks - 1.0);
  return messages * link.latency + messages / ranks * bytes / link.bandwidth;
}

/// One measured sum: so many bytes took so many seconds.
struct Exchange {
  double bytes = 0.0, seconds = 0.0;
};

/// Sums that were measured for one number of ranks. Between two sizes time is linear in the bytes, as latency and
/// bandwidth make it, however far apart the sizes are; a larger sum never takes less.
class Curve {
 public:
  /// Takes at least one exchange, each of more than 0 bytes.
  explicit Curve(std::vector<Exchange> measured) : points_(std::move(measured)) {
    std::sort(points_.begin(), points_.end(),
              [](const Exchange& a, const Exchange& b) { return a.bytes < b.bytes; });
    make_monotone();
  }

  double seconds(double bytes) const {
    if (bytes <= points_.front().bytes) return points_.front().seconds;
    if (bytes >= points_.back().bytes) return beyond(bytes);
    const auto next = std::upper_bound(points_.begin(), points_.end(), bytes,
                                       [](double size, const Exchange& point) { return size < point.bytes; });
    const Exchange& high = *next;
    const Exchange& low = *(next - 1);
    const double share = (bytes - low.bytes) / (high.bytes - low.bytes);
    return low.seconds + share * (high.seconds - low.seconds);
  }

  const std::vector<Exchange>& points() const { return points_; }

 private:
  /// Pools neighbours that violate the order into their mean, which is the least-squares monotone fit.
  void make_monotone() {
    struct Block {
      double sum;
      std::size_t count;
    };
    std::vector<Block> blocks;
    for (const Exchange& point : points_) {
      blocks.push_back({point.seconds, 1});
      while (blocks.size() > 1 &&
             blocks.back().sum / static_cast<double>(blocks.back().count) <
                 (blocks.end() - 2)->sum / static_cast<double>((blocks.end() - 2)->count)) {
        const Block last = blocks.back();
        blocks.pop_back();
        blocks.back().sum += last.sum;
        blocks.back().count += last.count;
      }
    }
    auto point = points_.begin();
    for (const Block& block : blocks)
      for (std::size_t i = 0; i < block.count; ++i, ++point)
        point->seconds = block.sum / static_cast<double>(block.count);
  }

  /// Beyond the largest size, time grows with the bytes at the rate of the last two sizes.
  double beyond(double bytes) const {
    const Exchange& last = points_.back();
    if (points_.size() < 2) return last.seconds * bytes / last.bytes;
    const Exchange& before = points_[points_.size() - 2];
    if (before.bytes == last.bytes) return last.seconds * bytes / last.bytes;
    return last.seconds +
           (bytes - last.bytes) * (last.seconds - before.seconds) / (last.bytes - before.bytes);
  }

  std::vector<Exchange> points_;
};

/// Fits the ring's two constants to measured sums of `ranks` ranks, at least 2; neither is below 0, and where no
/// byte takes time the bandwidth is infinite.
inline Link fit_link(double ranks, const std::vector<Exchange>& points) {
  const double messages = 2.0 * (ranks - 1.0);
  std::vector<Observation> observations;
  observations.reserve(points.size());
  for (const Exchange& each : points)
    observations.push_back({messages, messages / ranks * each.bytes, each.seconds});
  const auto [latency, per_byte] = fit_two(observations);
  return {latency, 1.0 / per_byte};
}

}  // namespace srifty
