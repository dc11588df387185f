// Searches the threshold of a top-k, without counting elements itself, so that the same code runs on the host
// and on CUDA devices.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/both.hpp"
#include "kernels/selection.hpp"

namespace trainyard::kernels {

constexpr std::int32_t infinite = 0x7f800000;  ///< the key of infinity; those of NaN are above it
constexpr std::int32_t none = 0x7fffffff;      ///< no key is above it
constexpr int most_thresholds = 15;            ///< most thresholds in one pass

TRAINYARD_BOTH inline std::int32_t key_of(float x) {
  std::int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & none;
}

TRAINYARD_BOTH inline float magnitude_of(std::int32_t key) {
  float magnitude;
  memcpy(&magnitude, &key, sizeof magnitude);
  return magnitude;
}

/// The results of a pass over the data before a search.
struct Summary {
  double sum = 0;                    ///< sum of finite magnitudes
  std::int32_t smallest = infinite;  ///< smallest key of all
  std::int32_t largest = 0;          ///< largest key of the finite ones
  std::int64_t non_finite = 0;
};

/// The state of a search: k1 <= k elements are above `sure`, and k2 >= k are above `band`.
struct Bounds {
  std::int64_t k1 = 0, k2 = 0;
  std::int32_t sure = none, band = -1;

  TRAINYARD_BOTH Selected selected(int passes, std::int64_t non_finite) const {
    return {k1,
            k2,
            sure >= infinite ? magnitude_of(infinite) : magnitude_of(sure + 1),
            magnitude_of(band + 1),
            passes,
            non_finite};
  }
};

/// The selection: all elements above `sure`, and of those above `band` but not above `sure`, in the order of
/// their indices, `take` after the first `skip`.
struct Cut {
  std::int32_t sure = none, band = none;
  std::int64_t skip = 0, take = 0;

  Cut() = default;
  TRAINYARD_BOTH Cut(const Bounds& bounds, std::int64_t k, Method method, std::uint64_t random)
      : sure(bounds.sure), band(k == bounds.k1 ? bounds.sure : bounds.band), skip(0), take(k - bounds.k1) {
    if (method != Method::mstopk || take == 0) return;
    const std::int64_t places = bounds.k2 - k + 1;
    skip = static_cast<std::int64_t>(random % static_cast<std::uint64_t>(places));
  }
};

/// Sets the bounds known before any threshold is counted, from the number of elements and of non-finite ones.
/// Returns false if that decides the selection: k or more are not finite, or k is all elements.
TRAINYARD_BOTH inline bool open_bounds(Bounds& bounds, std::int64_t k, std::int64_t count,
                                       std::int64_t non_finite) {
  if (k == count) {
    bounds = {count, count, -1, -1};
    return false;
  }
  if (non_finite >= k) {
    bounds = {0, non_finite, none, infinite - 1};
    if (non_finite == k) bounds.k1 = k, bounds.sure = infinite - 1;
    return false;
  }
  bounds = {non_finite, count, infinite - 1, -1};
  return true;
}

/// Bisects in steps of 2^levels: thresholds of the next `levels` steps, for every way in which they can go,
/// are numbered as the nodes of a heap: the first is 1; its successors are 2 if it was too high and 3 if not.
/// One pass counts them all.
struct Bisection {
  Bounds bounds;
  std::int64_t k = 0;
  bool by_key = false;
  double left = 0, right = 1;  ///< position on the line from `low` to `low + span`; or keys
  double low = 0, span = 0;
  int steps = 0;  ///< steps that remain

