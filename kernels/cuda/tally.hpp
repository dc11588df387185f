// The arithmetic of statistics.cu for an element, for a thread's elements and for merged parts: the same code
// on the device and, with any compiler, on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/both.hpp"
#include "kernels/cuda/chunks.hpp"
#include "kernels/cuda/statistics.hpp"

namespace trainyard::kernels::cuda {

/// The type in which elements of T are handled before they become doubles.
template <class T>
using ValueOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Sums over elements of one chunk, deviations about a shift that all of its threads have in common, so that
/// sums of parts are added up and nothing else. Where the shift is one of the n elements, the sum of squares
/// about it is at most n + 1 times that about the mean: the difference of the two keeps, of sixteen digits,
/// at least ten in a chunk of 2^15.
template <class Value>
struct Tally {
  /// The sum of few enough float32 numbers of like size is exact in double, and so is what it is beside n
  /// times the shift; of doubles that must be summed up by itself.
  static constexpr bool wide = std::is_same_v<Value, double>;
  static constexpr Value nan = std::numeric_limits<Value>::quiet_NaN();
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  double sum = 0, l1 = 0, squares = 0, product = 1;
  double rest = 0, abs_rest = 0;    ///< sums about the shift, and of |x| about |shift|; only if `wide`
  double about = 0, abs_about = 0;  ///< and of their squares
  Value minimum = nan, maximum = nan, abs_minimum = nan;
  std::int32_t zeros = 0, nans = 0, infinities = 0;

  template <int n>
  TRAINYARD_BOTH void add(const Value (&values)[n], double shift) {
    using std::fabs, std::fmax, std::fmin;
    double part = 1;
    for (int i = 0; i < n; ++i) {
      const double x = values[i], a = fabs(x);
      const double d = x - shift, e = a - fabs(shift);
      sum += x;
      l1 += a;
      squares += x * x;
      about += d * d;
      abs_about += e * e;
      if constexpr (wide) {
        rest += d;
        abs_rest += e;
      }
      part *= x;
      minimum = fmin(minimum, values[i]);  // NaN where there is no other number
      maximum = fmax(maximum, values[i]);
      abs_minimum = fmin(abs_minimum, fabs(values[i]));
    }
    product *= part;
    // The product shows whether a closer look is needed; it is also 0 or infinite beyond the range of double.
    if (part != 0 && fabs(part) < infinity) return;
    for (int i = 0; i < n; ++i) {
      zeros += values[i] == 0;
      nans += values[i] != values[i];
      infinities += fabs(static_cast<double>(values[i])) == infinity;
    }
  }

  TRAINYARD_BOTH void merge(const Tally& next) {
    using std::fmax, std::fmin;
    sum += next.sum;
    l1 += next.l1;
    squares += next.squares;
    product *= next.product;
    rest += next.rest;
    abs_rest += next.abs_rest;
    about += next.about;
    abs_about += next.abs_about;
    minimum = fmin(minimum, next.minimum);
    maximum = fmax(maximum, next.maximum);
    abs_minimum = fmin(abs_minimum, next.abs_minimum);
    zeros += next.zeros;
    nans += next.nans;
    infinities += next.infinities;
  }

  /// Returns the numbers of all `count` elements, at least one. The extremes do not reflect NaN yet.
  TRAINYARD_BOTH Numbers numbers(std::int64_t count, double shift) const {
    using std::fabs, std::fmax;
    const auto n = static_cast<double>(count);
    const double moved = wide ? rest : sum - n * shift;
    const double abs_moved = wide ? abs_rest : l1 - n * fabs(shift);
    Numbers s;
    s.count = count;
    s.zeros = zeros;
    s.nans = nans;
    s.infinities = infinities;
    s.minimum = minimum;
    s.maximum = maximum;
    s.abs_minimum = abs_minimum;
    s.abs_maximum = fmax(-s.minimum, s.maximum);
    s.sum = sum;
    s.l1 = l1;
    s.squares = squares;
    s.product = product;
    s.deviation = about_mean(about, moved, n);
    s.abs_deviation = about_mean(abs_about, abs_moved, n);
    return s;
  }

