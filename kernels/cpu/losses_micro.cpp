// This file is compiled once per instruction set, named by TRAINYARD_ISA. It has no symbol that the linker
// could share with other units, as that code would be compiled for this set: functions of headers that it
// calls are trivial or forced inline.
#include "kernels/cpu/losses_micro.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/cpu/vector_math.hpp"

namespace trainyard::kernels {
namespace {

// --- elements of a row: whole vectors, and at its end a part of one

struct Whole {};
#if defined(__AVX512F__)
struct Part {
  __mmask16 mask;
  explicit Part(std::int64_t count) : mask(static_cast<__mmask16>((1U << count) - 1)) {}
};
TRAINYARD_INLINE Vector load(const float* from, Part part, float other) {
  return _mm512_mask_loadu_ps(_mm512_set1_ps(other), part.mask, from);
}
TRAINYARD_INLINE void store(float* to, Vector value, Part part) {
  _mm512_mask_storeu_ps(to, part.mask, value);
}
#elif defined(__AVX2__)
struct Part {
  Words mask;
  explicit Part(std::int64_t count)
      : mask(Words{0, 1, 2, 3, 4, 5, 6, 7} < static_cast<std::int32_t>(count)) {}
};
TRAINYARD_INLINE Vector load(const float* from, Part part, float other) {
  const Vector found = _mm256_maskload_ps(from, reinterpret_cast<__m256i>(part.mask));
  return part.mask ? found : other + Vector{};
}
TRAINYARD_INLINE void store(float* to, Vector value, Part part) {
  _mm256_maskstore_ps(to, reinterpret_cast<__m256i>(part.mask), value);
}
#else
struct Part {
  int count;
  explicit Part(std::int64_t elements) : count(static_cast<int>(elements)) {}
};
TRAINYARD_INLINE Vector load(const float* from, Part part, float other) {
  Vector value = other + Vector{};
  for (int i = 0; i < part.count; ++i) value[i] = from[i];
  return value;
}
TRAINYARD_INLINE void store(float* to, Vector value, Part part) {
  for (int i = 0; i < part.count; ++i) to[i] = value[i];
}
#endif
TRAINYARD_INLINE Vector load(const float* from, Whole, float) {
  return load(from);
}
TRAINYARD_INLINE void store(float* to, Vector value, Whole) {
  store(to, value);
}

template <class Use>
TRAINYARD_INLINE void each_vector(std::int64_t begin, std::int64_t end, const Use& use) {
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) use(i, Whole{});
  if (i < end) use(i, Part(end - i));
}

/// Calls `use` with the begin and end of each block.
template <class Use>
TRAINYARD_INLINE void each_block(std::int64_t end, const Use& use) {
  for (std::int64_t i = 0; i < end; i += loss_block) use(i, end < i + loss_block ? end : i + loss_block);
}

// --- cross entropy

enum class Smoothing { none, even, weighted };

TRAINYARD_INLINE float highest_of(const float* x, std::int64_t classes) {
  Vector a = -infinity + Vector{}, b = a, c = a, d = a;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= classes; i += 4 * lanes) {  // four chains, as each operation waits
    a = Max::of(load(x + i, Whole{}, 0), a);
    b = Max::of(load(x + i + lanes, Whole{}, 0), b);
    c = Max::of(load(x + i + 2 * lanes, Whole{}, 0), c);
    d = Max::of(load(x + i + 3 * lanes, Whole{}, 0), d);
  }
  each_vector(i, classes, [&](std::int64_t k, auto part) { a = Max::of(load(x + k, part, -infinity), a); });
  return folded<Max>(Max::of(Max::of(a, b), Max::of(c, d)));
}

/// Sums over the scores less the highest: of their exponentials, and of themselves (times the weights).
struct RowSums {
  double exponentials = 0.0, scores = 0.0;
};

/// Computes the sums, and stores the exponentials in `kept` unless that is null.
template <Smoothing smoothing>
RowSums sums_of(const float* x, float highest, const float* weight, float* kept, std::int64_t classes) {
  RowSums sums;
  each_block(classes, [&](std::int64_t begin, std::int64_t end) {
    Vector exponentials{}, scores{};
    each_vector(begin, end, [&](std::int64_t i, auto part) {
      const Vector less = load(x + i, part, -infinity) - highest, found = exponential_below(less);
      if (kept != nullptr) store(kept + i, found, part);
      exponentials += found;
      if constexpr (smoothing == Smoothing::even) scores += load(x + i, part, highest) - highest;
      if constexpr (smoothing == Smoothing::weighted)
        scores += (load(x + i, part, highest) - highest) * load(weight + i, part, 0.0f);
    });
    sums.exponentials += static_cast<double>(folded<Add>(exponentials));
    if constexpr (smoothing != Smoothing::none) sums.scores += static_cast<double>(folded<Add>(scores));
  });
  return sums;
}

