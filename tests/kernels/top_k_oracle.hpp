// Tensors that are hard to select from, and what a selection of them must be: by a full sort, and for MSTopK
// by its definition, one threshold a pass.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/selection.hpp"

namespace trainyard::test {

using Floats = std::vector<float>;
using Indices = std::vector<std::int32_t>;
using Random = std::mt19937_64;

/// What elements are ordered by.
inline float magnitude(float x) {
  return std::isfinite(x) ? std::abs(x) : std::numeric_limits<float>::infinity();
}

/// All indices, those of larger elements first, of equal ones those of lower index.
inline Indices ranking(const Floats& x) {
  std::vector<std::pair<float, std::int32_t>> order;
  for (std::int32_t i = 0; i < std::ssize(x); ++i)
    order.emplace_back(-magnitude(x[static_cast<std::size_t>(i)]), i);
  std::ranges::sort(order);
  Indices indices;
  for (const auto& [key, index] : order) indices.push_back(index);
  return indices;
}

/// The k largest, ascending by index.
inline Indices first_of(Indices ranking, std::int64_t k) {
  ranking.resize(static_cast<std::size_t>(k));
  std::ranges::sort(ranking);
  return ranking;
}

struct MsTopK {
  std::int64_t k1 = 0, k2 = 0;
  Indices sure, band;
};

/// MSTopK as published, `samples` counts of one threshold, over what is finite; what is not counts as above
/// all thresholds, and is all there is to choose from where it is k or more.
inline MsTopK published_mstopk(const Floats& x, std::int64_t k, int samples, kernels::Start start) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Floats a;
  double sum = 0, lowest = infinity, highest = 0;
  std::int64_t non_finite = 0;
  for (const float each : x) {
    a.push_back(magnitude(each));
    if (a.back() == infinity) {
      ++non_finite;
      continue;
    }
    sum += a.back();
    lowest = std::min<double>(lowest, a.back());
    highest = std::max<double>(highest, a.back());
  }
  const auto d = std::ssize(x);
  MsTopK found{.k1 = non_finite, .k2 = d};
  float t1 = infinity, t2 = 0;
  if (non_finite >= k && k < d) {
    found.k2 = non_finite;
    t2 = infinity;
    if (non_finite > k) {
      found.k1 = 0;
      t1 = std::numeric_limits<float>::quiet_NaN();  // nothing is above it
    }
    samples = 0;
  }
  const double lo = start == kernels::Start::minimum ? lowest : sum / static_cast<double>(d - non_finite);
  double l = 0, r = 1;
  for (int i = 0; i < samples; ++i) {
    const double q = (l + r) / 2;
    const auto t = static_cast<float>(std::fma(q, highest - lo, lo));
    const auto n = std::ranges::count_if(a, [&](float each) { return each >= t; });
    if (n <= k) {
      r = q;
      if (n > found.k1) found.k1 = n, t1 = t;
    } else {
      l = q;
      if (n < found.k2) found.k2 = n, t2 = t;
    }
    if (n == k) break;
  }
  for (std::int32_t i = 0; i < d; ++i) {
    const float each = a[static_cast<std::size_t>(i)];
    if (each >= t1)
      found.sure.push_back(i);
    else if (each >= t2)
      found.band.push_back(i);
  }
  return found;
}

/// A tensor of one of many kinds, of up to `most` elements.
inline Floats adversarial(Random& random, std::size_t most) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::normal_distribution<float> normal;
  std::exponential_distribution<float> exponential;
  std::student_t_distribution<float> student(3);
  Floats x(random() % (most + 1));
  const auto fill = [&](auto&& draw) {
    for (float& each : x) each = draw();
  };
  const auto signed_ = [&](float a) { return random() % 2 == 0 ? a : -a; };
  const auto spoil = [&](std::initializer_list<float> values, std::uint64_t one_in) {
    for (float& each : x)
      if (random() % one_in == 0) each = values.begin()[random() % values.size()];
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  switch (random() % 15) {
    case 0: fill([&] { return normal(random); }); break;
    case 1: fill([&] { return signed_(exponential(random)); }); break;
    case 2: fill([&] { return student(random); }); break;
    case 3: fill([&] { return signed_(static_cast<float>(random() % 4)); }); break;  // ties
    case 4: fill([&] { return signed_(0.0f); }); break;
    case 5: fill([&, value = normal(random)] { return signed_(value); }); break;
    case 6:  // denormals, and zeros among them
      fill([&] { return signed_(static_cast<float>(random() % 100) * 1e-45f); });
      break;
    case 7:
      fill([&] { return normal(random); });
      spoil({nan, -nan, infinity, -infinity, 0.0f, -0.0f}, 1 + random() % 50);
      break;
    case 8:
      fill([&, values = {nan, -nan, infinity, -infinity}] { return values.begin()[random() % 4]; });
      break;
    case 9:
      fill([&] { return normal(random); });
      if (!x.empty()) x[random() % x.size()] = std::pow(10.0f, static_cast<float>(random() % 39));
      break;
    case 10:  // the largest there are, next to one another
      fill([&] { return signed_(std::nextafter(std::numeric_limits<float>::max(), 0.0f)); });
      spoil({std::numeric_limits<float>::max(), infinity}, 5);
      break;
    case 11: fill([&] { return signed_(std::exp(40 * normal(random))); }); break;  // all scales
    case 12:  // at the borders of a radix's bins
      fill([&] {
        const std::uint64_t key = 0x3f800000 + (random() % 3 << 20) + (random() % 3 << 9) + random() % 3 - 1;
        return signed_(std::bit_cast<float>(static_cast<std::uint32_t>(key)));
      });
      break;
    case 13: fill([&, i = 0.0f]() mutable { return i += 1.0f; }); break;
    default: fill([&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random())); }); break;
  }
  return x;
}

/// How many to select: often none, one, all but one, or all.
inline std::int64_t some_k(Random& random, std::size_t count) {
  const auto d = static_cast<std::int64_t>(count);
  switch (random() % 8) {
    case 0: return 0;
    case 1: return std::min<std::int64_t>(1, d);
    case 2: return std::max<std::int64_t>(0, d - 1);
    case 3: return d;
    default: return static_cast<std::int64_t>(random() % (count + 1));
  }
}

}  // namespace trainyard::test
