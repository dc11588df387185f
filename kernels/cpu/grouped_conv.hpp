// Convolves images in groups of few channels, by kernels of stride 1: a kernel's row has at most 32 numbers of a group. A group is copied
// out of the blocks of channels, without those that fill a block up or are other groups', so that no product is made with them; the
// gradient of its pixels is summed in the same form. No number of a group has an influence on another.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct GroupedConvShape {
  std::int64_t groups = 1;
  std::int64_t in = 0, out = 0;  ///< channels of a group; of several groups `out` fills blocks
  std::int64_t in_rows = 0, in_columns = 0;
  std::int64_t out_rows = 0, out_columns = 0;
  std::int64_t rows_before = 0, columns_before = 0;  ///< of zeros
  std::int64_t kernel_rows = 0, kernel_columns = 0;
};

/// The arguments of a call for some images. Channels of x and y are in blocks, the last of which is filled up.
struct GroupedConv {
  GroupedConvShape shape;
  const float* x = nullptr;
  const float* filters = nullptr;  ///< packed
  const float* bias = nullptr;     ///< [groups * out] filled up to whole blocks, or null
  bool relu = false;               ///< NaN stays
  float* y = nullptr;
  const float* given = nullptr;  ///< the gradient of y
  float* x_gradient = nullptr;
  float* sums = nullptr;  ///< filter_floats, to which gradients of the filters are added
  float* scratch = nullptr;
};

struct GroupedConvKernels {
  std::int64_t block;  ///< channels
  bool (*fits)(const GroupedConvShape& shape);
  std::int64_t (*filter_floats)(const GroupedConvShape& shape);
  std::int64_t (*scratch_floats)(const GroupedConvShape& shape);  ///< of each caller
  /// Packs the weights [groups * out, in, rows, columns] for `forward`, and for `data`.
  void (*pack)(const GroupedConvShape& shape, const float* weight, float* filters);
  void (*pack_back)(const GroupedConvShape& shape, const float* weight, float* filters);
  // For images [begin, end).
  void (*forward)(const GroupedConv& what, std::int64_t begin, std::int64_t end);
  void (*data)(const GroupedConv& what, std::int64_t begin, std::int64_t end);
  void (*weights)(const GroupedConv& what, std::int64_t begin, std::int64_t end);
  /// Takes the sums of `weights` back to the order of the weights.
  void (*unpack)(const GroupedConvShape& shape, const float* sums, float* weight);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const GroupedConvKernels& grouped_conv_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
