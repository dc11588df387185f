// Operators that work element by element.
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/le.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/selu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

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

/// Numbers, or truths, to truths.
std::vector<TensorType> infer_truth(const NodeView& op) {
  return {{op.inputs() == 1 ? op.shape(0) : infer_binary(op).front().shape, at::kBool}};
}

template <at::Tensor (*Function)(const at::Tensor&, const at::Tensor&)>
constexpr Operator comparison(const char* name) {
  return {name, 2, 2, {}, infer_truth, compile_binary<Function>};
}

std::vector<TensorType> infer_where(const NodeView& op) {
  op.require(op.dtype(0) == at::kBool, "its condition " + op.value(0).name + " holds no truths");
  op.require(op.dtype(1) == op.dtype(2), std::string("inputs hold ") + c10::toString(op.dtype(1)) + " and " +
                                             c10::toString(op.dtype(2)) + ", need the same type");
  const auto both = broadcast(op.shape(1), op.shape(2));
  const auto shape = both ? broadcast(op.shape(0), *both) : std::nullopt;
  op.require(shape.has_value(), "shapes " + shape_text(op.shape(0)) + ", " + shape_text(op.shape(1)) +
                                    " and " + shape_text(op.shape(2)) + " do not broadcast");
  return {{*shape, op.dtype(1)}};
}

Call compile_where(const NodeView& op) {
  return [which = op.input(0), a = op.input(1), b = op.input(2), y = op.output()](Frame& f) {
    f[y] = at::where(f[which], f[a], f[b]);
  };
}