  Bisection() = default;
  /// Begins a search for 0 < k < count elements.
  TRAINYARD_BOTH Bisection(const Selection& how, std::int64_t k, std::int64_t count, const Summary& summary)
      : k(k), by_key(how.method == Method::bitsearch) {
    if (!open_bounds(bounds, k, count, summary.non_finite)) return;
    const double largest = magnitude_of(summary.largest);
    if (by_key) {
      left = summary.smallest - 1.0;
      right = summary.largest;
      bounds.band = summary.smallest - 1;
      bounds.sure = summary.largest;
      steps = 31;
      return;
    }
    low = how.start == Start::minimum ? static_cast<double>(magnitude_of(summary.smallest))
                                      : summary.sum / static_cast<double>(count - summary.non_finite);
    span = largest - low;
    steps = span > 0 ? how.samples : 0;
  }

  TRAINYARD_BOTH bool finished() const {
    return steps == 0 || bounds.k1 == k || (by_key && right - left <= 1);
  }

  TRAINYARD_BOTH std::int32_t above(int node) const {
    int depth = 0;
    while (node >> (depth + 1) != 0) ++depth;
    double l = left, r = right;
    while (depth-- > 0) {
      const double middle = middle_of(l, r);
      (node >> depth & 1 ? l : r) = middle;
    }
    return above_of(middle_of(l, r));
  }

  /// Takes the counts of a pass: counts[node] elements are above the threshold of each node.
  TRAINYARD_BOTH void advance(const std::int64_t* counts, int levels) {
    for (int level = 0, node = 1; level < levels && !finished(); ++level) {
      const double middle = middle_of(left, right);
      const std::int64_t found = counts[node];
      if (found <= k) {
        right = middle;
        if (found >= bounds.k1) bounds.k1 = found, bounds.sure = above_of(middle);
      } else {
        left = middle;
        if (found <= bounds.k2) bounds.k2 = found, bounds.band = above_of(middle);
      }
      node = 2 * node + (found > k);
      --steps;
    }
  }

 private:
  TRAINYARD_BOTH double middle_of(double l, double r) const {
    const double middle = (l + r) / 2;
    return by_key ? std::floor(middle) : middle;
  }
  /// Returns the key of a threshold, computed in double and rounded once to float.
  TRAINYARD_BOTH std::int32_t above_of(double place) const {
    if (by_key) return static_cast<std::int32_t>(place);
    return key_of(static_cast<float>(std::fma(place, span, low))) - 1;
  }
};

/// A digit of a key in the radix search; digits are numbered from the highest.
struct Digit {
  int shift, bits;
};
constexpr int digit_count = 3, most_bins = 2048;
TRAINYARD_BOTH constexpr Digit digit_of(int number) {
  return number == 0 ? Digit{20, 11} : number == 1 ? Digit{9, 11} : Digit{0, 9};
}

/// Searches the bin of the k-th key, digit by digit, until the last of the bin's keys is the k-th, or all of
/// them are the same. Bins of the first digit from `infinite` on hold values that are not finite.
struct RadixSearch {
  Bounds bounds;
  std::int32_t prefix = 0;  ///< the keys that begin with it are counted next
  std::int64_t beyond = 0;  ///< how many keys are above those
  int digit = 0;            ///< number of the digit counted next; past the last if finished

  TRAINYARD_BOTH bool finished() const { return digit == digit_count; }

  /// Enters the bin of the k-th key, which has `here` keys; `above` are in bins above it. No key that counts
  /// is below `floor`.
  TRAINYARD_BOTH void enter(int bin, std::int64_t above, std::int64_t here, std::int64_t k,
                            std::int32_t floor = 0) {
    const int shift = digit_of(digit++).shift;
    beyond += above;
    prefix += bin << shift;
    bounds = {beyond, beyond + here, prefix + (1 << shift) - 1, prefix - 1};
    if (beyond + here > k) return;
    const std::int32_t below = (prefix < floor ? floor : prefix) - 1;
    bounds = {k, k, below, below};
    digit = digit_count;
  }
};

/// Returns the most passes that count until a bisection finishes.
inline int most_counts(const Selection& how) {
  const int steps = how.method == Method::bitsearch ? 31 : how.samples;
  return (steps + how.levels - 1) / how.levels;
}

}  // namespace trainyard::kernels
