// Convolves images by kernels of 3 x 3 or 5 x 5 and stride 1 with fewer products: Winograd's minimal
// filtering F(4 x 4, 3 x 3) and F(2 x 2, 5 x 5), after Lavin and Gray, "Fast Algorithms for Convolutional
// Neural Networks", CVPR 2016, equations 8 to 13. A tile of m x m outputs, m = 7 - kernel, takes 36 products
// for each pair of channels in place of (m kernel)^2: a quarter. Interpolation at 0, 1, -1, 2, -2 and
// infinity costs about a digit of single precision; an infinity among the inputs of a tile becomes NaN in all
// of it.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct WinogradShape {
  std::int64_t in = 0, out = 0;  ///< channels
  std::int64_t in_rows = 0, in_columns = 0;
  std::int64_t out_rows = 0, out_columns = 0;
  std::int64_t rows_before = 0, columns_before = 0;  ///< of zeros, less than the kernel's size
  int kernel = 3;                                    ///< or 5

  /// Returns the convolution that computes the gradient of the inputs from that of the outputs.
  WinogradShape back() const {
    return {out,
            in,
            out_rows,
            out_columns,
            in_rows,
            in_columns,
            kernel - 1 - rows_before,
            kernel - 1 - columns_before,
            kernel};
  }
};

/// The arguments of a convolution of images [begin, end) of x to those of y.
struct WinogradConvolution {
  WinogradShape shape;
  const float* x = nullptr;
  const float* filters = nullptr;  ///< transformed, of this shape
  const float* bias = nullptr;     ///< [out] filled up to whole blocks, or null
  bool relu = false;               ///< NaN stays
  float* y = nullptr;
  float* scratch = nullptr;  ///< scratch_floats
};

/// The arguments for weight gradients: a sum over images [begin, end), added to the transformed `gradient`.
struct WinogradWeights {
  WinogradShape shape;
  const float* x = nullptr;
  const float* given = nullptr;  ///< the gradient of y
  float* gradient = nullptr;
  float* scratch = nullptr;
};

struct WinogradKernels {
  std::int64_t block;  ///< channels
  std::int64_t (*filter_floats)(const WinogradShape& shape);
  std::int64_t (*scratch_floats)(const WinogradShape& shape);  ///< of each caller
  void (*transform)(const WinogradShape& shape, const float* weight, float* filters);
  /// Transforms the weights of `shape` to filters for shape.back().
  void (*transform_back)(const WinogradShape& shape, const float* weight, float* filters);
  void (*convolve)(const WinogradConvolution& what, std::int64_t begin, std::int64_t end);
  void (*weights)(const WinogradWeights& what, std::int64_t begin, std::int64_t end);
  /// Computes the gradient of the plain weights from that of the transformed ones.
  void (*weights_end)(const WinogradShape& shape, const float* gradient, float* weight);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const WinogradKernels& winograd_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
