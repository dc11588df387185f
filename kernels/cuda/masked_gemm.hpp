// Computes the masked linear layer of kernels/cpu/masked_gemm.hpp on a CUDA device: thread blocks are
// launched only for live tiles, and sum only over live strips. float is multiplied as such, bfloat16 on
// tensor cores with sums in float.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trainyard::kernels::cuda {

enum class Type { float32, bfloat16 };

/// Rows [begin, end) of the batch and the numbers of the blocks of units that are live in them, ascending.
struct Slice {
  std::int64_t begin = 0, end = 0;
  std::vector<std::int32_t> in, out;
};

struct MaskedLinear {
  std::int64_t in = 0, out = 0;
  std::int64_t block = 32;  ///< units of a block: a multiple of 16
  bool relu = false;
  float scale = 1;
  Type type = Type::float32;  ///< of all matrices but the gradients of weight and bias, which are float
};

/// A row-major matrix in device memory.
struct ConstMatrix {
  const void* data = nullptr;
  std::int64_t stride = 0;  ///< elements from one row to the next
};
struct Matrix {
  void* data = nullptr;
  std::int64_t stride = 0;
};

/// Computes the products of a layer with these slices. The constructor copies the lists of live strips to the
/// current device; calls only launch kernels on `stream` (a cudaStream_t). Throws std::invalid_argument for a
/// wrong layer or slices, std::runtime_error with CUDA's message for CUDA's errors.
class MaskedGemm {
 public:
  MaskedGemm(const MaskedLinear& layer, std::span<const Slice> slices);
  ~MaskedGemm();
  MaskedGemm(const MaskedGemm&) = delete;
  MaskedGemm& operator=(const MaskedGemm&) = delete;

  /// y = mask(activation(x W^T + bias) scale); `bias` may be null. Rows from the first slice to the last are
  /// written, zeros where dead.
  void forward(ConstMatrix x, ConstMatrix weight, const void* bias, Matrix y, void* stream) const;

  /// dx = dz W, where dz = dy scale, and 0 where y <= 0 if the activation is ReLU; zeros where dead.
  void input_gradient(ConstMatrix dy, ConstMatrix y, ConstMatrix weight, Matrix dx, void* stream) const;

  /// dW += dz^T x and db += sum of dz, slice after slice, so that the sums are the same every time. `db` may
  /// be null.
  void weight_gradient(ConstMatrix dy, ConstMatrix y, ConstMatrix x, float* dw, std::int64_t dw_stride,
                       float* db, void* stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard::kernels::cuda
