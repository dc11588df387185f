#include "exchange.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <map>
#include <numeric>
#include <string>
#include <string_view>

namespace wavelet {
namespace {

std::vector<int> all_of(const Ranks& ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

at::Tensor StageExchange::InMessage::in(const at::Tensor& message) const {
  return message
      .narrow(0, static_cast<std::int64_t>(first),
              static_cast<std::int64_t>(tensor.numel() * tensor.element_size()))
      .view(tensor.scalar_type())
      .view(tensor.sizes());
}

StageExchange::StageExchange(Ranks& ranks, const Network& network, const std::vector<Graph>& parts)
    : ranks_(ranks.group(all_of(ranks))) {
  std::map<std::string, at::Tensor, std::less<>> tensors;
  for (const auto& list : {network.parameters(), network.buffers()})
    for (const NamedTensor& each : list) tensors[each.name] = each.tensor;
  for (const Graph& part : parts) {
    Share& share = shares_.emplace_back();
    std::size_t end = 0;
    for (const GraphValue& value : part.values) {
      if (!value.initializer.defined()) continue;
      if (!value.trainable && !value.initializer.is_floating_point()) continue;
      const at::Tensor& tensor = tensors.at(value.name);
      (value.trainable ? share.parameters : share.statistics).push_back({tensor, end});
      constexpr std::size_t alignment = 64;
      end += (tensor.nbytes() + alignment - 1) / alignment * alignment;
    }
    share.message = at::empty({static_cast<std::int64_t>(end + share.parameters.size())}, at::kByte);
  }
}

void StageExchange::pack(Share& share, const Made& made) const {
  auto* const has =
      share.message.mutable_data_ptr<std::uint8_t>() + share.message.numel() - std::ssize(share.parameters);
  for (std::size_t i = 0; i < share.parameters.size(); ++i) {
    has[i] = made.gradients[i].defined() ? 1 : 0;
    if (has[i] != 0) share.parameters[i].in(share.message).copy_(made.gradients[i]);
  }
  for (std::size_t i = 0; i < share.statistics.size(); ++i) {
    const InMessage& place = share.statistics[i];
    place.in(share.message).copy_(made.statistics.empty() ? place.tensor : made.statistics[i]);
  }
}

void StageExchange::all(const std::function<Made()>& make) {
  const at::NoGradGuard untracked;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (int rank = ranks_->size(); rank-- > 0;) {
    Share& share = shares_[static_cast<std::size_t>(rank)];
    if (rank == ranks_->rank()) pack(share, make());
    exchanges.push_back(ranks_->broadcast(share.message, rank));
  }
  for (const auto& each : exchanges) each->wait();
  for (const Share& share : shares_)
    for (const InMessage& place : share.parameters) place.tensor.mutable_grad().reset();
  for (const Share& share : shares_) {
    const auto* const has =
        share.message.const_data_ptr<std::uint8_t>() + share.message.numel() - std::ssize(share.parameters);
    for (std::size_t i = 0; i < share.parameters.size(); ++i) {
      if (has[i] == 0) continue;
      const at::Tensor given = share.parameters[i].in(share.message);
      at::Tensor& gradient = share.parameters[i].tensor.mutable_grad();
      if (gradient.defined())
        gradient.add_(given);
      else
        gradient = given;
    }
    for (const InMessage& place : share.statistics) at::Tensor(place.tensor).copy_(place.in(share.message));
  }
}

}  // namespace wavelet
