// Summary numbers of a tensor, computed in one pass over it.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("statistics.hpp");

namespace trainyard {

/// Numbers over all elements of a tensor, whatever its shape. Norms are those of the tensor as a vector.
/// Elements that are not finite are counted and take part in every number as IEEE 754 has it: with one NaN
/// among them, sums, extremes and products are NaN.
///
/// Precision, for float32 and shorter: the sum is one of doubles; l1, squares and deviations are relatively
/// exact to 1e-6 (sixteen elements are added in float32, these sums in double); the product is that of
/// doubles from the first element to the last, so it ends at 0 or infinity where it leaves their range (after
/// append(): where the product of a part does). For float64 and integers everything is computed in double.
struct Statistics {
  std::int64_t count = 0;
  std::int64_t zeros = 0;
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
  double minimum = 0.0, maximum = 0.0;          ///< NaN for an empty tensor
  double abs_minimum = 0.0, abs_maximum = 0.0;  ///< of |x|; NaN for an empty tensor
  double sum = 0.0;
  double l1 = 0.0;       ///< sum of |x|
  double squares = 0.0;  ///< sum of x^2
  double product = 1.0;
  /// Sum of (x - mean)^2, and of (|x| - mean |x|)^2. It is not computed as the difference of two sums, which
  /// cancels: each block has its own mean, and blocks are put together by Chan, Golub and LeVeque, "Updating
  /// formulae and a pairwise algorithm for computing sample variances" (1979), equation 2.1.
  double deviation = 0.0, abs_deviation = 0.0;

  double mean() const { return sum / static_cast<double>(count); }
  double abs_mean() const { return l1 / static_cast<double>(count); }
  double l2() const;
  /// Returns the unbiased variance, divided by count - 1, as at::var; NaN for fewer than two elements.
  double variance() const { return count > 1 ? deviation / static_cast<double>(count - 1) : nan(); }
  double abs_variance() const { return count > 1 ? abs_deviation / static_cast<double>(count - 1) : nan(); }
  std::int64_t nonfinite() const { return nans + infinities; }

  /// Appends the statistics of the elements that follow: afterwards it is that of both parts, in this order.
  void append(const Statistics& next);

  static double nan();
};

/// Takes a tensor of any floating, integer or boolean dtype, shape and strides; a scalar is one element. On
/// the CPU: one pass, vectorized where the machine has AVX-512, on the calling thread. Elsewhere it is copied
/// to the CPU first, which waits for the device. Throws PluginError for another dtype (complex, quantized).
Statistics statistics(const at::Tensor& tensor);
/// Does the same without the instructions of this very machine, as other machines compute it; for tests.
Statistics portable_statistics(const at::Tensor& tensor);

/// Returns a number of Statistics by name: "min", "max", "mean", "std", "variance", "sum", "prod", "l1",
/// "l2", each also of |x| as "abs_min", ...; "zeros", "nans", "infinities", "nonfinite", "count".
double reduction(const Statistics& statistics, std::string_view name);
bool is_reduction(std::string_view name);

}  // namespace trainyard
