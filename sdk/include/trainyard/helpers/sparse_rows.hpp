// Samples of few features out of very many, as a dataset gives them and a model takes them: numbers and
// values of the features that a sample has, one sample behind the other. The inputs of a batch are, in this
// order:
//   index    free     int64 [entries]     in [0, cardinality of the field); ascending within a sample
//   value    free     float [entries]
//   offsets  offsets  int64 [size + 1]    sample i has the entries offsets[i] .. offsets[i + 1), perhaps none
// The target is one class (int64, [size]) or several: int64 [size, most], ascending, filled up with -1.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("helpers/sparse_rows.hpp");

namespace trainyard {

struct SparseRows {
  at::Tensor index, value, offsets;  ///< contiguous, of the device of the batch
};

/// Returns the inputs of such a batch.
std::vector<FieldSchema> sparse_row_fields(std::int64_t features);

/// Returns the number of features. Throws ConfigError, with what was found, where the data has other inputs.
std::int64_t find_sparse_rows(const BatchSchema& schema);

inline SparseRows sparse_rows_of(const Batch& batch) {
  return {batch.inputs[0], batch.inputs[1], batch.inputs[2]};
}

}  // namespace trainyard
