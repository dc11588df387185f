#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("named_tensor.hpp");

namespace trainyard {

/// A parameter or buffer under its path in the model: "layer1.0.conv1.weight".
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace trainyard
