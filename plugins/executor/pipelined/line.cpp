#include "line.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include <trainyard/error.hpp>

namespace pipelined {
namespace {

/// Where a dense tensor lies, whatever its type and strides.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return at::from_blob(const_cast<void*>(tensor.const_data_ptr()),
                       {static_cast<std::int64_t>(tensor.nbytes())}, at::kByte);
}

std::vector<std::int64_t> sizes_of(const Batch& batch) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& input : batch.inputs) {
    sizes.push_back(input.dim());
    sizes.insert(sizes.end(), input.sizes().begin(), input.sizes().end());
  }
  return sizes;
}

/// Of each tensor: its type, or -1 where it is undefined; then the number of its dimensions, sizes and strides. The stride
/// of a dimension of one is anything: a view of a column has another one than its copy.
std::vector<std::int64_t> form_of(const Tensors& tensors) {
  std::vector<std::int64_t> form;
  for (const at::Tensor& each : tensors) {
    form.push_back(each.defined() ? static_cast<std::int64_t>(each.scalar_type()) : -1);
    if (!each.defined()) continue;
    form.push_back(each.dim());
    form.insert(form.end(), each.sizes().begin(), each.sizes().end());
    for (std::int64_t d = 0; d < each.dim(); ++d) form.push_back(each.size(d) == 1 ? 1 : each.stride(d));
  }
  return form;
}

Tensors of_form(const std::vector<std::int64_t>& form) {
  Tensors tensors;
  for (auto at = form.begin(); at != form.end();) {
    const std::int64_t type = *at++;
    if (type < 0) {
      tensors.emplace_back();
      continue;
    }
    const std::ptrdiff_t dims = *at++;
    const std::vector<std::int64_t> sizes(at, at + dims), strides(at + dims, at + 2 * dims);
    tensors.push_back(at::empty_strided(sizes, strides, static_cast<at::ScalarType>(type)));
    at += 2 * dims;
  }
  return tensors;
}

}  // namespace

void Wire::send(const at::Tensor& tensor) {
  if (tensor.numel() > 0) given_.emplace_back(tensor, pair_->broadcast(bytes_of(tensor), giver_));
}

void Wire::receive(const at::Tensor& tensor) {
  if (tensor.numel() > 0) pair_->broadcast(bytes_of(tensor), giver_)->wait();
}

/// `own`: of the rank that gives; null on the other.
const Wire::Numbers& Wire::form(const Unit& unit, const Numbers* own) {
  const auto [known, is_new] = forms_.try_emplace(sizes_of(unit.batch));
  if (!is_new) return known->second;
  at::Tensor length = at::empty({1}, at::kLong);
  if (own != nullptr) {
    length.fill_(std::ssize(*own));
    send(length);
    send(at::tensor(*own, at::kLong));
    return known->second = *own;
  }
  receive(length);
  const at::Tensor numbers = at::empty({*length.const_data_ptr<std::int64_t>()}, at::kLong);
  receive(numbers);
  const auto* const first = numbers.const_data_ptr<std::int64_t>();
  return known->second = Numbers(first, first + numbers.numel());
}

void Wire::give(const Message& message) {
  Tensors dense = message.tensors;
  for (at::Tensor& each : dense)
    if (each.defined() && !each.is_non_overlapping_and_dense()) each = each.contiguous();
  const Numbers own = form_of(dense);
  if (form(*message.unit, &own) != own)
    throw PluginError(
        "what a stage hands to the next rank has another form than with the samples before, of the same "
        "size");
  for (const at::Tensor& each : dense)
    if (each.defined()) send(each);
}

Message Wire::take(UnitHandle unit) {
  Tensors tensors = of_form(form(*unit, nullptr));
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (const at::Tensor& each : tensors)
    if (each.defined() && each.numel() > 0) exchanges.push_back(pair_->broadcast(bytes_of(each), giver_));
  for (const auto& each : exchanges) each->wait();
  return {std::move(unit), std::move(tensors)};
}

void Wire::settle() {
  for (const auto& [tensor, exchange] : given_) exchange->wait();
  given_.clear();
}

Line::Line(Ranks& ranks) : ranks_(ranks) {
  for (int front = 0; front + 1 < size(); ++front)
    for (const bool onward : {true, false}) {
      std::unique_ptr<RankGroup> pair = ranks.group({rank_of(front), rank_of(front + 1)});
      if (!pair) continue;
      auto wire = std::make_unique<Wire>(std::move(pair), onward ? 0 : 1);
      Side& side = place() == front ? behind_ : ahead_;
      (onward == (place() == front) ? side.out : side.in) = std::move(wire);
    }
}

void Line::share(std::span<const Tensors> of_place) {
  for (int place = 0; place < size(); ++place) {
    const Tensors& tensors = of_place[static_cast<std::size_t>(place)];
    std::int64_t length = 0;
    for (const at::Tensor& each : tensors) length += static_cast<std::int64_t>(each.nbytes());
    if (length == 0) continue;
    const at::Tensor all = at::empty({length}, at::kByte);
    const auto each_part = [&](const auto& copy) {
      std::int64_t first = 0;
      for (const at::Tensor& each : tensors) {
        const at::Tensor bytes = bytes_of(each);
        copy(all.narrow(0, first, bytes.numel()), bytes);
        first += bytes.numel();
      }
    };
    const bool own = place == this->place();
    if (own) each_part([](const at::Tensor& part, const at::Tensor& bytes) { part.copy_(bytes); });
    ranks_.broadcast(all, rank_of(place))->wait();
    if (!own) each_part([](const at::Tensor& part, const at::Tensor& bytes) { bytes.copy_(part); });
  }
}

}  // namespace pipelined
