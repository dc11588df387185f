#include "products.hpp"

#ifdef TRAINYARD_CUDA
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/masked_gemm.hpp"

namespace blockwise {
namespace {

using at::Tensor;
namespace cuda = kernels::cuda;

cuda::ConstMatrix device_read(const Tensor& matrix) {
  return matrix.defined() ? cuda::ConstMatrix{matrix.const_data_ptr(), matrix.stride(0)}
                          : cuda::ConstMatrix{};
}

cuda::Matrix device_write(const Tensor& matrix) {
  return {matrix.mutable_data_ptr(), matrix.stride(0)};
}

void* stream_of(const Tensor& tensor) {
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()).native_handle();
}

std::vector<cuda::Slice> slices_of(const MaskedLayer& layer) {
  std::vector<cuda::Slice> slices;
  for (const RowSlice& slice : layer.slices)
    slices.push_back({slice.begin, slice.end, layer.live_in(slice), layer.live_out(slice)});
  return slices;
}

class CudaProducts final : public Products {
 public:
  CudaProducts(const MaskedLayer& layer, at::ScalarType type)
      : gemm_({.in = layer.in,
               .out = layer.out,
               .block = layer.block,
               .relu = layer.relu,
               .scale = layer.scale(),
               .type = type == at::kFloat ? cuda::Type::float32 : cuda::Type::bfloat16},
              slices_of(layer)) {}

  void forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) override {
    const c10::DeviceGuard guard(x.device());
    gemm_.forward(device_read(x), device_read(weight), bias.defined() ? bias.const_data_ptr() : nullptr,
                  device_write(y), stream_of(x));
  }
  void input_gradient(const Tensor& dy, const Tensor& y, const Tensor& weight, const Tensor& dx) override {
    const c10::DeviceGuard guard(dy.device());
    gemm_.input_gradient(device_read(dy), device_read(y), device_read(weight), device_write(dx),
                         stream_of(dy));
  }
  void weight_gradient(const Tensor& dy, const Tensor& y, const Tensor& x, const Tensor& dw,
                       const Tensor& db) override {
    const c10::DeviceGuard guard(dy.device());
    dw.zero_();
    db.zero_();
    gemm_.weight_gradient(device_read(dy), device_read(y), device_read(x), dw.mutable_data_ptr<float>(),
                          dw.stride(0), db.mutable_data_ptr<float>(), stream_of(dy));
  }

 private:
  cuda::MaskedGemm gemm_;
};

}  // namespace

std::unique_ptr<Products> cuda_products(const MaskedLayer& layer, at::ScalarType type) {
  static const bool available = cuda::available();
  if (!available || layer.block % 16 != 0 || (type != at::kFloat && type != at::kBFloat16)) return nullptr;
  return std::make_unique<CudaProducts>(layer, type);
}

}  // namespace blockwise
#else
namespace blockwise {

std::unique_ptr<Products> cuda_products(const MaskedLayer&, at::ScalarType) {
  return nullptr;
}

}  // namespace blockwise
#endif
