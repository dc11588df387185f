// A step of a plan, forward and backward.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

#include "loops.hpp"
#include "memory.hpp"

namespace compiled {

class Compiler;

/// Computes a node of the graph by LibTorch, as GraphNetwork::run_node does.
using RunNode = std::function<std::vector<at::Tensor>(std::size_t node, std::span<const at::Tensor> inputs,
                                                      const trainyard::ForwardContext& context)>;

/// What the instructions of a pass are told.
struct Pass {
  trainyard::GraphNetwork& network;
  trainyard::ForwardContext context;
  RunNode run_node;
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

/// The same, as if either lay so as is said here.
inline Call reorder(const dnnl::memory& from, const Layout& as_from, const dnnl::memory& to,
                    const Layout& as_to) {
  return {dnnl::reorder({engine(), as_from, engine(), as_to}), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

inline float* floats(const dnnl::memory& memory) {
  return static_cast<float*>(memory.get_data_handle());
}
inline std::int64_t elements(const dnnl::memory& memory) {
  const Layout layout = memory.get_desc();
  return static_cast<std::int64_t>(layout.get_size() / dnnl::memory::data_type_size(layout.get_data_type()));
}

/// Calls `use` with where each of the memories lies, as pointers of the type that they have: all floats or all halves.
template <class Use, class... Memories>
void typed(const Use& use, const dnnl::memory& first, const Memories&... others) {
  if (first.get_desc().get_data_type() == bf16)
    use(static_cast<Half*>(first.get_data_handle()), static_cast<Half*>(others.get_data_handle())...);
  else
    use(floats(first), floats(others)...);
}

/// What of `given` goes through the ReLU that gave `output`.
inline void through_relu(const dnnl::memory& masked, const dnnl::memory& given, const dnnl::memory& output) {
  typed([&](auto* to, auto* from, auto* seen) { through_relu(to, from, seen, elements(masked)); }, masked,
        given, output);
}

}  // namespace compiled
