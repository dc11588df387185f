// What a dataset gives and a model takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("batch.hpp");

namespace trainyard {

/// One tensor of a batch, without its leading batch dimension.
struct FieldSchema {
  std::string name;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

struct BatchSchema {
  std::vector<FieldSchema> inputs;
  FieldSchema target;
  std::int64_t classes = 0;            ///< of the target; 0 for regression
  std::int64_t vocabulary = 0;         ///< of token inputs; 0 where inputs are not tokens
  std::int64_t tokens_per_sample = 0;  ///< 0 where samples are not counted in tokens
};

struct Batch {
  std::vector<at::Tensor> inputs;     ///< each [size, shape...]
  at::Tensor target;                  ///< [size, shape...]; class indices are int64
  std::vector<std::int64_t> indices;  ///< of the samples in the dataset, set by the host
  double weight = 0.0;                ///< items that the loss averages over (Loss::weight), set by the host

  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }
  const at::Tensor& input() const { return inputs.front(); }
};

}  // namespace trainyard
