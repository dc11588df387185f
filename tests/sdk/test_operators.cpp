// Each operator of the graph against a direct call of LibTorch: values, gradients, inferred shape and type.
#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/network.hpp>

namespace test_operators_tests {

using namespace trainyard;

namespace {

using Attributes = std::map<std::string, Attribute, std::less<>>;
using Ints = std::vector<std::int64_t>;
using Reference = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

std::set<std::string> covered;

struct Case {
  std::string op;
  std::vector<at::Tensor> inputs;     ///< graph inputs; the first dimension of the first is the batch
  std::vector<at::Tensor> constants;  ///< initializers after them; undefined: not given
  Attributes attributes;
  std::size_t outputs = 1;
  std::size_t output = 0;  ///< the one to compare
  bool batch = true;

  Graph graph() const {
    Graph g;
    Node node{op, "node", {}, {}, attributes};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      GraphValue value{"x" + std::to_string(i), inputs[i].sizes().vec(), inputs[i].scalar_type()};
      if (batch && i == 0) value.shape.front() = batch_dim;
      g.inputs.push_back(g.add_value(value));
      node.inputs.push_back(g.inputs.back());
    }
    for (std::size_t i = 0; i < constants.size(); ++i) {
      GraphValue value{"c" + std::to_string(i)};
      value.initializer = constants[i];
      node.inputs.push_back(constants[i].defined() ? g.add_value(value) : no_value);
    }
    for (std::size_t i = 0; i < outputs; ++i) node.outputs.push_back(g.add_value({"y" + std::to_string(i)}));
    g.outputs = {node.outputs[output]};
    g.nodes.push_back(node);
    g.infer_shapes();
    return g;
  }
};

void check(const Case& c, const Reference& reference, bool training = false) {
  INFO(c.op);
  covered.insert(c.op);
  const Graph graph = c.graph();
  GraphNetwork network(graph);

  std::vector<at::Tensor> ours, theirs;
  for (const at::Tensor& x : c.inputs) {
    const bool floating = x.is_floating_point();
    ours.push_back(x.clone().set_requires_grad(floating));
    theirs.push_back(x.clone().set_requires_grad(floating));
  }
  Batch batch;
  batch.inputs = ours;
  const at::Tensor y = network.forward(batch, {.training = training});
  const at::Tensor expected = reference(theirs);
  REQUIRE(y.sizes() == expected.sizes());
  CHECK(at::allclose(y, expected, 1e-5, 1e-6));

  const GraphValue& value = graph.values[static_cast<std::size_t>(graph.outputs.front())];
  Ints inferred = value.shape;
  for (std::int64_t& dim : inferred)
    if (dim < 0) dim *= -c.inputs[0].size(0);
  CHECK(inferred == y.sizes().vec());
  CHECK(value.dtype == y.scalar_type());

  if (!expected.requires_grad()) return;
  REQUIRE(y.requires_grad());
  y.square().sum().backward();
  expected.square().sum().backward();
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (theirs[i].grad().defined()) CHECK(at::allclose(ours[i].grad(), theirs[i].grad(), 1e-4, 1e-5));
}

at::Tensor ints(const Ints& numbers) {
  return at::tensor(numbers, at::kLong);
}
const Ints none;

}  // namespace

TEST_CASE("Gemm and MatMul", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({4, 5}), w = at::randn({3, 5}), b = at::randn({3});
  const Attributes transposed = {{"transB", std::int64_t{1}}};
  check({"Gemm", {x, w, b}, {}, transposed}, [](auto& i) { return at::linear(i[0], i[1], i[2]); });
  check({"Gemm", {x, w}, {}, transposed}, [](auto& i) { return at::linear(i[0], i[1]); });
  check({"Gemm", {x, w.t().contiguous(), b}}, [](auto& i) { return at::addmm(i[2], i[0], i[1]); });
  check({"Gemm",
         {at::randn({5, 4}), w, at::randn({4, 1})},
         {},
         {{"transA", std::int64_t{1}}, {"transB", std::int64_t{1}}, {"alpha", 0.5}, {"beta", 2.0}},
         1,
         0,
         false},
        [](auto& i) { return 0.5 * at::mm(i[0].t(), i[1].t()) + 2.0 * i[2]; });
  check({"MatMul", {at::randn({4, 2, 5}), at::randn({5, 3})}},
        [](auto& i) { return at::matmul(i[0], i[1]); });
  check({"MatMul", {at::randn({4, 2, 5}), at::randn({5})}}, [](auto& i) { return at::matmul(i[0], i[1]); });
}

