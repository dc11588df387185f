// Resize of images: each pixel that comes out is a sum of some that go in, with weights of its row times weights of its column. The gradient is the
// same with what goes in and out exchanged.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "compiler.hpp"
#include "lanes.hpp"

namespace compiled {
namespace {

/// For each place along one side, the places that it is the sum of: those from first[i] to first[i + 1].
struct Taps {
  std::vector<std::int64_t> first = {0}, places;
  std::vector<float> weights;

  void add(std::int64_t place, float weight) {
    places.push_back(place);
    weights.push_back(weight);
  }
  void close() { first.push_back(std::ssize(places)); }
  std::int64_t size() const { return std::ssize(first) - 1; }

  /// The places that each of `count` is a part of.
  Taps turned(std::int64_t count) const {
    std::vector<std::vector<std::pair<std::int64_t, float>>> found(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < size(); ++i)
      for (auto k = static_cast<std::size_t>(first[i]); k < static_cast<std::size_t>(first[i + 1]); ++k)
        found[static_cast<std::size_t>(places[k])].emplace_back(i, weights[k]);
    Taps taps;
    for (const auto& each : found) {
      for (const auto& [place, weight] : each) taps.add(place, weight);
      taps.close();
    }
    return taps;
  }
};

enum class Mode : std::uint8_t { nearest, linear, corners };

/// As LibTorch has it, in its single precision. `scale`: as the node gives it, or nothing.
Taps taps_of(Mode mode, std::int64_t in, std::int64_t out, std::optional<double> scale) {
  const float step = mode == Mode::corners
                         ? (out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0.0f)
                     : scale ? static_cast<float>(1.0 / *scale)
                             : static_cast<float>(in) / static_cast<float>(out);
  Taps taps;
  for (std::int64_t i = 0; i < out; ++i) {
    const auto at = static_cast<float>(i);
    if (in == out) {  // whatever the scale
      taps.add(i, 1.0f);
    } else if (mode == Mode::nearest) {
      taps.add(std::min(static_cast<std::int64_t>(std::floor(at * step)), in - 1), 1.0f);
    } else {
      const float place = mode == Mode::corners ? at * step : (at + 0.5f) * step - 0.5f;
      const auto low = static_cast<std::int64_t>(place);  // 0 for places ahead of the first
      const std::int64_t high = std::min(low + 1, in - 1);
      const float share = std::max(place - static_cast<float>(low), 0.0f);
      taps.add(low, 1.0f - share);
      if (share > 0.0f) taps.add(high, share);
    }
    taps.close();
  }
  return taps;
}

/// Images whose pixels lie behind each other, each with its channels: of what goes in.
struct Pixels {
  std::int64_t channels, height, width;
};

/// Some channels of one pixel.
template <std::int64_t lanes, class T>
PART_OF_EACH void sum_lanes(T* to, const T* from, const Taps& rows, std::int64_t h, const Taps& columns,
                            std::int64_t w, const Pixels& in) {
  float sums[lanes] = {};
  for (std::int64_t r = rows.first[h]; r < rows.first[h + 1]; ++r)
    for (std::int64_t c = columns.first[w]; c < columns.first[w + 1]; ++c) {
      const T* const pixel = from + (rows.places[r] * in.width + columns.places[c]) * in.channels;
      const float weight = rows.weights[r] * columns.weights[c];
      for (std::int64_t i = 0; i < lanes; ++i) sums[i] += weight * wide(pixel[i]);
    }
  for (std::int64_t i = 0; i < lanes; ++i) put(to[i], sums[i]);
}

/// Rows of what comes out, counted through all images.
template <class T>
PART_OF_EACH void sum_rows_of(T* to, const T* from, const Taps& rows, const Taps& columns, const Pixels& in,
                              std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const image = from + row / rows.size() * in.height * in.width * in.channels;
    const std::int64_t h = row % rows.size();
    for (std::int64_t w = 0; w < columns.size(); ++w) {
      T* const pixel = to + (row * columns.size() + w) * in.channels;
      std::int64_t c = 0;
      for (; c + 16 <= in.channels; c += 16) sum_lanes<16>(pixel + c, image + c, rows, h, columns, w, in);
      for (; c + 8 <= in.channels; c += 8) sum_lanes<8>(pixel + c, image + c, rows, h, columns, w, in);
      for (; c < in.channels; ++c) sum_lanes<1>(pixel + c, image + c, rows, h, columns, w, in);
    }
  }
}
TRAINYARD_FOR_EACH_ISA void resize_part(float* to, const float* from, const Taps& rows, const Taps& columns,
                                        const Pixels& in, std::int64_t begin, std::int64_t end) {
  sum_rows_of(to, from, rows, columns, in, begin, end);
}
TRAINYARD_FOR_EACH_ISA void resize_part(Half* to, const Half* from, const Taps& rows, const Taps& columns,
                                        const Pixels& in, std::int64_t begin, std::int64_t end) {
  sum_rows_of(to, from, rows, columns, in, begin, end);
}

class Resize final : public Instruction {
 public:
  Resize(Compiler& compiler, ValueNumber x, ValueNumber y, Taps rows, Taps columns)
      : x_(x),
        y_(y),
        rows_(std::move(rows)),
        columns_(std::move(columns)),
        from_(compiler.memory(x)),
        to_(compiler.memory(y)) {
    const Dims &in = compiler.value(x).dims, &out = compiler.value(y).dims;
    const std::int64_t channels = compiler.has_halves() ? in[1] : channel_block();
    given_ = {channels, in[2], in[3]};
    made_ = {channels, out[2], out[3]};
    rows_back_ = rows_.turned(in[2]);
    columns_back_ = columns_.turned(in[3]);
  }
  void forward(const Pass&) override { resize(to_, from_, rows_, columns_, given_); }
  void plan_backward(Compiler& compiler) override {
    gradient_ = *compiler.gradient(y_);
    into_ = compiler.contribute(x_);
  }
  void backward(const Pass&) override {
    resize(into_.memory, gradient_, rows_back_, columns_back_, made_);
    into_.finish();
  }

