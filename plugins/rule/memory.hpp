// What rules know from record to record, by tensor: as a state keeps it, so that a resumed run goes on where
// it stood.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trainyard/state.hpp>

namespace rules {

using namespace trainyard;

/// By name of tensor, in a state under a prefix of its own.
template <class T>
using ByTensor = std::map<std::string, T>;

inline void remember(StateWriter& state, const std::string& under, const ByTensor<std::int64_t>& counts) {
  for (const auto& [name, count] : counts) state.scalar(under + "/" + name, count);
}
inline void remember(StateWriter& state, const std::string& under, const ByTensor<double>& numbers) {
  for (const auto& [name, number] : numbers) state.scalar(under + "/" + name, number);
}
inline void remember(StateWriter& state, const std::string& under, const ByTensor<at::Tensor>& tensors) {
  for (const auto& [name, tensor] : tensors) state.tensor(under + "/" + name, tensor);
}
/// Copies: the numbers go on changing while a checkpoint is written.
template <class Numbers>
requires requires(const Numbers& n) {
  static_cast<double>(*n.begin());
}
void remember(StateWriter& state, const std::string& name, const Numbers& numbers) {
  at::Tensor copy = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kDouble);
  std::copy(numbers.begin(), numbers.end(), copy.mutable_data_ptr<double>());
  state.tensor(name, copy);
}
template <class Numbers>
requires requires(const Numbers& n) {
  static_cast<double>(*n.begin());
}
void remember(StateWriter& state, const std::string& under, const ByTensor<Numbers>& series) {
  for (const auto& [name, numbers] : series) remember(state, under + "/" + name, numbers);
}

namespace detail {
/// The rest of a name below a prefix, or nothing.
inline std::string_view below(std::string_view name, std::string_view under) {
  return name.size() > under.size() && name.starts_with(under) && name[under.size()] == '/'
             ? name.substr(under.size() + 1)
             : std::string_view{};
}
}  // namespace detail

/// Numbers and counts: T is double or std::int64_t.
template <class T>
ByTensor<T> recall_scalars(const StateReader& state, std::string_view under) {
  ByTensor<T> found;
  for (const auto& [name, scalar] : state.state().scalars)
    if (const auto rest = detail::below(name, under); !rest.empty()) found.emplace(rest, std::get<T>(scalar));
  return found;
}
inline ByTensor<at::Tensor> recall_tensors(const StateReader& state, std::string_view under) {
  ByTensor<at::Tensor> found;
  for (const auto& [name, tensor] : state.state().tensors)
    if (const auto rest = detail::below(name, under); !rest.empty()) found.emplace(rest, tensor);
  return found;
}
template <class Numbers = std::deque<double>>
Numbers recall_numbers(const at::Tensor& tensor) {
  const double* first = tensor.const_data_ptr<double>();
  return Numbers(first, first + tensor.numel());
}
template <class Numbers = std::deque<double>>
ByTensor<Numbers> recall_series(const StateReader& state, std::string_view under) {
  ByTensor<Numbers> found;
  for (const auto& [name, tensor] : recall_tensors(state, under))
    found.emplace(name, recall_numbers<Numbers>(tensor));
  return found;
}

}  // namespace rules
