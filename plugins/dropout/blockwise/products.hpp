// The products of a linear layer with the masks of a step, on the device of its tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/helpers/dropout_bank.hpp>
#include "kernels/cpu/masked_gemm.hpp"

namespace blockwise {

using namespace trainyard;

/// A linear layer, the masks on either side of it (null: all units are live), and the rows that have them.
struct MaskedLayer {
  std::int64_t in = 0, out = 0, block = 32;
  bool relu = false;
  std::shared_ptr<const SiteMasks> masks_in, masks_out;
  std::vector<RowSlice> slices;

  float scale() const { return masks_out ? masks_out->scale : 1.0f; }
  /// The numbers of the live blocks of either side in a slice.
  std::vector<std::int32_t> live_in(const RowSlice& slice) const { return live(masks_in, in, slice); }
  std::vector<std::int32_t> live_out(const RowSlice& slice) const { return live(masks_out, out, slice); }

 private:
  std::vector<std::int32_t> live(const std::shared_ptr<const SiteMasks>& masks, std::int64_t width,
                                 const RowSlice& slice) const {
    if (masks) return masks->live[static_cast<std::size_t>(slice.mask)];
    std::vector<std::int32_t> all(static_cast<std::size_t>((width + block - 1) / block));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

/// Tensors are matrices whose rows lie without gaps between their elements; those that are written exist.
class Products {
 public:
  virtual ~Products() = default;
  /// y = mask(activation(x W^T + bias) scale); `bias` may be undefined.
  virtual void forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& y) = 0;
  /// dx = dz W, where dz is dy scale, and 0 where y <= 0 if the activation is ReLU.
  virtual void input_gradient(const at::Tensor& dy, const at::Tensor& y, const at::Tensor& weight,
                              const at::Tensor& dx) = 0;
  /// dW = dz^T x, db = sum of dz; in float.
  virtual void weight_gradient(const at::Tensor& dy, const at::Tensor& y, const at::Tensor& x,
                               const at::Tensor& dw, const at::Tensor& db) = 0;
};

/// float on the CPU; `gemm` has the memory that layers share.
std::unique_ptr<Products> cpu_products(const MaskedLayer& layer, std::shared_ptr<kernels::MaskedGemm> gemm);

/// float and bfloat16 on a CUDA device. Null where the build has no CUDA, the device is not one that it was
/// made for, or blocks are not multiples of 16.
std::unique_ptr<Products> cuda_products(const MaskedLayer& layer, at::ScalarType type);

}  // namespace blockwise
