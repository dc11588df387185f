// The parts of the executor hfta: rules of operators and optimizers for an array of models, against one plain network,
// or one plugin, a member.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/random.hpp>

#include "plugins/executor/hfta/array.hpp"
#include "plugins/executor/hfta/optimizer.hpp"
#include "tests/support/plugin.hpp"

namespace hfta_tests {

using namespace trainyard;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t samples = 3;

/// A graph with a few layers around the operator that is tried.
struct Case {
  std::string op;  ///< that it is about
  std::vector<std::int64_t> input;
  std::function<ValueId(GraphBuilder&, ValueId)> layers;
  at::ScalarType dtype = at::kFloat;
  bool is_fused = true;
};

BatchSchema schema_of(const Case& test) {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = test.input, .dtype = test.dtype}};
  return schema;
}

/// Every parameter and statistic drawn, so that none is 0 or 1; the same numbers in either precision.
std::unique_ptr<GraphNetwork> network_of(const Case& test, std::uint64_t seed,
                                         at::ScalarType precision = at::kDouble) {
  GraphBuilder builder(schema_of(test), seed);
  Graph graph = builder.finish(test.layers(builder, builder.input()));
  at::Generator generator = at::detail::createCPUGenerator(seed + 1);
  for (GraphValue& value : graph.values) {
    if (value.initializer.defined() && at::isFloatingType(value.initializer.scalar_type())) {
      if (value.shape.empty() || !value.name.ends_with("constant"))
        value.initializer = at::randn(value.initializer.sizes(), generator, at::kFloat).mul_(0.5);
      if (value.name.ends_with("running_var")) value.initializer = value.initializer.abs().add(0.3);
      value.initializer = value.initializer.to(precision);
    }
    if (at::isFloatingType(value.dtype)) value.dtype = precision;
  }
  graph.infer_shapes();
  return std::make_unique<GraphNetwork>(std::move(graph));
}

/// The largest difference of two tensors, relative to the largest element, or to `least`: all elements count.
double difference(const at::Tensor& a, const at::Tensor& b, double least = 1e-300) {
  REQUIRE(a.sizes() == b.sizes());
  const at::Tensor whole = b.to(at::kDouble);
  return (a.to(at::kDouble) - whole).abs().max().item<double>() /
         std::max(least, whole.abs().max().item<double>());
}

