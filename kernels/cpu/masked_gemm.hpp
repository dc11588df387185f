// A linear layer between dropout sites whose masks are made of blocks of units: only live blocks are
// multiplied. Rows of the batch are cut into slices, each of one sub-network; if a slice has the share q of
// the input's blocks live and r of the output's, q r of the multiplications remain in each of the three
// products (Lee et al., MLSys 2022: 0.25 with half of the units dropped on either side).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// Rows [begin, end) of the batch, and the numbers of the blocks of units that are live in them, ascending.
/// Units of other blocks count as zeros, whatever they are.
struct Slice {
  std::int64_t begin = 0, end = 0;
  std::span<const std::int32_t> in, out;
};

/// y = mask(activation(x W^T + b) scale), W [out, in] as of nn.Linear, with the mask of each slice.
struct MaskedLinear {
  std::int64_t in = 0, out = 0;
  std::int64_t block = 32;        ///< units of a block: a multiple of 8 up to 128; multiples of 16 are fast
  std::span<const Slice> slices;  ///< in the order of their rows, apart; other rows are left as they are
  bool relu = false;              ///< the activation; else there is none
  float scale = 1;
};

template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;  ///< elements from one row to the next
};

/// Calls its second argument with ranges that make up [0, count), possibly on several threads.
using ParallelFor =
    std::function<void(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>&)>;

/// Computes the three products of a masked linear layer, with memory for packing that is kept from call to
/// call. Not to be used by two threads at a time. The result does not depend on the number of threads, nor on
/// dead values: leaving dead blocks out of the layer gives the same bits. All functions throw
/// std::invalid_argument for a layer that is not as described above.
class MaskedGemm {
 public:
  explicit MaskedGemm(Isa isa = fastest_isa(), ParallelFor parallel = {});
  ~MaskedGemm();
  MaskedGemm(MaskedGemm&&) noexcept;
  MaskedGemm& operator=(MaskedGemm&&) noexcept;

  /// `bias` has `out` elements or is null. Dead blocks of y become zeros.
  void forward(const MaskedLinear& layer, Rows<const float> x, Rows<const float> weight, const float* bias,
               Rows<float> y);

  /// dx = dz W, where dz = dy scale, and 0 where y <= 0 if the activation is ReLU. Dead blocks of dx become
  /// zeros. `y`, what forward gave, is read for ReLU only.
  void input_gradient(const MaskedLinear& layer, Rows<const float> dy, Rows<const float> y,
                      Rows<const float> weight, Rows<float> dx);

  /// dW = dz^T x and db = sum of dz, over all slices; `db` may be null.
  void weight_gradient(const MaskedLinear& layer, Rows<const float> dy, Rows<const float> y,
                       Rows<const float> x, Rows<float> dw, float* db);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard::kernels
