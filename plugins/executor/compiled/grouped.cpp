// Conv in groups of channels, and ConvTranspose, computed in floats: with
// bfloat16 oneDNN 3.2 takes twice the time for the first, ten times and more
// with strides. Channels come in blocks, filled up with zeros, as they have
// filters of zeros; those of groups that fill no block by pixels. A group for
// each channel alone (depthwise) is filled up with groups.
#include <ATen/Parallel.h>

#include <algorithm>
#include <string_view>

#include "filled.hpp"
#include "filters.hpp"
#include "window.hpp"

namespace compiled {
namespace {

using dnnl::algorithm;
using Arguments = std::vector<std::pair<int, dnnl::memory>>;

/// An image as it lies in the plan, and as primitives take it: of its own
/// channels, and with those that fill it up.
struct Seen {
  Layout lies, as, whole;
};

/// The memory that a primitive has for an image in `memory`: that one, or one
/// of its own, which is copied from there or to there.
class Stage {
 public:
  enum class Way : std::uint8_t { in, out };
  Stage() = default;
  Stage(Compiler& compiler, const Seen& seen, const dnnl::memory& memory, Way way) : memory_(memory) {
    if (seen.lies == seen.as) return;
    memory_ = compiler.scratch(seen.whole);
    move_ = way == Way::in ? reorder(memory, seen.lies, memory_, seen.as)
                           : reorder(memory_, seen.as, memory, seen.lies);
  }
  const dnnl::memory& memory() const { return memory_; }
  void move() const {
    if (move_) move_.run();
  }

 private:
  dnnl::memory memory_;
  Call move_;
};

/// A family of primitives with the same arguments.
struct Convolutions {
  static constexpr auto how = algorithm::convolution_direct;
  using Forward = dnnl::convolution_forward;
  using OfData = dnnl::convolution_backward_data;
  using OfWeights = dnnl::convolution_backward_weights;
};
struct Deconvolutions {
  static constexpr auto how = algorithm::deconvolution_direct;
  using Forward = dnnl::deconvolution_forward;
  using OfData = dnnl::deconvolution_backward_data;
  using OfWeights = dnnl::deconvolution_backward_weights;
};

template <class Family>
struct WindowedLayer {
  using ForwardMade = typename Family::Forward::primitive_desc;

  Window window;
  Seen x, y;
  FiltersLayout filters;
  bool has_bias;
  std::int64_t outputs = y.whole.get_dims()[1];
  Layout weight = {filters.whole, f32, dnnl::memory::format_tag::any};
  Layout bias = has_bias ? row(outputs) : Layout();