 private:
  TRAINYARD_BOTH double about_mean(double about_shift, double moved, double n) const {
    const double deviation = about_shift - moved * (moved / n);
    if (deviation < 0) return 0;
    // Finite numbers whose squares exceed the range of double give a result that is too large, yet a number.
    return nans + infinities == 0 && deviation != deviation ? about_shift : deviation;
  }
};

/// Merges the numbers of the elements that follow, deviations by Chan, Golub and LeVeque, "Updating formulae
/// and a pairwise algorithm for computing sample variances" (1979), equation 2.1. The extremes do not reflect
/// NaN yet.
TRAINYARD_BOTH inline void append(Numbers& all, const Numbers& next) {
  using std::fmax, std::fmin;
  if (next.count == 0) return;
  if (all.count == 0) {
    all = next;
    return;
  }
  const auto m = static_cast<double>(all.count), n = static_cast<double>(next.count);
  const double weight = m / (m + n) * n;
  const double delta = next.sum / n - all.sum / m, abs_delta = next.l1 / n - all.l1 / m;
  all.deviation += next.deviation + delta * delta * weight;
  all.abs_deviation += next.abs_deviation + abs_delta * abs_delta * weight;
  all.count += next.count;
  all.zeros += next.zeros;
  all.nans += next.nans;
  all.infinities += next.infinities;
  all.minimum = fmin(all.minimum, next.minimum);
  all.maximum = fmax(all.maximum, next.maximum);
  all.abs_minimum = fmin(all.abs_minimum, next.abs_minimum);
  all.abs_maximum = fmax(all.abs_maximum, next.abs_maximum);
  all.sum += next.sum;
  all.l1 += next.l1;
  all.squares += next.squares;
  all.product *= next.product;
}

/// Returns the numbers of a whole tensor, whose extremes are NaN if an element is.
TRAINYARD_BOTH inline Numbers finished(Numbers all) {
  if (all.nans > 0) all.minimum = all.maximum = all.abs_minimum = all.abs_maximum = Numbers::nan;
  return all;
}

/// Returns the shift about which a chunk's deviations are taken: its first element, or 0 if not finite.
template <class T>
TRAINYARD_BOTH double shift_of(const T* data) {
  const auto first = static_cast<double>(static_cast<ValueOf<T>>(data[0]));
  return first - first == 0 ? first : 0;
}

/// Sixteen bytes of a tensor.
template <class T>
struct alignas(16) Vector {
  static constexpr int width = 16 / sizeof(T);
  T elements[width];

  /// Loads the same elements for the same thread, whether or not the tensor is aligned for this.
  TRAINYARD_BOTH static Vector load(const T* from) {
    if (reinterpret_cast<std::uintptr_t>(from) % sizeof(Vector) == 0)
      return *reinterpret_cast<const Vector*>(from);
    Vector vector;
    for (int i = 0; i < width; ++i) vector.elements[i] = from[i];
    return vector;
  }

  TRAINYARD_BOTH void add_to(Tally<ValueOf<T>>& tally, double shift) const {
    ValueOf<T> values[width];
    for (int i = 0; i < width; ++i) values[i] = static_cast<ValueOf<T>>(elements[i]);
    tally.add(values, shift);
  }
};

/// Returns the tally of one of a chunk's threads, which takes every n-th vector.
template <class T>
TRAINYARD_BOTH Tally<ValueOf<T>> tally_of(const T* data, std::int32_t count, std::int32_t thread,
                                          double shift) {
  constexpr std::int32_t width = Vector<T>::width, line = width * threads_of_chunk;
  constexpr std::int32_t ahead = 4;  // vectors loaded at once
  static_assert(chunk_size % (line * ahead) == 0);
  Tally<ValueOf<T>> tally;
  std::int32_t at = thread * width;
  if (count == chunk_size) {
    for (; at < chunk_size; at += line * ahead) {
      Vector<T> vectors[ahead];
      for (std::int32_t i = 0; i < ahead; ++i) vectors[i] = Vector<T>::load(data + at + i * line);
      for (std::int32_t i = 0; i < ahead; ++i) vectors[i].add_to(tally, shift);
    }
    return tally;
  }
  for (; at + width <= count; at += line) Vector<T>::load(data + at).add_to(tally, shift);
  for (const std::int32_t end = at + width; at < count && at < end; ++at) {
    const ValueOf<T> value[1] = {static_cast<ValueOf<T>>(data[at])};
    tally.add(value, shift);
  }
  return tally;
}

}  // namespace trainyard::kernels::cuda