/// Integers have the sign of the divisor, or with `fmod` that of the dividend, as other numbers must.
Call compile_mod(const NodeView& op) {
  const bool of_dividend = op.node().integer("fmod", 0) != 0;
  op.require(of_dividend || at::isIntegralType(op.dtype(0), false), "attribute `fmod` is 0, needs integers");
  return [=, a = op.input(0), b = op.input(1), y = op.output()](Frame& f) {
    f[y] = of_dividend ? at::fmod(f[a], f[b]) : at::remainder(f[a], f[b]);
  };
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

at::Tensor softplus(const at::Tensor& x) {
  return at::softplus(x);
}
at::Tensor softsign(const at::Tensor& x) {
  return at::div(x, at::add(at::abs(x), 1.0));
}

/// Takes an exponent of another type in that of the base.
std::vector<TensorType> infer_pow(const NodeView& op) {
  const auto shape = broadcast(op.shape(0), op.shape(1));
  if (!shape)
    op.fail("shapes " + shape_text(op.shape(0)) + " and " + shape_text(op.shape(1)) + " do not broadcast");
  return {{*shape, op.dtype(0)}};
}

Call compile_pow(const NodeView& op) {
  return [a = op.input(0), b = op.input(1), y = op.output(), dtype = op.dtype(0)](Frame& f) {
    f[y] = at::pow(f[a], f[b].to(dtype));
  };
}

/// Combines any number of inputs, from the left.
std::vector<TensorType> infer_variadic(const NodeView& op) {
  Shape result = op.shape(0);
  for (std::size_t i = 1; i < op.inputs(); ++i) {
    op.require(op.has(i), "input " + std::to_string(i) + " is not optional");
    const auto wider = broadcast(result, op.shape(i));
    if (!wider || op.dtype(i) != op.dtype(0))
      op.fail("input " + op.value(i).name + " " + shape_text(op.shape(i)) + " of " +
              c10::toString(op.dtype(i)) + " does not fit those before, " + shape_text(result) + " of " +
              c10::toString(op.dtype(0)));
    result = *wider;
  }
  return {{result, op.dtype(0)}};
}

template <at::Tensor (*Function)(const at::Tensor&, const at::Tensor&)>
Call compile_variadic(const NodeView& op) {
  return [inputs = op.node().inputs, y = op.output()](Frame& f) {
    at::Tensor result = f[inputs.front()];
    for (std::size_t i = 1; i < inputs.size(); ++i) result = Function(result, f[inputs[i]]);
    f[y] = std::move(result);
  };
}

template <at::Tensor (*Function)(const at::Tensor&, const at::Tensor&)>
constexpr Operator variadic(const char* name) {
  return {name, 1, any_number, {}, infer_variadic, compile_variadic<Function>};
}

/// The slope broadcasts to the input, not the other way.
std::vector<TensorType> infer_prelu(const NodeView& op) {
  op.require_floating(0);
  if (broadcast(op.shape(0), op.shape(1)) != op.shape(0))
    op.fail("slope " + op.value(1).name + " " + shape_text(op.shape(1)) + " does not broadcast to " +
            shape_text(op.shape(0)));
  return infer_same(op);
}

Call compile_prelu(const NodeView& op) {
  return [x = op.input(0), slope = op.input(1), y = op.output()](Frame& f) {
    f[y] = at::where(f[x].lt(0), at::mul(f[x], f[slope]), f[x]);
  };
}

Call compile_hard_sigmoid(const NodeView& op) {
  return [alpha = op.node().number("alpha", 0.2), beta = op.node().number("beta", 0.5), x = op.input(0),
          y = op.output()](Frame& f) { f[y] = at::clamp(at::add(at::mul(f[x], alpha), beta), 0.0, 1.0); };
}

const Operator elementwise_table[] = {
    unary<at::abs>("Abs"),
    unary<at::ceil>("Ceil"),
    unary<at::cos>("Cos"),
    unary<at::erf>("Erf"),
    unary<at::exp>("Exp"),
    unary<at::floor>("Floor"),
    unary<at::hardswish>("HardSwish"),
    unary<at::log>("Log"),
    unary<at::mish>("Mish"),
    unary<at::neg>("Neg"),
    unary<at::reciprocal>("Reciprocal"),
    unary<at::relu>("Relu"),
    unary<at::selu>("Selu"),
    unary<at::sigmoid>("Sigmoid"),
    unary<at::sign>("Sign"),
    unary<at::sin>("Sin"),
    unary<at::sqrt>("Sqrt"),
    unary<at::tanh>("Tanh"),
    unary<softplus>("Softplus"),
    unary<softsign>("Softsign"),
    {"Identity", 1, 1, {}, infer_same, compile_unary<identity>},
    {"LeakyRelu", 1, 1, {"alpha"}, infer_floating, compile_leaky_relu},
    {"Elu", 1, 1, {"alpha"}, infer_floating, compile_elu},
    {"Gelu", 1, 1, {"approximate"}, infer_gelu, compile_gelu},
    {"Clip", 1, 3, {}, infer_clip, compile_clip},
    binary<add>("Add"),
    binary<sub>("Sub"),
    binary<at::mul>("Mul"),
    binary<div>("Div"),
    {"Pow", 2, 2, {}, infer_pow, compile_pow},
    {"PRelu", 2, 2, {}, infer_prelu, compile_prelu},
    {"HardSigmoid", 1, 1, {"alpha", "beta"}, infer_floating, compile_hard_sigmoid},
    comparison<at::eq>("Equal"),
    comparison<at::gt>("Greater"),
    comparison<at::ge>("GreaterOrEqual"),
    comparison<at::lt>("Less"),
    comparison<at::le>("LessOrEqual"),
    comparison<at::logical_and>("And"),
    comparison<at::logical_or>("Or"),
    {"Not", 1, 1, {}, infer_truth, compile_unary<at::logical_not>},
    {"Where", 3, 3, {}, infer_where, compile_where},
    {"Mod", 2, 2, {"fmod"}, infer_binary, compile_mod},
    variadic<add>("Sum"),
    variadic<at::maximum>("Max"),
    variadic<at::minimum>("Min"),
};

}  // namespace

std::span<const Operator> elementwise_operators() {
  return elementwise_table;
}

}  // namespace trainyard