  ForwardMade forward() const {
    const Window& w = window;
    return {engine(),    dnnl::prop_kind::forward_training,
            Family::how, x.whole,
            weight,      bias,
            y.whole,     w.strides,
            w.dilations, w.begin,
            w.end,       {},
            true};
  }
  typename Family::OfData::primitive_desc data(const ForwardMade& hint) const {
    const Window& w = window;
    return {engine(),    Family::how, x.whole, weight, y.whole, w.strides,
            w.dilations, w.begin,     w.end,   hint,   {},      true};
  }
  typename Family::OfWeights::primitive_desc weights(const ForwardMade& hint) const {
    const Window& w = window;
    return {engine(),    Family::how, x.whole, weight, bias, y.whole, w.strides,
            w.dilations, w.begin,     w.end,   hint,   {},   true};
  }
};

/// Images in blocks of channels, and the window over them.
struct FilterSums {
  std::int64_t count = 0, blocks = 0;
  Dims in, out;  ///< height and width
  Window window;
};

/// The gradients of the filters of one block of channels, in the order of the
/// parameter: for filters larger than 3 x 3 oneDNN 3.2 has no kernel.
template <int block>
inline __attribute__((always_inline)) void filter_sums(float* filters, const float* x, const float* given,
                                                       std::int64_t of_block, const FilterSums& s) {
  const Window& w = s.window;
  const std::int64_t places = w.kernel[0] * w.kernel[1];
  std::memset(filters, 0, static_cast<std::size_t>(places * block) * sizeof(float));
  for (std::int64_t n = 0; n < s.count; ++n) {
    const float* const image = x + (n * s.blocks + of_block) * s.in[0] * s.in[1] * block;
    const float* const of_image = given + (n * s.blocks + of_block) * s.out[0] * s.out[1] * block;
    for (std::int64_t place = 0; place < places; ++place) {
      const std::int64_t down = place / w.kernel[1] * (w.dilations[0] + 1) - w.begin[0],
                         right = place % w.kernel[1] * (w.dilations[1] + 1) - w.begin[1];
      float sums[block] = {};
      for (std::int64_t h = 0; h < s.out[0]; ++h) {
        const std::int64_t row = h * w.strides[0] + down;
        if (row < 0 || row >= s.in[0]) continue;
        for (std::int64_t v = 0; v < s.out[1]; ++v) {
          const std::int64_t column = v * w.strides[1] + right;
          if (column < 0 || column >= s.in[1]) continue;
          for (int c = 0; c < block; ++c)
            sums[c] += image[(row * s.in[1] + column) * block + c] * of_image[(h * s.out[1] + v) * block + c];
        }
      }
      for (int c = 0; c < block; ++c) filters[c * places + place] += sums[c];
    }
  }
}
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) void filter_gradients(
    float* filters, const float* x, const float* given, std::int64_t of_block, const FilterSums& s) {
  channel_block() == 16 ? filter_sums<16>(filters, x, given, of_block, s)
                        : filter_sums<8>(filters, x, given, of_block, s);
}

template <class Made>
bool has_kernel(const Made& made) {
  return made && std::string_view(made.impl_info_str()).find("ref") == std::string_view::npos;
}

/// Blocks of channels of which each has a filter of its own: of five
/// dimensions, one output and one input.
template <class Family>
bool is_summed(const WindowedLayer<Family>&) {
  return false;
}
bool is_summed(const WindowedLayer<Convolutions>& layer) {
  const Dims& filters = layer.filters.whole;
  return filters.size() == 5 && filters[1] == 1 && filters[2] == 1;
}

struct WindowedValues {
  ValueNumber x, weight;
  std::optional<ValueNumber> bias;
  ValueNumber y;
};

template <class Family>
class Windowed final : public Instruction {
 public:
  Windowed(Compiler& compiler, const WindowedLayer<Family>& layer, const WindowedValues& values)
      : layer_(layer),
        values_(values),
        hint_(layer.forward()),
        x_(compiler, layer.x, compiler.memory(values.x), Stage::Way::in),
        y_(compiler, layer.y, compiler.memory(values.y), Stage::Way::out),
        filters_(compiler, values.weight, layer.filters, hint_.weights_desc()) {
    Arguments arguments = {
        {DNNL_ARG_SRC, x_.memory()}, {DNNL_ARG_WEIGHTS, filters_.memory()}, {DNNL_ARG_DST, y_.memory()}};
    if (values.bias) {
      bias_ = FilledRow(compiler, *values.bias, layer.outputs);
      arguments.emplace_back(DNNL_ARG_BIAS, bias_->memory());
    }
    forward_ = {typename Family::Forward(hint_), arguments};
  }

  void forward(const Pass&) override {
    x_.move();
    filters_.pack();
    if (bias_) bias_->fill();
    forward_.run();
    y_.move();
  }

  void plan_backward(Compiler& compiler) override {
    given_ = Stage(compiler, layer_.y, *compiler.gradient(values_.y), Stage::Way::in);
    if (compiler.wants_gradient(values_.weight) || (values_.bias && compiler.wants_gradient(*values_.bias)))
      plan_weights(compiler);
    if (!compiler.wants_gradient(values_.x)) return;
    const auto made = layer_.data(hint_);
    backward_filters_ = PackedFilters(compiler, values_.weight, layer_.filters, made.weights_desc());
    into_x_ = compiler.contribute(values_.x);
    of_x_ = Stage(compiler, layer_.x, into_x_.memory, Stage::Way::out);
    data_ = {typename Family::OfData(made),
             {{DNNL_ARG_DIFF_DST, given_.memory()},
              {DNNL_ARG_WEIGHTS, backward_filters_.memory()},
              {DNNL_ARG_DIFF_SRC, of_x_.memory()}}};
  }

