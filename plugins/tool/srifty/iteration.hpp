// One training step of ranks that sum their gradients while backward goes on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace srifty {

/// A gradient of the network, in the network's order.
struct Gradient {
  double bytes = 0.0;
  double ready = 0.0;  ///< share of the backward pass after which it is whole
};

/// Gradients that are summed in one go.
struct Bucket {
  double bytes = 0.0;
  double ready = 0.0;  ///< seconds after the start of the step, or whatever its reader counts from
};

inline constexpr double mebibyte = 1024.0 * 1024.0;

/// Cuts gradients into buckets as the host does (docs/ranks.md): from the network's end on, in buckets of
/// `cap` bytes, the first one of 1 MiB at most; a gradient of 4 MiB or more is summed where it lies, by itself.
/// The last bucket waits for the whole backward pass, as it carries what is known only then. `ready` is a
/// share of the backward pass.
inline std::vector<Bucket> cut_into_buckets(std::span<const Gradient> gradients, double cap) {
  std::vector<Bucket> buckets;
  Bucket open;
  double room = std::min(mebibyte, cap);
  for (std::size_t i = gradients.size(); i-- > 0;) {
    const Gradient& each = gradients[i];
    if (each.bytes >= std::min(4.0 * mebibyte, cap)) {
      buckets.push_back({each.bytes, each.ready});
      continue;
    }
    if (open.bytes > 0.0 && open.bytes + each.bytes > room) {
      buckets.push_back(open);
      open = {};
      room = cap;
    }
    open.bytes += each.bytes;
    open.ready = std::max(open.ready, each.ready);
  }
  buckets.push_back(open);
  buckets.back().ready = 1.0;
  return buckets;
}

/// Returns when the last bucket is summed: one channel sums them in their order, each as soon as it is ready
/// and the one before it is done.
inline double end_of_exchanges(std::span<const Bucket> buckets,
                               const std::function<double(double bytes)>& seconds) {
  double end = 0.0;
  for (const Bucket& each : buckets) end = std::max(end, each.ready) + seconds(each.bytes);
  return end;
}

/// The parts of a step of one rank, in seconds.
struct StepParts {
  double forward = 0.0;   ///< of one micro-batch
  double backward = 0.0;  ///< of one micro-batch
  double rest = 0.0;      ///< after backward and the sums: optimizer and the host's own work
  double input = 0.0;     ///< of all data of the step, which loads beside the step
  int micros = 1;         ///< micro-batches; gradients leave during the last one
};

/// Returns the seconds of a step that `ranks` ranks make together: a bucket is ready once the slowest has it.
/// `shares` are buckets whose `ready` is a share of the backward pass, the last one all of it; `seconds` says what
/// summing so many bytes takes.
inline double step_seconds(std::span<const StepParts> ranks, std::span<const Bucket> shares,
                           const std::function<double(double bytes)>& seconds) {
  std::vector<Bucket> buckets(shares.begin(), shares.end());
  for (Bucket& each : buckets) each.ready = 0.0;
  double rest = 0.0, input = 0.0;
  for (const StepParts& rank : ranks) {
    const double before = rank.micros * rank.forward + (rank.micros - 1) * rank.backward;
    for (std::size_t i = 0; i < buckets.size(); ++i)
      buckets[i].ready = std::max(buckets[i].ready, before + shares[i].ready * rank.backward);
    rest = std::max(rest, rank.rest);
    input = std::max(input, rank.input);
  }
  return std::max(input, end_of_exchanges(buckets, seconds) + rest);
}

}  // namespace srifty
