#include <trainyard/state.hpp>

#include <ATen/core/Tensor.h>

#include <trainyard/error.hpp>

#include "lib/sha256.hpp"

namespace trainyard {
namespace {

const char* type_name(const Scalar& value) {
  constexpr const char* names[] = {"a boolean", "an integer", "a number", "a text"};
  return names[value.index()];
}

std::string label(const State& state, std::string_view name) {
  return "state of " + (state.owner.empty() ? std::string("a plugin") : state.owner) + ": \"" +
         std::string(name) + "\"";
}

template <class T>
const T& get(const State& state, std::string_view name, const Scalar& value) {
  if (const T* found = std::get_if<T>(&value)) return *found;
  throw PluginError(label(state, name) + " is " + type_name(value) + ", not " + type_name(Scalar(T{})));
}

/// Computes a digest of values that differ in type and length.
class ValueDigest {
 public:
  void add(std::int64_t number) { hash_.update(&number, sizeof number); }
  /// Adds the length first, so that neighbouring texts cannot be confused.
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    hash_.update(text.data(), text.size());
  }
  void add(const at::Tensor& tensor) {
    const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
    add(std::string_view(c10::toString(plain.scalar_type())));
    add(plain.dim());
    for (const std::int64_t size : plain.sizes()) add(size);
    hash_.update(plain.const_data_ptr(), plain.nbytes());
  }
  void add(const Scalar& value) {
    add(static_cast<std::int64_t>(value.index()));
    if (const auto* text = std::get_if<std::string>(&value))
      add(std::string_view(*text));
    else if (const auto* number = std::get_if<double>(&value))
      hash_.update(number, sizeof *number);
    else if (const auto* integer = std::get_if<std::int64_t>(&value))
      add(*integer);
    else
      add(static_cast<std::int64_t>(std::get<bool>(value)));
  }
  std::string hex() { return hash_.hex(); }

 private:
  lib::Sha256 hash_;
};

}  // namespace

void StateWriter::scalar(std::string name, Scalar value) {
  if (!state_->scalars.emplace(name, std::move(value)).second)
    throw PluginError(label(*state_, name) + " is written twice");
}

void StateWriter::tensor(std::string name, const at::Tensor& tensor) {
  if (!tensor.defined()) throw PluginError(label(*state_, name) + " is an undefined tensor");
  if (!state_->tensors.emplace(name, tensor).second)
    throw PluginError(label(*state_, name) + " is written twice");
}

const Scalar& StateReader::scalar(std::string_view name) const {
  const auto found = state_->scalars.find(name);
  if (found == state_->scalars.end())
    throw PluginError(label(*state_, name) + " is missing (a scalar; saved by version " + version() + ")");
  return found->second;
}

std::int64_t StateReader::integer(std::string_view name) const {
  return get<std::int64_t>(*state_, name, scalar(name));
}
double StateReader::number(std::string_view name) const {
  return get<double>(*state_, name, scalar(name));
}
bool StateReader::boolean(std::string_view name) const {
  return get<bool>(*state_, name, scalar(name));
}
const std::string& StateReader::text(std::string_view name) const {
  return get<std::string>(*state_, name, scalar(name));
}

const at::Tensor& StateReader::tensor(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  if (found == state_->tensors.end())
    throw PluginError(label(*state_, name) + " is missing (a tensor; saved by version " + version() + ")");
  return found->second;
}

std::string digest(const at::Tensor& tensor) {
  ValueDigest hash;
  hash.add(tensor);
  return hash.hex();
}

std::string digest(const State& state) {
  ValueDigest hash;
  hash.add(static_cast<std::int64_t>(state.scalars.size()));
  for (const auto& [name, value] : state.scalars) {
    hash.add(std::string_view(name));
    hash.add(value);
  }
  hash.add(static_cast<std::int64_t>(state.tensors.size()));
  for (const auto& [name, tensor] : state.tensors) {
    hash.add(std::string_view(name));
    hash.add(tensor);
  }
  return hash.hex();
}

}  // namespace trainyard