std::vector<Case> cases() {
  using B = GraphBuilder;
  const auto unary = [](const char* op) {
    return Case{op, {6}, [op](B& b, ValueId x) { return b.node(op, "", {b.linear(x, "fc", 5)}); }};
  };
  const auto conv = [](std::int64_t groups, std::int64_t stride, std::int64_t padding) {
    return [=](B& b, ValueId x) {
      x = b.conv2d(x, "first", 4, {.kernel = 3, .padding = 1});
      return b.conv2d(x, "second", 6, {.kernel = 3, .stride = stride, .padding = padding, .groups = groups});
    };
  };
  const auto image = [](auto layer) {
    return [=](B& b, ValueId x) { return layer(b, b.conv2d(x, "conv", 4, {.kernel = 3, .padding = 1})); };
  };
  const auto tokens = [](B& b, ValueId x) { return b.embedding(x, "tokens", 11, 8).output; };
  std::vector<Case> all = {
      {"Gemm", {6}, [](B& b, ValueId x) { return b.linear(b.linear(x, "one", 5), "two", 4); }},
      {"Gemm without bias",
       {6},
       [](B& b, ValueId x) { return b.linear(b.linear(x, "one", 5, false), "two", 4, false); }},
      {"Gemm of a sequence",
       {4, 6},
       [](B& b, ValueId x) { return b.linear(b.linear(x, "one", 5), "two", 4); }},
      {"Gemm and Relu",
       {6},
       [](B& b, ValueId x) {
         x = b.node("Relu", "", {b.linear(x, "one", 37)});
         return b.node("Relu", "", {b.linear(x, "two", 18, false)});
       }},
      {"Gemm whose output is read ahead of the Relu, too",
       {6},
       [](B& b, ValueId x) {
         x = b.linear(x, "one", 5);
         return b.add(b.node("Relu", "", {x}), x);
       }},
      {"Gemm, of one weight in two",
       {6},
       [](B& b, ValueId x) {
         const ValueId weight = b.uniform_parameter("weight", {6, 6}, 1.0);
         x = b.node("Relu", "", {b.tied_linear(x, "one", weight)});
         return b.tied_linear(x, "two", weight);
       }},
      {"Gemm with the table of an embedding",
       {5},
       [](B& b, ValueId x) {
         const auto [y, table] = b.embedding(x, "tokens", 11, 8);
         const ValueId mean = b.node("ReduceMean", "", {y, b.constant("axes.constant", at::tensor({1L}))},
                                     {{"keepdims", std::int64_t{0}}});
         return b.tied_linear(mean, "scores", table);
       },
       at::kLong},
      {"Conv", {2, 6, 6}, conv(1, 1, 1)},
      {"Conv in groups", {2, 6, 6}, conv(2, 2, 1)},
      // Without a bias ahead of it, whose gradient would be 0 but for rounding.
      {"BatchNormalization",
       {2, 5, 5},
       [](B& b, ValueId x) {
         return b.batch_norm(b.conv2d(x, "conv", 4, {.kernel = 3, .bias = false}), "norm");
       }},
      {"BatchNormalization of rows",
       {6},
       [](B& b, ValueId x) { return b.batch_norm(b.linear(x, "fc", 5, false), "norm"); }},
      {"LayerNormalization",
       {4, 6},
       [](B& b, ValueId x) { return b.layer_norm(b.linear(x, "fc", 5), "norm"); }},
      {"Gather", {5}, [=](B& b, ValueId x) { return b.linear(tokens(b, x), "fc", 4); }, at::kLong},
      {"MaxPool", {2, 6, 6}, image([](B& b, ValueId x) { return b.max_pool2d(x, 2, 2); })},
      {"Relu and MaxPool of windows that overlap", {2, 7, 9}, image([](B& b, ValueId x) {
         return b.max_pool2d(b.node("Relu", "", {x}), 3, 2);
       })},
      {"Relu and MaxPool, apart",
       {1, 9, 9},
       [](B& b, ValueId x) {
         for (const char* name : {"one", "two"})
           x = b.max_pool2d(b.node("Relu", "", {b.conv2d(x, name, 3, {.kernel = 3, .padding = 1})}), 2, 2);
         return x;
       }},
      {"MaxPool of a Relu that others read", {2, 6, 6}, image([](B& b, ValueId x) {
         x = b.node("Relu", "", {x});
         return b.add(b.max_pool2d(x, 1, 1), x);
       })},
      {"Relu and MaxPool of what all share",
       {2, 6, 6},
       [](B& b, ValueId x) {
         x = b.max_pool2d(b.node("Relu", "", {x}), 2, 2);
         return b.conv2d(x, "conv", 3, {.kernel = 3, .padding = 1});
       }},
      {"MaxPool with padding", {2, 6, 6}, image([](B& b, ValueId x) {
         return b.max_pool2d(b.node("Relu", "", {x}), 3, 2, 1);
       })},
      {"AveragePool", {2, 6, 6}, image([](B& b, ValueId x) { return b.average_pool2d(x, 2, 2); })},
      {"GlobalAveragePool", {2, 6, 6}, image([](B& b, ValueId x) { return b.global_average_pool(x); })},
      {"Flatten", {2, 4, 4}, image([](B& b, ValueId x) { return b.linear(b.flatten(x), "fc", 3); })},
      {"Add", {2, 4, 4}, image([](B& b, ValueId x) {
         return b.add(x, b.conv2d(x, "other", 4, {.kernel = 1}));
       })},
      {"Mul", {6}, [](B& b, ValueId x) { return b.mul(b.linear(x, "one", 6), x); }},
      {"Softmax", {6}, [](B& b, ValueId x) { return b.softmax(b.linear(x, "fc", 5)); }},
      {"Transpose",
       {4, 6},
       [](B& b, ValueId x) {
         return b.transpose(b.linear(x, "fc", 5), {0, 2, 1});
       }},
      {"Concat",
       {6},
       [](B& b, ValueId x) {
         return b.concat({b.linear(x, "a", 3), b.linear(x, "b", 2), x}, 1);
       }},
      {"Concat of members",
       {6},
       [](B& b, ValueId x) {
         return b.concat({b.linear(x, "a", 3), b.linear(x, "b", 2)}, 1);
       }},
      {"Split",
       {6},
       [](B& b, ValueId x) {
         const auto parts = b.split(b.linear(x, "a", 4), 2, 1);
         return b.mul(parts[0], parts[1]);
       }},
      {"Slice", {6}, [](B& b, ValueId x) { return b.slice(b.linear(x, "a", 6), 1, 1, 5, 2); }},
      {"Pad", {6}, [](B& b, ValueId x) { return b.pad(b.linear(x, "a", 4), 1, 1, 2); }},
      {"Reshape",
       {6},
       [](B& b, ValueId x) {
         return b.reshape(b.linear(x, "a", 6), {0, 2, 3});
       }},
      {"Attention",
       {5},
       [=](B& b, ValueId x) {
         const ValueId y = tokens(b, x);
         return b.attention(b.linear(y, "q", 8), b.linear(y, "k", 8), b.linear(y, "v", 8), "attend", 2, true);
       },
       at::kLong},
      {"LSTM", {4, 6}, [](B& b, ValueId x) { return b.lstm(b.lstm(x, "one", 5), "two", 3); }},
      {"MatMul",
       {4, 6},
       [](B& b, ValueId x) {
         const ValueId y = b.linear(x, "fc", 5);
         return b.node("MatMul", "", {y, b.transpose(y, {0, 2, 1})});
       }},
      {"MatMul with a parameter",
       {4, 6},
       [](B& b, ValueId x) {
         return b.node("MatMul", "", {x, b.uniform_parameter("matrix", {6, 3}, 1.0)});
       }},
      {"PRelu", {2, 4, 4}, image([](B& b, ValueId x) {
         return b.node("PRelu", "", {x, b.uniform_parameter("slope", {4, 1, 1}, 1.0)});
       })},
      {"GroupNormalization", {2, 4, 4}, image([](B& b, ValueId x) {
         return b.node(
             "GroupNormalization", "norm",
             {x, b.uniform_parameter("norm.weight", {4}, 1.0), b.uniform_parameter("norm.bias", {4}, 1.0)},
             {{"num_groups", std::int64_t{2}}});
       })},
      {"InstanceNormalization", {2, 4, 4}, image([](B& b, ValueId x) {
         return b.node(
             "InstanceNormalization", "norm",
             {x, b.uniform_parameter("norm.weight", {4}, 1.0), b.uniform_parameter("norm.bias", {4}, 1.0)});
       })},
      {"ConvTranspose", {2, 4, 4}, image([](B& b, ValueId x) {
         return b.node("ConvTranspose", "up",
                       {x, b.uniform_parameter("up.weight", {4, 3, 3, 3}, 1.0),
                        b.uniform_parameter("up.bias", {6}, 1.0)},
                       {{"group", std::int64_t{2}},
                        {"strides", std::vector<std::int64_t>{2, 2}},
                        {"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
                        {"output_padding", std::vector<std::int64_t>{1, 1}}});
       })},
      {"LRN", {2, 4, 4}, image([](B& b, ValueId x) {
         return b.node("LRN", "", {x}, {{"size", std::int64_t{3}}});
       })},
      {"ReduceMean",
       {4, 6},
       [](B& b, ValueId x) {
         return b.node("ReduceMean", "",
                       {b.linear(x, "fc", 5), b.constant("axes.constant", at::tensor({1L}))});
       }},
  };
  for (const char* op : {"Relu", "Gelu", "Sigmoid", "Tanh", "Elu", "Softplus", "LeakyRelu", "Exp"})
    all.push_back(unary(op));
  return all;
}

}  // namespace

