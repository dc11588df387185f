// A step of a plan, forward and backward.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

#include "memory.hpp"

namespace compiled {

class Compiler;

/// What the instructions of a pass are told.
struct Pass {
  trainyard::GraphNetwork& network;
  trainyard::ForwardContext context;
};

/// Thrown by a forward pass in which a node gives `copies` times as many rows as it takes, and the plan was made for
/// another number of them.
struct OtherRows {
  std::size_t node;
  std::int64_t copies;
};

class Instruction {
 public:
  virtual ~Instruction() = default;
  virtual void forward(const Pass& pass) = 0;
  /// Asks the compiler for gradients and memory, at the time of the instruction in the backward pass. Called
  /// where an output has a gradient, in the order of that pass.
  virtual void plan_backward(Compiler& compiler) = 0;
  virtual void backward(const Pass& pass) = 0;
};

/// A primitive of oneDNN with its arguments.
class Call {
 public:
  Call() = default;
  Call(dnnl::primitive primitive, std::vector<std::pair<int, dnnl::memory>> arguments)
      : primitive_(std::move(primitive)), held_(std::move(arguments)) {
    for (const auto& [which, memory] : held_) arguments_.push_back({which, memory.get()});
  }
  explicit operator bool() const { return static_cast<bool>(primitive_); }
  void run() const {
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream().get(),
                                                   static_cast<int>(arguments_.size()), arguments_.data()),
                            "a primitive failed");
  }

 private:
  dnnl::primitive primitive_;
  std::vector<std::pair<int, dnnl::memory>> held_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

/// The same values in another layout.
inline Call reorder(const dnnl::memory& from, const dnnl::memory& to) {
  return {dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

inline float* floats(const dnnl::memory& memory) {
  return static_cast<float*>(memory.get_data_handle());
}
inline std::int64_t elements(const dnnl::memory& memory) {
  return static_cast<std::int64_t>(memory.get_desc().get_size() / sizeof(float));
}

}  // namespace compiled
