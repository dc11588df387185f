// A point of the sweeps, ready to run: tensors are made, primitives compiled, and a call is nothing but the operator.
#pragma once

#include <functional>

#include "operator.hpp"

namespace ops {

struct Runnable {
  std::function<void()> call;  ///< runs it once; it holds what it needs
  Work work;
};

/// Returns it with the weights and inputs of a normal distribution. Throws ConfigError where the library, the number
/// format or the phase does not go with the operator on this processor.
Runnable prepare(const Operator& point);

/// Returns whether oneDNN has primitives for this operator here: convolutions and linear layers, forward.
bool onednn_has(const Operator& point);

}  // namespace ops