namespace {

/// Differences of an array from plain networks in double precision.
struct Differences {
  double output = 0.0, gradient = 0.0, statistic = 0.0, evaluated = 0.0;
  double worst() const { return std::max({output, gradient, statistic, evaluated}); }
};

Differences differences(const Case& test, std::int64_t members, at::ScalarType precision,
                        hfta::Passes passes) {
  std::vector<std::unique_ptr<Network>> networks;
  std::vector<std::unique_ptr<GraphNetwork>> plain;
  for (std::int64_t b = 0; b < members; ++b) {
    networks.push_back(network_of(test, 7 + static_cast<std::uint64_t>(b), precision));
    plain.push_back(network_of(test, 7 + static_cast<std::uint64_t>(b)));
  }
  hfta::Array array(std::move(networks), passes);
  if (passes == hfta::Passes::eager) CHECK(array.text().empty() == test.is_fused);
  std::vector<std::int64_t> shape = test.input;
  shape.insert(shape.begin(), samples);
  at::Generator generator = at::detail::createCPUGenerator(5);
  const at::Tensor x = test.dtype == at::kLong ? at::randint(0, 11, shape, generator, at::kLong)
                                               : at::randn(shape, generator, at::kFloat);
  const auto in = [&](const at::Tensor& of, at::ScalarType as) {
    return test.dtype == at::kLong ? of : of.to(as);
  };
  // Some gradients are 0 but for rounding, as that of a bias ahead of a normalisation.
  const double least = precision == at::kFloat ? 0.1 : 1e-300;
  Differences found;
  const ForwardContext pass{.training = true};
  const at::Tensor output = array.forward({in(x, precision)}, pass);
  const at::Tensor factor = at::randn(output.sizes(), generator, at::kFloat).to(precision);
  // As a loss of each member.
  array.backward((output * factor).flatten(1).sum(1), 1.0, false);
  for (std::int64_t b = 0; b < members; ++b) {
    INFO("member " << b);
    const auto& own = plain[static_cast<std::size_t>(b)];
    const at::Tensor expected = own->forward_all({in(x, at::kDouble)}, pass).front();
    expected.backward(factor[b].to(at::kDouble));
    found.output = std::max(found.output, difference(output[b].detach(), expected.detach()));
    const std::vector<NamedTensor> parameters = own->parameters(),
                                   gradients = array.row(array.gradients(), b);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      REQUIRE(parameters[i].name == gradients[i].name);
      found.gradient =
          std::max(found.gradient, difference(gradients[i].tensor, parameters[i].tensor.grad(), least));
    }
    for (const NamedTensor& each : array.buffers(b))
      for (const NamedTensor& buffer : own->buffers())
        if (buffer.name == each.name)
          found.statistic = std::max(found.statistic, difference(each.tensor, buffer.tensor));
  }
  // A second time, which is added.
  const at::Tensor once = array.gradients().clone();
  array.backward((array.forward({in(x, precision)}, pass) * factor).flatten(1).sum(1), 0.5, true);
  found.gradient = std::max(found.gradient, difference(array.gradients(), 1.5 * once));
  // In evaluation, where statistics are read.
  const at::NoGradGuard untracked;
  for (std::int64_t b = 0; b < members; ++b)
    plain[static_cast<std::size_t>(b)]->forward_all({in(x, at::kDouble)}, pass);
  const at::Tensor evaluated = array.forward({in(x, precision)}, {});
  for (std::int64_t b = 0; b < members; ++b)
    found.evaluated = std::max(
        found.evaluated,
        difference(evaluated[b],
                   plain[static_cast<std::size_t>(b)]->forward_all({in(x, at::kDouble)}, {}).front()));
  return found;
}

void compare(at::ScalarType precision, double bar, const std::vector<Case>& tests = cases(),
             hfta::Passes passes = hfta::Passes::eager) {
  const at::AutoGradMode tracked(true);
  double worst = 0.0;
  for (const Case& test : tests)
    for (const std::int64_t members : {1, 3, 8}) {
      INFO(test.op << " of " << members);
      const Differences found = differences(test, members, precision, passes);
      CHECK(found.output <= bar);
      CHECK(found.gradient <= bar);
      CHECK(found.statistic <= bar);
      CHECK(found.evaluated <= bar);
      worst = std::max(worst, found.worst());
    }
  UNSCOPED_INFO("worst " << worst);
  CHECK(worst <= bar);
}

}  // namespace

