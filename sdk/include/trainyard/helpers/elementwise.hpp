// Helpers for outputs and targets that correspond element by element.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/error.hpp>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace trainyard {

/// Throws ConfigError for class targets, and unless the output is of the target's shape or has one more
/// dimension of length 1.
inline void check_elementwise(const std::string& who, std::vector<std::int64_t> output,
                              const BatchSchema& schema) {
  refuse_several_labels(
      who, schema, "take loss cross_entropy with multi_label = true, and metrics such as precision_at_k");
  if (schema.classes > 2)
    throw ConfigError(who + " compares numbers (or 2 classes, as 0 and 1), but the data has " +
                      std::to_string(schema.classes) +
                      " classes; take a plugin for classes, such as cross_entropy or accuracy");
  const std::string found = shape_text(output);
  if (output.size() == schema.target.shape.size() + 1 && output.back() == 1) output.pop_back();
  if (output != schema.target.shape)
    throw ConfigError(who + " needs a model output of the shape of the target, " +
                      shape_text(schema.target.shape) +
                      " for each sample (or one more dimension of length 1), but the model gives " + found);
}

/// Returns both in the target's shape and at least in single precision, the target in the output's type.
inline std::pair<at::Tensor, at::Tensor> elementwise(const at::Tensor& output, const at::Tensor& target) {
  const at::ScalarType dtype = output.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {output.to(dtype).reshape(target.sizes()), target.to(dtype)};
}

/// Does so for outputs [members, size, ...] of several models: [members, shape of the target...], target.
inline std::pair<at::Tensor, at::Tensor> elementwise_of_members(const at::Tensor& output,
                                                                const at::Tensor& target) {
  const at::ScalarType dtype = output.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<std::int64_t> shape = target.sizes().vec();
  shape.insert(shape.begin(), output.size(0));
  return {output.to(dtype).reshape(shape), target.to(dtype)};
}

}  // namespace trainyard
