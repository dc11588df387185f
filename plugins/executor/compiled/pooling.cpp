// MaxPool, AveragePool, GlobalAveragePool and ReduceMean of all pixels over images, in the layout that the image has.
#include <algorithm>

#include "compiler.hpp"
#include "window.hpp"

namespace compiled {
namespace {

using dnnl::algorithm;
using PoolingForward = dnnl::pooling_forward;
using Backward = dnnl::pooling_backward;

class Pooling final : public Instruction {
 public:
  Pooling(Compiler& compiler, algorithm how, Window window, ValueNumber x, ValueNumber y)
      : how_(how), window_(std::move(window)), x_(x), y_(y) {
    hint_ = {engine(),
             dnnl::prop_kind::forward_training,
             how,
             compiler.value(x).view.layout,
             compiler.value(y).view.layout,
             window_.strides,
             window_.kernel,
             window_.dilations,
             window_.begin,
             window_.end};
    std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_SRC, compiler.memory(x)},
                                                           {DNNL_ARG_DST, compiler.memory(y)}};
    if (how == algorithm::pooling_max) {
      places_ = compiler.make_bytes(hint_.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, compiler.memory(*places_));
    }
    forward_ = {PoolingForward(hint_), arguments};
  }

  void forward(const Pass&) override { forward_.run(); }

  void plan_backward(Compiler& compiler) override {
    const Backward::primitive_desc made(engine(), how_, compiler.value(x_).view.layout,
                                        compiler.value(y_).view.layout, window_.strides, window_.kernel,
                                        window_.dilations, window_.begin, window_.end, hint_);
    const dnnl::memory given = *compiler.gradient(y_);
    into_ = compiler.contribute(x_);
    std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_DIFF_DST, given},
                                                           {DNNL_ARG_DIFF_SRC, into_.memory}};
    if (places_) arguments.emplace_back(DNNL_ARG_WORKSPACE, compiler.memory(*places_));
    backward_ = {Backward(made), arguments};
  }

  void backward(const Pass&) override {
    backward_.run();
    into_.finish();
  }

 private:
  algorithm how_;
  Window window_;
  ValueNumber x_, y_;
  std::optional<ValueNumber> places_;  ///< of the largest in each window
  PoolingForward::primitive_desc hint_;
  Call forward_, backward_;
  Contribution into_;
};

bool is_mean_of_pixels(const Compiler& compiler) {
  Dims axes = compiler.numbers(1).value_or(Dims());
  for (std::int64_t& axis : axes)
    if (axis < 0) axis += 4;
  std::sort(axes.begin(), axes.end());
  return compiler.node().op == "ReduceMean" && axes == Dims{2, 3};
}

std::optional<algorithm> algorithm_of(const Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  if (node.op == "MaxPool") return algorithm::pooling_max;
  if (node.op == "GlobalAveragePool" || is_mean_of_pixels(compiler))
    return algorithm::pooling_avg_include_padding;
  if (node.op != "AveragePool") return std::nullopt;
  return node.integer("count_include_pad", 0) != 0 ? algorithm::pooling_avg_include_padding
                                                   : algorithm::pooling_avg_exclude_padding;
}

}  // namespace

bool pooling_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const std::optional<algorithm> how = algorithm_of(compiler);
  if (!how) return false;
  ValueNumber x = compiler.input(0);
  if (compiler.value(x).dims.size() != 4 || !compiler.is_real(x) || node.outputs.size() != 1) return false;
  if (compiler.value(x).dtype == at::kBFloat16) x = compiler.in_blocks(x);
  const Value in = compiler.value(x);
  Dims kernel = in.dims;
  kernel.erase(kernel.begin(), kernel.begin() + 2);
  const bool is_whole = node.op == "GlobalAveragePool" || node.op == "ReduceMean";
  if (!is_whole) kernel = node.integers("kernel_shape", {});
  const std::optional<Window> window = window_of(node, kernel);
  if (!window || window->dilated()) return false;
  const Dims given = compiler.dims_of(node.outputs[0]);
  const Dims dims = is_whole ? Dims{in.dims[0], in.dims[1], 1, 1} : given;
  const ValueNumber y = compiler.make(dims, in.is_blocked ? compiler.image(dims) : plain(dims),
                                      in.wants_gradient, in.is_blocked);
  compiler.emit<Pooling>({y}, *how, *window, x, y);
  compiler.give(node.outputs[0], given == dims ? y : reshaped(compiler, compiler.in_plain(y), given));
  return true;
}

}  // namespace compiled
