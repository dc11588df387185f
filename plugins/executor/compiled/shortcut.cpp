// The shortcut without parameters of a residual network: every second pixel, and channels of zeros before and
// behind (He et al., "Deep residual learning for image recognition", CVPR 2016, section 3.3, option A), which a
// graph has as two Slices and a Pad.
#include <algorithm>
#include <cstring>

#include "compiler.hpp"
#include "loops.hpp"

namespace compiled {
namespace {

/// In blocks of channels, whose number need not be a multiple of what is put before them, or of halves by pixels: one block of
/// all channels then.
class Shortcut final : public Instruction {
 public:
  Shortcut(Compiler& compiler, ValueNumber x, ValueNumber y, std::int64_t before, std::int64_t stride)
      : x_(x),
        y_(y),
        before_(before),
        stride_(stride),
        in_(compiler.value(x).dims),
        out_(compiler.value(y).dims),
        whole_in_(compiler.value(x).view.layout.get_dims()[1]),
        whole_out_(compiler.value(y).view.layout.get_dims()[1]) {
    from_ = compiler.memory(x);
    to_ = compiler.memory(y);
    if (compiler.value(x).dtype != at::kBFloat16) return;
    block_in_ = whole_in_;
    block_out_ = whole_out_;
  }
  void forward(const Pass&) override {
    std::memset(to_.get_data_handle(), 0, to_.get_desc().get_size());
    typed(
        [&](auto* to, const auto* from) {
          each_run([&](std::int64_t small, std::int64_t large, std::int64_t count) {
            std::copy_n(from + large, count, to + small);
          });
        },
        to_, from_);
  }
  void plan_backward(Compiler& compiler) override {
    given_ = *compiler.gradient(y_);
    into_ = compiler.contribute(x_);
  }
  void backward(const Pass&) override {
    std::memset(into_.memory.get_data_handle(), 0, into_.memory.get_desc().get_size());
    typed(
        [&](auto* to, const auto* from) {
          each_run([&](std::int64_t small, std::int64_t large, std::int64_t count) {
            std::copy_n(from + small, count, to + large);
          });
        },
        into_.memory, given_);
    into_.finish();
  }

 private:
  /// `move(of y, of x, floats)` for all that y has of x: channels of a pixel that lie beside each other in both.
  template <class Move>
  void each_run(const Move& move) const {
    for (std::int64_t n = 0; n < out_[0]; ++n)
      for (std::int64_t first = 0; first < in_[1];) {
        const std::int64_t at = first + before_;
        const std::int64_t run =
            std::min({block_in_ - first % block_in_, block_out_ - at % block_out_, in_[1] - first});
        const std::int64_t of_x =
            (n * whole_in_ / block_in_ + first / block_in_) * in_[2] * in_[3] * block_in_ + first % block_in_;
        const std::int64_t of_y =
            (n * whole_out_ / block_out_ + at / block_out_) * out_[2] * out_[3] * block_out_ +
            at % block_out_;
        for (std::int64_t h = 0; h < out_[2]; ++h)
          for (std::int64_t w = 0; w < out_[3]; ++w)
            move(of_y + (h * out_[3] + w) * block_out_,
                 of_x + (h * stride_ * in_[3] + w * stride_) * block_in_, run);
        first += run;
      }
  }

  ValueNumber x_, y_;
  std::int64_t before_, stride_;
  Dims in_, out_;
  std::int64_t whole_in_, whole_out_, block_in_ = channel_block(), block_out_ = channel_block();
  dnnl::memory from_, to_, given_;
  Contribution into_;
};

/// The only number of a constant input of integers.
std::optional<std::int64_t> number(const Compiler& compiler, const trainyard::Node& node, std::size_t input) {
  if (input >= node.inputs.size() || node.inputs[input] == trainyard::no_value) return std::nullopt;
  const at::Tensor& tensor =
      compiler.graph().values[static_cast<std::size_t>(node.inputs[input])].initializer;
  if (!tensor.defined() || tensor.numel() != 1 || tensor.scalar_type() != at::kLong) return std::nullopt;
  return *tensor.const_data_ptr<std::int64_t>();
}

/// The step of a slice that takes all of an axis from its start.
std::optional<std::int64_t> step_of(const Compiler& compiler, const trainyard::Node& node, std::int64_t axis,
                                    std::int64_t length) {
  if (node.op != "Slice" || number(compiler, node, 1) != 0 || number(compiler, node, 3) != axis)
    return std::nullopt;
  const std::optional<std::int64_t> end = number(compiler, node, 2), step = number(compiler, node, 4);
  return end && *end >= length && step && *step >= 1 ? step : std::nullopt;
}

}  // namespace

bool shortcut_rule(Compiler& compiler) {
  const trainyard::Node& rows = compiler.node();
  if (rows.op != "Slice") return false;
  const ValueNumber given = compiler.input(0);
  if (!compiler.value(given).is_blocked) return false;
  const Dims in = compiler.value(given).dims;
  const std::optional<std::size_t> second = compiler.only_reader(rows.outputs[0]);
  if (!second) return false;
  const std::optional<std::int64_t> step = step_of(compiler, rows, 2, in[2]);
  if (!step || step_of(compiler, compiler.node(*second), 3, in[3]) != step) return false;
  const std::optional<std::size_t> third = compiler.only_reader(compiler.node(*second).outputs[0]);
  if (!third || compiler.node(*third).op != "Pad" ||
      compiler.node(*third).text("mode", "constant") != "constant")
    return false;
  const trainyard::Node& pad = compiler.node(*third);
  const Dims out = compiler.dims_of(pad.outputs[0]);
  const at::Tensor& pads = compiler.graph().values[static_cast<std::size_t>(pad.inputs[1])].initializer;
  // Of the four axes, or of those that the last input names.
  const bool named = pad.inputs.size() > 3 && number(compiler, pad, 3) == 1;
  if (!pads.defined() || pads.scalar_type() != at::kLong || pads.numel() != (named ? 2 : 8) ||
      out[2] != (in[2] + *step - 1) / *step || out[3] != (in[3] + *step - 1) / *step ||
      (pad.inputs.size() > 2 && pad.inputs[2] != trainyard::no_value))
    return false;
  const std::int64_t before = pads.const_data_ptr<std::int64_t>()[named ? 0 : 1];
  if (before < 0 || out[1] < before + in[1]) return false;
  compiler.take(*second);
  compiler.take(*third);
  const ValueNumber y = compiler.make(out, compiler.image(out), compiler.wants_gradient(given), true);
  compiler.emit<Shortcut>({y}, given, y, before, *step);
  compiler.give(pad.outputs[0], y);
  return true;
}

}  // namespace compiled
