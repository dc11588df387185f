#include <trainyard/statistics.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include <trainyard/error.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainyard {
namespace {

/// Elements that are looked at together: a block stays in the first cache for the second look that some need.
constexpr std::int64_t block_size = 8192;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The numbers of a block that are always needed.
struct Sums {
  double sum = 0.0, l1 = 0.0, squares = 0.0;
  double minimum = infinity, maximum = -infinity, abs_minimum = infinity;
};

/// Deviations of a block about its own means. The mean of |x| is known in float32 only: `abs_rest`, the sum
/// of the remaining differences, is taken out again.
struct Deviations {
  double plain = 0.0, abs = 0.0, abs_rest = 0.0;
};

template <class T>
Sums sums_of(std::span<const T> x) {
  Sums s;
  for (const T each : x) {
    const double v = static_cast<double>(each), a = std::abs(v);
    s.sum += v;
    s.l1 += a;
    s.squares += v * v;
    s.minimum = v < s.minimum ? v : s.minimum;
    s.maximum = v > s.maximum ? v : s.maximum;
    s.abs_minimum = a < s.abs_minimum ? a : s.abs_minimum;
  }
  return s;
}

template <class T>
Deviations deviations_of(std::span<const T> x, double mean, double abs_mean) {
  Deviations deviations;
  for (const T each : x) {
    const double v = static_cast<double>(each);
    const double d = v - mean, a = std::abs(v) - abs_mean;
    deviations.plain += d * d;
    deviations.abs += a * a;
    deviations.abs_rest += a;
  }
  return deviations;
}

#if defined(__x86_64__)
#define TRAINYARD_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,popcnt")))

/// Lower and upper half of sixteen floats as doubles, added up.
TRAINYARD_AVX512 inline __m512d widened(__m512 v) {
  return _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                       _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
}

/// The sum in double all along; |x| and x^2, which cannot cancel, sixteen vectors at a time in float.
TRAINYARD_AVX512 Sums sums_avx512(std::span<const float> x) {
  constexpr std::size_t lanes = 16, group = 16 * lanes;
  // Elements. The machine itself does not look beyond a page: from memory to the second cache long before,
  // and from there to the first.
  constexpr std::size_t far = 8192, near = 256;
  __m512d sum0 = _mm512_setzero_pd(), sum1 = sum0, l1 = sum0, squares = sum0;
  __m512 low = _mm512_set1_ps(std::numeric_limits<float>::infinity());
  __m512 high = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 abs_low = low;
  const float* p = x.data();
  const float* const end = p + x.size();
  for (; static_cast<std::size_t>(end - p) >= group; p += group) {
    __m512 a0 = _mm512_setzero_ps(), a1 = a0, q0 = a0, q1 = a0;
    for (std::size_t i = 0; i < group; i += 2 * lanes) {
      _mm_prefetch(p + i + far, _MM_HINT_T1);
      _mm_prefetch(p + i + lanes + far, _MM_HINT_T1);
      _mm_prefetch(p + i + near, _MM_HINT_T0);
      _mm_prefetch(p + i + lanes + near, _MM_HINT_T0);
      const __m512 v0 = _mm512_loadu_ps(p + i), v1 = _mm512_loadu_ps(p + i + lanes);
      const __m512 abs0 = _mm512_abs_ps(v0), abs1 = _mm512_abs_ps(v1);
      sum0 = _mm512_add_pd(sum0, _mm512_cvtps_pd(_mm256_loadu_ps(p + i)));
      sum1 = _mm512_add_pd(sum1, _mm512_cvtps_pd(_mm256_loadu_ps(p + i + 8)));
      sum0 = _mm512_add_pd(sum0, _mm512_cvtps_pd(_mm256_loadu_ps(p + i + 16)));
      sum1 = _mm512_add_pd(sum1, _mm512_cvtps_pd(_mm256_loadu_ps(p + i + 24)));
      a0 = _mm512_add_ps(a0, abs0);
      a1 = _mm512_add_ps(a1, abs1);
      q0 = _mm512_fmadd_ps(v0, v0, q0);
      q1 = _mm512_fmadd_ps(v1, v1, q1);
      low = _mm512_min_ps(low, _mm512_min_ps(v0, v1));
      high = _mm512_max_ps(high, _mm512_max_ps(v0, v1));
      abs_low = _mm512_min_ps(abs_low, _mm512_min_ps(abs0, abs1));
    }
    l1 = _mm512_add_pd(l1, widened(_mm512_add_ps(a0, a1)));
    squares = _mm512_add_pd(squares, widened(_mm512_add_ps(q0, q1)));
  }
  for (; p < end; p += lanes) {
    const auto left = static_cast<std::size_t>(end - p);
    const auto mask = static_cast<__mmask16>(left >= lanes ? 0xffffu : (1u << left) - 1u);
    const __m512 v = _mm512_maskz_loadu_ps(mask, p), a = _mm512_abs_ps(v);
    sum0 = _mm512_add_pd(sum0, widened(v));
    l1 = _mm512_add_pd(l1, widened(a));
    squares = _mm512_add_pd(squares, widened(_mm512_mul_ps(v, v)));
    low = _mm512_mask_min_ps(low, mask, low, v);
    high = _mm512_mask_max_ps(high, mask, high, v);
    abs_low = _mm512_mask_min_ps(abs_low, mask, abs_low, a);
  }
  return {_mm512_reduce_add_pd(_mm512_add_pd(sum0, sum1)),
          _mm512_reduce_add_pd(l1),
          _mm512_reduce_add_pd(squares),
          _mm512_reduce_min_ps(low),
          _mm512_reduce_max_ps(high),
          _mm512_reduce_min_ps(abs_low)};
}

TRAINYARD_AVX512 Deviations deviations_avx512(std::span<const float> x, double mean, double abs_mean) {
  const __m512d means = _mm512_set1_pd(mean), abs_means = _mm512_set1_pd(abs_mean);
  __m512d plain = _mm512_setzero_pd(), abs = plain, rest = plain;
  const float* p = x.data();
  const float* const end = p + x.size();
  for (; p < end; p += 8) {
    const auto left = static_cast<std::size_t>(end - p);
    const auto mask = static_cast<__mmask8>(left >= 8 ? 0xffu : (1u << left) - 1u);
    const __m512d v = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(mask, p));
    const __m512d d = _mm512_maskz_sub_pd(mask, v, means);
    const __m512d a = _mm512_maskz_sub_pd(mask, _mm512_abs_pd(v), abs_means);
    plain = _mm512_fmadd_pd(d, d, plain);
    abs = _mm512_fmadd_pd(a, a, abs);
    rest = _mm512_add_pd(rest, a);
  }
  return {_mm512_reduce_add_pd(plain), _mm512_reduce_add_pd(abs), _mm512_reduce_add_pd(rest)};
}