 private:
  static void resize(const dnnl::memory& to, const dnnl::memory& from, const Taps& rows, const Taps& columns,
                     const Pixels& in) {
    const std::int64_t row = columns.size() * in.channels, count = elements(to) / row;
    typed(
        [&](auto* into, auto* of) {
          at::parallel_for(0, count, std::max<std::int64_t>(1, (1 << 14) / row),
                           [&](std::int64_t begin, std::int64_t end) {
                             resize_part(into, of, rows, columns, in, begin, end);
                           });
        },
        to, from);
  }

  ValueNumber x_, y_;
  Taps rows_, columns_, rows_back_, columns_back_;
  Pixels given_{}, made_{};
  dnnl::memory from_, to_, gradient_;
  Contribution into_;
};

/// Height and width alone, as the graph has it.
std::optional<double> scale_of(const Compiler& compiler, std::size_t side) {
  if (!compiler.has_input(2)) return std::nullopt;
  const auto id = static_cast<std::size_t>(compiler.node().inputs[2]);
  return compiler.graph().values[id].initializer[static_cast<std::int64_t>(side)].item<double>();
}

}  // namespace

bool resize_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  if (node.op != "Resize" || !compiler.is_real(compiler.input(0))) return false;
  const Dims in = compiler.value(compiler.input(0)).dims, out = compiler.dims_of(node.outputs[0]);
  const Mode mode = node.text("mode", "nearest") == "nearest" ? Mode::nearest
                    : node.text("coordinate_transformation_mode", "half_pixel") == "align_corners"
                        ? Mode::corners
                        : Mode::linear;
  const ValueNumber x = compiler.in_blocks(compiler.input(0));
  const ValueNumber y = compiler.make(out, compiler.image(out), compiler.wants_gradient(x), true);
  compiler.emit<Resize>({y}, x, y, taps_of(mode, in[2], out[2], scale_of(compiler, 0)),
                        taps_of(mode, in[3], out[3], scale_of(compiler, 1)));
  compiler.give(node.outputs[0], y);
  return true;
}

}  // namespace compiled
