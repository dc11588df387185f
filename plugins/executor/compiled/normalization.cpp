// BatchNormalization with a ReLU behind it, and LayerNormalization over the last dimension.
#include <cmath>
#include <cstring>

#include "filled.hpp"

namespace compiled {
namespace {

using Tag = dnnl::memory::format_tag;
using Flags = dnnl::normalization_flags;
using dnnl::prop_kind;

/// In a training pass it takes the statistics of the batch and lets the running ones follow.
class BatchNorm final : public Instruction {
 public:
  struct Parts {
    ValueNumber x, scale, shift, mean, variance, y;
  };
  BatchNorm(Compiler& compiler, const Parts& parts, double epsilon, double momentum, bool relu)
      : parts_(parts), epsilon_(static_cast<float>(epsilon)), momentum_(static_cast<float>(momentum)) {
    const Layout& x = compiler.value(parts.x).view.layout;
    flags_ = Flags::use_scale | Flags::use_shift;
    if (relu) flags_ = flags_ | Flags::fuse_norm_relu;
    hint_ = {engine(), prop_kind::forward_training, x, compiler.value(parts.y).view.layout, epsilon_, flags_};
    const Dims& dims = compiler.value(parts.x).dims;
    channels_ = dims[1];
    whole_ = x.get_dims()[1];
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (d != 1) count_ *= dims[d];
    batch_mean_ = compiler.make({whole_}, row(whole_), false);
    batch_variance_ = compiler.make({whole_}, row(whole_), false);
    running_mean_ = compiler.memory(parts.mean);
    running_variance_ = compiler.memory(parts.variance);
    scale_ = FilledRow(compiler, parts.scale, whole_);
    shift_ = FilledRow(compiler, parts.shift, whole_);
    mean_ = compiler.memory(batch_mean_);
    variance_ = compiler.memory(batch_variance_);
    std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_SRC, compiler.memory(parts.x)},
                                                           {DNNL_ARG_DST, compiler.memory(parts.y)},
                                                           {DNNL_ARG_SCALE, scale_.memory()},
                                                           {DNNL_ARG_SHIFT, shift_.memory()},
                                                           {DNNL_ARG_MEAN, mean_},
                                                           {DNNL_ARG_VARIANCE, variance_}};
    if (relu) {
      signs_ = compiler.make_bytes(hint_.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, compiler.memory(*signs_));
    }
    forward_ = {dnnl::batch_normalization_forward(hint_), arguments};
  }

  void forward(const Pass&) override {
    scale_.fill();
    shift_.fill();
    forward_.run();
    // The running variance follows the unbiased estimate, as PyTorch has it.
    const float unbiased = static_cast<float>(count_) / static_cast<float>(count_ - 1);
    float* const mean = floats(running_mean_);
    float* const variance = floats(running_variance_);
    for (std::int64_t c = 0; c < channels_; ++c) {
      mean[c] += momentum_ * (floats(mean_)[c] - mean[c]);
      variance[c] += momentum_ * (floats(variance_)[c] * unbiased - variance[c]);
    }
  }

  void plan_backward(Compiler& compiler) override {
    const Layout& x = compiler.value(parts_.x).view.layout;
    const dnnl::batch_normalization_backward::primitive_desc made(engine(), prop_kind::backward, x, x, x,
                                                                  epsilon_, flags_, hint_);
    backward_scale_ = FilledRow(compiler, parts_.scale, whole_);
    into_x_ = compiler.contribute(parts_.x);
    of_scale_ = FilledGradient(compiler, parts_.scale, whole_);
    of_shift_ = FilledGradient(compiler, parts_.shift, whole_);
    std::vector<std::pair<int, dnnl::memory>> arguments = {
        {DNNL_ARG_SRC, compiler.memory(parts_.x)},     {DNNL_ARG_DIFF_DST, *compiler.gradient(parts_.y)},
        {DNNL_ARG_MEAN, compiler.memory(batch_mean_)}, {DNNL_ARG_VARIANCE, compiler.memory(batch_variance_)},
        {DNNL_ARG_SCALE, backward_scale_.memory()},    {DNNL_ARG_DIFF_SRC, into_x_.memory},
        {DNNL_ARG_DIFF_SCALE, of_scale_.memory()},     {DNNL_ARG_DIFF_SHIFT, of_shift_.memory()}};
    if (signs_) arguments.emplace_back(DNNL_ARG_WORKSPACE, compiler.memory(*signs_));
    backward_ = {dnnl::batch_normalization_backward(made), arguments};
  }

