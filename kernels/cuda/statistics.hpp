// Computes statistics of tensors on a CUDA device: one pass over a whole list, in one launch for any lengths
// and dtypes; results can be read back later.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

namespace trainyard::kernels::cuda {

enum class Dtype : std::int32_t { float32, float64, float16, bfloat16 };

/// A contiguous tensor in device memory, at an address that its elements are aligned for.
struct View {
  const void* data = nullptr;
  std::int64_t count = 0;
  Dtype dtype = Dtype::float32;
};

/// The statistics of all elements of a tensor. Elements that are not finite are counted and take part in
/// every number as in IEEE 754: with one NaN among them, sums, extremes and products are NaN.
struct Numbers {
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::int64_t count = 0, zeros = 0, nans = 0, infinities = 0;
  double minimum = nan, maximum = nan;          ///< NaN of an empty tensor
  double abs_minimum = nan, abs_maximum = nan;  ///< of |x|; NaN of an empty tensor
  double sum = 0, l1 = 0, squares = 0, product = 1;
  /// Sums of (x - mean)^2, and of (|x| - mean |x|)^2.
  double deviation = 0, abs_deviation = 0;
};

/// Holds one launch in progress, or its results; use several objects for several launches. Buffers grow with
/// the longest list so far (some 150 bytes for each 32768 elements and for each tensor, in device memory and
/// as much pinned), so that the first launches allocate, which may wait for the device. Not for two threads
/// at once. All calls belong to the device that is current at the first launch.
class MultiStatistics {
 public:
  MultiStatistics();
  /// Waits for the launch in progress.
  ~MultiStatistics();
  MultiStatistics(const MultiStatistics&) = delete;
  MultiStatistics& operator=(const MultiStatistics&) = delete;

  /// Enqueues the pass over these tensors, and the copy of its results, on `stream` (a cudaStream_t), and
  /// does not wait for it; but for the launch before of this very object, if that is still under way. The
  /// tensors must be there, and unchanged, until the stream is past it. Throws std::invalid_argument for a
  /// tensor that is not as described, std::runtime_error with CUDA's message for what fails there.
  void launch(std::span<const View> tensors, void* stream);

  /// Returns whether `results` would not wait.
  bool ready() const;

  /// Waits for the newest launch and returns its results, one per tensor, in their order; none before the
  /// first launch. They are valid until the next one.
  std::span<const Numbers> results() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard::kernels::cuda
