#include "norms.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/stack.h>

namespace step_screen {
namespace {

/// Calls `visit(first, count)` for the runs of elements that are looked at, and returns how many times as many there
/// are.
template <class Visit>
double each_run(std::int64_t size, std::int64_t sample, Visit&& visit) {
  constexpr std::int64_t runs = 16;
  if (sample == 0 || size <= sample) {
    visit(std::int64_t{0}, size);
    return 1.0;
  }
  const std::int64_t length = std::max<std::int64_t>(1, sample / runs);
  for (std::int64_t run = 0; run < runs; ++run) visit((size - length) * run / (runs - 1), length);
  return static_cast<double>(size) / static_cast<double>(length * runs);
}

/// Adds up over lanes, which the compiler makes one instruction of.
template <class Term>
double sum_of(std::int64_t count, Term&& term) {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> sums{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums[static_cast<std::size_t>(lane)] += term(i + lane);
  for (; i < count; ++i) sums[0] += term(i);
  double sum = 0.0;
  for (const double each : sums) sum += each;
  return sum;
}

template <class Number>
double squares_of(const Number* values, std::int64_t size, std::int64_t sample) {
  double sum = 0.0;
  const double scale = each_run(size, sample, [&](std::int64_t first, std::int64_t count) {
    sum += sum_of(count, [run = values + first](std::int64_t i) {
      const auto value = static_cast<double>(run[i]);
      return value * value;
    });
  });
  return scale * sum;
}

template <class Number>
void keep(const Number* values, std::int64_t size, std::int64_t sample, std::vector<double>& kept) {
  std::size_t place = 0;
  kept.resize(static_cast<std::size_t>(sample == 0 ? size : std::min(size, sample)));
  each_run(size, sample, [&](std::int64_t first, std::int64_t count) {
    std::copy_n(values + first, count, kept.data() + place);
    place += static_cast<std::size_t>(count);
  });
}

template <class Number>
double squares_of_change(const Number* values, std::int64_t size, std::int64_t sample,
                         const std::vector<double>& kept) {
  double sum = 0.0;
  const double* before = kept.data();
  const double scale = each_run(size, sample, [&](std::int64_t first, std::int64_t count) {
    sum += sum_of(count, [run = values + first, before](std::int64_t i) {
      const double change = static_cast<double>(run[i]) - before[i];
      return change * change;
    });
    before += count;
  });
  return scale * sum;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
}
bool all_plain(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& each) { return !each.defined() || is_plain(each); });
}

/// Calls with a pointer to the elements of a plain tensor.
template <class Call>
auto with_elements(const at::Tensor& tensor, Call&& call) {
  if (tensor.scalar_type() == at::kDouble) return call(tensor.const_data_ptr<double>());
  return call(tensor.const_data_ptr<float>());
}

/// The same of tensors anywhere: the device is waited for once.
std::vector<double> squares_anywhere(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> dense;
  for (const at::Tensor& each : tensors)
    if (each.defined()) dense.push_back((each.is_sparse() ? each._values() : each).to(at::kFloat));
  std::vector<double> squares(tensors.size(), 0.0);
  if (dense.empty()) return squares;
  const at::Tensor norms = at::stack(at::_foreach_norm(dense)).to(at::kCPU, at::kDouble);
  std::size_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    const double norm = norms.const_data_ptr<double>()[at++];
    squares[i] = norm * norm;
  }
  return squares;
}

}  // namespace

Norms::Norms(const std::vector<trainyard::NamedTensor>& parameters, std::int64_t sample)
    : sample_(sample == 0 ? 0 : std::max<std::int64_t>(16, sample / 16 * 16)), kept_(parameters.size()) {
  for (const auto& [name, tensor] : parameters) {
    const std::string layer = name.substr(0, name.rfind('.'));
    const auto found = std::ranges::find(layers_, layer);
    layer_of_.push_back(static_cast<std::size_t>(found - layers_.begin()));
    if (found == layers_.end()) layers_.push_back(layer);
    parameters_.push_back(tensor);
  }
}

std::vector<at::Tensor> Norms::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  return gradients;
}

std::vector<double> Norms::by_layer(const std::vector<double>& squares) const {
  std::vector<double> norms(layers_.size(), 0.0);
  for (std::size_t i = 0; i < squares.size(); ++i) norms[layer_of_[i]] += squares[i];
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

std::vector<double> Norms::of_gradients() const {
  const at::AutoDispatchBelowAutograd untracked;
  const std::vector<at::Tensor> all = gradients();
  if (!all_plain(all)) return by_layer(squares_anywhere(all));
  std::vector<double> squares;
  squares.reserve(all.size());
  for (const at::Tensor& each : all)
    squares.push_back(!each.defined() ? 0.0 : with_elements(each, [&](const auto* values) {
      return squares_of(values, each.numel(), sample_);
    }));
  return by_layer(squares);
}

std::vector<double> Norms::of_weights() {
  const at::AutoDispatchBelowAutograd untracked;
  if (!all_plain(parameters_)) {
    kept_whole_.clear();
    for (const at::Tensor& each : parameters_) kept_whole_.push_back(each.detach().clone());
    return by_layer(squares_anywhere(kept_whole_));
  }
  std::vector<double> squares;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    with_elements(parameters_[i], [&](const auto* values) {
      keep(values, parameters_[i].numel(), sample_, kept_[i]);
      squares.push_back(squares_of(values, parameters_[i].numel(), sample_));
    });
  return by_layer(squares);
}

std::vector<double> Norms::of_updates() const {
  const at::AutoDispatchBelowAutograd untracked;
  if (!kept_whole_.empty()) return by_layer(squares_anywhere(at::_foreach_sub(parameters_, kept_whole_)));
  std::vector<double> squares;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    squares.push_back(with_elements(parameters_[i], [&](const auto* values) {
      return squares_of_change(values, parameters_[i].numel(), sample_, kept_[i]);
    }));
  return by_layer(squares);
}

}  // namespace step_screen