  void backward(const Pass&) override {
    backward_scale_.fill();
    backward_.run();
    into_x_.finish();
    of_scale_.give();
    of_shift_.give();
  }

 private:
  Parts parts_;
  float epsilon_, momentum_;
  Flags flags_{};
  std::int64_t channels_ = 0, whole_ = 0, count_ = 1;
  dnnl::batch_normalization_forward::primitive_desc hint_;
  ValueNumber batch_mean_ = 0, batch_variance_ = 0;
  std::optional<ValueNumber> signs_;
  FilledRow scale_, shift_, backward_scale_;
  FilledGradient of_scale_, of_shift_;
  dnnl::memory running_mean_, running_variance_, mean_, variance_;
  Call forward_, backward_;
  Contribution into_x_;
};

/// In an evaluation it takes the running statistics.
class RunningNorm final : public Instruction {
 public:
  RunningNorm(Compiler& compiler, const BatchNorm::Parts& parts, double epsilon, bool relu) {
    const Layout &x = compiler.value(parts.x).view.layout, &y = compiler.value(parts.y).view.layout;
    Flags flags = Flags::use_global_stats | Flags::use_scale | Flags::use_shift;
    if (relu) flags = flags | Flags::fuse_norm_relu;
    std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_SRC, compiler.memory(parts.x)},
                                                           {DNNL_ARG_DST, compiler.memory(parts.y)}};
    for (const auto& [which, parameter] : {std::pair{DNNL_ARG_SCALE, parts.scale},
                                           {DNNL_ARG_SHIFT, parts.shift},
                                           {DNNL_ARG_MEAN, parts.mean},
                                           {DNNL_ARG_VARIANCE, parts.variance}}) {
      rows_.emplace_back(compiler, parameter, x.get_dims()[1]);
      arguments.emplace_back(which, rows_.back().memory());
    }
    forward_ = {dnnl::batch_normalization_forward(
                    {engine(), prop_kind::forward_inference, x, y, static_cast<float>(epsilon), flags}),
                arguments};
  }
  void forward(const Pass&) override {
    for (const FilledRow& each : rows_) each.fill();
    forward_.run();
  }
  void plan_backward(Compiler&) override {}  // of an evaluation neither is called
  void backward(const Pass&) override {}

 private:
  std::vector<FilledRow> rows_;
  Call forward_;
};

class LayerNorm final : public Instruction {
 public:
  LayerNorm(Compiler& compiler, ValueNumber x, ValueNumber scale, std::optional<ValueNumber> shift,
            ValueNumber y, double epsilon)
      : x_(x), scale_(scale), shift_(shift), y_(y), epsilon_(static_cast<float>(epsilon)) {
    const Dims& dims = compiler.value(x).dims;
    const std::int64_t width = dims.back();
    std::int64_t rows = 1;
    for (std::size_t d = 0; d + 1 < dims.size(); ++d) rows *= dims[d];
    layout_ = plain({rows, width});
    out_ = plain({rows, width}, compiler.value(y).view.layout.get_data_type());
    flags_ = shift ? Flags::use_scale | Flags::use_shift : Flags::use_scale;
    hint_ = {engine(), prop_kind::forward_training, layout_, out_, epsilon_, flags_};
    mean_ = compiler.make({rows}, row(rows), false);
    variance_ = compiler.make({rows}, row(rows), false);
    std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_SRC, compiler.memory(x, layout_)},
                                                           {DNNL_ARG_DST, compiler.memory(y, out_)},
                                                           {DNNL_ARG_MEAN, compiler.memory(mean_)},
                                                           {DNNL_ARG_VARIANCE, compiler.memory(variance_)},
                                                           {DNNL_ARG_SCALE, compiler.memory(scale)}};
    if (shift) arguments.emplace_back(DNNL_ARG_SHIFT, compiler.memory(*shift));
    forward_ = {dnnl::layer_normalization_forward(hint_), arguments};
  }

  void forward(const Pass&) override { forward_.run(); }

  void plan_backward(Compiler& compiler) override {
    const dnnl::layer_normalization_backward::primitive_desc made(engine(), prop_kind::backward, layout_,
                                                                  out_, layout_, epsilon_, flags_, hint_);
    into_x_ = compiler.contribute(x_);
    into_scale_ = compiler.contribute(scale_);
    std::vector<std::pair<int, dnnl::memory>> arguments = {
        {DNNL_ARG_SRC, compiler.memory(x_, layout_)}, {DNNL_ARG_DIFF_DST, *compiler.gradient(y_)},
        {DNNL_ARG_MEAN, compiler.memory(mean_)},      {DNNL_ARG_VARIANCE, compiler.memory(variance_)},
        {DNNL_ARG_SCALE, compiler.memory(scale_)},    {DNNL_ARG_DIFF_SRC, into_x_.memory},
        {DNNL_ARG_DIFF_SCALE, into_scale_.memory}};
    if (shift_) {
      into_shift_ = compiler.contribute(*shift_);
      arguments.emplace_back(DNNL_ARG_SHIFT, compiler.memory(*shift_));
      arguments.emplace_back(DNNL_ARG_DIFF_SHIFT, into_shift_->memory);
    }
    backward_ = {dnnl::layer_normalization_backward(made), arguments};
  }

  void backward(const Pass&) override {
    backward_.run();
    into_x_.finish();
    into_scale_.finish();
    if (into_shift_) into_shift_->finish();
  }

 private:
  ValueNumber x_, scale_;
  std::optional<ValueNumber> shift_;
  ValueNumber y_, mean_ = 0, variance_ = 0;
  float epsilon_;
  Layout layout_, out_;
  Flags flags_{};
  dnnl::layer_normalization_forward::primitive_desc hint_;
  Call forward_, backward_;
  Contribution into_x_, into_scale_;
  std::optional<Contribution> into_shift_;
};

