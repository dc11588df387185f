#include "wire.hpp"

namespace wavelet {

/// As bytes, whatever the type; they hold the memory until the exchange is done, also where nobody waits for it. Autograd,
/// which has kept some of what is given, is not to take an exchange for a change of it.
Wire::Message Wire::begin(Tensors tensors) {
  Message message{std::move(tensors), {}};
  for (const at::Tensor& each : message.tensors)
    if (each.numel() > 0)
      message.exchanges.push_back(pair_->broadcast(each.variable_data().flatten().view(at::kByte), giver_));
  return message;
}

void Wire::give(const Tensors& message) {
  if (on_their_way_.size() == most_) take();
  on_their_way_.push_back(begin(message));
}

void Wire::expect(Tensors message) {
  on_their_way_.push_back(begin(std::move(message)));
}

Tensors Wire::take() {
  Message oldest = std::move(on_their_way_.front());
  on_their_way_.pop_front();
  for (const auto& each : oldest.exchanges) each->wait();
  return std::move(oldest.tensors);
}

}  // namespace wavelet