TEST_CASE("operators of an array give what each member's plain network gives, forward and backward") {
  compare(at::kDouble, 1e-12);
}

TEST_CASE("operators of an array give in single precision what networks in double give, but for rounding") {
  compare(at::kFloat, 2e-5);
}

namespace {

/// Networks in which members are one node for all up to somewhere, by each way out of that.
std::vector<Case> planned_cases() {
  using B = GraphBuilder;
  const auto named = [](B& b, const char* op, ValueId x) { return b.node(op, "", {x}); };
  return {
      {"LeNet",
       {1, 14, 14},
       [=](B& b, ValueId x) {
         x = b.max_pool2d(b.relu(b.conv2d(x, "one", 6, {.kernel = 5, .padding = 2})), 2, 2);
         x = b.flatten(b.max_pool2d(b.relu(b.conv2d(x, "two", 16, {.kernel = 3})), 2, 2));
         return b.linear(b.relu(b.linear(x, "three", 12)), "four", 5);
       }},
      {"wide, in groups, in groups again, without biases",
       {3, 9, 7},
       [=](B& b, ValueId x) {
         x = b.average_pool2d(
             named(b, "Tanh", b.conv2d(x, "one", 5, {.kernel = 3, .padding = 1, .bias = false})), 2, 1);
         x = b.relu(b.conv2d(x, "two", 16, {.kernel = 3, .padding = 1, .bias = false}));
         x = named(b, "Sigmoid", b.conv2d(x, "three", 32, {.kernel = 1, .bias = false}));
         return b.linear(b.flatten(b.global_average_pool(x)), "four", 3);
       }},
      {"wide, then no groups: a stride",
       {2, 8, 8},
       [=](B& b, ValueId x) {
         x = b.relu(b.conv2d(x, "one", 6, {.kernel = 3, .padding = 1}));
         return b.relu(b.conv2d(x, "two", 16, {.kernel = 3, .stride = 2}));
       }},
      {"wide, then channels that fill no block",
       {2, 8, 8},
       [=](B& b, ValueId x) {
         x = b.relu(b.conv2d(x, "one", 3, {.kernel = 3, .padding = 1}));
         return b.conv2d(x, "two", 5, {.kernel = 3});
       }},
      {"wide, and read by several",
       {2, 6, 6},
       [=](B& b, ValueId x) {
         x = b.relu(b.conv2d(x, "one", 6, {.kernel = 3, .padding = 1}));
         const ValueId y = b.conv2d(x, "two", 6, {.kernel = 3, .padding = 1}),
                       z = b.conv2d(x, "three", 16, {.kernel = 3, .padding = 1});
         return b.concat({b.add(x, y), z, b.relu(x)}, 1);
       }},
      {"wide, and the output",
       {2, 6, 6},
       [=](B& b, ValueId x) { return b.conv2d(x, "one", 6, {.kernel = 3, .stride = 2}); }},
      {"wide, then a normalisation",
       {2, 6, 6},
       [=](B& b, ValueId x) {
         x = b.relu(b.batch_norm(b.conv2d(x, "one", 6, {.kernel = 3, .padding = 1, .bias = false}), "norm"));
         return b.linear(b.flatten(x), "fc", 3);
       }},
      {"apart, as channels fill a block",
       {3, 6, 6},
       [=](B& b, ValueId x) {
         x = b.max_pool2d(b.relu(b.conv2d(x, "one", 16, {.kernel = 3, .padding = 1})), 2, 2);
         return b.relu(b.conv2d(x, "two", 16, {.kernel = 3, .padding = 1}));
       }},
      {"wide, of what is computed once for all",
       {2, 6, 6},
       [=](B& b, ValueId x) {
         const ValueId shared = b.add(named(b, "Relu", x), x);
         x = b.relu(b.conv2d(shared, "one", 6, {.kernel = 3, .padding = 1}));
         return b.concat({x, shared}, 1);
       }},
      {"one weight in two wide convolutions",
       {2, 6, 6},
       [=](B& b, ValueId x) {
         const ValueId weight = b.uniform_parameter("weight", {6, 2, 3, 3}, 1.0);
         const auto conv = [&](const char* name, ValueId of, std::int64_t pad) {
           return b.node("Conv", name, {of, weight}, {{"pads", std::vector<std::int64_t>(4, pad)}});
         };
         return b.concat({b.flatten(conv("one", x, 1)), b.flatten(conv("two", b.max_pool2d(x, 2, 1), 0))}, 1);
       }},
      {"in groups twice as many",
       {4, 6, 6},
       [=](B& b, ValueId x) {
         x = b.relu(b.conv2d(x, "one", 6, {.kernel = 3, .padding = 1}));
         return b.conv2d(x, "two", 32, {.kernel = 3, .groups = 2});
       }},
  };
}

}  // namespace

TEST_CASE("members of an array by one plan give what networks in double precision give, but for rounding") {
  std::vector<Case> all = cases();
  std::ranges::move(planned_cases(), std::back_inserter(all));
  compare(at::kFloat, 2e-5, all, hfta::Passes::compiled);
}

