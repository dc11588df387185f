// Gemm as a linear layer has it, with its bias and a ReLU behind it.
#include "compiler.hpp"
#include "loops.hpp"

namespace compiled {
namespace {

using dnnl::inner_product_backward_weights;
using dnnl::inner_product_forward;
using dnnl::matmul;
using dnnl::primitive_attr;

Layout matrix(std::int64_t rows, std::int64_t columns, bool transposed = false) {
  return {{rows, columns}, dnnl::memory::data_type::f32, transposed ? Dims{1, rows} : Dims{columns, 1}};
}

/// c = a b, or added to what c holds.
Call product(const dnnl::memory& a, const Layout& as_a, const dnnl::memory& b, const Layout& as_b,
             const dnnl::memory& c, const Layout& as_c, bool adds) {
  primitive_attr attributes;
  dnnl::post_ops then;
  if (adds) then.append_sum();
  attributes.set_post_ops(then);
  return {matmul(matmul::primitive_desc(engine(), as_a, as_b, as_c, attributes)),
          {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}};
}

/// dW = dz^T x and, unless `of_bias` is null, db, the sum of the rows of dz.
Call weight_gradient(const dnnl::memory& x, const dnnl::memory& given, const dnnl::memory& of_weight,
                     const dnnl::memory* of_bias, const Dims& sizes) {
  const Layout in = matrix(sizes[0], sizes[1]), out = matrix(sizes[0], sizes[2]),
               weight = matrix(sizes[2], sizes[1]);
  std::vector<std::pair<int, dnnl::memory>> arguments = {
      {DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, given}, {DNNL_ARG_DIFF_WEIGHTS, of_weight}};
  const auto training = dnnl::prop_kind::forward_training;
  if (of_bias == nullptr) {
    const inner_product_forward::primitive_desc hint(engine(), training, in, weight, out);
    return {inner_product_backward_weights({engine(), in, weight, out, hint}), arguments};
  }
  const Layout bias = {{sizes[2]}, dnnl::memory::data_type::f32, Dims{1}};
  arguments.emplace_back(DNNL_ARG_DIFF_BIAS, *of_bias);
  const inner_product_forward::primitive_desc hint(engine(), training, in, weight, bias, out);
  return {inner_product_backward_weights({engine(), in, weight, bias, out, hint}), arguments};
}
/// From so many products on, oneDNN's inner product is faster at dW and db than a matrix product and a sum.
constexpr std::int64_t large = std::int64_t{1} << 21;

class Linear final : public Instruction {
 public:
  Linear(Compiler& compiler, ValueNumber x, ValueNumber weight, std::optional<ValueNumber> bias,
         ValueNumber y, bool relu)
      : x_(x), weight_(weight), bias_(bias), y_(y), relu_(relu) {
    const Dims& in = compiler.value(x).dims;
    rows_ = in[0];
    inner_ = in[1];
    columns_ = compiler.value(y).dims[1];
    primitive_attr attributes;
    if (relu) {
      dnnl::post_ops then;
      then.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
      attributes.set_post_ops(then);
    }
    const Layout a = matrix(rows_, inner_), b = matrix(inner_, columns_, true), c = matrix(rows_, columns_);
    std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_SRC, compiler.memory(x, a)},
                                                           {DNNL_ARG_WEIGHTS, compiler.memory(weight, b)},
                                                           {DNNL_ARG_DST, compiler.memory(y, c)}};
    if (!bias) {
      forward_ = {matmul(matmul::primitive_desc(engine(), a, b, c, attributes)), arguments};
      return;
    }
    const Layout row = matrix(1, columns_);
    arguments.emplace_back(DNNL_ARG_BIAS, compiler.memory(*bias, row));
    forward_ = {matmul(matmul::primitive_desc(engine(), a, b, row, c, attributes)), arguments};
  }

  void forward(const Pass&) override { forward_.run(); }

  void plan_backward(Compiler& compiler) override {
    given_ = unmasked_ = *compiler.gradient(y_);
    if (relu_) {
      output_ = compiler.memory(y_);
      given_ = compiler.over_gradient(y_);
    }
    if (bias_ && compiler.wants_gradient(*bias_)) into_bias_ = compiler.contribute(*bias_);
    if (compiler.wants_gradient(weight_)) {
      const bool adds = compiler.has_gradient(weight_);
      const dnnl::memory into = compiler.contribute(weight_, true).memory, x = compiler.memory(x_);
      with_bias_ = !adds && rows_ * inner_ * columns_ >= large;
      of_weight_ = with_bias_ ? weight_gradient(x, given_, into, into_bias_ ? &into_bias_->memory : nullptr,
                                                {rows_, inner_, columns_})
                              : product(given_, matrix(columns_, rows_, true), x, matrix(rows_, inner_), into,
                                        matrix(columns_, inner_), adds);
    }
    if (compiler.wants_gradient(x_)) {
      const bool adds = compiler.has_gradient(x_);
      const dnnl::memory into = compiler.contribute(x_, true).memory;
      of_x_ = product(given_, matrix(rows_, columns_), compiler.memory(weight_), matrix(columns_, inner_),
                      into, matrix(rows_, inner_), adds);
    }
  }

  void backward(const Pass&) override {
    if (relu_) through_relu(floats(given_), floats(unmasked_), floats(output_), rows_ * columns_);
    if (into_bias_ && !with_bias_) sum_rows(floats(into_bias_->memory), floats(given_), rows_, columns_);
    if (of_weight_) of_weight_.run();
    if (into_bias_) into_bias_->finish();
    if (of_x_) of_x_.run();
  }

 private:
  ValueNumber x_, weight_;
  std::optional<ValueNumber> bias_;
  ValueNumber y_;
  bool relu_, with_bias_ = false;  ///< of_weight_ gives the gradient of the bias, too
  std::int64_t rows_ = 0, inner_ = 0, columns_ = 0;
  Call forward_, of_weight_, of_x_;
  dnnl::memory given_, unmasked_, output_;
  std::optional<Contribution> into_bias_;
};

}  // namespace

bool linear_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  if (node.op != "Gemm" || node.integer("transA", 0) != 0 || node.integer("transB", 0) != 1 ||
      node.number("alpha", 1.0) != 1.0 || node.number("beta", 1.0) != 1.0)
    return false;
  const ValueNumber x = compiler.in_plain(compiler.input(0)), weight = compiler.input(1);
  std::optional<ValueNumber> bias;
  if (compiler.has_input(2)) bias = compiler.input(2);
  if (compiler.value(x).dtype != at::kFloat || compiler.value(weight).dtype != at::kFloat ||
      (bias && compiler.value(*bias).dims != Dims{compiler.value(weight).dims[0]}))
    return false;
  trainyard::ValueId output = node.outputs[0];
  const Dims dims = compiler.dims_of(output);
  const bool relu = compiler.absorb("Relu", output);
  const bool wants = compiler.wants_gradient(x) || compiler.wants_gradient(weight) ||
                     (bias && compiler.wants_gradient(*bias));
  const ValueNumber y = compiler.make(dims, plain(dims), wants);
  compiler.emit<Linear>({y}, x, weight, bias, y, relu);
  compiler.give(output, y);
  return true;
}

}  // namespace compiled
