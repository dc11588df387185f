// What rules have in common: what they say, and how they read tensors.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/error.hpp>
#include <trainyard/helpers/offenders.hpp>
#include <trainyard/manifest.hpp>
#include <trainyard/rule.hpp>

#include "lib/printed.hpp"

namespace rules {

using namespace trainyard;

/// "0.25", "3e-09".
inline std::string five_digits(double number) {
  return lib::printed("%.5g", number);
}

/// The values of a tensor that a rule watches with `values`.
inline const at::Tensor& values_of(const TensorRecord& tensor) {
  if (tensor.value.defined()) return tensor.value;
  throw PluginError("tensor \"" + tensor.name +
                    "\" was recorded without its values, which this rule needs; record them raw");
}

/// The elements of a tensor.
inline std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous();
  const double* first = flat.const_data_ptr<double>();
  return {first, first + flat.numel()};
}

/// States what a rule needs of the executor where its option names a collection that not every executor shows.
template <class Options>
void needs_collection(Manifest<Options>& m, const std::string& option = "tensors") {
  m.needs("grads where " + option + " = gradients").needs("losses where " + option + " = losses");
}

}  // namespace rules