TEST_CASE("members by one plan do not depend on each other") {
  const at::AutoGradMode tracked(true);
  for (const Case& test : planned_cases()) {
    INFO(test.op);
    const auto pass = [&](float spoilt) {
      std::vector<std::unique_ptr<Network>> networks;
      for (std::uint64_t b = 0; b < 4; ++b) networks.push_back(network_of(test, b, at::kFloat));
      for (const NamedTensor& each : networks[1]->parameters())
        if (spoilt != 0.0f) at::Tensor(each.tensor.detach()).fill_(spoilt);
      hfta::Array array(std::move(networks), hfta::Passes::compiled);
      std::vector<std::int64_t> shape = test.input;
      shape.insert(shape.begin(), samples);
      const at::Tensor x =
          at::arange(at::tensor(shape).prod().item<std::int64_t>(), at::kFloat).sin().view(shape);
      const at::Tensor outputs = array.forward({x}, {.training = true});
      array.backward(outputs.square().flatten(1).sum(1), 1.0, false);
      return std::pair(outputs.detach().clone(), array.gradients().clone());
    };
    const auto [outputs, gradients] = pass(0.0f);
    for (const float spoilt : {1e30f, std::numeric_limits<float>::quiet_NaN()}) {
      const auto [others, of_others] = pass(spoilt);
      CHECK_FALSE(at::equal(outputs[1], others[1]));
      for (const std::int64_t b : {0, 2, 3}) {
        CHECK(at::equal(outputs[b], others[b]));
        CHECK(at::equal(gradients[b], of_others[b]));
      }
    }
  }
}

TEST_CASE("an array in double precision has no plan") {
  std::vector<std::unique_ptr<Network>> networks;
  for (std::uint64_t b = 0; b < 2; ++b) networks.push_back(network_of(planned_cases().front(), b));
  CHECK_THROWS_WITH(hfta::Array(std::move(networks), hfta::Passes::compiled), Contains("single precision"));
}

TEST_CASE("hooks on gradients come and go where layers go back by themselves") {
  const at::AutoGradMode tracked(true);
  const Case layers{"", {6}, [](GraphBuilder& b, ValueId x) {
                      return b.linear(b.node("Relu", "", {b.linear(x, "one", 5)}), "two", 4);
                    }};
  for (const auto& [precision, passes] : {std::pair{at::kFloat, hfta::Passes::eager},
                                          {at::kDouble, hfta::Passes::eager},
                                          {at::kFloat, hfta::Passes::compiled}}) {
    std::vector<std::unique_ptr<Network>> networks;
    for (std::uint64_t b = 0; b < 3; ++b) networks.push_back(network_of(layers, b, precision));
    hfta::Array array(std::move(networks), passes);
    const at::Tensor x = at::randn({samples, 6}, precision);
    const auto gradients = [&](const auto& listen) {
      const at::Tensor output = array.forward({x}, {.training = true}), loss = output.square().flatten(1);
      listen(output, loss);
      array.backward(loss.sum(1), 1.0, false);
      return array.gradients().clone();
    };
    const auto nobody = [](const at::Tensor&, const at::Tensor&) {};
    const auto twice = [](const at::Tensor& gradient) { return at::mul(gradient, 2.0); };
    const at::Tensor plain = gradients(nobody);
    for (const bool at_output : {true, false}) {
      const at::Tensor doubled = gradients([&](const at::Tensor& output, const at::Tensor& loss) {
        (at_output ? output : loss).register_hook(twice);
      });
      CHECK(at::equal(doubled, plain.mul(2.0)));
      CHECK(at::equal(gradients(nobody), plain));
    }
    at::Tensor kept;
    const at::Tensor beside = gradients([&](const at::Tensor& output, const at::Tensor&) {
      output.retain_grad();
      kept = output;
    });
    CHECK(at::equal(beside, plain));
    CHECK(at::allclose(kept.grad(), kept.detach().mul(2.0)));
    const at::Tensor without = gradients([&](const at::Tensor& output, const at::Tensor&) {
      output.remove_hook(output.register_hook(twice));
    });
    CHECK(at::equal(without, plain));
  }
}