TRAINYARD_AVX512 std::int64_t zeros_avx512(std::span<const float> x) {
  std::int64_t zeros = 0;
  std::size_t i = 0;
  for (; i + 16 <= x.size(); i += 16)
    zeros += std::popcount(static_cast<unsigned>(
        _mm512_cmp_ps_mask(_mm512_loadu_ps(x.data() + i), _mm512_setzero_ps(), _CMP_EQ_OQ)));
  for (; i < x.size(); ++i) zeros += x[i] == 0.0F;
  return zeros;
}

bool has_avx512() {
  static const bool answer = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  return answer;
}
#else
bool has_avx512() {
  return false;
}
#endif

/// Joins the deviations of `before` elements with those of the n after them, whose means are `delta` apart.
void join(double& all, double next, std::int64_t before, double n, double delta) {
  const auto m = static_cast<double>(before);
  all = before == 0 ? next : all + next + delta * delta * m * n / (m + n);
}

/// Takes the blocks of a tensor in order.
class Reducer {
 public:
  explicit Reducer(bool vectorized) : vectorized_(vectorized) {
    s_.minimum = s_.abs_minimum = infinity;
    s_.maximum = s_.abs_maximum = -infinity;
  }

  template <class T>
  void add(std::span<const T> x) {
    Sums sums = quick_sums(x);
    const auto n = static_cast<double>(x.size());
    const bool finite = std::isfinite(sums.sum) || count_nonfinite(x) == 0;
    const bool nothing = sums.squares == 0.0 && sums.minimum == 0.0 && sums.maximum == 0.0;
    if (sums.abs_minimum == 0.0) s_.zeros += nothing ? static_cast<std::int64_t>(x.size()) : zeros_of(x);

    // It comes from the sums where little cancels, else from a second look at the block.
    const double mean = sums.sum / n;
    double abs_mean = sums.l1 / n;
    Deviations deviations{sums.squares - sums.sum * mean, sums.squares - sums.l1 * abs_mean};
    if (!nothing && !(6.0 * std::min(deviations.plain, deviations.abs) > sums.squares)) {
      deviations = exact_deviations(x, mean, abs_mean);
      const double rest = deviations.abs_rest / n;
      if (std::isfinite(deviations.abs_rest * rest)) {
        deviations.abs -= deviations.abs_rest * rest;
        abs_mean += rest;
        sums.l1 = n * abs_mean;
      }
    }
    join(s_.deviation, deviations.plain, s_.count, n, mean - s_.mean());
    join(s_.abs_deviation, deviations.abs, s_.count, n, abs_mean - s_.abs_mean());

    s_.count += static_cast<std::int64_t>(x.size());
    s_.sum += sums.sum;
    s_.l1 += sums.l1;
    s_.squares += sums.squares;
    s_.minimum = std::min(s_.minimum, sums.minimum);
    s_.maximum = std::max(s_.maximum, sums.maximum);
    s_.abs_minimum = std::min(s_.abs_minimum, sums.abs_minimum);
    s_.abs_maximum = std::max({s_.abs_maximum, -sums.minimum, sums.maximum});
    multiply(x, sums, finite);
  }

