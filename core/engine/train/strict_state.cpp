#include "core/engine/train/strict_state.hpp"

#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>

#include <trainyard/optimizer.hpp>

#include <trainyard/event.hpp>
#include "core/engine/train/regions.hpp"
#include "core/plugins/order.hpp"

namespace trainyard::train {
namespace {

constexpr Region compared[] = {Region::model, Region::grads, Region::optimizer, Region::batch,
                               Region::outputs};

std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

/// Compares bits: NaN equals NaN, and 0 is not -0.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.device() != b.device()) return false;
  const at::Tensor left = a.contiguous().cpu(), right = b.contiguous().cpu();
  return left.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

/// Returns a hash of some values, evenly spread; 0 on a device, as reading them would wait for it.
std::uint64_t few_of(const at::Tensor& tensor) {
  constexpr std::size_t looks = 32, width = sizeof(std::uint32_t);
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || tensor.nbytes() < width) return 0;
  const auto* const bytes = static_cast<const char*>(tensor.const_data_ptr());
  const std::size_t words = tensor.nbytes() / width, step = std::max<std::size_t>(1, words / looks);
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < words; i += step) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes + i * width, width);
    all = (all ^ word) * 0x9e3779b97f4a7c15;
  }
  return all;
}

std::vector<std::pair<std::string, double>> numbers_of(const LoopContext& context) {
  std::vector<std::pair<std::string, double>> numbers;
  if (context.optimizer_ == nullptr) return numbers;
  const std::vector<ParamGroup>& groups = context.optimizer_->groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string group = " of parameter group " + std::to_string(i);
    numbers.emplace_back("lr" + group, groups[i].lr);
    numbers.emplace_back("base_lr" + group, groups[i].base_lr);
    numbers.emplace_back("weight_decay" + group, groups[i].weight_decay);
  }
  return numbers;
}

[[noreturn]] void object(Event event, Region region, const std::string& what) {
  const std::string where(name(region));
  std::string mend = "add .writes(Region::" + where + ") to the subscription";
  if (!writable(event).contains(region)) {
    mend = "that region may not be written at " + std::string(name(event)) + "; it may at";
    for (std::size_t e = 0; e < event_count; ++e)
      if (writable(static_cast<Event>(e)).contains(region)) mend += " " + std::string(event_names[e]);
  }
  throw events::Objection(ExitCode::plugin, events::Answer::abort,
                          "wrote " + what + " (region " + where + ") and did not declare it: " + mend);
}

}  // namespace

bool StrictState::compares(Region region, Regions writes) const {
  constexpr Regions of_weights = Regions(Region::model) | Region::grads | Region::optimizer;
  if (context_.weights_move_ && of_weights.contains(region)) return false;
  return !writes.contains(region) && (look_ == Look::whole || region != Region::optimizer);
}

void StrictState::before(Regions writes) {
  const at::NoGradGuard no_grad;
  const bool whole = look_ == Look::whole;
  tensors_.clear();
  for (const Region region : compared)
    if (compares(region, writes))
      for (const NamedTensor& each : tensors_of(region, context_))
        tensors_.push_back({region, each.name, whole ? each.tensor.detach().clone() : at::Tensor(),
                            version_of(each.tensor), whole ? 0 : few_of(each.tensor)});
  numbers_ = writes.contains(Region::hyper) ? decltype(numbers_)() : numbers_of(context_);
}

void StrictState::after(Regions writes) {
  const at::NoGradGuard no_grad;
  const Event event = context_.event();
  std::vector<Seen>::const_iterator seen = tensors_.begin();
  for (const Region region : compared) {
    if (!compares(region, writes)) continue;
    for (const NamedTensor& now : tensors_of(region, context_)) {
      if (seen == tensors_.end() || seen->region != region || seen->name != now.name)
        object(event, region, now.name + ", which was not there before,");
      const bool same =
          look_ == Look::whole ? same_bits(seen->content, now.tensor) : seen->few == few_of(now.tensor);
      if (seen->version != version_of(now.tensor) || !same) object(event, region, now.name);
      ++seen;
    }
    if (seen != tensors_.end() && seen->region == region)
      object(event, region, seen->name + ", which is gone,");
  }
  if (writes.contains(Region::hyper)) return;
  const auto numbers = numbers_of(context_);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (i >= numbers_.size() || numbers[i].second != numbers_[i].second)
      object(event, Region::hyper, numbers[i].first);
}

}  // namespace trainyard::train
