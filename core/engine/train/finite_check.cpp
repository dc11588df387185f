#include "core/engine/train/finite_check.hpp"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include <trainyard/network.hpp>

#include "core/engine/train/regions.hpp"

namespace trainyard::train {
namespace {

constexpr Region guarded_regions[] = {Region::model, Region::grads, Region::outputs};

/// Returns true if no number has all bits of its exponent set, as infinities and NaN have. `Bits` is the
/// signed integer of the numbers' size; whole blocks are compared without a branch.
template <class Bits>
bool finite_numbers(const void* data, std::int64_t count, Bits exponent) {
  constexpr Bits without_sign = std::numeric_limits<Bits>::max();
  constexpr std::int64_t block = 64;
  const Bits* bits = static_cast<const Bits*>(data);
  std::int64_t i = 0;
  for (; i + block <= count; i += block) {
    Bits bad = 0;
    for (std::int64_t j = 0; j < block; ++j)
      bad = static_cast<Bits>(bad | -static_cast<Bits>((bits[i + j] & without_sign) >= exponent));
    if (bad != 0) return false;
  }
  for (; i < count; ++i)
    if ((bits[i] & without_sign) >= exponent) return false;
  return true;
}

/// Checks dense tensors in CPU memory without copies or operators; returns nothing for others.
std::optional<bool> finite_in_memory(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_non_overlapping_and_dense()) return std::nullopt;
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat: return finite_numbers<std::int32_t>(data, tensor.numel(), 0x7f800000);
    case at::kDouble: return finite_numbers<std::int64_t>(data, tensor.numel(), 0x7ff0000000000000);
    case at::kBFloat16: return finite_numbers<std::int16_t>(data, tensor.numel(), 0x7f80);
    case at::kHalf: return finite_numbers<std::int16_t>(data, tensor.numel(), 0x7c00);
    default: return std::nullopt;
  }
}

/// Returns the first tensor with a number that is not finite, or null. Waits at most once for a device.
const NamedTensor* first_bad(const std::vector<NamedTensor>& tensors) {
  std::vector<const NamedTensor*> others;
  std::vector<at::Tensor> values;
  for (const NamedTensor& each : tensors) {
    if (!each.tensor.is_floating_point() || each.tensor.numel() == 0) continue;
    const std::optional<bool> finite = finite_in_memory(each.tensor);
    if (finite && !*finite) return &each;
    if (finite) continue;
    others.push_back(&each);
    values.push_back(each.tensor.detach());
  }
  if (values.empty()) return nullptr;
  // The largest magnitude is finite if all numbers are; a sum of squares may overflow.
  std::vector<at::Tensor> largest = at::_foreach_norm(values, std::numeric_limits<double>::infinity());
  for (at::Tensor& each : largest) each = each.to(largest.front().device(), at::kDouble);
  const at::Tensor all = at::stack(largest).cpu();
  for (std::size_t i = 0; i < others.size(); ++i)
    if (!std::isfinite(all.const_data_ptr<double>()[i])) return others[i];
  return nullptr;
}

}  // namespace

std::optional<std::string> first_infinite(const std::vector<NamedTensor>& tensors) {
  const NamedTensor* const bad = first_bad(tensors);
  return bad == nullptr ? std::nullopt : std::optional(bad->name);
}

bool FiniteCheck::wants(Event, Regions writes) const {
  for (const Region region : guarded_regions)
    if (writes.contains(region)) return true;
  return false;
}

void FiniteCheck::before(Regions writes) {
  if (!wants(context_.event(), writes)) return;
  const at::NoGradGuard no_grad;
  finite_ = {};
  for (const Region region : guarded_regions)
    if (writes.contains(region) && first_bad(tensors_of(region, context_)) == nullptr)
      finite_ = finite_ | region;
  if (answer_ == events::Answer::disable) keep(writes);
}

void FiniteCheck::after(Regions writes) {
  if (!wants(context_.event(), writes)) return;
  const at::NoGradGuard no_grad;
  for (const Region region : guarded_regions) {
    // This hook is not to blame for what was not finite before it.
    if (!writes.contains(region) || !finite_.contains(region)) continue;
    const std::vector<NamedTensor> tensors = tensors_of(region, context_);
    const NamedTensor* bad = first_bad(tensors);
    if (bad == nullptr) continue;
    const std::string what =
        "wrote a value that is not finite into " + bad->name + " (region " + std::string(name(region)) + ")";
    if (answer_ == events::Answer::disable) restore();
    throw events::Objection(ExitCode::numeric, answer_, what);
  }
}

void FiniteCheck::keep(Regions writes) {
  kept_.clear();
  for (const Region region : guarded_regions)
    if (writes.contains(region))
      for (const NamedTensor& each : tensors_of(region, context_))
        kept_.push_back({each.tensor, each.tensor.detach().clone()});
  gradients_.clear();
  if (writes.contains(Region::grads) && context_.network_ != nullptr)
    for (const NamedTensor& parameter : context_.network_->parameters())
      gradients_.push_back(parameter.tensor.grad());
  output_ = context_.output_;
  loss_ = context_.loss_;
}

void FiniteCheck::restore() {
  if (!gradients_.empty()) {
    const std::vector<NamedTensor> parameters = context_.network_->parameters();
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      at::Tensor parameter = parameters[i].tensor;
      parameter.mutable_grad() = gradients_[i];
    }
  }
  context_.output_ = output_;
  context_.loss_ = loss_;
  // Written behind autograd's back: for autograd nothing has changed.
  for (const Kept& each : kept_) each.handle.variable_data().copy_(each.content);
}

}  // namespace trainyard::train