namespace {

/// A network of one linear layer whose weight and bias are drawn.
std::unique_ptr<Network> small_network(std::uint64_t seed) {
  return network_of({"", {3}, [](GraphBuilder& b, ValueId x) { return b.linear(x, "fc", 2); }}, seed);
}

hfta::Array small_array(std::size_t members) {
  std::vector<std::unique_ptr<Network>> networks;
  for (std::size_t b = 0; b < members; ++b) networks.push_back(small_network(b));
  return hfta::Array(std::move(networks));
}

struct Optimizing {
  std::string type;
  std::vector<std::pair<std::string, Value>> options;  ///< of all members
  /// Those of one of them.
  std::function<std::vector<std::pair<std::string, Value>>(std::size_t)> own;
};

Table table_of(const Optimizing& test, std::size_t member) {
  Table table;
  table.set("type", test.type);
  for (const auto& [key, value] : test.options) table.set(key, value);
  for (const auto& [key, value] : test.own(member)) table.set(key, value);
  return table;
}

Value numbers(std::vector<double> values) {
  Array list;
  for (const double each : values) list.emplace_back(each);
  return list;
}

std::vector<Optimizing> optimizings() {
  using Own = std::vector<std::pair<std::string, Value>>;
  const auto rates = [](std::size_t b) {
    return Own{{"lr", 0.01 * static_cast<double>(b + 1)},
               {"weight_decay", b == 1 ? 0.0 : 0.1 * static_cast<double>(b)}};
  };
  const auto with = [rates](auto more) {
    return [=](std::size_t b) {
      Own own = rates(b);
      for (auto& each : more(static_cast<double>(b))) own.push_back(std::move(each));
      return own;
    };
  };
  const auto betas = with([](double b) {
    return Own{{"betas", numbers({0.9 - 0.2 * b, 0.999 - 0.1 * b})}, {"eps", 1e-8 * (b + 1)}};
  });
  const Own plain_adam = {{"amsgrad", false}}, amsgrad = {{"amsgrad", true}};
  return {
      {"sgd", {{"momentum", 0.0}, {"dampening", 0.0}, {"nesterov", false}}, rates},
      {"sgd", {{"nesterov", false}}, with([](double b) {
         return Own{{"momentum", 0.4 * b}, {"dampening", 0.1 * b}};
       })},
      {"sgd", {{"dampening", 0.0}, {"nesterov", true}}, with([](double b) {
         return Own{{"momentum", 0.5 + 0.1 * b}};
       })},
      {"adam", plain_adam, betas},
      {"adam", amsgrad, betas},
      {"adamw", plain_adam, betas},
      {"adagrad", {}, with([](double b) {
         return Own{{"lr_decay", 0.1 * b}, {"initial_accumulator", 0.1 * b}, {"eps", 1e-10 * (b + 1)}};
       })},
      {"rmsprop", {{"centered", false}}, with([](double b) {
         return Own{{"alpha", 0.9 - 0.1 * b}, {"eps", 1e-8}, {"momentum", 0.0}};
       })},
      {"rmsprop", {{"centered", true}}, with([](double b) {
         return Own{{"alpha", 0.9 - 0.1 * b}, {"eps", 1e-6}, {"momentum", 0.4 * b}};
       })},
      {"lars", {{"nesterov", false}, {"adapt", "matrices"}, {"pto", false}}, with([](double b) {
         return Own{{"momentum", 0.9 - 0.2 * b}, {"trust", 0.01 * (b + 1)}, {"eps", 1e-3 * b}};
       })},
      {"lars", {{"nesterov", true}, {"adapt", "all"}, {"pto", false}}, with([](double b) {
         return Own{{"momentum", 0.9 - 0.2 * b}, {"trust", 0.01 * (b + 1)}, {"eps", 0.0}};
       })},
      {"lamb", {{"debias", true}, {"adapt", "all"}, {"pto", false}}, betas},
      {"lamb", {{"debias", false}, {"adapt", "matrices"}, {"pto", false}}, betas},
  };
}

/// The bias goes by another rule in half of the cases: then coefficients differ within a member.
void add_group(Table& table) {
  Table rule;
  rule.set("match", Array{Value("*.bias")});
  rule.set("lr_factor", 0.5);
  rule.set("weight_decay", 0.0);
  table.set("groups", Array{Value(rule)});
}

}  // namespace

