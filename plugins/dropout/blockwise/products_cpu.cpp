#include "products.hpp"

namespace blockwise {
namespace {

using at::Tensor;
using kernels::Rows;

Rows<const float> read(const Tensor& matrix) {
  return {matrix.const_data_ptr<float>(), matrix.stride(0)};
}

Rows<float> write(const Tensor& matrix) {
  return {matrix.mutable_data_ptr<float>(), matrix.stride(0)};
}

class CpuProducts final : public Products {
 public:
  CpuProducts(const MaskedLayer& layer, std::shared_ptr<kernels::MaskedGemm> gemm) : gemm_(std::move(gemm)) {
    for (const RowSlice& slice : layer.slices) {
      live_.push_back(layer.live_in(slice));
      live_.push_back(layer.live_out(slice));
    }
    for (std::size_t i = 0; i < layer.slices.size(); ++i)
      slices_.push_back({layer.slices[i].begin, layer.slices[i].end, live_[2 * i], live_[2 * i + 1]});
    layer_ = {.in = layer.in,
              .out = layer.out,
              .block = layer.block,
              .slices = slices_,
              .relu = layer.relu,
              .scale = layer.scale()};
  }

  void forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) override {
    gemm_->forward(layer_, read(x), read(weight), bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                   write(y));
  }
  void input_gradient(const Tensor& dy, const Tensor& y, const Tensor& weight, const Tensor& dx) override {
    gemm_->input_gradient(layer_, read(dy), output(y), read(weight), write(dx));
  }
  void weight_gradient(const Tensor& dy, const Tensor& y, const Tensor& x, const Tensor& dw,
                       const Tensor& db) override {
    gemm_->weight_gradient(layer_, read(dy), output(y), read(x), write(dw), db.mutable_data_ptr<float>());
  }

 private:
  static Rows<const float> output(const Tensor& y) { return y.defined() ? read(y) : Rows<const float>{}; }

  std::shared_ptr<kernels::MaskedGemm> gemm_;
  std::vector<std::vector<std::int32_t>> live_;
  std::vector<kernels::Slice> slices_;
  kernels::MaskedLinear layer_;
};

}  // namespace

std::unique_ptr<Products> cpu_products(const MaskedLayer& layer, std::shared_ptr<kernels::MaskedGemm> gemm) {
  return std::make_unique<CpuProducts>(layer, std::move(gemm));
}

}  // namespace blockwise
