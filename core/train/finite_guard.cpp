#include "core/train/finite_guard.hpp"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <limits>

#include <trainyard/network.hpp>

#include "core/train/regions.hpp"

namespace trainyard::train {
namespace {

constexpr Region guarded_regions[] = {Region::model, Region::grads, Region::outputs};

/// The largest magnitude of each floating-point tensor: finite exactly where all of its values are, unlike a
/// sum of squares, which may overflow.
at::Tensor magnitudes(const std::vector<NamedTensor>& tensors, std::vector<const NamedTensor*>* names) {
  std::vector<at::Tensor> values;
  for (const NamedTensor& each : tensors) {
    if (!each.tensor.is_floating_point() || each.tensor.numel() == 0) continue;
    values.push_back(each.tensor.detach());
    if (names != nullptr) names->push_back(&each);
  }
  if (values.empty()) return {};
  std::vector<at::Tensor> norms = at::_foreach_norm(values, std::numeric_limits<double>::infinity());
  for (at::Tensor& norm : norms) norm = norm.to(norms.front().device(), at::kDouble);
  return at::stack(norms);
}

bool finite(const std::vector<NamedTensor>& tensors) {
  const at::Tensor all = magnitudes(tensors, nullptr);
  return !all.defined() || at::isfinite(all).all().item<bool>();
}

std::string first_bad(const std::vector<NamedTensor>& tensors) {
  std::vector<const NamedTensor*> names;
  const at::Tensor all = at::isfinite(magnitudes(tensors, &names)).to(at::kCPU);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!all[static_cast<std::int64_t>(i)].item<bool>()) return names[i]->name;
  return "a tensor";
}

}  // namespace

bool FiniteGuard::wants(Event, Regions writes) const {
  for (const Region region : guarded_regions)
    if (writes.contains(region)) return true;
  return false;
}

void FiniteGuard::before(Regions writes) {
  if (!wants(context_.event(), writes)) return;
  const at::NoGradGuard no_grad;
  finite_ = {};
  for (const Region region : guarded_regions)
    if (writes.contains(region) && finite(tensors_of(region, context_))) finite_ = finite_ | region;
  if (answer_ == events::Answer::disable) keep(writes);
}

void FiniteGuard::after(Regions writes) {
  if (!wants(context_.event(), writes)) return;
  const at::NoGradGuard no_grad;
  for (const Region region : guarded_regions) {
    // What was not finite before is not this hook's doing.
    if (!writes.contains(region) || !finite_.contains(region)) continue;
    const std::vector<NamedTensor> tensors = tensors_of(region, context_);
    if (finite(tensors)) continue;
    const std::string what = "wrote a value that is not finite into " + first_bad(tensors) + " (region " +
                             std::string(name(region)) + ")";
    if (answer_ == events::Answer::disable) restore();
    throw events::Objection(ExitCode::numeric, answer_, what);
  }
}

void FiniteGuard::keep(Regions writes) {
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

void FiniteGuard::restore() {
  if (!gradients_.empty()) {
    const std::vector<NamedTensor> parameters = context_.network_->parameters();
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      at::Tensor parameter = parameters[i].tensor;
      parameter.mutable_grad() = gradients_[i];
    }
  }
  context_.output_ = output_;
  context_.loss_ = loss_;
  // Without a note for autograd: to its eyes nothing happened.
  for (const Kept& each : kept_) each.handle.variable_data().copy_(each.content);
}

}  // namespace trainyard::train
