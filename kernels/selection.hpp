// The parameters and results of selecting a gradient's largest elements, shared by the host and CUDA devices
// (kernels/cpu/top_k.hpp, kernels/cuda/top_k.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace trainyard::kernels {

enum class Method {
  /// MSTopK (Shi et al., MLSys 2021): bisects the line from `start` to the largest magnitude, `samples`
  /// times. Selects all elements that reach the threshold that at most k reach; the rest is a stretch, at a
  /// random place, of the elements between this threshold and the one that more than k reach. Approximate:
  /// where the largest is far above the k-th, both thresholds stay far apart.
  mstopk,
  bitsearch,  ///< bisects the integer that a magnitude's bits are: exact after at most 31 steps of any scale
  radix,      ///< exact: counts by 11, 11 and 9 bits of that integer
  exact,      ///< exact: the reference, by a partial sort of a copy
};

/// The start of MSTopK's line. The paper begins at the mean of magnitudes, which is only right while k
/// elements are above it (42 % of a normal distribution, 37 % of a Laplacian).
enum class Start { mean, minimum };

struct Selection {
  Method method = Method::radix;
  int samples = 30;           ///< of mstopk
  Start start = Start::mean;  ///< of mstopk
  /// Steps of a bisection that one pass over the data decides, with 2^levels - 1 thresholds at once: 1 to 4.
  /// The result equals that of as many steps with one threshold per pass.
  int levels = 3;
};

/// The result of a selection: k1 <= k elements have |x| >= t1, all of them selected; k2 >= k have |x| >= t2,
/// and the others are selected from these. Exact methods: t2 <= the k-th magnitude <= t1, and nothing but
/// copies of it lies between them.
struct Selected {
  std::int64_t k1 = 0, k2 = 0;
  float t1 = 0, t2 = 0;  ///< t1 is infinity where no finite threshold is known
  int passes = 0;        ///< passes over the data, including the one that gathers
  std::int64_t non_finite = 0;
};

/// Throws std::invalid_argument for parameters that no selection can have.
inline void check_selection(std::int64_t count, const Selection& how, std::int64_t k) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("top-k: " + what); };
  using std::to_string;
  if (count < 0 || count > std::numeric_limits<std::int32_t>::max())
    refuse(to_string(count) + " elements, expected less than 2^31: indices have 32 bits; select in parts");
  if (k < 0 || k > count)
    refuse("k is " + to_string(k) + ", expected 0 to " + to_string(count) + " elements");
  if (how.levels < 1 || how.levels > 4) refuse("levels is " + to_string(how.levels) + ", expected 1 to 4");
  if (how.samples < 1) refuse("samples is " + to_string(how.samples) + ", expected 1 or more");
}

}  // namespace trainyard::kernels
