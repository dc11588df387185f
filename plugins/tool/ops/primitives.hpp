// oneDNN's primitives, called directly: what the library does without the framework around it.
#pragma once

#include <functional>

#include "operator.hpp"

namespace ops {

/// Returns a call of a convolution or a linear layer with bias, forward, on tensors laid out as oneDNN likes them best.
/// int8 has unsigned inputs and signed weights. Throws ConfigError where this processor has no such primitive.
std::function<void()> primitive_of(const Operator& point);

/// Returns its version: "3.5.3".
std::string onednn_version();

}  // namespace ops
