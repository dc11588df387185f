// Gemm and MatMul.
#include <ATen/ops/add.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/t.h>

#include "operator.hpp"

namespace trainyard {
namespace {

struct Matrices {
  std::int64_t rows, inner, columns;
};

Matrices gemm_sizes(const NodeView& op) {
  op.require_rank(0, 2);
  op.require_rank(1, 2);
  const bool trans_a = op.node().integer("transA", 0) != 0;
  const bool trans_b = op.node().integer("transB", 0) != 0;
  const std::int64_t inner = op.shape(0)[trans_a ? 0 : 1];
  const std::int64_t inner_b = op.shape(1)[trans_b ? 1 : 0];
  op.require(inner == inner_b, "input " + op.value(0).name + " " + shape_text(op.shape(0)) + " and weight " +
                                   op.value(1).name + " " + shape_text(op.shape(1)) + " do not fit: " +
                                   shape_text({inner}) + " columns against " + shape_text({inner_b}));
  return {op.shape(0)[trans_a ? 1 : 0], inner, op.shape(1)[trans_b ? 0 : 1]};
}

std::vector<TensorType> infer_gemm(const NodeView& op) {
  const Matrices sizes = gemm_sizes(op);
  op.require_floating(0);
  const Shape result = {sizes.rows, sizes.columns};
  if (op.has(2) && broadcast(op.shape(2), result) != result)
    op.fail("bias " + op.value(2).name + " " + shape_text(op.shape(2)) + " does not broadcast to " +
            shape_text(result));
  return {{result, op.dtype(0)}};
}

Call compile_gemm(const NodeView& op) {
  const ValueId a = op.input(0), b = op.input(1), c = op.input(2), y = op.output();
  const double alpha = op.node().number("alpha", 1.0), beta = op.node().number("beta", 1.0);
  const bool trans_a = op.node().integer("transA", 0) != 0, trans_b = op.node().integer("transB", 0) != 0;
  const bool row_bias = c == no_value || op.rank(2) == 1;
  if (!trans_a && trans_b && alpha == 1.0 && beta == 1.0 && row_bias) {
    if (c == no_value) return [=](Frame& f) { f[y] = at::linear(f[a], f[b]); };
    return [=](Frame& f) { f[y] = at::linear(f[a], f[b], f[c]); };
  }
  return [=](Frame& f) {
    const at::Tensor left = trans_a ? f[a].t() : f[a];
    at::Tensor product = at::matmul(left, trans_b ? f[b].t() : f[b]);
    if (alpha != 1.0) product = at::mul(product, alpha);
    f[y] = c == no_value ? product : at::add(product, f[c], beta);
  };
}

std::int64_t gemm_cost(const NodeView& op) {
  const Matrices sizes = gemm_sizes(op);
  return per_sample(sizes.rows) * per_sample(sizes.inner) * per_sample(sizes.columns);
}

std::vector<TensorType> infer_matmul(const NodeView& op) {
  op.require_floating(0);
  op.require(op.rank(0) >= 1 && op.rank(1) >= 1, "multiplies tensors of one dimension or more, not scalars");
  Shape a = op.shape(0), b = op.shape(1);
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  if (vector_a) a.insert(a.begin(), 1);
  if (vector_b) b.push_back(1);
  const auto stack = broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2});
  if (!stack || a.back() != b[b.size() - 2])
    op.fail("shapes " + shape_text(op.shape(0)) + " and " + shape_text(op.shape(1)) +
            " do not fit: the last dimension of the first must be the last but one of the second, the ones "
            "before "
            "them equal or 1");
  Shape result = *stack;
  if (!vector_a) result.push_back(a[a.size() - 2]);
  if (!vector_b) result.push_back(b.back());
  return {{result, op.dtype(0)}};
}

Call compile_matmul(const NodeView& op) {
  return [a = op.input(0), b = op.input(1), y = op.output()](Frame& f) { f[y] = at::matmul(f[a], f[b]); };
}

std::int64_t matmul_cost(const NodeView& op) {
  std::int64_t result = per_sample(op.shape(0).back());
  for (const std::int64_t dim : op.output_shape()) result *= per_sample(dim);
  return result;
}

const Operator dense_table[] = {
    {"Gemm", 2, 3, {"alpha", "beta", "transA", "transB"}, infer_gemm, compile_gemm, gemm_cost},
    {"MatMul", 2, 2, {}, infer_matmul, compile_matmul, matmul_cost},
};

}  // namespace

std::span<const Operator> dense_operators() {
  return dense_table;
}

}  // namespace trainyard