  void backward(const Pass&) override {
    given_.move();
    if (of_filters_) {
      seen_.move();
      weights_ ? weights_.run() : sum_filters();
      of_filters_->give();
      if (of_bias_) of_bias_->give();
    }
    if (!data_) return;
    backward_filters_.pack();
    data_.run();
    of_x_.move();
    into_x_.finish();
  }

 private:
  void plan_weights(Compiler& compiler) {
    const auto made = layer_.weights(hint_);
    const bool summed = !has_kernel(made);
    of_filters_ = FiltersGradient(compiler, values_.weight, layer_.filters,
                                  summed ? plain(layer_.filters.whole) : made.diff_weights_desc());
    if (values_.bias) of_bias_ = FilledGradient(compiler, *values_.bias, layer_.outputs);
    seen_ = Stage(compiler, layer_.x, compiler.memory(values_.x), Stage::Way::in);
    if (summed) return;
    Arguments arguments = {{DNNL_ARG_SRC, seen_.memory()},
                           {DNNL_ARG_DIFF_DST, given_.memory()},
                           {DNNL_ARG_DIFF_WEIGHTS, of_filters_->memory()}};
    if (values_.bias) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, of_bias_->memory());
    weights_ = {typename Family::OfWeights(made), arguments};
  }

  /// The gradients of filters and bias, by the house's loop.
  void sum_filters() const {
    const Dims in = layer_.x.whole.get_dims(), out = layer_.y.whole.get_dims();
    const Dims& kernel = layer_.window.kernel;
    const std::int64_t block = channel_block(), filter = kernel[0] * kernel[1];
    const FilterSums sums{in[0], layer_.outputs / block, {in[2], in[3]}, {out[2], out[3]}, layer_.window};
    float* const x = floats(seen_.memory());
    float* const given = floats(given_.memory());
    at::parallel_for(0, sums.blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b)
        filter_gradients(floats(of_filters_->memory()) + b * block * filter, x, given, b, sums);
    });
    if (of_bias_)
      sum_pixels(floats(of_bias_->memory()), given, in[0], layer_.outputs, out[2] * out[3], block);
  }

  WindowedLayer<Family> layer_;
  WindowedValues values_;
  typename Family::Forward::primitive_desc hint_;
  Stage x_, y_, given_, seen_, of_x_;  ///< seen_: x in the backward pass
  PackedFilters filters_, backward_filters_;
  std::optional<FilledRow> bias_;
  std::optional<FiltersGradient> of_filters_;
  std::optional<FilledGradient> of_bias_;
  Call forward_, weights_, data_;
  Contribution into_x_;
};

/// Whether oneDNN has what is needed, but for sums that the house has.
template <class Family>
bool has_kernels(const WindowedLayer<Family>& layer) {
  const auto made = layer.forward();
  return has_kernel(made) && has_kernel(layer.data(made)) &&
         (is_summed(layer) || has_kernel(layer.weights(made)));
}

/// What both operators say: channels by group, and the parameter in the
/// primitive's order.
struct Groups {
  std::int64_t count, outputs, inputs;
  bool is_transposed;

