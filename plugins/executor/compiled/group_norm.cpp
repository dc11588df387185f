// GroupNormalization, and InstanceNormalization, whose groups are the channels, in the layout that the value has.
#include <ATen/Parallel.h>

#include <cmath>

#include "compiler.hpp"
#include "lanes.hpp"

namespace compiled {
namespace {

/// How a sample lies: stretches of `pixels`, each of which has `lanes` channels beside each other. What fills channels up
/// belongs to no group.
struct Stretches {
  std::int64_t count, pixels, lanes, channels, groups;

  std::int64_t whole() const { return count * lanes; }
  std::int64_t size() const { return whole() * pixels; }
  std::int64_t of_group() const { return channels / groups; }
};

/// For each channel the sum of of(place, channel) over pixels.
template <class Of>
PART_OF_EACH void channel_sums(const Stretches& s, float* sums, const Of& of) {
  for (std::int64_t part = 0; part < s.count; ++part) {
    const std::int64_t at = part * s.pixels * s.lanes, first = part * s.lanes;
    if (s.lanes == 1) {
      sums[first] = sum_of(s.pixels, [&](std::int64_t i) { return of(at + i, first); });
      continue;
    }
    std::int64_t c = 0;
    for (constexpr std::int64_t few = 8; c + few <= s.lanes; c += few) {
      float found[few] = {};
      for (std::int64_t p = 0; p < s.pixels; ++p)
        for (std::int64_t i = 0; i < few; ++i) found[i] += of(at + p * s.lanes + c + i, first + c + i);
      for (std::int64_t i = 0; i < few; ++i) sums[first + c + i] = found[i];
    }
    for (; c < s.lanes; ++c) {
      float found = 0.0f;
      for (std::int64_t p = 0; p < s.pixels; ++p) found += of(at + p * s.lanes + c, first + c);
      sums[first + c] = found;
    }
  }
}

/// to = of(place, channel) everywhere.
template <class T, class Of>
PART_OF_EACH void each_place(const Stretches& s, T* __restrict to, const Of& of) {
  for (std::int64_t part = 0; part < s.count; ++part) {
    const std::int64_t at = part * s.pixels * s.lanes, first = part * s.lanes;
    if (s.lanes == 1) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < s.pixels; ++i) put(to[at + i], of(at + i, first));
      continue;
    }
    for (std::int64_t p = 0; p < s.pixels; ++p) {
      const std::int64_t pixel = at + p * s.lanes;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < s.lanes; ++c) put(to[pixel + c], of(pixel + c, first + c));
    }
  }
}

/// The parameters, by channel.
struct Affine {
  const float *scale, *shift;
};
/// What is known of each group of a sample: one over the standard deviation, and the mean.
struct Statistics {
  float *mean, *inverse;
};

/// `room`: three numbers a channel.
template <class T>
PART_OF_EACH void normalize(const Stretches& s, T* y, const T* x, const Affine& affine, float epsilon,
                            const Statistics& found, float* room) {
  float *const sums = room, *const means = room + s.whole(), *const factors = means + s.whole();
  const std::int64_t each = s.of_group();
  const auto share = 1.0f / static_cast<float>(each * s.pixels);
  const auto of_group = [&](std::int64_t group) {
    float sum = 0.0f;
    for (std::int64_t c = group * each; c < (group + 1) * each; ++c) sum += sums[c];
    return sum * share;
  };
  channel_sums(s, sums, [&](std::int64_t i, std::int64_t) { return wide(x[i]); });
  for (std::int64_t c = 0; c < s.whole(); ++c) means[c] = factors[c] = 0.0f;
  for (std::int64_t g = 0; g < s.groups; ++g) {
    found.mean[g] = of_group(g);
    for (std::int64_t c = g * each; c < (g + 1) * each; ++c) means[c] = found.mean[g];
  }
  channel_sums(s, sums, [&](std::int64_t i, std::int64_t c) {
    const float apart = wide(x[i]) - means[c];
    return apart * apart;
  });
  for (std::int64_t g = 0; g < s.groups; ++g) {
    found.inverse[g] = 1.0f / std::sqrt(of_group(g) + epsilon);
    for (std::int64_t c = g * each; c < (g + 1) * each; ++c) factors[c] = affine.scale[c] * found.inverse[g];
  }
  for (std::int64_t c = 0; c < s.whole(); ++c) sums[c] = c < s.channels ? affine.shift[c] : 0.0f;
  each_place(s, y,
             [&](std::int64_t i, std::int64_t c) { return (wide(x[i]) - means[c]) * factors[c] + sums[c]; });
}