  Statistics result() const {
    Statistics s = s_;
    if (s.count == 0 || s.nans > 0) s.minimum = s.maximum = s.abs_minimum = s.abs_maximum = Statistics::nan();
    return s;
  }

 private:
  template <class T>
  Sums quick_sums(std::span<const T> x) const {
#if defined(__x86_64__)
    if constexpr (std::is_same_v<T, float>)
      if (vectorized_) {
        const Sums sums = sums_avx512(x);
        // Squares of numbers beyond these leave the range of float32.
        constexpr double small = 1e-15, large = 1e18;
        const double most = std::max(-sums.minimum, sums.maximum);
        if (std::isfinite(sums.sum) && most < large && (most > small || most == 0.0)) return sums;
      }
#endif
    return sums_of(x);
  }

  template <class T>
  std::int64_t zeros_of(std::span<const T> x) const {
#if defined(__x86_64__)
    if constexpr (std::is_same_v<T, float>)
      if (vectorized_) return zeros_avx512(x);
#endif
    return std::count(x.begin(), x.end(), T(0));
  }

  template <class T>
  Deviations exact_deviations(std::span<const T> x, double mean, double abs_mean) const {
#if defined(__x86_64__)
    if constexpr (std::is_same_v<T, float>)
      if (vectorized_) return deviations_avx512(x, mean, abs_mean);
#endif
    return deviations_of(x, mean, abs_mean);
  }

  template <class T>
  std::int64_t count_nonfinite(std::span<const T> x) {
    if constexpr (!std::is_floating_point_v<T>) return 0;
    std::int64_t nans = 0, infinities = 0;
    for (const T each : x) {
      nans += std::isnan(each);
      infinities += std::isinf(each);
    }
    s_.nans += nans;
    s_.infinities += infinities;
    return nans + infinities;
  }

  /// Multiplies in order, as long as the product is within the range of double; later elements can change it
  /// only to a zero or an infinity, or its sign.
  template <class T>
  void multiply(std::span<const T> x, const Sums& sums, bool finite) {
    if (sums.minimum == 1.0 && sums.maximum == 1.0) return;
    double& product = s_.product;
    std::size_t i = 0;
    for (; i < x.size() && product != 0.0 && std::isfinite(product); ++i)
      product *= static_cast<double>(x[i]);
    if (i == x.size() || std::isnan(product)) return;
    const std::span<const T> rest = x.subspan(i);
    if (!finite || (std::isinf(product) && sums.abs_minimum == 0.0)) {
      for (const T each : rest) product *= static_cast<double>(each);
    } else if (std::isinf(product)) {
      if (std::count_if(rest.begin(), rest.end(), [](T each) { return each < T(0); }) % 2 != 0)
        product = -product;
    }
  }

  bool vectorized_;
  Statistics s_;
};

template <class T>
void add_contiguous(Reducer& reducer, const T* data, std::int64_t count) {
  for (std::int64_t at = 0; at < count; at += block_size)
    reducer.add(std::span(data + at, static_cast<std::size_t>(std::min(block_size, count - at))));
}

/// Takes blocks of another type that holds every value.
template <class As, class T>
void add_converted(Reducer& reducer, const T* data, std::int64_t count) {
  As block[block_size];
  for (std::int64_t at = 0; at < count; at += block_size) {
    const std::int64_t n = std::min(block_size, count - at);
    for (std::int64_t i = 0; i < n; ++i) block[i] = static_cast<As>(data[at + i]);
    reducer.add(std::span<const As>(block, static_cast<std::size_t>(n)));
  }
}

