// Gemm and MatMul: by a weight, for all rows of what comes in, with the bias
// and the ReLU behind it, as linear layers are written; and of two activations
// with the same leading dimensions.
#include <functional>
#include <numeric>

#include "compiler.hpp"

namespace compiled {
namespace {

using dnnl::matmul;
using Type = dnnl::memory::data_type;

/// `batch` products of a matrix of rows x inner by one of inner x columns.
struct Sizes {
  std::int64_t batch, rows, inner, columns;
};

/// A stack of matrices that lie row by row or, turned, column by column.
struct Factor {
  dnnl::memory memory;
  std::int64_t batch, rows, columns;
  bool is_turned = false;

  Factor turned() const { return {memory, batch, columns, rows, !is_turned}; }
  Layout layout(Type type) const {
    const std::int64_t down = is_turned ? 1 : columns, right = is_turned ? rows : 1;
    if (batch == 1) return {{rows, columns}, type, Dims{down, right}};
    return {{batch, rows, columns}, type, Dims{rows * columns, down, right}};
  }
  Layout layout() const { return layout(memory.get_desc().get_data_type()); }
};

/// c = a b + bias, and `then` behind that. Where halves are multiplied, a
/// second factor of floats is packed in each pass as the product asks for it.
class Multiplication {
 public:
  Multiplication() = default;
  Multiplication(Compiler& compiler, Type type, const Factor& a, const Factor& b, const Factor& c,
                 const dnnl::post_ops& then, const dnnl::memory& bias = {}) {
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(then);
    const Layout lies = b.layout();
    Layout wanted = lies, row;
    if (lies.get_data_type() != type) wanted = {lies.get_dims(), type, dnnl::memory::format_tag::any};
    if (bias) row = {{1, c.columns}, f32, Dims{c.columns, 1}};
    const matmul::primitive_desc made(engine(), a.layout(type), wanted, row, c.layout(), attributes);
    dnnl::memory second = b.memory;
    if (wanted != lies) {
      second = compiler.scratch(made.weights_desc());
      pack_ = reorder(b.memory, lies, second, made.weights_desc());
    }
    std::vector<std::pair<int, dnnl::memory>> arguments = {
        {DNNL_ARG_SRC, a.memory}, {DNNL_ARG_WEIGHTS, second}, {DNNL_ARG_DST, c.memory}};
    if (bias) arguments.emplace_back(DNNL_ARG_BIAS, bias);
    product_ = {matmul(made), arguments};
  }
  explicit operator bool() const { return static_cast<bool>(product_); }
  void run() const {
    if (pack_) pack_.run();
    product_.run();
  }

 private:
  Call pack_, product_;
};

dnnl::post_ops added(bool adds) {
  dnnl::post_ops then;
  if (adds) then.append_sum();
  return then;
}

/// From so many products on, oneDNN's inner product is faster at the gradients
/// of weight and bias than a matrix product and a sum.
constexpr std::int64_t large = std::int64_t{1} << 21;

class Product final : public Instruction {
 public:
  struct Values {
    ValueNumber a, b;
    std::optional<ValueNumber> bias;
    ValueNumber y;
  };
  Product(Compiler& compiler, const Values& values, const Sizes& sizes, bool is_turned, bool relu)
      : values_(values),
        sizes_(sizes),
        is_turned_(is_turned),
        relu_(relu),
        type_(compiler.value(values.a).view.layout.get_data_type()) {
    dnnl::post_ops then;
    if (relu) then.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    forward_ = {compiler,
                type_,
                a(compiler.memory(values.a)),
                b(compiler.memory(values.b)),
                y(compiler.memory(values.y)),
                then,
                values.bias ? compiler.memory(*values.bias) : dnnl::memory()};
  }

  void forward(const Pass&) override { forward_.run(); }

  void plan_backward(Compiler& compiler) override {
    given_ = unmasked_ = *compiler.gradient(values_.y);
    if (relu_) {
      output_ = compiler.memory(values_.y);
      given_ = compiler.over_gradient(values_.y);
    }
    Factor given = y(given_);
    if (given_.get_desc().get_data_type() != type_) {
      given.memory = compiler.scratch(given.layout(type_));
      narrow_ = reorder(given_, y(given_).layout(), given.memory, given.layout(type_));
    }
    if (values_.bias && compiler.wants_gradient(*values_.bias))
      into_bias_ = compiler.contribute(*values_.bias);
    if (compiler.wants_gradient(values_.b)) {
      const bool adds = compiler.has_gradient(values_.b);
      const Factor in = a(compiler.memory(values_.a)), into = b(compiler.contribute(values_.b, true).memory);
      sums_bias_ = sizes_.batch == 1 && !adds && sizes_.rows * sizes_.inner * sizes_.columns >= large;
      if (sums_bias_)
        of_weight_ = by_inner_product(in, given, into);
      else if (is_turned_)
        of_b_ = {compiler, type_, given.turned(), in, into.turned(), added(adds)};
      else
        of_b_ = {compiler, type_, in.turned(), given, into, added(adds)};
    }
    if (compiler.wants_gradient(values_.a)) {
      const bool adds = compiler.has_gradient(values_.a);
      const Factor into = a(compiler.contribute(values_.a, true).memory);
      of_a_ = {compiler, type_, given, b(compiler.memory(values_.b)).turned(), into, added(adds)};
    }
  }

