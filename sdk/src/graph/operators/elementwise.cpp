// Operators that work element by element.
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/selu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tanh.h>

#include "operator.hpp"

namespace trainyard {
namespace {

std::vector<TensorType> infer_same(const NodeView& op) {
  return {{op.shape(0), op.dtype(0)}};
}

std::vector<TensorType> infer_floating(const NodeView& op) {
  op.require_floating(0);
  return infer_same(op);
}

template <at::Tensor (*Function)(const at::Tensor&)>
Call compile_unary(const NodeView& op) {
  return [x = op.input(0), y = op.output()](Frame& f) { f[y] = Function(f[x]); };
}

template <at::Tensor (*Function)(const at::Tensor&)>
constexpr Operator unary(const char* name) {
  return {name, 1, 1, {}, infer_floating, compile_unary<Function>};
}

std::vector<TensorType> infer_binary(const NodeView& op) {
  const auto shape = broadcast(op.shape(0), op.shape(1));
  if (!shape)
    op.fail("shapes " + shape_text(op.shape(0)) + " of " + op.value(0).name + " and " +
            shape_text(op.shape(1)) + " of " + op.value(1).name +
            " do not broadcast: from the last dimension on, each pair must be equal or one of it 1");
  op.require(op.dtype(0) == op.dtype(1), std::string("inputs hold ") + c10::toString(op.dtype(0)) + " and " +
                                             c10::toString(op.dtype(1)) + ", need the same type");
  return {{*shape, op.dtype(0)}};
}

template <at::Tensor (*Function)(const at::Tensor&, const at::Tensor&)>
Call compile_binary(const NodeView& op) {
  return [a = op.input(0), b = op.input(1), y = op.output()](Frame& f) { f[y] = Function(f[a], f[b]); };
}

template <at::Tensor (*Function)(const at::Tensor&, const at::Tensor&)>
constexpr Operator binary(const char* name) {
  return {name, 2, 2, {}, infer_binary, compile_binary<Function>};
}

at::Tensor add(const at::Tensor& a, const at::Tensor& b) {
  return at::add(a, b);
}
at::Tensor sub(const at::Tensor& a, const at::Tensor& b) {
  return at::sub(a, b);
}

/// Integer division truncates, as ONNX asks.
at::Tensor div(const at::Tensor& a, const at::Tensor& b) {
  return at::isIntegralType(a.scalar_type(), true) ? at::div(a, b, "trunc") : at::div(a, b);
}

Call compile_leaky_relu(const NodeView& op) {
  return [slope = op.node().number("alpha", 0.01), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = at::leaky_relu(f[x], slope);
  };
}

Call compile_elu(const NodeView& op) {
  return [alpha = op.node().number("alpha", 1.0), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = at::elu(f[x], alpha);
  };
}

std::vector<TensorType> infer_gelu(const NodeView& op) {
  const std::string approximate = op.node().text("approximate", "none");
  op.require(approximate == "none" || approximate == "tanh",
             "attribute `approximate` is \"" + approximate + "\", one of none, tanh");
  return infer_floating(op);
}

Call compile_gelu(const NodeView& op) {
  return [approximate = op.node().text("approximate", "none"), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = at::gelu(f[x], approximate);
  };
}

std::optional<at::Scalar> bound(const NodeView& op, std::size_t index) {
  return op.has(index) ? std::optional<at::Scalar>(op.constant_number(index)) : std::nullopt;
}

std::vector<TensorType> infer_clip(const NodeView& op) {
  bound(op, 1);
  bound(op, 2);
  return infer_floating(op);
}

Call compile_clip(const NodeView& op) {
  const auto low = bound(op, 1), high = bound(op, 2);
  const ValueId x = op.input(0), y = op.output();
  if (!low && !high) return [=](Frame& f) { f[y] = f[x]; };
  return [=](Frame& f) { f[y] = at::clamp(f[x], low, high); };
}

at::Tensor identity(const at::Tensor& x) {
  return x;
}

const Operator table[] = {
    unary<at::abs>("Abs"),
    unary<at::erf>("Erf"),
    unary<at::exp>("Exp"),
    unary<at::log>("Log"),
    unary<at::neg>("Neg"),
    unary<at::relu>("Relu"),
    unary<at::selu>("Selu"),
    unary<at::sigmoid>("Sigmoid"),
    unary<at::sqrt>("Sqrt"),
    unary<at::tanh>("Tanh"),
    {"Identity", 1, 1, {}, infer_same, compile_unary<identity>},
    {"LeakyRelu", 1, 1, {"alpha"}, infer_floating, compile_leaky_relu},
    {"Elu", 1, 1, {"alpha"}, infer_floating, compile_elu},
    {"Gelu", 1, 1, {"approximate"}, infer_gelu, compile_gelu},
    {"Clip", 1, 3, {}, infer_clip, compile_clip},
    binary<add>("Add"),
    binary<sub>("Sub"),
    binary<at::mul>("Mul"),
    binary<div>("Div"),
    binary<at::pow>("Pow"),
};

}  // namespace

std::span<const Operator> elementwise_operators() {
  return table;
}

}  // namespace trainyard