bool batch_norm(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const ValueNumber x = compiler.input(0);
  const Value in = compiler.value(x);
  std::int64_t count = in.dims[0];
  for (std::size_t d = 2; d < in.dims.size(); ++d) count *= in.dims[d];
  if (in.dims.size() != 4 || !compiler.is_real(x) || (compiler.is_training() && count < 2)) return false;
  for (std::size_t i = 1; i < 5; ++i)
    if (!compiler.is_constant(i)) return false;
  trainyard::ValueId output = node.outputs[0];
  const bool relu = compiler.absorb("Relu", output);
  const bool wants = in.wants_gradient || compiler.wants_gradient(compiler.input(1)) ||
                     compiler.wants_gradient(compiler.input(2));
  const ValueNumber y = compiler.make(in.dims, in.view.layout, wants, in.is_blocked);
  const BatchNorm::Parts parts{x, compiler.input(1), compiler.input(2), compiler.input(3), compiler.input(4),
                               y};
  const double epsilon = node.number("epsilon", 1e-5);
  if (compiler.is_training())
    compiler.emit<BatchNorm>({y}, parts, epsilon, 1.0 - node.number("momentum", 0.9), relu);
  else
    compiler.emit<RunningNorm>({y}, parts, epsilon, relu);
  compiler.give(output, y);
  return true;
}

bool layer_norm(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const ValueNumber x = compiler.in_plain(compiler.input(0));
  const Value in = compiler.value(x);
  const std::int64_t axis = node.integer("axis", -1), last = static_cast<std::int64_t>(in.dims.size()) - 1;
  if ((axis != -1 && axis != last) || in.dtype != at::kFloat || !compiler.is_constant(1) || last < 1)
    return false;
  std::optional<ValueNumber> shift;
  if (compiler.has_input(2)) shift = compiler.input(2);
  const ValueNumber scale = compiler.input(1);
  if (!compiler.is_reached(x) || !compiler.is_reached(scale) || (shift && !compiler.is_reached(*shift)))
    return false;
  const Layout as = plain(in.dims, compiler.is_read_as_half(node.outputs[0]) ? bf16 : f32);
  const ValueNumber y = compiler.make(in.dims, as, in.wants_gradient);
  compiler.emit<LayerNorm>({y}, x, scale, shift, y, node.number("epsilon", 1e-5));
  compiler.give(node.outputs[0], y);
  return true;
}

}  // namespace

bool normalization_rule(Compiler& compiler) {
  if (compiler.node().op == "BatchNormalization") return batch_norm(compiler);
  if (compiler.node().op == "LayerNormalization") return layer_norm(compiler);
  return false;
}

}  // namespace compiled