/// dx = factor dy + slope (x - mean) + offset, with what follows of the group's sums. `sums`: of dy, and of dy (x - mean), by channel.
template <class T>
PART_OF_EACH void denormalize(const Stretches& s, T* dx, const T* dy, const T* x, const Affine& affine,
                              const Statistics& found, float* sums, float* room) {
  float *const means = room, *const factors = room + s.whole(), *const slopes = factors + s.whole(),
               *const offsets = slopes + s.whole(), *const products = sums + s.whole();
  const std::int64_t each = s.of_group();
  const auto share = 1.0f / static_cast<float>(each * s.pixels);
  for (std::int64_t c = 0; c < s.whole(); ++c) {
    const bool is_one = c < s.channels;
    means[c] = is_one ? found.mean[c / each] : 0.0f;
    factors[c] = is_one ? affine.scale[c] * found.inverse[c / each] : 0.0f;
    slopes[c] = offsets[c] = 0.0f;
  }
  channel_sums(s, sums, [&](std::int64_t i, std::int64_t) { return wide(dy[i]); });
  channel_sums(s, products,
               [&](std::int64_t i, std::int64_t c) { return wide(dy[i]) * (wide(x[i]) - means[c]); });
  if (dx == nullptr) return;
  for (std::int64_t g = 0; g < s.groups; ++g) {
    const std::int64_t first = g * each, last = first + each;
    float sum = 0.0f, product = 0.0f;
    for (std::int64_t c = first; c < last; ++c) {
      sum += factors[c] * sums[c];
      product += factors[c] * products[c];
    }
    const float inverse = found.inverse[g];
    for (std::int64_t c = first; c < last; ++c) {
      slopes[c] = -product * inverse * inverse * share;
      offsets[c] = -sum * share;
    }
  }
  each_place(s, dx, [&](std::int64_t i, std::int64_t c) {
    return factors[c] * wide(dy[i]) + slopes[c] * (wide(x[i]) - means[c]) + offsets[c];
  });
}

TRAINYARD_FOR_EACH_ISA void normalize_sample(const Stretches& s, float* y, const float* x,
                                             const Affine& affine, float epsilon, const Statistics& found,
                                             float* room) {
  normalize(s, y, x, affine, epsilon, found, room);
}
TRAINYARD_FOR_EACH_ISA void normalize_sample(const Stretches& s, Half* y, const Half* x, const Affine& affine,
                                             float epsilon, const Statistics& found, float* room) {
  normalize(s, y, x, affine, epsilon, found, room);
}
TRAINYARD_FOR_EACH_ISA void denormalize_sample(const Stretches& s, float* dx, const float* dy, const float* x,
                                               const Affine& affine, const Statistics& found, float* sums,
                                               float* room) {
  denormalize(s, dx, dy, x, affine, found, sums, room);
}
TRAINYARD_FOR_EACH_ISA void denormalize_sample(const Stretches& s, Half* dx, const Half* dy, const Half* x,
                                               const Affine& affine, const Statistics& found, float* sums,
                                               float* room) {
  denormalize(s, dx, dy, x, affine, found, sums, room);
}

class GroupNorm final : public Instruction {
 public:
  struct Values {
    ValueNumber x, scale, shift, y;
  };
  GroupNorm(Compiler& compiler, const Values& values, const Stretches& stretches, float epsilon)
      : values_(values),
        stretches_(stretches),
        epsilon_(epsilon),
        samples_(compiler.value(values.x).dims[0]),
        statistics_(compiler.make_bytes(plain({2, samples_, stretches.groups}))),
        x_(compiler.memory(values.x)),
        y_(compiler.memory(values.y)),
        scale_(compiler.memory(values.scale)),
        shift_(compiler.memory(values.shift)),
        found_(compiler.memory(statistics_)) {}

  void forward(const Pass&) override {
    typed(
        [&](auto* y, const auto* x) {
          each_sample([&](std::int64_t n, float* room) {
            const std::int64_t at = n * stretches_.size();
            normalize_sample(stretches_, y + at, x + at, affine(), epsilon_, statistics_of(n), room);
          });
        },
        y_, x_);
  }