  void backward(const Pass&) override {
    if (relu_) through_relu(given_, unmasked_, output_);
    if (narrow_) narrow_.run();
    if (into_bias_ && !sums_bias_)
      typed([&](auto* rows) { sum_rows(floats(into_bias_->memory), rows, sizes_.rows, sizes_.columns); },
            given_);
    if (of_weight_) of_weight_.run();
    if (of_b_) of_b_.run();
    if (into_bias_) into_bias_->finish();
    if (of_a_) of_a_.run();
  }

 private:
  Factor a(const dnnl::memory& memory) const { return {memory, sizes_.batch, sizes_.rows, sizes_.inner}; }
  Factor b(const dnnl::memory& memory) const {
    return {memory, sizes_.batch, sizes_.inner, sizes_.columns, is_turned_};
  }
  Factor y(const dnnl::memory& memory) const { return {memory, sizes_.batch, sizes_.rows, sizes_.columns}; }

  /// The gradient of the weight and, where it is wanted, that of the bias.
  Call by_inner_product(const Factor& in, const Factor& given, const Factor& into) const {
    const Layout x = in.layout(type_), dz = given.layout(type_), of_weight = into.turned().layout(),
                 weight = into.turned().layout(type_),
                 of_bias = into_bias_ ? Layout({sizes_.columns}, f32, Dims{1}) : Layout();
    const dnnl::inner_product_forward::primitive_desc hint(engine(), dnnl::prop_kind::forward_training, x,
                                                           weight, of_bias, dz);
    std::vector<std::pair<int, dnnl::memory>> arguments = {
        {DNNL_ARG_SRC, in.memory}, {DNNL_ARG_DIFF_DST, given.memory}, {DNNL_ARG_DIFF_WEIGHTS, into.memory}};
    if (into_bias_) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, into_bias_->memory);
    return {dnnl::inner_product_backward_weights({engine(), x, of_weight, of_bias, dz, hint}), arguments};
  }

  Values values_;
  Sizes sizes_;
  bool is_turned_;  ///< b lies as columns x inner
  bool relu_, sums_bias_ = false;
  Type type_;  ///< of the factors
  Multiplication forward_, of_a_, of_b_;
  Call narrow_, of_weight_;
  dnnl::memory given_, unmasked_, output_;
  std::optional<Contribution> into_bias_;
};

bool is_bias(const Compiler& compiler, ValueNumber value, std::int64_t columns) {
  return compiler.value(value).dtype == at::kFloat && compiler.value(value).dims == Dims{columns};
}

/// The row that the one reader of `product` adds to each of its rows, which is taken
/// then.
std::optional<ValueNumber> absorb_bias(Compiler& compiler, trainyard::ValueId& product,
                                       std::int64_t columns) {
  const std::optional<std::size_t> reader = compiler.only_reader(product);
  if (!reader || compiler.node(*reader).op != "Add") return std::nullopt;
  const std::vector<trainyard::ValueId>& terms = compiler.node(*reader).inputs;
  const std::optional<ValueNumber> bias = compiler.known(terms[0] == product ? terms[1] : terms[0]);
  if (!bias || !is_bias(compiler, *bias, columns)) return std::nullopt;
  compiler.absorb("Add", product);
  return bias;
}

}  // namespace

bool product_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const bool is_gemm = node.op == "Gemm";
  if ((!is_gemm && node.op != "MatMul") || node.integer("transA", 0) != 0 ||
      node.number("alpha", 1.0) != 1.0 || node.number("beta", 1.0) != 1.0 ||
      !compiler.is_real(compiler.input(0)) || !compiler.is_real(compiler.input(1)))
    return false;
  const Dims left = compiler.value(compiler.input(0)).dims, right = compiler.value(compiler.input(1)).dims;
  const bool is_layer = right.size() == 2 && left.size() >= 2, is_turned = node.integer("transB", 0) != 0;
  const bool is_stack = right.size() > 2 && right.size() == left.size() &&
                        std::equal(left.begin(), left.end() - 2, right.begin());
  if (!is_layer && !is_stack) return false;
  const auto count = [](auto begin, auto end) {
    return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
  };
  Sizes sizes{.batch = 1,
              .rows = count(left.begin(), left.end() - 1),
              .inner = left.back(),
              .columns = is_turned ? right.front() : right.back()};
  if (is_stack) {
    sizes.batch = count(left.begin(), left.end() - 2);
    sizes.rows = left[left.size() - 2];
  }
  if (sizes.batch * sizes.rows * sizes.inner * sizes.columns == 0) return false;
  Product::Values values{compiler.input(0), compiler.input(1), {}, {}};
  if (is_gemm && compiler.has_input(2)) values.bias = compiler.input(2);
  if (values.bias && !is_bias(compiler, *values.bias, sizes.columns)) return false;
  const auto factor = [&](ValueNumber each) {
    return compiler.has_halves() ? compiler.in_half(each) : compiler.in_plain(each);
  };
  values.a = factor(values.a);
  if (is_stack) values.b = factor(values.b);  // a weight stays one of floats: its gradient is
  trainyard::ValueId output = node.outputs[0];
  if (is_layer && !is_gemm) values.bias = absorb_bias(compiler, output, sizes.columns);
  const bool relu = compiler.absorb("Relu", output);
  const Dims dims = compiler.dims_of(output);
  const bool wants = compiler.wants_gradient(values.a) || compiler.wants_gradient(values.b) ||
                     (values.bias && compiler.wants_gradient(*values.bias));
  values.y = compiler.make(dims, plain(dims, compiler.is_read_as_half(output) ? bf16 : f32), wants);
  compiler.emit<Product>({values.y}, values, sizes, is_turned, relu);
  compiler.give(output, values.y);
  return true;
}

}  // namespace compiled