Statistics reduce(const at::Tensor& tensor, bool vectorized) {
  // A scalar that was never on a device is the most frequent of all tensors: nothing is made of it.
  const at::Tensor values =
      tensor.is_cpu() && tensor.is_contiguous() ? tensor : tensor.detach().cpu().contiguous();
  Reducer reducer(vectorized);
  const std::int64_t count = values.numel();
  const auto data = [&]<class T>(T*) { return static_cast<const T*>(values.const_data_ptr()); };
#define AS(type) data(static_cast<type*>(nullptr))
  switch (values.scalar_type()) {
    case at::kFloat: add_contiguous(reducer, AS(float), count); break;
    case at::kDouble: add_contiguous(reducer, AS(double), count); break;
    case at::kBFloat16: add_converted<float>(reducer, AS(at::BFloat16), count); break;
    case at::kHalf: add_converted<float>(reducer, AS(at::Half), count); break;
    case at::kBool:
    case at::kByte: add_converted<float>(reducer, AS(std::uint8_t), count); break;
    case at::kChar: add_converted<float>(reducer, AS(std::int8_t), count); break;
    case at::kShort: add_converted<float>(reducer, AS(std::int16_t), count); break;
    case at::kInt: add_converted<double>(reducer, AS(std::int32_t), count); break;
    case at::kLong: add_converted<double>(reducer, AS(std::int64_t), count); break;
    default:
      throw PluginError(std::string("statistics of a tensor of ") + c10::toString(values.scalar_type()) +
                        " are not defined; give one of floating, integer or boolean numbers");
  }
#undef AS
  return reducer.result();
}

}  // namespace

double Statistics::nan() {
  return std::numeric_limits<double>::quiet_NaN();
}

double Statistics::l2() const {
  return std::sqrt(squares);
}

void Statistics::append(const Statistics& next) {
  if (next.count == 0) return;
  const auto n = static_cast<double>(next.count);
  join(deviation, next.deviation, count, n, next.mean() - mean());
  join(abs_deviation, next.abs_deviation, count, n, next.abs_mean() - abs_mean());
  const bool any = nans + next.nans > 0;
  const auto extreme = [&](double& mine, double theirs, bool lower) {
    if (any)
      mine = nan();
    else if (count == 0 || (lower ? theirs < mine : theirs > mine))
      mine = theirs;
  };
  extreme(minimum, next.minimum, true);
  extreme(maximum, next.maximum, false);
  extreme(abs_minimum, next.abs_minimum, true);
  extreme(abs_maximum, next.abs_maximum, false);
  count += next.count;
  zeros += next.zeros;
  nans += next.nans;
  infinities += next.infinities;
  sum += next.sum;
  l1 += next.l1;
  squares += next.squares;
  product *= next.product;
}

Statistics statistics(const at::Tensor& tensor) {
  return reduce(tensor, has_avx512());
}

Statistics portable_statistics(const at::Tensor& tensor) {
  return reduce(tensor, false);
}

namespace {

struct Reduction {
  std::string_view name;
  double (*of)(const Statistics&);
};

constexpr Reduction reductions[] = {
    {"min", [](const Statistics& s) { return s.minimum; }},
    {"max", [](const Statistics& s) { return s.maximum; }},
    {"mean", [](const Statistics& s) { return s.mean(); }},
    {"std", [](const Statistics& s) { return std::sqrt(s.variance()); }},
    {"variance", [](const Statistics& s) { return s.variance(); }},
    {"sum", [](const Statistics& s) { return s.sum; }},
    {"prod", [](const Statistics& s) { return s.product; }},
    {"l1", [](const Statistics& s) { return s.l1; }},
    {"l2", [](const Statistics& s) { return s.l2(); }},
    {"abs_min", [](const Statistics& s) { return s.abs_minimum; }},
    {"abs_max", [](const Statistics& s) { return s.abs_maximum; }},
    {"abs_mean", [](const Statistics& s) { return s.abs_mean(); }},
    {"abs_std", [](const Statistics& s) { return std::sqrt(s.abs_variance()); }},
    {"abs_variance", [](const Statistics& s) { return s.abs_variance(); }},
    {"abs_sum", [](const Statistics& s) { return s.l1; }},
    {"abs_prod", [](const Statistics& s) { return std::abs(s.product); }},
    {"abs_l1", [](const Statistics& s) { return s.l1; }},
    {"abs_l2", [](const Statistics& s) { return s.l2(); }},
    {"zeros", [](const Statistics& s) { return static_cast<double>(s.zeros); }},
    {"nans", [](const Statistics& s) { return static_cast<double>(s.nans); }},
    {"infinities", [](const Statistics& s) { return static_cast<double>(s.infinities); }},
    {"nonfinite", [](const Statistics& s) { return static_cast<double>(s.nonfinite()); }},
    {"count", [](const Statistics& s) { return static_cast<double>(s.count); }},
};

const Reduction* find(std::string_view name) {
  const auto found = std::find_if(std::begin(reductions), std::end(reductions),
                                  [&](const Reduction& each) { return each.name == name; });
  return found == std::end(reductions) ? nullptr : &*found;
}

}  // namespace

bool is_reduction(std::string_view name) {
  return find(name) != nullptr;
}

double reduction(const Statistics& statistics, std::string_view name) {
  const Reduction* found = find(name);
  if (found == nullptr) throw PluginError("there is no reduction \"" + std::string(name) + "\"");
  return found->of(statistics);
}

}  // namespace trainyard