  void plan_backward(Compiler& compiler) override {
    given_ = *compiler.gradient(values_.y);
    compiler.memory(values_.x);
    compiler.memory(values_.scale);
    compiler.memory(statistics_);
    sums_ = compiler.scratch(plain({samples_, 2, stretches_.whole()}));
    if (compiler.wants_gradient(values_.x)) into_x_ = compiler.contribute(values_.x);
    if (compiler.wants_gradient(values_.scale)) into_scale_ = compiler.contribute(values_.scale);
    if (compiler.wants_gradient(values_.shift)) into_shift_ = compiler.contribute(values_.shift);
  }

  void backward(const Pass&) override {
    const std::int64_t whole = stretches_.whole();
    typed(
        [&](auto* dy, auto* x) {
          auto* const dx = into_x_ ? static_cast<decltype(x)>(into_x_->memory.get_data_handle()) : nullptr;
          each_sample([&](std::int64_t n, float* room) {
            const std::int64_t at = n * stretches_.size();
            denormalize_sample(stretches_, dx == nullptr ? nullptr : dx + at, dy + at, x + at, affine(),
                               statistics_of(n), floats(sums_) + n * 2 * whole, room);
          });
        },
        given_, x_);
    if (into_x_) into_x_->finish();
    for (std::int64_t c = 0; c < stretches_.channels; ++c) {
      float shift = 0.0f, scale = 0.0f;
      for (std::int64_t n = 0; n < samples_; ++n) {
        const float* const sums = floats(sums_) + n * 2 * whole;
        shift += sums[c];
        scale += sums[whole + c] * statistics_of(n).inverse[c / stretches_.of_group()];
      }
      if (into_shift_) floats(into_shift_->memory)[c] = shift;
      if (into_scale_) floats(into_scale_->memory)[c] = scale;
    }
    if (into_shift_) into_shift_->finish();
    if (into_scale_) into_scale_->finish();
  }

 private:
  Affine affine() const { return {floats(scale_), floats(shift_)}; }
  Statistics statistics_of(std::int64_t n) const {
    float* const mean = floats(found_) + n * stretches_.groups;
    return {mean, mean + samples_ * stretches_.groups};
  }
  template <class Of>
  void each_sample(const Of& of) const {
    at::parallel_for(0, samples_, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> room(static_cast<std::size_t>(4 * stretches_.whole()));
      for (std::int64_t n = begin; n < end; ++n) of(n, room.data());
    });
  }

  Values values_;
  Stretches stretches_;
  float epsilon_;
  std::int64_t samples_;
  ValueNumber statistics_;
  dnnl::memory x_, y_, scale_, shift_, found_, given_, sums_;
  std::optional<Contribution> into_x_, into_scale_, into_shift_;
};

}  // namespace

bool group_norm_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const bool is_instance = node.op == "InstanceNormalization";
  if ((!is_instance && node.op != "GroupNormalization") || !compiler.is_real(compiler.input(0))) return false;
  GroupNorm::Values values{compiler.input(0), compiler.input(1), compiler.input(2), {}};
  const Value in = compiler.value(values.x);
  for (const ValueNumber each : {values.scale, values.shift})
    if (compiler.value(each).dtype != at::kFloat) return false;
  if (std::find(in.dims.begin(), in.dims.end(), 0) != in.dims.end()) return false;
  const std::int64_t channels = in.dims[1];
  Stretches stretches{.count = channels,
                      .pixels = 1,
                      .lanes = 1,
                      .channels = channels,
                      .groups = is_instance ? channels : node.integer("num_groups", 1)};
  for (std::size_t d = 2; d < in.dims.size(); ++d) stretches.pixels *= in.dims[d];
  if (in.is_blocked) {
    stretches.lanes = compiler.has_halves() ? channels : channel_block();
    stretches.count = compiler.has_halves() ? 1 : whole_blocks(channels) / channel_block();
  }
  const bool wants =
      in.wants_gradient || compiler.wants_gradient(values.scale) || compiler.wants_gradient(values.shift);
  values.y = compiler.make(in.dims, in.view.layout, wants, in.is_blocked);
  compiler.emit<GroupNorm>({values.y}, values, stretches, static_cast<float>(node.number("epsilon", 1e-5)));
  compiler.give(node.outputs[0], values.y);
  return true;
}

}  // namespace compiled