  bool is_depthwise() const { return count > 1 && outputs == 1 && inputs == 1; }
  /// Filled up, or nothing where no blocks can be.
  std::optional<Groups> in_blocks() const {
    if (is_depthwise()) return Groups{whole_blocks(count), 1, 1, is_transposed};
    if (count > 1 && (outputs % channel_block() != 0 || inputs % channel_block() != 0)) return std::nullopt;
    return Groups{count, whole_blocks(outputs), whole_blocks(inputs), is_transposed};
  }
  Dims filters(const Dims& kernel) const {
    if (count == 1) return {outputs, inputs, kernel[0], kernel[1]};
    return {count, outputs, inputs, kernel[0], kernel[1]};
  }
  Layout lies(const Dims& kernel) const {
    const Dims dims = filters(kernel);
    if (!is_transposed) return plain(dims);
    const std::int64_t filter = kernel[0] * kernel[1];
    Dims strides = {outputs * inputs * filter, filter, outputs * filter, kernel[1], 1};
    if (count == 1) strides.erase(strides.begin());
    return {dims, f32, strides};
  }
};

template <class Family>
bool windowed(Compiler& compiler, const Groups& groups, WindowedValues values, const Window& window) {
  const Dims in = compiler.value(values.x).dims, out = compiler.dims_of(compiler.node().outputs[0]);
  const bool halves = compiler.has_halves();
  const Layout x = compiler.value(values.x).view.layout, y = halves ? compiler.image(out) : blocked(out);
  std::vector<WindowedLayer<Family>> ways;
  const auto add = [&](const Seen& from, const Seen& to, const Dims& filters) {
    ways.push_back({.window = window,
                    .x = from,
                    .y = to,
                    .filters = {groups.lies(window.kernel), filters},
                    .has_bias = values.bias.has_value()});
  };
  if (const std::optional<Groups> whole = groups.in_blocks()) {
    const auto filled = [](const Layout& lies, const Dims& of, std::int64_t channels) -> Seen {
      return {lies, blocked(of), blocked({of[0], channels, of[2], of[3]})};
    };
    add(filled(halves ? x : blocked(in), in, whole->count * whole->inputs),
        filled(y, out, whole->count * whole->outputs), whole->filters(window.kernel));
  }
  const auto by_pixels = [](const Layout& lies, const Dims& of) -> Seen {
    const Layout pixels(of, f32, dnnl::memory::format_tag::nhwc);
    return {lies, pixels, pixels};
  };
  const bool is_blocked = !halves && compiler.value(values.x).is_blocked;
  add(by_pixels(is_blocked ? blocked(in) : x, in), by_pixels(y, out), groups.filters(window.kernel));
  const auto way = std::find_if(ways.begin(), ways.end(), [](const auto& each) { return has_kernels(each); });
  if (way == ways.end()) return false;
  if (!halves && way->x.as == blocked(in)) values.x = compiler.in_blocks(values.x);
  const bool wants = compiler.wants_gradient(values.x) || compiler.wants_gradient(values.weight) ||
                     (values.bias && compiler.wants_gradient(*values.bias));
  values.y = compiler.make(out, compiler.image(out), wants, true);
  compiler.emit<Windowed<Family>>({values.y}, *way, values);
  compiler.give(compiler.node().outputs[0], values.y);
  return true;
}

}  // namespace

bool grouped_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const std::int64_t count = node.integer("group", 1);
  const bool is_transposed = node.op == "ConvTranspose";
  if (!is_transposed && (node.op != "Conv" || count < 2)) return false;
  WindowedValues values{compiler.input(0), compiler.input(1), {}, {}};
  if (compiler.has_input(2)) values.bias = compiler.input(2);
  const Dims in = compiler.value(values.x).dims, weight = compiler.value(values.weight).dims;
  if (in.size() != 4 || !compiler.is_real(values.x) || !compiler.is_weight(1) ||
      (values.bias && !compiler.is_weight(2)))
    return false;
  std::optional<Window> window = window_of(node, {weight[2], weight[3]});
  if (!window) return false;
  if (!is_transposed)
    return windowed<Convolutions>(compiler, {count, weight[0] / count, weight[1], false}, values, *window);
  const Dims added = node.integers("output_padding", {0, 0});
  for (std::size_t d = 0; d < 2; ++d) window->end[d] -= added[d];
  return windowed<Deconvolutions>(compiler, {count, weight[1], weight[0] / count, true}, values, *window);
}

}  // namespace compiled