TEST_CASE("Conv and poolings", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({2, 4, 9, 8}), w = at::randn({6, 2, 3, 3}), b = at::randn({6});
  check({"Conv",
         {x, w, b},
         {},
         {{"strides", Ints{2, 1}},
          {"pads", Ints{1, 2, 1, 2}},
          {"group", std::int64_t{2}},
          {"dilations", Ints{1, 2}}}},
        [](auto& i) {
          return at::conv2d(i[0], i[1], i[2], {2, 1}, {1, 2}, {1, 2}, 2);
        });
  check({"Conv", {x, at::randn({6, 4, 3, 3})}, {}, {{"pads", Ints{1, 0, 0, 2}}}}, [](auto& i) {
    return at::conv2d(at::constant_pad_nd(i[0], {0, 2, 1, 0}), i[1]);
  });
  check({"Conv", {at::randn({2, 4, 9}), at::randn({6, 4, 3}), b}, {}, {{"strides", Ints{2}}}},
        [](auto& i) { return at::conv1d(i[0], i[1], i[2], {2}); });
  check({"Conv",
         {x, at::randn({6, 4, 3, 3})},
         {},
         {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Ints{2, 2}}}},
        [](auto& i) {
          return at::conv2d(at::constant_pad_nd(i[0], {0, 1, 1, 1}), i[1], {}, {2, 2});
        });
  // auto_pad goes before pads, which ONNX does not allow beside it.
  check({"Conv",
         {x, at::randn({6, 4, 3, 3})},
         {},
         {{"auto_pad", std::string("VALID")}, {"pads", Ints{1, 1, 1, 1}}}},
        [](auto& i) { return at::conv2d(i[0], i[1]); });
  check({"MaxPool",
         {x},
         {},
         {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 0, 1, 0}}}},
        [](auto& i) {
          return at::max_pool2d(i[0], {3, 2}, {2, 2}, {1, 0});
        });
  check({"MaxPool",
         {x},
         {},
         {{"kernel_shape", Ints{2, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", std::int64_t{1}}}},
        [](auto& i) {
          return at::max_pool2d(i[0], {2, 3}, {2, 2}, 0, 1, true);
        });
  check({"MaxPool", {at::randn({2, 4, 9})}, {}, {{"kernel_shape", Ints{3}}}},
        [](auto& i) { return at::max_pool1d(i[0], {3}, {1}); });
  check({"AveragePool",
         {x},
         {},
         {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}},
        [](auto& i) {
          return at::avg_pool2d(i[0], {2, 2}, {2, 2}, {1, 1}, false, false);
        });
  check({"AveragePool", {at::randn({2, 4, 9})}, {}, {{"kernel_shape", Ints{2}}}},
        [](auto& i) { return at::avg_pool1d(i[0], {2}, {1}); });
  check({"GlobalAveragePool", {x}}, [](auto& i) { return at::adaptive_avg_pool2d(i[0], {1, 1}); });
}

TEST_CASE("Normalizations", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({6, 4, 3});
  for (const bool training : {false, true}) {
    const at::Tensor mean = at::randn({4}), variance = at::rand({4}) + 0.5;
    const at::Tensor their_mean = mean.clone(), their_variance = variance.clone();
    Case c{"BatchNormalization",
           {x, at::randn({4}), at::randn({4})},
           {mean, variance},
           {{"epsilon", 1e-3}, {"momentum", 0.8}}};
    check(
        c,
        [&](auto& i) {
          return at::batch_norm(i[0], i[1], i[2], their_mean, their_variance, training, 0.2, 1e-3, true);
        },
        training);
    CHECK(at::allclose(mean, their_mean));
    CHECK(at::allclose(variance, their_variance));
  }
  check({"LayerNormalization", {x, at::randn({3}), at::randn({3})}, {}, {{"epsilon", 1e-3}}},
        [](auto& i) { return at::layer_norm(i[0], {3}, i[1], i[2], 1e-3); });
  check({"LayerNormalization", {x, at::randn({4, 3})}, {}, {{"axis", std::int64_t{1}}}}, [](auto& i) {
    return at::layer_norm(i[0], {4, 3}, i[1]);
  });
  check({"Softmax", {x}, {}, {{"axis", std::int64_t{1}}}}, [](auto& i) { return at::softmax(i[0], 1); });
  check({"LogSoftmax", {x}}, [](auto& i) { return at::log_softmax(i[0], -1); });
  check(
      {"Dropout", {x}}, [](auto& i) { return i[0] * 1; }, true);
}

TEST_CASE("Elementwise", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({4, 3}), positive = at::rand({4, 3}) + 0.1, row = at::rand({3}) + 0.1;
  const std::pair<const char*, at::Tensor (*)(const at::Tensor&)> unary[] = {
      {"Abs", at::abs},         {"Erf", at::erf},   {"Exp", at::exp},   {"Log", at::log},
      {"Neg", at::neg},         {"Relu", at::relu}, {"Sqrt", at::sqrt}, {"Selu", at::selu},
      {"Sigmoid", at::sigmoid}, {"Tanh", at::tanh},
  };
  for (const auto& [op, function] : unary) {
    const bool needs_positive = std::string(op) == "Log" || std::string(op) == "Sqrt";
    check({op, {needs_positive ? positive : x}}, [f = function](auto& i) { return f(i[0]); });
  }
  check({"Identity", {x}}, [](auto& i) { return i[0] * 1; });
  check({"LeakyRelu", {x}, {}, {{"alpha", 0.2}}}, [](auto& i) { return at::leaky_relu(i[0], 0.2); });
  check({"Elu", {x}, {}, {{"alpha", 0.7}}}, [](auto& i) { return at::elu(i[0], 0.7); });
  check({"Gelu", {x}}, [](auto& i) { return at::gelu(i[0]); });
  check({"Gelu", {x}, {}, {{"approximate", std::string("tanh")}}},
        [](auto& i) { return at::gelu(i[0], "tanh"); });
  check({"Clip", {x}, {at::tensor(-0.5), at::tensor(0.5)}},
        [](auto& i) { return at::clamp(i[0], -0.5, 0.5); });
  check({"Clip", {x}, {at::Tensor(), at::tensor(0.5)}}, [](auto& i) { return at::clamp_max(i[0], 0.5); });
  check({"Add", {x, row}}, [](auto& i) { return i[0] + i[1]; });
  check({"Sub", {x, row}}, [](auto& i) { return i[0] - i[1]; });
  check({"Mul", {x, row}}, [](auto& i) { return i[0] * i[1]; });
  check({"Div", {x, row}}, [](auto& i) { return i[0] / i[1]; });
  check({"Div", {ints({-7, 7, 5})}, {ints({2, -2, 5})}, {}, 1, 0, false}, [](auto&) {
    return ints({-3, -3, 1});
  });
  check({"Pow", {positive, row}}, [](auto& i) { return at::pow(i[0], i[1]); });
}

TEST_CASE("Layout", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({2, 4, 6});
  check({"Flatten", {x}}, [](auto& i) { return i[0].reshape({2, 24}); });
  check({"Flatten", {x}, {}, {{"axis", std::int64_t{2}}}}, [](auto& i) { return i[0].reshape({8, 6}); });
  check({"Flatten", {x}, {}, {{"axis", std::int64_t{0}}}}, [](auto& i) { return i[0].reshape({1, 48}); });
  check({"Reshape", {x}, {ints({0, -1, 3})}}, [](auto& i) { return i[0].reshape({2, 8, 3}); });
  check({"Reshape", {x}, {ints({-1, 3})}}, [](auto& i) { return i[0].reshape({16, 3}); });
  check({"Transpose", {x}, {}, {{"perm", Ints{1, 0, 2}}}}, [](auto& i) { return i[0].permute({1, 0, 2}); });
  check({"Transpose", {x}}, [](auto& i) { return i[0].permute({2, 1, 0}); });
  check({"Squeeze", {at::randn({2, 1, 3, 1})}, {ints({-1})}}, [](auto& i) { return i[0].squeeze(3); });
  check({"Squeeze", {at::randn({2, 1, 3, 1})}}, [](auto& i) { return i[0].reshape({2, 3}); });
  check({"Unsqueeze", {x}, {ints({1, -1})}}, [](auto& i) { return i[0].unsqueeze(1).unsqueeze(-1); });
  check({"Concat", {x, at::randn({2, 4, 1})}, {}, {{"axis", std::int64_t{-1}}}, 1, 0, false}, [](auto& i) {
    return at::cat({i[0], i[1]}, 2);
  });
  for (const std::size_t part : {0, 1, 2}) {
    check({"Split", {x}, {ints({1, 2, 3})}, {{"axis", std::int64_t{2}}}, 3, part}, [&](auto& i) {
      return i[0].split_with_sizes({1, 2, 3}, 2)[part];
    });
    check({"Split", {at::randn({6, 7})}, {ints({1, 2, 3})}, {}, 3, part, false}, [&](auto& i) {
      return i[0].split_with_sizes({1, 2, 3})[part];
    });
    check({"Split",
           {at::randn({2, 7})},
           {},
           {{"axis", std::int64_t{1}}, {"num_outputs", std::int64_t{3}}},
           3,
           part},
          [&](auto& i) {
            return i[0].split_with_sizes({3, 3, 1}, 1)[part];
          });
  }
  check({"Slice", {x}, {ints({1, -100}), ints({-1, 100}), ints({2, 1}), ints({2, 3})}},
        [](auto& i) { return i[0].slice(2, 1, 5, 2).slice(1, 0, 4, 3); });
  check({"Gather", {x}, {ints({3, -1, 0})}, {{"axis", std::int64_t{1}}}}, [](auto& i) {
    return i[0].index_select(1, ints({3, 3, 0}));
  });
  check({"Gather", {x}, {ints({3, 1, 0, 2}).reshape({2, 2})}, {{"axis", std::int64_t{1}}}}, [](auto& i) {
    return i[0].index_select(1, ints({3, 1, 0, 2})).reshape({2, 2, 2, 6});
  });
  check({"Pad", {x}, {ints({1, 2}), at::tensor(3.0), ints({-1})}}, [](auto& i) {
    return at::constant_pad_nd(i[0], {1, 2}, 3.0);
  });
  check({"Pad", {x}, {ints({0, 0, -1, 0, 1, 0})}}, [](auto& i) {
    return at::constant_pad_nd(i[0], {-1, 0, 0, 1});
  });
  check({"Pad",
         {at::randn({2, 3, 4, 5})},
         {ints({1, 0, 2, 1}), at::Tensor(), ints({2, 3})},
         {{"mode", std::string("reflect")}}},
        [](auto& i) {
          return at::pad(i[0], {0, 1, 1, 2}, "reflect");
        });
  check({"ReduceMean", {x}, {ints({1, 2})}}, [](auto& i) { return i[0].mean({1, 2}, true); });
  check({"ReduceMean", {x}, {ints({-1})}, {{"keepdims", std::int64_t{0}}}},
        [](auto& i) { return i[0].mean({2}); });
  check({"ReduceMean", {x}, {}, {{"noop_with_empty_axes", std::int64_t{1}}}},
        [](auto& i) { return i[0] * 1; });
}

TEST_CASE("Gather from a trainable matrix is an embedding", "[operators]") {
  Graph g;
  GraphValue weight{"weight"};
  weight.initializer = at::randn({5, 3});
  weight.trainable = true;
  const ValueId w = g.add_value(weight);
  g.inputs = {g.add_value({"x", {batch_dim, 2}, at::kLong})};
  g.outputs = {g.add_value({"y"})};
  g.nodes.push_back({"Gather", "embedding", {w, g.inputs[0]}, {g.outputs[0]}, {}});
  g.infer_shapes();
  GraphNetwork network(g);
  Batch batch;
  batch.inputs = {ints({0, 4, 4, 1}).reshape({2, 2})};
  const at::Tensor y = network.forward(batch, {});
  CHECK(at::equal(y, weight.initializer.index({batch.inputs[0]})));
  y.sum().backward();
  CHECK(at::equal(network.parameters()[0].tensor.grad().sum(1), at::tensor({3.f, 3.f, 0.f, 0.f, 6.f})));
  batch.inputs = {ints({0, 5}).reshape({1, 2})};
  CHECK_THROWS_WITH(network.forward(batch, {}), Catch::StartsWith("node \"embedding\" (Gather): "));
}

namespace {

/// ONNX's LSTM, gate by gate (operator documentation, default activations): X [time, batch, in].
std::array<at::Tensor, 3> lstm_by_definition(const at::Tensor& x, const at::Tensor& w, const at::Tensor& r,
                                             const at::Tensor& b, at::Tensor h, at::Tensor c,
                                             bool backwards) {
  const std::int64_t hidden = r.size(1);
  std::vector<at::Tensor> outputs(static_cast<std::size_t>(x.size(0)));
  for (std::int64_t step = 0; step < x.size(0); ++step) {
    const std::int64_t t = backwards ? x.size(0) - 1 - step : step;
    at::Tensor gates = at::matmul(x[t], w.t()) + at::matmul(h, r.t());
    if (b.defined()) gates = gates + b.slice(0, 0, 4 * hidden) + b.slice(0, 4 * hidden);
    const auto gate = [&](std::int64_t i) { return gates.slice(1, i * hidden, (i + 1) * hidden); };
    const at::Tensor in = gate(0).sigmoid(), out = gate(1).sigmoid(), forget = gate(2).sigmoid();
    c = forget * c + in * gate(3).tanh();
    h = out * c.tanh();
    outputs[static_cast<std::size_t>(t)] = h;
  }
  return {at::stack(outputs), h, c};
}

}  // namespace

TEST_CASE("LSTM", "[operators]") {
  at::manual_seed(0);
  const at::Tensor w = at::randn({2, 12, 4}), r = at::randn({2, 12, 3}), b = at::randn({2, 24});
  const at::Tensor x = at::randn({5, 2, 4}), h = at::randn({2, 2, 3}), c = at::randn({2, 2, 3});
  for (const std::size_t output : {0, 1, 2}) {
    const Attributes both = {{"direction", std::string("bidirectional")}, {"hidden_size", std::int64_t{3}}};
    Case initial{"LSTM", {x, w, r, b}, {at::Tensor(), h, c}, both, 3, output, false};
    check(initial, [&](auto& i) {
      const auto forward = lstm_by_definition(i[0], i[1][0], i[2][0], i[3][0], h[0], c[0], false);
      const auto backward = lstm_by_definition(i[0], i[1][1], i[2][1], i[3][1], h[1], c[1], true);
      return at::stack({forward[output], backward[output]}, output == 0 ? 1 : 0);
    });
    const Attributes batch_first = {{"layout", std::int64_t{1}}};
    Case plain{"LSTM", {x.transpose(0, 1).contiguous(), w.slice(0, 0, 1), r.slice(0, 0, 1)},
               {},     batch_first,
               3,      output};
    check(plain, [&](auto& i) {
      const at::Tensor zero = at::zeros({2, 3});
      const auto result = lstm_by_definition(i[0].transpose(0, 1), i[1][0], i[2][0], {}, zero, zero, false);
      return output == 0 ? result[0].transpose(0, 1).unsqueeze(2) : result[output].unsqueeze(1);
    });
  }
}

TEST_CASE("Attention", "[operators]") {
  at::manual_seed(0);
  const at::Tensor q = at::randn({2, 4, 6}), k = at::randn({2, 5, 6}), v = at::randn({2, 5, 8});
  const auto by_definition = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& bias, double scale) {
    return at::matmul(at::softmax(at::matmul(q, k.transpose(-1, -2)) * scale + bias, -1), v);
  };
  const auto heads = [](const at::Tensor& x, std::int64_t n) {
    return x.reshape({x.size(0), x.size(1), n, -1}).transpose(1, 2);
  };
  const auto joined = [](const at::Tensor& x) { return x.transpose(1, 2).flatten(2); };
  const Attributes two = {{"q_num_heads", std::int64_t{2}}, {"kv_num_heads", std::int64_t{2}}};
  check({"Attention", {q, k, v}, {}, two, 1, 0, false}, [&](auto& i) {
    return joined(
        by_definition(heads(i[0], 2), heads(i[1], 2), heads(i[2], 2), at::zeros({}), 1 / std::sqrt(3.0)));
  });
  Attributes causal = two;
  causal["is_causal"] = std::int64_t{1};
  causal["scale"] = 0.3;
  const at::Tensor future = at::full({4, 4}, -INFINITY).triu(1);
  check({"Attention", {q, q, q}, {}, causal, 1, 0, false}, [&](auto& i) {
    return joined(by_definition(heads(i[0], 2), heads(i[1], 2), heads(i[2], 2), future, 0.3));
  });
  const at::Tensor mask = at::randn({4, 5});
  check({"Attention",
         {heads(q, 2).contiguous(), heads(k, 2).contiguous(), heads(v, 2).contiguous()},
         {mask},
         {},
         1,
         0,
         false},
        [&](auto& i) { return by_definition(i[0], i[1], i[2], mask, 1 / std::sqrt(3.0)); });
  // Four query heads on two key heads: each key head serves two neighbours.
  const Attributes grouped = {{"q_num_heads", std::int64_t{4}}, {"kv_num_heads", std::int64_t{2}}};
  check({"Attention", {at::randn({2, 4, 12}), k, v}, {}, grouped, 1, 0, false}, [&](auto& i) {
    const at::Tensor key = heads(i[1], 2).repeat_interleave(2, 1),
                     value = heads(i[2], 2).repeat_interleave(2, 1);
    return joined(by_definition(heads(i[0], 4), key, value, at::zeros({}), 1 / std::sqrt(3.0)));
  });
}

TEST_CASE("functions of single elements, by other formulas", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({3, 4, 5}) * 2, positive = at::rand({3, 4, 5}) + 0.5;
  const double half_turn = std::acos(-1.0);
  check({"Ceil", {x}}, [](auto& i) { return -at::floor(-i[0]); });
  check({"Floor", {x}}, [](auto& i) { return -at::ceil(-i[0]); });
  check({"Sign", {x}},
        [](auto& i) { return i[0].gt(0).to(at::kFloat) - i[0].lt(0).to(at::kFloat) + 0 * i[0]; });
  check({"Cos", {x}}, [&](auto& i) { return at::sin(i[0] + half_turn / 2); });
  check({"Sin", {x}}, [&](auto& i) { return at::cos(i[0] - half_turn / 2); });
  check({"Reciprocal", {positive}}, [](auto& i) { return i[0].pow(-1); });
  check({"Softplus", {x}}, [](auto& i) { return at::log(1 + at::exp(i[0])); });
  check({"Softsign", {x}}, [](auto& i) { return i[0] / (1 + i[0].abs()); });
  check({"HardSwish", {x}}, [](auto& i) { return i[0] * at::clamp(i[0] + 3, 0, 6) / 6; });
  check({"Mish", {x}}, [](auto& i) { return i[0] * at::tanh(at::log(1 + at::exp(i[0]))); });
  check({"HardSigmoid", {x}}, [](auto& i) { return at::relu(1 - at::relu(0.5 - 0.2 * i[0])); });
  check({"HardSigmoid", {x}, {}, {{"alpha", 0.3}, {"beta", 0.1}}},
        [](auto& i) { return at::relu(1 - at::relu(0.9 - 0.3 * i[0])); });
  const at::Tensor slope = at::rand({4, 1});
  check({"PRelu", {x, slope}}, [](auto& i) { return at::relu(i[0]) - i[1] * at::relu(-i[0]); });
  check({"Cast", {x}, {}, {{"to", std::int64_t{11}}}}, [](auto& i) { return i[0].to(at::kDouble); });
  check({"Pow", {positive}, {ints({2})}}, [](auto& i) { return i[0] * i[0]; });
}

TEST_CASE("Sum, Max and Min of several", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({3, 4, 5}), y = at::randn({5}), z = at::randn({4, 5});
  check({"Sum", {x, y, z}}, [](auto& i) { return i[2] + i[1] + i[0]; });
  check({"Sum", {x}}, [](auto& i) { return i[0] * 1; });
  check({"Max", {x, y, z}}, [](auto& i) {
    return std::get<0>(at::stack({i[0], i[1].expand({3, 4, 5}), i[2].expand({3, 4, 5})}).max(0));
  });
  check({"Min", {x, y, z}}, [](auto& i) {
    return std::get<0>(at::stack({i[0], i[1].expand({3, 4, 5}), i[2].expand({3, 4, 5})}).min(0));
  });
  check({"ReduceSum", {x}, {ints({1, 2})}}, [](auto& i) { return (i[0] * 1).mean({1, 2}, true) * 20; });
  check({"ReduceMax", {x}, {ints({-1})}, {{"keepdims", std::int64_t{0}}}},
        [](auto& i) { return std::get<0>(i[0].max(2)); });
  check({"ReduceMin", {x}, {ints({-1})}}, [](auto& i) { return std::get<0>(i[0].min(2, true)); });
  check({"Expand", {at::randn({3, 1, 5})}, {ints({1, 4, 5})}}, [](auto& i) {
    return i[0] * at::ones({4, 1});
  });
  check({"Tile", {x}, {ints({1, 2, 1})}}, [](auto& i) { return at::cat({i[0], i[0]}, 1); });
}

TEST_CASE("windows over one and three dimensions, and unequal padding", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({2, 4, 5, 6, 4}), w = at::randn({6, 2, 2, 3, 2}), b = at::randn({6});
  check({"Conv", {x, w, b}, {}, {{"group", std::int64_t{2}}, {"pads", Ints{1, 0, 1, 1, 0, 1}}}}, [](auto& i) {
    return at::conv3d(i[0], i[1], i[2], 1, {1, 0, 1}, 1, 2);
  });
  check({"MaxPool", {x}, {}, {{"kernel_shape", Ints{2, 3, 2}}, {"strides", Ints{2, 1, 2}}}}, [](auto& i) {
    return at::max_pool3d(i[0], {2, 3, 2}, {2, 1, 2});
  });
  check({"AveragePool", {x}, {}, {{"kernel_shape", Ints{2, 3, 2}}, {"strides", Ints{2, 1, 2}}}}, [](auto& i) {
    return at::avg_pool3d(i[0], {2, 3, 2}, {2, 1, 2});
  });
  check({"GlobalMaxPool", {x}}, [](auto& i) {
    return std::get<0>(i[0].flatten(2).max(2)).reshape({2, 4, 1, 1, 1});
  });
  const at::Tensor line = at::randn({2, 3, 5});
  const Attributes unequal = {{"kernel_shape", Ints{3}}, {"pads", Ints{2, 0}}};
  // Windows at -2 to 2: of one, two and three elements.
  const auto windows = [](const at::Tensor& x) {
    return at::stack({x.select(2, 0), x.slice(2, 0, 2).sum(2), x.slice(2, 0, 3).sum(2),
                      x.slice(2, 1, 4).sum(2), x.slice(2, 2, 5).sum(2)},
                     2);
  };
  check({"AveragePool", {line}, {}, unequal}, [&](auto& i) {
    return windows(i[0]) / at::tensor({1.f, 2.f, 3.f, 3.f, 3.f});
  });
  Attributes counted = unequal;
  counted["count_include_pad"] = std::int64_t{1};
  check({"AveragePool", {line}, {}, counted}, [&](auto& i) { return windows(i[0]) / 3; });
  const at::Tensor image = at::randn({2, 4, 3, 4}), kernel = at::randn({4, 3, 3, 2});
  check({"ConvTranspose",
         {image, kernel, at::randn({6})},
         {},
         {{"group", std::int64_t{2}},
          {"strides", Ints{2, 3}},
          {"pads", Ints{1, 0, 1, 0}},
          {"output_padding", Ints{1, 0}}}},
        [](auto& i) {
          return at::conv_transpose2d(i[0], i[1], i[2], {2, 3}, {1, 0}, {1, 0}, 2);
        });
  check({"ConvTranspose", {image, kernel}, {}, {{"pads", Ints{1, 0, 0, 1}}}},
        [](auto& i) { return at::conv_transpose2d(i[0], i[1]).slice(2, 1).slice(3, 0, -1); });
  check({"ConvTranspose", {line, at::randn({3, 2, 4})}, {}, {{"strides", Ints{2}}, {"dilations", Ints{2}}}},
        [](auto& i) { return at::conv_transpose1d(i[0], i[1], {}, 2, 0, 0, 1, 2); });
  check({"ConvTranspose", {x, at::randn({4, 3, 2, 2, 2})}},
        [](auto& i) { return at::conv_transpose3d(i[0], i[1]); });
}

TEST_CASE("normalizations by their formulas", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({2, 6, 3, 4}), scale = at::randn({6}), bias = at::randn({6});
  const auto by_groups = [](auto& i, std::int64_t groups, double epsilon) {
    const at::Tensor g = i[0].reshape({2, groups, -1});
    const at::Tensor centred = g - g.mean(2, true);
    const at::Tensor normal = centred / at::sqrt(centred.square().mean(2, true) + epsilon);
    return normal.reshape({2, 6, 3, 4}) * i[1].reshape({6, 1, 1}) + i[2].reshape({6, 1, 1});
  };
  check({"InstanceNormalization", {x, scale, bias}, {}, {{"epsilon", 1e-3}}},
        [&](auto& i) { return by_groups(i, 6, 1e-3); });
  check({"GroupNormalization", {x, scale, bias}, {}, {{"num_groups", std::int64_t{3}}}},
        [&](auto& i) { return by_groups(i, 3, 1e-5); });
  for (const std::int64_t size : {3, 4}) {
    const Attributes attributes = {{"size", size}, {"alpha", 0.5}, {"beta", 0.6}, {"bias", 1.5}};
    check({"LRN", {x}, {}, attributes}, [&](auto& i) {
      std::vector<at::Tensor> channels;
      for (std::int64_t c = 0; c < 6; ++c) {
        const std::int64_t first = std::max<std::int64_t>(0, c - (size - 1) / 2),
                           last = std::min<std::int64_t>(5, c + size / 2);
        const at::Tensor sum = i[0].slice(1, first, last + 1).square().sum(1);
        channels.push_back(i[0].select(1, c) / at::pow(1.5 + 0.5 / static_cast<double>(size) * sum, 0.6));
      }
      return at::stack(channels, 1);
    });
  }
}

TEST_CASE("comparisons, truths and what they choose", "[operators]") {
  at::manual_seed(0);
  const at::Tensor a = at::randint(-3, 4, {4, 6}, at::kLong), b = at::randint(-3, 4, {6}, at::kLong);
  const auto sign = [](auto& i) { return at::sign(i[0] - i[1]); };
  check({"Equal", {a, b}}, [&](auto& i) { return sign(i).abs().lt(1); });
  check({"Greater", {a, b}}, [&](auto& i) { return sign(i).eq(1); });
  check({"GreaterOrEqual", {a, b}}, [&](auto& i) { return sign(i).ne(-1); });
  check({"Less", {a, b}}, [&](auto& i) { return sign(i).eq(-1); });
  check({"LessOrEqual", {a, b}}, [&](auto& i) { return sign(i).ne(1); });
  const at::Tensor yes = a.gt(0), no = b.lt(0);
  check({"And", {yes, no}}, [](auto& i) { return (i[0].to(at::kLong) * i[1].to(at::kLong)).eq(1); });
  check({"Or", {yes, no}}, [](auto& i) { return (i[0].to(at::kLong) + i[1].to(at::kLong)).gt(0); });
  check({"Not", {yes}}, [](auto& i) { return i[0].to(at::kLong).eq(0); });
  const at::Tensor x = at::randn({4, 6}), y = at::randn({6});
  check({"Where", {yes, x, y}, {}, {}, 1, 0, false}, [](auto& i) {
    const at::Tensor first = i[0].to(at::kFloat);
    return first * i[1] + (1 - first) * i[2];
  });
  check({"Mod", {a * 5, at::tensor({3, -3, 4, -4, 5, 7}, at::kLong)}},
        [](auto& i) { return i[0] - i[1] * at::floor(i[0].to(at::kDouble) / i[1]).to(at::kLong); });
  check({"Mod", {x * 5, y.abs() + 0.5}, {}, {{"fmod", std::int64_t{1}}}},
        [](auto& i) { return i[0] - i[1] * at::trunc(i[0] / i[1]).detach(); });
}

TEST_CASE("GRU and RNN by their formulas, each way", "[operators]") {
  at::manual_seed(0);
  const std::int64_t time = 4, batch = 3, in = 2, hidden = 5;
  for (const std::string cell : {"GRU", "GRU that resets ahead", "Tanh", "Relu"})
    for (const std::string direction : {"forward", "reverse", "bidirectional"})
      for (const bool batch_first : {true, false}) {
        const bool is_gru = cell.starts_with("GRU");
        const std::int64_t directions = direction == "bidirectional" ? 2 : 1, gates = is_gru ? 3 : 1;
        const auto turned = [&](const at::Tensor& x) {
          return batch_first ? x : x.transpose(0, 1).contiguous();
        };
        const at::Tensor x = at::randn({batch, time, in}), w = at::randn({directions, gates * hidden, in}),
                         r = at::randn({directions, gates * hidden, hidden}),
                         b = at::randn({directions, 2 * gates * hidden}),
                         h0 = at::randn({batch, directions, hidden});
        const auto by_formula = [&](auto& i, bool last) {
          std::vector<at::Tensor> ways, states;
          for (std::int64_t d = 0; d < directions; ++d) {
            at::Tensor h = h0.select(1, d);
            std::vector<at::Tensor> outputs(static_cast<std::size_t>(time));
            for (std::int64_t step = 0; step < time; ++step) {
              const std::int64_t t = d == 1 || direction == "reverse" ? time - 1 - step : step;
              const at::Tensor of_x =
                  at::linear(turned(i[0]).select(1, t), i[1][d], b[d].slice(0, 0, gates * hidden));
              const auto of_h = [&](const at::Tensor& state) {
                return at::linear(state, i[2][d], b[d].slice(0, gates * hidden));
              };
              const auto gate = [&](const at::Tensor& of, std::int64_t k) {
                return of.slice(1, k * hidden, (k + 1) * hidden);
              };
              const at::Tensor sums = of_h(h);
              if (is_gru) {
                const at::Tensor z = at::sigmoid(gate(of_x, 0) + gate(sums, 0)),
                                 reset = at::sigmoid(gate(of_x, 1) + gate(sums, 1)),
                                 again = cell == "GRU" ? reset * gate(sums, 2) : gate(of_h(reset * h), 2);
                h = (1 - z) * at::tanh(gate(of_x, 2) + again) + z * h;
              } else {
                h = cell == "Tanh" ? at::tanh(of_x + sums) : at::relu(of_x + sums);
              }
              outputs[static_cast<std::size_t>(t)] = h;
            }
            ways.push_back(at::stack(outputs, 1));
            states.push_back(h);
          }
          if (last) return turned(at::stack(states, 1));
          return batch_first ? at::stack(ways, 2) : at::stack(ways, 2).permute({1, 2, 0, 3});
        };
        Attributes attributes = {
            {"hidden_size", hidden}, {"layout", std::int64_t{batch_first ? 1 : 0}}, {"direction", direction}};
        if (cell == "GRU") attributes["linear_before_reset"] = std::int64_t{1};
        if (!is_gru)
          attributes["activations"] = std::vector<std::string>(static_cast<std::size_t>(directions), cell);
        for (const std::size_t output : {0, 1}) {
          INFO(cell << ", " << direction << ", output " << output << ", batch first " << batch_first);
          check(
              {is_gru ? "GRU" : "RNN", {turned(x), w, r}, {b, {}, turned(h0)}, attributes, 2, output, false},
              [&](auto& i) { return by_formula(i, output == 1); });
        }
      }
}

TEST_CASE("Resize by the weights of each place", "[operators]") {
  at::manual_seed(0);
  const at::Tensor x = at::randn({2, 3, 4, 5});
  // Rows of places in the new side, columns of places in the old one.
  const auto weights = [](std::int64_t from, std::int64_t to, double scale, bool corners) {
    at::Tensor all = at::zeros({to, from});
    for (std::int64_t i = 0; i < to; ++i) {
      const auto place = static_cast<double>(i);
      const double at =
          std::clamp(corners ? place * static_cast<double>(from - 1) / static_cast<double>(to - 1)
                             : (place + 0.5) / scale - 0.5,
                     0.0, static_cast<double>(from - 1));
      const auto low = static_cast<std::int64_t>(at), high = std::min(low + 1, from - 1);
      all[i][low] += 1.0 - (at - static_cast<double>(low));
      all[i][high] += at - static_cast<double>(low);
    }
    return all;
  };
  const auto attributes = [](const char* mode, const char* places) {
    return Attributes{{"axes", Ints{2, 3}},
                      {"mode", mode},
                      {"coordinate_transformation_mode", places},
                      {"nearest_mode", "floor"}};
  };
  const at::Tensor scales = at::tensor({2.0f, 1.5f});
  check({"Resize", {x}, {{}, scales}, attributes("linear", "half_pixel")}, [&](auto& i) {
    return at::matmul(at::matmul(weights(4, 8, 2.0, false), i[0]), weights(5, 7, 1.5, false).t());
  });
  check({"Resize", {x}, {{}, {}, ints({7, 9})}, attributes("linear", "align_corners")}, [&](auto& i) {
    return at::matmul(at::matmul(weights(4, 7, 0.0, true), i[0]), weights(5, 9, 0.0, true).t());
  });
  check({"Resize", {x}, {{}, {}, ints({8, 15})}, attributes("nearest", "asymmetric")},
        [](auto& i) { return i[0].repeat_interleave(2, 2).repeat_interleave(3, 3); });
}

TEST_CASE("every operator of the table is covered above", "[operators]") {
  for (const std::string& name : known_operators()) {
    INFO(name);
    CHECK(covered.contains(name));
  }
}

}  // namespace test_operators_tests
