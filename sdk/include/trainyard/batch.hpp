// A batch: the tensors that a dataset returns and a network takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("batch.hpp");

namespace trainyard {

/// The number of rows that a tensor of a batch of `size` samples has.
enum class Rows : std::uint8_t {
  sample,   ///< one a sample: [size, shape...]
  offsets,  ///< int64 [size + 1], from 0 and non-decreasing: sample i has rows offsets[i] to offsets[i + 1] -
            ///< 1 of a field of free rows; the last entry is the number of those rows
  free,     ///< any number, 0 included: [rows, shape...]
};

/// One tensor of a batch, without its leading dimension.
struct FieldSchema {
  std::string name;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  Rows rows = Rows::sample;
  std::int64_t cardinality = 0;  ///< integers are ids in [0, cardinality); 0: they are not ids
};

struct BatchSchema {
  std::vector<FieldSchema> inputs;
  FieldSchema target;                  ///< one row a sample
  bool has_target = true;              ///< if false, `target` has no meaning and Batch::target is undefined
  std::int64_t classes = 0;            ///< of the target; 0 for regression
  std::int64_t vocabulary = 0;         ///< of token inputs; 0 where inputs are not tokens
  std::int64_t tokens_per_sample = 0;  ///< 0 where samples are not counted in tokens

  /// Returns whether every input has one row a sample, so that samples can be told apart, repeated and mixed.
  bool one_row_a_sample() const {
    return std::all_of(inputs.begin(), inputs.end(),
                       [](const FieldSchema& field) { return field.rows == Rows::sample; });
  }
};

struct Batch {
  std::vector<at::Tensor> inputs;     ///< those of the schema, in its order
  at::Tensor target;                  ///< [size, shape...]; class indices are int64; perhaps undefined
  std::vector<std::int64_t> indices;  ///< indices of the samples in the dataset, set by the host
  double weight = 0.0;                ///< items that the loss averages over (Loss::weight), set by the host

  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }
  const at::Tensor& input() const { return inputs.front(); }
};

}  // namespace trainyard
