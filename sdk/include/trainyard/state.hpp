// Named scalars and tensors that a plugin saves and restores; the same path serves checkpoints and swaps.
// Tensors go by handle: nothing is copied. The plugin that loads a state owns it from then on, and may keep
// the handles.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("state.hpp");

namespace trainyard {

using Scalar = std::variant<bool, std::int64_t, double, std::string>;

/// The state that one owner saved. Ordered by name, so that a digest over it is well defined.
struct State {
  std::string owner;    ///< "optimizer/adamw", ...
  std::string version;  ///< version of the plugin that wrote it
  std::map<std::string, Scalar, std::less<>> scalars;
  std::map<std::string, at::Tensor, std::less<>> tensors;
};

class StateWriter {
 public:
  explicit StateWriter(State& state) : state_(&state) {}
  /// Both throw PluginError where the name was written before.
  void scalar(std::string name, Scalar value);
  void tensor(std::string name, const at::Tensor& tensor);

 private:
  State* state_;
};

class StateReader {
 public:
  explicit StateReader(const State& state) : state_(&state) {}
  const std::string& version() const { return state_->version; }
  /// Returns the whole state.
  const State& state() const { return *state_; }
  bool has_scalar(std::string_view name) const { return state_->scalars.contains(name); }
  bool has_tensor(std::string_view name) const { return state_->tensors.contains(name); }
  /// These throw PluginError that names owner and field where it is absent or of another type.
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool boolean(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const at::Tensor& tensor(std::string_view name) const;

 private:
  const Scalar& scalar(std::string_view name) const;
  const State* state_;
};

/// Returns the SHA-256 over a tensor's dtype, shape and bytes (moved to the CPU if need be), as hex.
std::string digest(const at::Tensor& tensor);
/// Returns the SHA-256 over every name, scalar and tensor of a state.
std::string digest(const State& state);

}  // namespace trainyard