TEST_CASE("optimizers of an array move each member as the plugin moves a plain run") {
  constexpr std::size_t members = 3;
  double worst = 0.0;
  for (const Optimizing& test : optimizings())
    for (const auto& [grouped, hooked] :
         {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
      INFO(test.type << (grouped ? " in groups" : "") << (hooked ? " that a hook changes" : ""));
      hfta::Array array = small_array(members);
      std::vector<Table> tables;
      std::vector<std::unique_ptr<Network>> networks;
      std::vector<std::unique_ptr<Optimizer>> plain;
      for (std::size_t b = 0; b < members; ++b) {
        tables.push_back(table_of(test, b));
        if (grouped) add_group(tables.back());
        networks.push_back(small_network(b));
        plain.push_back(test::make<Optimizer>(test.type, tables.back()));
        plain.back()->open(make_groups(networks.back()->parameters(), plain.back()->common));
      }
      hfta::ArrayOptimizer optimizer(tables, tables.back(), array);
      std::vector<ParamGroup> shown = plain.back()->groups();
      at::Generator generator = at::detail::createCPUGenerator(3);
      for (int step = 0; step < 6; ++step) {
        at::Tensor(array.gradients()).copy_(at::randn(array.gradients().sizes(), generator, at::kDouble));
        const double factor = 1.0 - 0.1 * step;
        // As the host sets the rate, and a hook changes it: of all groups alike, then of the last alone.
        const auto set = [&, hooked = hooked](std::vector<ParamGroup>& groups) {
          for (ParamGroup& group : groups) group.lr = group.base_lr * factor;
          if (!hooked || step < 2) return;
          if (step < 4)
            for (ParamGroup& group : groups) group.lr *= 0.3;
          else
            groups.back().lr *= 0.3;
          if (step % 2 == 1) groups.front().weight_decay *= 0.5;
        };
        set(shown);
        optimizer.step(array, {.factor = factor, .momentum = {}}, {}, shown);
        for (std::size_t b = 0; b < members; ++b) {
          const auto member = static_cast<std::int64_t>(b);
          std::vector<NamedTensor> parameters = networks[b]->parameters(),
                                   gradients = array.row(array.gradients(), member);
          for (std::size_t i = 0; i < parameters.size(); ++i)
            parameters[i].tensor.mutable_grad() = gradients[i].tensor.clone();
          set(plain[b]->groups());
          plain[b]->step();
          for (std::size_t i = 0; i < parameters.size(); ++i) {
            INFO("member " << b << " " << parameters[i].name << " step " << step);
            const double found =
                difference(array.parameters(member)[i].tensor, parameters[i].tensor.detach());
            CHECK(found <= 1e-12);
            worst = std::max(worst, found);
          }
        }
      }
      // What a plain run saves of a member is what the plugin would.
      for (std::size_t b = 0; b < members; ++b) {
        State own, expected;
        StateWriter writer(expected);
        plain[b]->save(writer);
        own = optimizer.state_of(array, static_cast<std::int64_t>(b));
        for (const auto& [name, value] : expected.scalars) CHECK((own.scalars.at(name) == value));
        for (const auto& [name, value] : expected.tensors)
          CHECK(difference(own.tensors.at(name), value) <= 1e-12);
      }
    }
  INFO("worst " << worst);
  CHECK(worst <= 1e-12);
}

TEST_CASE("Adam and AdamW of an array in one pass over floats are those of doubles") {
  const auto run = [](const Optimizing& test, at::ScalarType dtype) {
    constexpr std::size_t members = 3;
    const Case layer{"", {30}, [](GraphBuilder& b, ValueId x) { return b.linear(x, "fc", 7); }};
    std::vector<std::unique_ptr<Network>> networks;
    for (std::size_t b = 0; b < members; ++b) {
      GraphBuilder builder(schema_of(layer), b);
      networks.push_back(dtype == at::kDouble ? network_of(layer, b)
                                              : std::make_unique<GraphNetwork>(
                                                    builder.finish(layer.layers(builder, builder.input()))));
    }
    hfta::Array array(std::move(networks));
    at::Generator generator = at::detail::createCPUGenerator(3);
    at::Tensor(array.weights())
        .copy_(at::randn(array.weights().sizes(), generator, at::TensorOptions(at::kFloat)));
    std::vector<Table> tables;
    for (std::size_t b = 0; b < members; ++b) tables.push_back(table_of(test, b));
    hfta::ArrayOptimizer optimizer(tables, tables.front(), array);
    for (int step = 0; step < 6; ++step) {
      const at::Tensor gradients =
          at::randn(array.gradients().sizes(), generator, at::TensorOptions(at::kFloat));
      at::Tensor(array.gradients()).copy_(gradients);
      const Rate rate{.factor = 1.0 - 0.1 * step, .momentum = step == 4 ? std::optional(0.7) : std::nullopt};
      optimizer.step(array, rate, step == 2 ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{});
    }
    State state = optimizer.state_of(array, 1);
    return std::pair(array.weights().to(at::kDouble),
                     state.tensors.at("exp_avg_sq/fc.weight").to(at::kDouble));
  };
  for (const Optimizing& test : optimizings()) {
    if (!test.type.starts_with("adam")) continue;
    INFO(test.type);
    const auto [floats, squares] = run(test, at::kFloat);
    const auto [doubles, expected] = run(test, at::kDouble);
    CHECK(difference(floats, doubles) < 1e-6);
    CHECK(difference(squares, expected) < 1e-6);
  }
}

TEST_CASE("optimizers of an array come to the numbers of the card") {
  // f(p) = p^2 from 1, three steps: PyTorch's.
  const auto run = [](const Optimizing& test) {
    hfta::Array array = small_array(2);
    at::Tensor(array.weights()).fill_(1.0);
    hfta::ArrayOptimizer optimizer({table_of(test, 0), table_of(test, 1)}, table_of(test, 0), array);
    for (int step = 0; step < 3; ++step) {
      at::Tensor(array.gradients()).copy_(array.weights() * 2.0);
      optimizer.step(array, {}, {});
    }
    return array.weights().select(1, 0).clone();
  };
  using Own = std::vector<std::pair<std::string, Value>>;
  const at::Tensor adam =
      run({"adam", {{"betas", numbers({0.9, 0.999})}, {"eps", 1e-8}, {"amsgrad", false}}, [](std::size_t b) {
             return Own{{"lr", b == 0 ? 1e-3 : 1e-2}};
           }});
  CHECK(std::abs(adam[0].item<double>() - 0.9970000960651408) <= 1e-12);
  CHECK(std::abs(adam[1].item<double>() - 0.9700100993784) <= 1e-12);
  const at::Tensor sgd =
      run({"sgd", {{"dampening", 0.0}, {"nesterov", false}}, [](std::size_t b) {
             return b == 0 ? Own{{"lr", 0.1}, {"momentum", 0.9}} : Own{{"lr", 0.05}, {"momentum", 0.5}};
           }});
  CHECK(std::abs(sgd[0].item<double>() - 0.062) <= 1e-12);
  CHECK(std::abs(sgd[1].item<double>() - 0.614) <= 1e-12);
}

TEST_CASE(
    "an optimizer that is not fused is refused by name, and so is what members cannot have by themselves") {
  const hfta::Array array = small_array(2);
  const auto table = [](const char* type, bool amsgrad) {
    Table options;
    options.set("type", type);
    options.set("lr", 0.1);
    options.set("betas", numbers({0.9, 0.999}));
    options.set("eps", 1e-8);
    options.set("amsgrad", amsgrad);
    return options;
  };
  CHECK_THROWS_WITH(
      hfta::ArrayOptimizer({table("lazy_adam", false)}, table("lazy_adam", false), array),
      Contains("lazy_adam is not fused") && Contains("adagrad, adam, adamw, lamb, lars, rmsprop, sgd"));
  CHECK_THROWS_WITH(
      hfta::ArrayOptimizer({table("adam", true), table("adam", false)}, table("adam", true), array),
      Contains("optimizer.amsgrad"));
  CHECK_THROWS_WITH(
      hfta::ArrayOptimizer({table("sgd", true), table("adam", false)}, table("adam", false), array),
      Contains("sgd") && Contains("those of an array have one"));
}

TEST_CASE("frozen members of an array stay, and the others move as if all did; rows can be left out") {
  hfta::Array array = small_array(4), whole = small_array(4);
  const Optimizing test{
      "adam", {{"betas", numbers({0.9, 0.999})}, {"eps", 1e-8}, {"amsgrad", false}}, [](std::size_t b) {
        return std::vector<std::pair<std::string, Value>>{{"lr", 0.01 * static_cast<double>(b + 1)}};
      }};
  std::vector<Table> tables;
  for (std::size_t b = 0; b < 4; ++b) tables.push_back(table_of(test, b));
  hfta::ArrayOptimizer optimizer(tables, tables.front(), array), undisturbed(tables, tables.front(), whole);
  const at::Tensor before = array.weights().clone();
  at::Generator generator = at::detail::createCPUGenerator(3);
  const auto both = [&](const std::vector<std::int64_t>& frozen) {
    const at::Tensor gradients = at::randn(whole.gradients().sizes(), generator, at::kDouble);
    at::Tensor(whole.gradients()).copy_(gradients);
    undisturbed.step(whole, {}, {});
    at::Tensor own = gradients.clone();
    for (const std::int64_t row : frozen) own[row].fill_(NAN);
    at::Tensor(array.gradients()).copy_(own);
    optimizer.step(array, {}, frozen);
  };
  both({0, 2});
  both({0, 2});
  for (const std::int64_t row : {0, 2}) CHECK(at::equal(array.weights()[row], before[row]));
  for (const std::int64_t row : {1, 3}) CHECK(at::equal(array.weights()[row], whole.weights()[row]));
  array.keep({1, 3});
  optimizer.keep(array, {1, 3});
  const at::Tensor gradients = at::randn(whole.gradients().sizes(), generator, at::kDouble);
  at::Tensor(whole.gradients()).copy_(gradients);
  undisturbed.step(whole, {}, {});
  at::Tensor(array.gradients()).copy_(gradients.index_select(0, at::tensor({1L, 3L})));
  optimizer.step(array, {}, {});
  CHECK(at::equal(array.weights()[0], whole.weights()[1]));
  CHECK(at::equal(array.weights()[1], whole.weights()[3]));
}

TEST_CASE("a step of an array takes as many operations for sixteen members as for two") {
  const at::AutoGradMode tracked(true);
  static std::map<std::string, std::int64_t> calls;  // of one thread
  at::set_num_threads(1);
  const at::CallbackHandle counter = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        ++calls[call.name()];
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  const auto count = [&](std::size_t members) {
    const Case test{"", {2, 8, 8}, [](GraphBuilder& b, ValueId x) {
                      // Of whole blocks of channels: others are run one by one (convolution.cpp).
                      x = b.relu(b.batch_norm(b.conv2d(x, "one", 8, {.padding = 1}), "norm"));
                      x = b.max_pool2d(b.relu(b.conv2d(x, "two", 8, {.padding = 1})), 2, 2);
                      return b.linear(b.relu(b.linear(b.flatten(x), "fc1", 16)), "fc2", 10);
                    }};
    std::vector<std::unique_ptr<Network>> networks;
    std::vector<Table> tables;
    const Optimizing adam{"adam",
                          {{"betas", numbers({0.9, 0.999})}, {"eps", 1e-8}, {"amsgrad", false}, {"lr", 0.1}},
                          [](std::size_t) { return std::vector<std::pair<std::string, Value>>(); }};
    for (std::size_t b = 0; b < members; ++b) {
      // In single precision: ATen has no grouped convolution of doubles, and loops over the groups.
      GraphBuilder builder(schema_of(test), b);
      networks.push_back(
          std::make_unique<GraphNetwork>(builder.finish(test.layers(builder, builder.input()))));
      tables.push_back(table_of(adam, b));
    }
    hfta::Array array(std::move(networks));
    hfta::ArrayOptimizer optimizer(tables, tables.front(), array);
    const at::Tensor x = at::randn({4, 2, 8, 8});
    calls.clear();
    const at::Tensor loss = array.forward({x}, {.training = true}).square().flatten(1).mean(1);
    array.backward(loss, 1.0, false);
    optimizer.step(array, {}, {});
    return calls;
  };
  const auto of_two = count(2), of_sixteen = count(16);
  at::removeCallback(counter);
  std::int64_t two = 0, sixteen = 0;
  std::string grown;
  for (const auto& [name, times] : of_sixteen) {
    const auto before = of_two.find(name);
    const std::int64_t then = before == of_two.end() ? 0 : before->second;
    if (times != then) grown += name + " " + std::to_string(then) + " -> " + std::to_string(times) + "\n";
    two += then;
    sixteen += times;
  }
  INFO(two << " and " << sixteen << "\n" << grown);
  CHECK(two > 50);
  CHECK(std::abs(sixteen - two) <=
        two / 50);  // a loop over members has 14 times the operations of a member more
}

}  // namespace hfta_tests
