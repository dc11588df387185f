// Parameters of which ever fewer elements live: the others are exactly zero after every step. A zero is its own mask, so
// that a checkpoint needs no other, and every executor trains what hooks left of the weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <trainyard/network.hpp>

namespace transforms {

using namespace trainyard;

/// Several parameters whose elements are compared with each other.
class Masked {
 public:
  /// Takes those of that name of a network, which has them.
  Masked(const Network& network, const std::vector<std::string>& names) {
    for (const NamedTensor& each : network.parameters())
      if (std::ranges::find(names, each.name) != names.end()) weights_.push_back(each.tensor.detach());
    for (const at::Tensor& weight : weights_) size_ += weight.numel();
  }

  std::int64_t size() const { return size_; }

  /// Notes before a step which elements live.
  void note() {
    alive_.clear();
    for (const at::Tensor& weight : weights_) alive_.push_back(weight.ne(0));
  }

  /// Takes away after a step what the optimizer gave elements that did not live before it.
  void enforce() {
    for (std::size_t i = 0; i < alive_.size(); ++i) weights_[i].mul_(alive_[i]);
  }

  /// Leaves `count` of the elements, those of the largest magnitude; of equal ones the first. Does nothing where no more
  /// than that live.
  void keep_largest(std::int64_t count) {
    std::vector<at::Tensor> sizes;
    for (const at::Tensor& weight : weights_) sizes.push_back(weight.abs().reshape({-1}));
    const at::Tensor size = at::cat(sizes);
    if (size.count_nonzero().item<std::int64_t>() <= count) return;
    at::Tensor kept = at::zeros_like(size, at::kBool);
    if (count > 0) {
      const at::Tensor least = std::get<0>(size.kthvalue(size.numel() - count + 1));
      kept.copy_(size.gt(least));
      const std::int64_t left = count - kept.sum().item<std::int64_t>();
      kept.index_fill_(0, size.eq(least).nonzero().flatten().slice(0, 0, left), 1);
    }
    std::int64_t begin = 0;
    for (const at::Tensor& weight : weights_) {
      weight.mul_(kept.slice(0, begin, begin + weight.numel()).view_as(weight));
      begin += weight.numel();
    }
  }

 private:
  std::vector<at::Tensor> weights_, alive_;  ///< the network's own, past autograd; what `note` saw
  std::int64_t size_ = 0;
};

}  // namespace transforms