template <Smoothing smoothing>
void cross_entropy_row(const CrossEntropy& c, std::int64_t row) {
  const std::int64_t classes = c.of.classes, target = c.of.target[row];
  const float* const x = c.of.scores + row * c.of.stride;
  float* const gradient = c.gradient == nullptr ? nullptr : c.gradient + row * classes;
  const float highest = highest_of(x, classes);
  const RowSums sums = sums_of<smoothing>(x, highest, c.weight, gradient, classes);

  const double of_target =
      (1.0 - c.smoothing) * (c.weight == nullptr ? 1.0 : static_cast<double>(c.weight[target]));
  const double of_each = smoothing == Smoothing::none ? 0.0 : c.smoothing / static_cast<double>(classes);
  const double of_all =
      of_target + of_each * (smoothing == Smoothing::weighted ? c.weight_sum : static_cast<double>(classes));
  double loss =
      of_all * __builtin_log(sums.exponentials) - of_target * static_cast<double>(x[target] - highest);
  if constexpr (smoothing != Smoothing::none) loss -= of_each * sums.scores;
  c.loss[row] = loss;
  if (gradient == nullptr) return;

  const auto factor = static_cast<float>(of_all * c.scale / sums.exponentials);
  [[maybe_unused]] const auto share = static_cast<float>(of_each * c.scale);
  each_vector(0, classes, [&](std::int64_t i, auto part) {
    Vector value = load(gradient + i, part, 0.0f) * factor;
    if constexpr (smoothing == Smoothing::even) value -= share;
    if constexpr (smoothing == Smoothing::weighted) value -= load(c.weight + i, part, 0.0f) * share;
    store(gradient + i, value, part);
  });
  gradient[target] -= static_cast<float>(of_target * c.scale);
}

template <Smoothing smoothing>
void cross_entropy_rows(const CrossEntropy& c, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (c.of.target[row] != c.ignored) {
      cross_entropy_row<smoothing>(c, row);
      continue;
    }
    c.loss[row] = 0.0;
    if (c.gradient == nullptr) continue;
    for (std::int64_t i = 0; i < c.of.classes; ++i) c.gradient[row * c.of.classes + i] = 0.0f;
  }
}

void cross_entropy(const CrossEntropy& what, std::int64_t begin, std::int64_t end) {
  if (what.smoothing == 0.0) return cross_entropy_rows<Smoothing::none>(what, begin, end);
  if (what.weight == nullptr) return cross_entropy_rows<Smoothing::even>(what, begin, end);
  cross_entropy_rows<Smoothing::weighted>(what, begin, end);
}

// --- element by element

TRAINYARD_INLINE std::int64_t end_of(std::int64_t block, std::int64_t size) {
  const std::int64_t end = (block + 1) * loss_block;
  return end < size ? end : size;
}

/// log(1 + exp(x)) is max(x, 0) + log(1 + exp(-|x|)): nothing cancels. The gradient is (1 - t) sigmoid(x) - positive t sigmoid(-x), times the scale.
void binary_cross_entropy(const BinaryCrossEntropy& what, std::int64_t begin, std::int64_t end) {
  const BinaryCrossEntropy w = what;
  for (std::int64_t block = begin; block < end; ++block) {
    Vector sums{};
    each_vector(block * loss_block, end_of(block, w.size), [&](std::int64_t i, auto part) {
      // Elements beyond the end get loss 0 from logit 200, whose exponential is 0, and target 1.
      const Vector x = load(w.logits + i, part, 200.0f), t = load(w.target + i, part, 1.0f);
      const Words is_positive = x > 0.0f;
      const Vector above = is_positive ? x : Vector{}, below = is_positive ? Vector{} : -x;
      const Vector e = exponential_below(is_positive ? -x : x);
      const Vector positive = t * w.positive, negative = 1.0f - t;
      sums += negative * above + positive * below + (positive + negative) * log_one_plus(e);
      if (w.gradient == nullptr) return;
      const Vector larger = 1.0f / (1.0f + e), smaller = e * larger;
      const Vector of_x = is_positive ? larger : smaller, of_minus_x = is_positive ? smaller : larger;
      store(w.gradient + i, (negative * of_x - positive * of_minus_x) * w.scale, part);
    });
    w.loss[block] = static_cast<double>(folded<Add>(sums));
  }
}

void absolute_error(const AbsoluteError& what, std::int64_t begin, std::int64_t end) {
  for (std::int64_t block = begin; block < end; ++block) {
    Vector sums{};
    each_vector(block * loss_block, end_of(block, what.size), [&](std::int64_t i, auto part) {
      const Vector less = load(what.values + i, part, 0.0f) - load(what.target + i, part, 0.0f);
      sums += less < 0.0f ? -less : less;
    });
    what.sum[block] = static_cast<double>(folded<Add>(sums));
  }
}

// --- hits

/// Counts larger scores (NaN is larger), and with `ahead`, for those ahead of `score`, equal ones, too.
template <bool ahead>
TRAINYARD_INLINE std::int32_t larger(const float* x, std::int64_t begin, std::int64_t end, float score) {
  std::int32_t count = 0;
  for (std::int64_t i = begin; i < end; ++i) count += ahead ? !(x[i] < score) : !(x[i] <= score);
  return count;
}

bool is_hit(const float* x, std::int64_t classes, std::int64_t target, std::int64_t most) {
  const float score = x[target];
  std::int64_t count = 0;
  if (score != score) {
    for (std::int64_t i = 0; i < target; ++i) count += x[i] != x[i];
    return count < most;
  }
  for (std::int64_t i = 0; i < target && count < most; i += loss_block)
    count += larger<true>(x, i, i + loss_block < target ? i + loss_block : target, score);
  for (std::int64_t i = target + 1; i < classes && count < most; i += loss_block)
    count += larger<false>(x, i, i + loss_block < classes ? i + loss_block : classes, score);
  return count < most;
}

std::int64_t hits(const ClassScores& of, std::int64_t ignored, std::int64_t most, std::int64_t begin,
                  std::int64_t end) {
  std::int64_t count = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t target = of.target[row];
    if (target != ignored && target >= 0 && target < of.classes)
      count += is_hit(of.scores + row * of.stride, of.classes, target, most);
  }
  return count;
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(losses_, isa)
const LossKernels TRAINYARD_NAME(TRAINYARD_ISA) = {cross_entropy, binary_cross_entropy, absolute_error, hits};

}  // namespace trainyard::kernels
