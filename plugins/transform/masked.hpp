// Parameters of which only those elements live whose mask is 1: the others are exactly zero after every step.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>

#include <trainyard/network.hpp>

namespace transforms {

using namespace trainyard;

/// Ending of the name of a parameter's mask, a buffer of its shape that holds 0 and 1.
inline constexpr std::string_view mask_suffix = ".mask";

/// Several parameters whose elements are compared with each other.
class Masked {
 public:
  /// Takes handles of the network's own tensors. Throws std::out_of_range where it has none of such a name.
  Masked(const Network& network, const std::vector<std::string>& names) {
    const auto named = [](const std::vector<NamedTensor>& tensors, const std::string& name) {
      for (const NamedTensor& each : tensors)
        if (each.name == name) return each.tensor;
      throw std::out_of_range(name);
    };
    const std::vector<NamedTensor> parameters = network.parameters(), buffers = network.buffers();
    for (const std::string& name : names) {
      tensors_.emplace_back(named(parameters, name), named(buffers, name + std::string(mask_suffix)));
      size_ += tensors_.back().first.numel();
    }
  }

  std::int64_t size() const { return size_; }

  /// Takes away what the optimizer's momentum and decay gave elements that no longer live.
  void enforce() {
    const at::AutoDispatchBelowAutograd untracked;
    for (const auto& [weight, mask] : tensors_) weight.mul_(mask);
  }

  /// Leaves `count` of the living elements alive, those of the largest magnitude; of equal ones the first. What has died
  /// stays dead. Does nothing where no more than that live.
  void keep_largest(std::int64_t count) {
    const at::AutoDispatchBelowAutograd untracked;
    std::vector<at::Tensor> sizes, masks;
    for (const auto& [weight, mask] : tensors_) {
      sizes.push_back(at::where(mask.ne(0), weight.abs(), -1.0).reshape({-1}));
      masks.push_back(mask.reshape({-1}));
    }
    const at::Tensor size = at::cat(sizes);
    at::Tensor kept = at::cat(masks);
    if (kept.count_nonzero().item<std::int64_t>() <= count) return;
    kept.zero_();
    if (count > 0) {
      const at::Tensor least = std::get<0>(size.kthvalue(size.numel() - count + 1));
      const at::Tensor above = size.gt(least);
      kept.masked_fill_(above, 1.0);
      const std::int64_t left = count - above.sum().item<std::int64_t>();
      kept.index_fill_(0, size.eq(least).nonzero().flatten().slice(0, 0, left), 1.0);
    }
    std::int64_t at = 0;
    for (const auto& [weight, mask] : tensors_) {
      mask.copy_(kept.slice(0, at, at + mask.numel()).view_as(mask));
      weight.mul_(mask);
      at += mask.numel();
    }
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;
  std::int64_t size_ = 0;
};

}  // namespace transforms
