// Draws the masks of dropout plugins, and noise. On the CPU the bits are those of the call's stream on every
// machine; a device draws with its own generator, which the stream seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trainyard/random.hpp>

namespace trainyard {

class DropoutMasks {
 public:
  /// Returns 1/keep with probability `keep`, else 0, of `like`'s type and on its device. `number` tells apart
  /// the masks that one call draws in that shape. 0 < keep <= 1.
  at::Tensor inverted(at::IntArrayRef shape, double keep, const at::Tensor& like, const RandomStream& random,
                      std::uint64_t number = 0) {
    if (!like.is_cpu() || like.scalar_type() == at::kDouble)
      return kept(shape, keep, like, random, number).div_(keep);
    return on_cpu(shape, keep, random, number).to(like.scalar_type());
  }

  /// Returns 1 with probability `keep`, else 0.
  at::Tensor kept(at::IntArrayRef shape, double keep, const at::Tensor& like, const RandomStream& random,
                  std::uint64_t number = 0) {
    return like.is_cpu() ? on_cpu(shape, keep, random, number).ne_(0).to(like.scalar_type())
                         : on_device(shape, keep, like, random, number);
  }

  /// Returns standard normal numbers, in float at least.
  at::Tensor normal(at::IntArrayRef shape, const at::Tensor& like, const RandomStream& random,
                    std::uint64_t number = 0) {
    const at::TensorOptions options = like.options().requires_grad(false);
    const bool wide = like.scalar_type() == at::kDouble;
    at::Tensor result = at::empty(shape, options.dtype(wide ? at::kDouble : at::kFloat));
    if (!like.is_cpu()) return result.normal_(0.0, 1.0, seeded(like, random, number));
    fill_normal(result, random, 0.0, 1.0, number * ((static_cast<std::uint64_t>(result.numel()) + 3) / 4));
    return result;
  }

 private:
  static at::Tensor on_cpu(at::IntArrayRef shape, double keep, const RandomStream& random,
                           std::uint64_t number) {
    const at::Tensor mask = at::empty(shape, at::kFloat);
    const auto elements = static_cast<std::size_t>(mask.numel());
    random.fill_mask({mask.mutable_data_ptr<float>(), elements}, keep, number * ((elements + 3) / 4));
    return mask;
  }

  at::Tensor on_device(at::IntArrayRef shape, double keep, const at::Tensor& like, const RandomStream& random,
                       std::uint64_t number) {
    return at::empty(shape, like.options().requires_grad(false))
        .bernoulli_(keep, seeded(like, random, number));
  }

  /// Returns the generator of `like`'s device, seeded with element `number` of the stream.
  const std::optional<at::Generator>& seeded(const at::Tensor& like, const RandomStream& random,
                                             std::uint64_t number) {
    if (!generator_ || generator_->device() != like.device())
      generator_ = at::globalContext()
                       .getAcceleratorHooksInterface(like.device().type())
                       .getNewGenerator(like.device().index());
    generator_->set_current_seed(random.bits(number));
    return generator_;
  }

  std::optional<at::Generator> generator_;
};

/// Returns the shape of a mask, broadcast to `x`, of one bit for each row of the first axis and each feature.
inline std::vector<std::int64_t> shared_over_positions(const at::Tensor& x, std::int64_t axis) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape.front() = x.size(0);
  shape[static_cast<std::size_t>(axis)] = x.size(axis);
  return shape;
}

/// Returns `x` as [samples, rows of a sample, ...], where a site folds them.
inline at::Tensor by_sample(const at::Tensor& x, std::int64_t rows) {
  return x.unflatten(0, {x.size(0) / rows, rows});
}

}  // namespace trainyard
