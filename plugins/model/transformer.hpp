// Parts of transformers that the graph has no operator for, made of those that it has.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <trainyard/graph/builder.hpp>

namespace models {

using namespace trainyard;

/// x / sqrt(mean of x^2 + epsilon) * weight over the last axis.
class RootMeanSquare {
 public:
  /// Nothing where it is not `wanted`.
  static std::optional<RootMeanSquare> where(GraphBuilder& b, bool wanted, double epsilon) {
    if (!wanted) return std::nullopt;
    return RootMeanSquare{b.constant("rms.epsilon", at::full({1}, epsilon)),
                          b.constant("rms.axes", at::full({1}, -1, at::kLong))};
  }

  ValueId apply(GraphBuilder& b, ValueId x, const std::string& name) const {
    const ValueId weight = b.parameter(name + ".weight", at::ones({b.shape(x).back()}));
    const ValueId mean =
        b.node("ReduceMean", name + ".mean", {b.mul(x, x), axes_}, {{"keepdims", std::int64_t{1}}});
    const ValueId root = b.node("Sqrt", name + ".root", {b.add(mean, epsilon_)});
    return b.mul(b.mul(x, b.node("Reciprocal", name + ".scale", {root})), weight);
  }

 private:
  RootMeanSquare(ValueId epsilon, ValueId axes) : epsilon_(epsilon), axes_(axes) {}
  ValueId epsilon_, axes_;
};

/// Turns pairs of numbers (element i of the first half of a head, and of the second) by angles that grow with the place.
class Rotation {
 public:
  /// Nothing where it is not `wanted`. Angles are rounded to float at each step, as in PyTorch's models, whose weights
  /// were trained with these.
  static std::optional<Rotation> where(GraphBuilder& b, bool wanted, std::int64_t time, std::int64_t width,
                                       double theta) {
    if (!wanted) return std::nullopt;
    const std::int64_t pairs = width / 2;
    const at::Tensor cosines = at::empty({time, 1, pairs}), sines = at::empty({time, 1, pairs});
    auto* cosine = cosines.mutable_data_ptr<float>();
    auto* sine = sines.mutable_data_ptr<float>();
    for (std::int64_t place = 0; place < time; ++place)
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(width);
        const float angle = static_cast<float>(place) * static_cast<float>(std::pow(theta, exponent));
        *cosine++ = static_cast<float>(std::cos(static_cast<double>(angle)));
        *sine++ = static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    return Rotation{b.constant("rope.cos", cosines), b.constant("rope.sin", sines)};
  }

  /// `x` [batch, time, heads x width].
  ValueId apply(GraphBuilder& b, ValueId x, std::int64_t heads) const {
    const std::int64_t time = b.shape(x)[1], all = b.shape(x)[2];
    const std::vector<ValueId> halves = b.split(b.reshape(x, {-1, time, heads, all / heads}), 2, 3);
    const ValueId kept_first = b.mul(halves[0], cosines_), from_second = b.mul(halves[1], sines_);
    const ValueId kept_second = b.mul(halves[1], cosines_), from_first = b.mul(halves[0], sines_);
    const ValueId first = b.node("Sub", "", {kept_first, from_second});
    return b.reshape(b.concat({first, b.add(kept_second, from_first)}, 3), {-1, time, all});
  }

 private:
  Rotation(ValueId cosines, ValueId sines) : cosines_(cosines), sines_(sines) {}
  ValueId cosines_, sines_;
};

}  // namespace models
