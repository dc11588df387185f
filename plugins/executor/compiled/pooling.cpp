// MaxPool, AveragePool and GlobalAveragePool over images, in the layout that the image has.
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

std::optional<algorithm> algorithm_of(const trainyard::Node& node) {
  if (node.op == "MaxPool") return algorithm::pooling_max;
  if (node.op == "GlobalAveragePool") return algorithm::pooling_avg_include_padding;
  if (node.op != "AveragePool") return std::nullopt;
  return node.integer("count_include_pad", 0) != 0 ? algorithm::pooling_avg_include_padding
                                                   : algorithm::pooling_avg_exclude_padding;
}

}  // namespace

bool pooling_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const std::optional<algorithm> how = algorithm_of(node);
  if (!how) return false;
  const ValueNumber x = compiler.input(0);
  const Value in = compiler.value(x);
  if (in.dims.size() != 4 || in.dtype != at::kFloat || node.outputs.size() != 1) return false;
  Dims kernel = in.dims;
  kernel.erase(kernel.begin(), kernel.begin() + 2);
  if (node.op != "GlobalAveragePool") kernel = node.integers("kernel_shape", {});
  const std::optional<Window> window = window_of(node, kernel);
  if (!window || window->dilated()) return false;
  const Dims dims = compiler.dims_of(node.outputs[0]);
  Dims layout_dims = dims;
  layout_dims[1] = in.view.layout.get_dims()[1];
  const bool is_blocked = in.is_blocked;
  const ValueNumber y =
      compiler.make(dims, is_blocked ? blocked(layout_dims) : plain(dims), in.wants_gradient, is_blocked);
  compiler.emit<Pooling>({y}, *how, *window, x, y);
  compiler.give(node.outputs[0], y);
  return true;
}

}  // namespace compiled
