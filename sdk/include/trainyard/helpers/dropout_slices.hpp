// Multiplies the rows of a batch, cut into slices, by the mask of each, under autograd. Masks are held as
// bits, on the device where they are used; they become numbers while they are multiplied, forward and
// backward, and the numbers are not kept between the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace trainyard {

/// Rows [begin, end) of a tensor, and the number of their mask.
struct RowSlice {
  std::int64_t begin, end, mask;

  bool operator==(const RowSlice&) const = default;
};

/// Masks of units. Where a mask has n bytes, unit u is bit u / n of byte u % n.
struct UnitMasks {
  at::Tensor bits;         ///< bytes, [masks, n], n = width / 8, rounded up
  std::int64_t width = 0;  ///< number of units
  std::int64_t axis = 1;   ///< axis of the units in the tensor; below 0: from the end
  float scale = 1;         ///< factor on kept units

  std::int64_t count() const { return bits.defined() ? bits.size(0) : 0; }
};

/// Returns the factors of units, of the type of x and broadcast to it: their first dimension counts masks.
inline at::Tensor factors(const UnitMasks& masks, const at::Tensor& x) {
  const at::Tensor places = at::arange(8, masks.bits.options()).unsqueeze(1);
  const at::Tensor units =
      at::bitwise_right_shift(masks.bits.unsqueeze(1), places).bitwise_and_(1).flatten(1);
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape.front() = masks.count();
  shape[static_cast<std::size_t>(masks.axis < 0 ? masks.axis + x.dim() : masks.axis)] = masks.width;
  return units.narrow(1, 0, masks.width).to(x.scalar_type()).mul_(masks.scale).reshape(shape);
}

/// Returns x with each slice of its rows times its mask. There are slices, and they cover all rows in order.
inline at::Tensor times_masks(const at::Tensor& x, const UnitMasks& masks,
                              const std::vector<RowSlice>& slices) {
  const at::NoGradGuard untracked;
  const at::Tensor numbers = factors(masks, x);
  at::Tensor y = at::empty_like(x);
  const std::int64_t first = slices.front().mask, length = slices.front().end;
  std::int64_t count = 0;
  for (const RowSlice& slice : slices)
    count += slice.end - slice.begin == length && slice.mask == first + count;
  if (count == static_cast<std::int64_t>(slices.size())) {  // of one length, their masks in order
    at::Tensor cut = y.unflatten(0, {count, length});
    at::mul_out(cut, x.unflatten(0, {count, length}), numbers.narrow(0, first, count).unsqueeze(1));
    return y;
  }
  for (const RowSlice& slice : slices) {
    at::Tensor rows = y.slice(0, slice.begin, slice.end);
    at::mul_out(rows, x.slice(0, slice.begin, slice.end), numbers.narrow(0, slice.mask, 1));
  }
  return y;
}

inline at::Tensor masked(const at::Tensor& x, UnitMasks masks, std::vector<RowSlice> slices);

/// Multiplies gradients by the same masks.
class MaskedBackward final : public torch::autograd::Node {
 public:
  MaskedBackward(UnitMasks masks, std::vector<RowSlice> slices)
      : masks_(std::move(masks)), slices_(std::move(slices)) {}

  std::string name() const override { return "MaskedBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    return {masked(gradients[0], masks_, slices_)};
  }

 private:
  UnitMasks masks_;
  std::vector<RowSlice> slices_;
};

/// Does the same as `times_masks`, under autograd.
inline at::Tensor masked(const at::Tensor& x, UnitMasks masks, std::vector<RowSlice> slices) {
  const at::Tensor y = times_masks(x, masks, slices);
  if (!torch::autograd::compute_requires_grad(x)) return y;
  const auto backward = std::make_shared<MaskedBackward>(std::move(masks), std::move(slices));
  backward->set_next_edges(torch::autograd::collect_next_edges(x));
  torch::autograd::set_history(y, backward);
  return y;
}

}  // namespace trainyard
