// The rules for what exporters write: products by a weight, values that are repeated, elements that go elsewhere,
// depthwise convolutions, softmax and embeddings.
#include <catch2/catch.hpp>

#include <limits>
#include <map>
#include <random>

#include "plugins/executor/compiled/plan.hpp"
#include "tests/plugins/compiled_networks.hpp"

namespace compiled_rules_tests {

namespace {

using namespace trainyard;
using namespace trainyard::test;
using compiled::Plan;
using compiled::PlanKey;

/// A plan that has had a pass of numbers that are none: whatever its memory is left with must not reach the next one.
std::shared_ptr<Plan> spoilt_plan(GraphNetwork& network, const Batch& batch, at::ScalarType precision) {
  auto plan = std::make_shared<Plan>(
      network, PlanKey{.inputs = {batch.inputs[0].sizes().vec()}, .precision = precision},
      compiled::Choices{.message = 1});
  const at::Tensor& x = batch.inputs[0];
  const bool is_real = x.is_floating_point();
  const at::Tensor spoilt = plan->forward(
      batch_of(is_real ? at::full_like(x, std::numeric_limits<float>::quiet_NaN()) : x), training);
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& each : network.parameters()) parameters.push_back(each.tensor);
  torch::autograd::grad({spoilt}, parameters,
                        {at::full_like(spoilt, std::numeric_limits<float>::quiet_NaN())}, std::nullopt, false,
                        true);
  return plan;
}

/// Training and evaluation are the network's, with floats and, but where it has other rules then, with bfloat16, and no node is left to
/// LibTorch but so many.
void check_rules(const std::function<Graph()>& make, const std::vector<at::Tensor>& inputs,
                 std::size_t by_libtorch = 0, bool halves = true) {
  const auto compile_for = [&](at::ScalarType precision) {
    return [=](GraphNetwork& network, const Batch& batch) {
      auto plan = spoilt_plan(network, batch, precision);
      for (const std::string& each : plan->by_libtorch()) UNSCOPED_INFO(each);
      REQUIRE(plan->by_libtorch().size() == by_libtorch);
      return plan;
    };
  };
  test::check_same(make, inputs, compile_for(at::kFloat));
  if (halves && compiled::has_halves()) check_halves(make, inputs, compile_for(at::kBFloat16));
  GraphNetwork network(make());
  const auto plan = std::make_shared<Plan>(
      network, PlanKey{.inputs = {inputs[0].sizes().vec()}, .training = false}, compiled::Choices{});
  const at::NoGradGuard off;
  for (const at::Tensor& x : inputs)
    REQUIRE(apart(plan->forward(batch_of(x), {}), network.forward(batch_of(x), {})) < 1e-4);
}

/// The same each time, whichever tests run.
std::vector<at::Tensor> batches(const std::vector<std::int64_t>& shape) {
  return several(shape);
}

using Made = std::function<ValueId(GraphBuilder&, ValueId)>;

/// `make` between a layer, whose values want a gradient, and another; and of the input itself, which wants none.
void check_between(std::vector<std::int64_t> shape, const Made& make, std::size_t by_libtorch = 0) {
  for (const bool of_input : {false, true}) {
    INFO((of_input ? "of the input" : "of a layer"));
    check_rules(
        [&] {
          GraphBuilder b(schema_of({shape.begin() + 1, shape.end()}), 3);
          ValueId x = b.input();
          if (!of_input) x = b.tanh(b.linear(x, "in", shape.back()));
          x = b.tanh(make(b, x));
          return b.finish(b.linear(x, "out", 3));
        },
        batches(shape), by_libtorch);
  }
}

ValueId weight(GraphBuilder& b, const std::string& name, const std::vector<std::int64_t>& shape) {
  return b.uniform_parameter(name, shape, 0.7);
}

ValueId fixed(GraphBuilder& b, const std::string& name, const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return b.constant(name, at::arange(1, count + 1, at::kFloat).sin().reshape(shape));
}

ValueId numbers(GraphBuilder& b, const std::string& name, const std::vector<std::int64_t>& values) {
  return b.constant(name, at::tensor(values, at::kLong));
}

TEST_CASE("Compiled products by a weight, with bias and ReLU, of two to four dimensions", "[compiled]") {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{5, 7}, {3, 5, 7}, {2, 3, 5, 7}, {1, 1, 1}, {40, 19, 33}})
    for (const bool bias_first : {false, true})
      for (const bool relu : {false, true})
        check_between(shape, [&](GraphBuilder& b, ValueId x) {
          const ValueId y = b.node("MatMul", "m", {x, weight(b, "w", {shape.back(), 9})}),
                        bias = weight(b, "b", {9});
          const ValueId z = bias_first ? b.add(bias, y) : b.add(y, bias);
          return relu ? b.relu(z) : z;
        });
}

TEST_CASE("Compiled products of many numbers, and of a weight that lies as Gemm has it", "[compiled]") {
  for (const bool turned : {false, true})
    for (const std::int64_t rows : {9, 160})
      check_rules(
          [&] {
            GraphBuilder b(schema_of({128}), 3);
            const auto gemm = [&](const char* name, ValueId x, std::int64_t in, std::int64_t out) {
              const std::vector<std::int64_t> shape = {turned ? out : in, turned ? in : out};
              return b.node(
                  "Gemm", name,
                  {x, weight(b, std::string(name) + "w", shape), weight(b, std::string(name) + "b", {out})},
                  {{"transB", std::int64_t{turned ? 1 : 0}}});
            };
            const ValueId x = b.tanh(gemm("a", b.input(), 128, 136));
            const ValueId y =
                b.add(b.node("MatMul", "m", {x, weight(b, "w", {136, 128})}), weight(b, "v", {128}));
            return b.finish(gemm("c", b.relu(y), 128, 5));
          },
          batches({rows, 128}));
}

TEST_CASE("Compiled products whose weight, bias or value others read, too", "[compiled]") {
  check_between({3, 5, 7}, [](GraphBuilder& b, ValueId x) {
    const ValueId w = weight(b, "w", {7, 7}), bias = weight(b, "b", {7});
    const ValueId one = b.add(b.node("MatMul", "one", {x, w}), bias);
    const ValueId two = b.node("MatMul", "two", {one, w});  // read twice: the sum is no part of it
    return b.add(b.mul(two, b.add(two, bias)), x);
  });
  // No bias of a row: a single number, fixed values, and a whole matrix.
  check_between({3, 5, 7}, [](GraphBuilder& b, ValueId x) {
    const ValueId one = b.add(b.node("MatMul", "one", {x, fixed(b, "w", {7, 6})}), fixed(b, "f", {6}));
    const ValueId two = b.add(b.node("MatMul", "two", {one, weight(b, "v", {6, 4})}), weight(b, "m", {5, 4}));
    return b.add(b.node("MatMul", "three", {two, weight(b, "u", {4, 7})}), weight(b, "n", {1}));
  });
}

TEST_CASE("Compiled products as Gemm has them: a turned weight of two, and what is left to LibTorch",
          "[compiled]") {
  const auto turned = [](GraphBuilder& b, const char* name, ValueId x, ValueId w) {
    return b.node("Gemm", name, {x, w, weight(b, std::string(name) + "b", {7})},
                  {{"transB", std::int64_t{1}}});
  };
  check_between({5, 7}, [&](GraphBuilder& b, ValueId x) {
    const ValueId w = weight(b, "w", {7, 7});
    return turned(b, "two", b.tanh(turned(b, "one", x, w)), w);
  });
  using Attributes = std::map<std::string, Attribute, std::less<>>;
  for (const Attributes& each : {Attributes{{"alpha", 0.5}}, {{"beta", 2.0}}, {{"transA", std::int64_t{1}}}})
    check_between(
        {5, 7},
        [&](GraphBuilder& b, ValueId x) {
          const ValueId w = b.node(
              "Gemm", "m", {weight(b, "v", {7, 7}), weight(b, "w", {7, 7}), weight(b, "c", {7})}, each);
          return b.node("MatMul", "y", {x, w});
        },
        1);
}

TEST_CASE("Compiled products of two activations, one of them with itself", "[compiled]") {
  for (const auto& [time, width] : {std::pair<std::int64_t, std::int64_t>{5, 7}, {1, 1}, {16, 16}, {33, 20}})
    check_between({3, time, width}, [&](GraphBuilder& b, ValueId x) {
      const ValueId q = b.linear(x, "q", width), k = b.linear(x, "k", width);
      const ValueId scores = b.softmax(b.node("MatMul", "qk", {q, b.transpose(k, {0, 2, 1})}));
      const ValueId y = b.node("MatMul", "v", {scores, k});
      return b.add(y, b.node("MatMul", "own", {b.node("MatMul", "xx", {x, b.transpose(x, {0, 2, 1})}), x}));
    });
  check_between({2, 5, 5}, [](GraphBuilder& b, ValueId x) { return b.node("MatMul", "m", {x, x}); });
  // Leading dimensions that are repeated are LibTorch's.
  check_between(
      {3, 5, 7},
      [](GraphBuilder& b, ValueId x) {
        return b.node("MatMul", "m", {weight(b, "w", {1, 4, 5}), x});
      },
      1);
}

TEST_CASE("Compiled sums, differences and products of values that are repeated", "[compiled]") {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {7},       {1},       {5, 7},    {5, 1},       {1, 7},       {4, 5, 7},    {4, 1, 1},
      {4, 5, 1}, {1, 5, 1}, {4, 1, 7}, {1, 4, 5, 7}, {1, 1, 1, 7}, {1, 4, 1, 1}, {1, 1, 5, 7}};
  for (const std::vector<std::int64_t>& shape : shapes)
    for (const char* const op : {"Add", "Sub", "Mul"})
      for (const bool swapped : {false, true}) {
        INFO(op << " of " << shape.size() << " dimensions, swapped " << swapped);
        check_between({3, 4, 5, 7}, [&](GraphBuilder& b, ValueId x) {
          const ValueId other = weight(b, "w", shape);
          const ValueId y = swapped ? b.node(op, "op", {other, x}) : b.node(op, "op", {x, other});
          return b.add(y, x);  // another reader, so that the gradient is shared
        });
      }
  // Each is repeated in another dimension; fixed numbers; long rows.
  for (const char* const op : {"Add", "Sub", "Mul"}) {
    check_between({3, 5, 1}, [&](GraphBuilder& b, ValueId x) {
      return b.node(op, "op", {x, weight(b, "w", {5, 7})});
    });
    check_between({3, 5, 7}, [&](GraphBuilder& b, ValueId x) {
      return b.node(op, "op", {fixed(b, "f", {5, 1}), b.node(op, "other", {x, fixed(b, "g", {7})})});
    });
    check_between({40, 9, 130}, [&](GraphBuilder& b, ValueId x) {
      return b.node(op, "op", {b.node(op, "other", {x, weight(b, "w", {9, 1})}), weight(b, "v", {130})});
    });
  }
}

TEST_CASE("Compiled sums of repeated values whose gradient another value has, too", "[compiled]") {
  for (const char* const op : {"Add", "Sub"})
    check_between({3, 5, 7}, [&](GraphBuilder& b, ValueId x) {
      const ValueId other = b.linear(x, "other", 7);
      return b.add(other, b.node(op, "op", {x, weight(b, "w", {7})}));
    });
}

TEST_CASE("Compiled channels that are scaled by their means, with filled blocks and without", "[compiled]") {
  for (const std::int64_t channels : {5, 16, 24, 32})
    for (const char* const op : {"Mul", "Add", "Sub"})
      check_rules(
          [&] {
            GraphBuilder b(schema_of({3, 7, 6}), 3);
            const ValueId x = b.conv2d(b.input(), "a", channels, {.padding = 1});
            const ValueId means = b.global_average_pool(x);
            const ValueId factor = b.sigmoid(
                b.conv2d(b.relu(b.conv2d(means, "down", 4, {.kernel = 1})), "up", channels, {.kernel = 1}));
            ValueId y = b.node(op, "scale", {x, factor});
            y = b.node(op, "row", {y, weight(b, "w", {channels, 1, 1})});
            y = b.node(op, "pixels", {y, b.conv2d(x, "one", 1, {.kernel = 1})});
            y = b.conv2d(y, "b", 6, {.padding = 1});
            return b.finish(b.linear(b.flatten(y), "c", 4));
          },
          batches({3, 3, 7, 6}));
}

TEST_CASE("Compiled chains of channels that fill no block", "[compiled]") {
  for (const std::int64_t channels : {5, 24})
    check_rules(
        [&] {
          GraphBuilder b(schema_of({3, 7, 6}), 3);
          ValueId x = b.conv2d(b.input(), "a", channels, {.padding = 1});
          x = b.node("HardSwish", "hard", {b.mul(x, b.sigmoid(x))});
          x = b.conv2d(x, "b", channels, {.padding = 1});
          return b.finish(b.linear(b.flatten(b.mul(x, b.tanh(x))), "c", 4));
        },
        batches({3, 3, 7, 6}));
}

TEST_CASE("Compiled transpositions of two to five dimensions", "[compiled]") {
  for (const std::vector<std::int64_t>& order :
       {std::vector<std::int64_t>{0, 2, 1, 3}, {0, 1, 3, 2}, {0, 3, 1, 2}, {0, 2, 3, 1}, {0, 3, 2, 1}}) {
    check_between({3, 4, 5, 7}, [&](GraphBuilder& b, ValueId x) {
      const ValueId y = b.transpose(x, order);
      std::vector<std::int64_t> back(4);
      for (std::size_t i = 0; i < 4; ++i)
        back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
      return b.add(b.transpose(b.tanh(y), back), x);
    });
    check_between({2, 32, 7, 33}, [&](GraphBuilder& b, ValueId x) { return b.tanh(b.transpose(x, order)); });
  }
  // The samples elsewhere than in front, as encoders have them, and without an order: the other way round.
  check_between({3, 5, 7}, [](GraphBuilder& b, ValueId x) {
    return b.transpose(b.tanh(b.transpose(x, {1, 0, 2})), {1, 0, 2});
  });
  check_between({3, 5, 1, 7}, [](GraphBuilder& b, ValueId x) {
    return b.transpose(b.tanh(b.node("Transpose", "t", {x})), {3, 2, 1, 0});
  });
  check_rules(
      [] {
        GraphBuilder b(schema_of({7}), 3);
        return b.finish(b.node("MatMul", "m", {b.input(), b.transpose(weight(b, "w", {6, 7}), {1, 0})}));
      },
      batches({5, 7}));
}

TEST_CASE("Compiled pieces that are gathered, sliced and expanded", "[compiled]") {
  for (const std::int64_t place : {0, 2, -1})
    check_between({3, 5, 7}, [&](GraphBuilder& b, ValueId x) {
      // Two of an axis, one of them twice; what nobody reads has no gradient.
      const ValueId scalar = b.constant("place", at::scalar_tensor(place, at::kLong));
      const auto gather = [&](const char* name, ValueId of, ValueId at, std::int64_t axis) {
        return b.node("Gather", name, {of, at}, {{"axis", axis}});
      };
      const ValueId one = gather("one", x, scalar, 1), again = gather("again", x, scalar, -2),
                    other = gather("other", x, numbers(b, "first", {1}), 1);
      const ValueId columns = b.linear(gather("column", x, scalar, 2), "columns", 7);
      return b.add(b.mul(b.tanh(one), again), b.add(b.flatten(other), columns));
    });
  const auto slice = [](GraphBuilder& b, ValueId x, const std::string& name, std::int64_t axis,
                        const std::vector<std::int64_t>& cut) {
    return b.node("Slice", name,
                  {x, numbers(b, name + "0", {cut[0]}), numbers(b, name + "1", {cut[1]}),
                   numbers(b, name + "a", {axis}), numbers(b, name + "s", {cut[2]})});
  };
  check_between({3, 8, 9}, [&](GraphBuilder& b, ValueId x) {
    const ValueId some = slice(b, x, "some", 1, {1, 7, 3}), last = slice(b, x, "last", -2, {-2, 100, 1}),
                  columns = slice(b, x, "columns", 2, {2, -1, 2});
    return b.concat({b.flatten(b.tanh(some)), b.flatten(last), b.flatten(columns)}, 1);
  });
  check_between({3, 4, 5}, [](GraphBuilder& b, ValueId x) {
    const auto expand = [&](const char* name, ValueId of, const std::vector<std::int64_t>& to) {
      return b.node("Expand", name, {of, numbers(b, std::string(name) + " to", to)});
    };
    const ValueId wide = expand("wide", b.reshape(x, {-1, 4, 1, 5}), {1, 4, 3, 5}),
                  token = expand("token", weight(b, "w", {1, 1, 5}), {1, 3, 5}),
                  rows = expand("rows", weight(b, "v", {4, 1, 1}), {4, 3, 5});
    return b.flatten(b.mul(b.add(b.tanh(wide), token), b.tanh(rows)));
  });
  check_between({3, 4, 5}, [](GraphBuilder& b, ValueId x) {
    const ValueId row = b.node("Expand", "row", {weight(b, "w", {5}), numbers(b, "to", {4, 5})});
    return b.mul(x, b.tanh(row));
  });
}

TEST_CASE("Compiled softmax and its logarithm over each dimension", "[compiled]") {
  for (const char* const op : {"Softmax", "LogSoftmax"})
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{5, 7}, {3, 5, 1}, {3, 5, 17}, {2, 3, 5, 33}})
      for (std::int64_t axis = -1; axis < std::ssize(shape); ++axis)
        check_between(shape, [&](GraphBuilder& b, ValueId x) {
          const ValueId y = b.node(op, "softmax", {x}, {{"axis", axis}});
          return b.add(b.mul(y, b.tanh(x)), b.sigmoid(x));
        });
  // Two readers ahead of it whose gradients are there already.
  check_rules(
      [] {
        GraphBuilder b(schema_of({4, 6}), 3);
        const ValueId x = b.linear(b.input(), "in", 6), y = b.softmax(x);
        return b.finish(b.concat({b.linear(x, "x", 3), b.linear(y, "y", 3), b.linear(x, "z", 3)}, 2));
      },
      batches({3, 4, 6}));
}

TEST_CASE("Compiled embeddings, tied to a layer and read twice", "[compiled]") {
  const auto tokens = [] { return at::randint(0, 11, {3, 8}, at::kLong); };
  check_rules(
      [] {
        GraphBuilder b(schema_of({8}, at::kLong), 3);
        const ValueId table = weight(b, "table", {11, 5});
        const ValueId one = b.node("Gather", "one", {table, b.input()}),
                      places =
                          b.node("Gather", "places", {table, numbers(b, "p", {0, 1, 2, 3, 4, 4, 3, 10})});
        const ValueId x = b.tanh(b.add(one, places));
        return b.finish(b.node("MatMul", "out", {x, b.transpose(table, {1, 0})}));
      },
      {tokens(), tokens(), tokens()});
  GraphBuilder b(schema_of({8}, at::kLong), 3);
  GraphNetwork network(
      b.finish(b.flatten(b.node("Gather", "one", {weight(b, "table", {11, 5}), b.input()}))));
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{3, 8}}}, compiled::Choices{});
  for (const std::int64_t wrong : {-1, 11})
    REQUIRE_THROWS_WITH(plan->forward(batch_of(at::full({3, 8}, wrong, at::kLong)), training),
                        Catch::Contains("out of range"));
  // A table that nobody else gives a gradient, and a fixed one, whose places may be counted from its end.
  for (const bool is_fixed : {false, true})
    check_rules(
        [&] {
          GraphBuilder b(schema_of({8}, at::kLong), 3);
          const ValueId table = is_fixed ? fixed(b, "table", {11, 5}) : weight(b, "table", {11, 5});
          return b.finish(b.linear(b.tanh(b.node("Gather", "one", {table, b.input()})), "out", 3));
        },
        {tokens() - (is_fixed ? 11 : 0), tokens(), tokens()}, is_fixed ? 1 : 0);
}

TEST_CASE("Compiled depthwise convolutions", "[compiled]") {
  for (const std::int64_t channels : {5, 16, 24})
    for (const std::int64_t kernel : {3, 5, 7})
      for (const std::int64_t stride : {1, 2})
        for (const bool bias : {false, true}) {
          INFO(channels << " channels, kernel " << kernel << ", stride " << stride << ", bias " << bias);
          check_rules(
              [&] {
                GraphBuilder b(schema_of({3, 9, 8}), 3);
                const ValueId x = b.conv2d(b.input(), "a", channels, {.kernel = 1});
                std::vector<ValueId> inputs = {x, weight(b, "w", {channels, 1, kernel, kernel})};
                if (bias) inputs.push_back(weight(b, "bias", {channels}));
                const std::int64_t half = kernel / 2;
                ValueId y = b.node("Conv", "depth", inputs,
                                   {{"group", channels},
                                    {"kernel_shape", std::vector<std::int64_t>{kernel, kernel}},
                                    {"strides", std::vector<std::int64_t>{stride, stride}},
                                    {"pads", std::vector<std::int64_t>{half, half, half, half}}});
                if (stride == 1) y = b.add(y, x);
                return b.finish(b.linear(b.flatten(b.conv2d(b.relu(y), "b", 4, {.kernel = 1})), "c", 4));
              },
              batches({3, 3, 9, 8}));
        }
}

/// A network of images around `make`, whose input is one of `channels` or, where it is no layer's, the picture itself.
void check_images(std::int64_t colours, std::int64_t channels, std::int64_t height, std::int64_t width,
                  const Made& make, bool of_picture = false, std::size_t by_libtorch = 0) {
  check_rules(
      [&] {
        GraphBuilder b(schema_of({colours, height, width}), 3);
        const ValueId x = of_picture ? b.input() : b.tanh(b.conv2d(b.input(), "a", channels, {.kernel = 1}));
        const ValueId y = b.tanh(make(b, x));
        return b.finish(b.linear(b.flatten(y), "out", 3));
      },
      batches({3, colours, height, width}), by_libtorch);
}

using Integers = std::vector<std::int64_t>;

TEST_CASE("Compiled convolutions in groups, of sizes at random", "[compiled]") {
  std::mt19937_64 random(11);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1));
  };
  for (int turn = 0; turn < 40; ++turn) {
    const std::int64_t groups = draw(2, 5), in = std::array{1, 2, 4, 6, 16, 32}[draw(0, 5)],
                       out = std::array{1, 2, 3, 8, 16}[draw(0, 4)], kernel = draw(1, 4), stride = draw(1, 2),
                       dilation = draw(1, 2), pad = draw(0, 2), height = draw(7, 12), width = draw(7, 12);
    const bool bias = draw(0, 1) == 1, of_picture = draw(0, 3) == 0;
    INFO(groups << " groups " << in << " to " << out << ", kernel " << kernel << ", stride " << stride
                << ", dilation " << dilation << ", pad " << pad << ", " << height << " x " << width
                << ", bias " << bias << ", of the picture " << of_picture);
    check_images(
        of_picture ? groups * in : 3, groups * in, height, width,
        [&](GraphBuilder& b, ValueId x) {
          std::vector<ValueId> inputs = {x, weight(b, "w", {groups * out, in, kernel, kernel})};
          if (bias) inputs.push_back(weight(b, "bias", {groups * out}));
          return b.node("Conv", "grouped", inputs,
                        {{"group", groups},
                         {"kernel_shape", Integers{kernel, kernel}},
                         {"strides", Integers{stride, stride}},
                         {"dilations", Integers{dilation, dilation}},
                         {"pads", Integers{pad, pad, pad, pad}}});
        },
        of_picture);
  }
}

TEST_CASE("Compiled transposed convolutions, of sizes at random", "[compiled]") {
  std::mt19937_64 random(12);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1));
  };
  for (int turn = 0; turn < 40; ++turn) {
    const std::int64_t in = std::array{1, 3, 16, 20}[draw(0, 3)], out = std::array{1, 6, 16, 24}[draw(0, 3)],
                       kernel = draw(2, 4), stride = draw(1, 3),
                       pad = draw(0, std::min<std::int64_t>(kernel - 1, 1)), added = draw(0, stride - 1),
                       size = draw(3, 7);
    const bool bias = draw(0, 1) == 1, of_picture = draw(0, 3) == 0;
    INFO(in << " to " << out << ", kernel " << kernel << ", stride " << stride << ", pad " << pad
            << ", added " << added << ", size " << size << ", bias " << bias << ", of the picture "
            << of_picture);
    check_images(
        of_picture ? in : 3, in, size, size + 1,
        [&](GraphBuilder& b, ValueId x) {
          std::vector<ValueId> inputs = {x, weight(b, "w", {in, out, kernel, kernel})};
          if (bias) inputs.push_back(weight(b, "bias", {out}));
          const ValueId y = b.node("ConvTranspose", "up", inputs,
                                   {{"kernel_shape", Integers{kernel, kernel}},
                                    {"strides", Integers{stride, stride}},
                                    {"pads", Integers{pad, pad, pad, pad}},
                                    {"output_padding", Integers{added, added}}});
          return b.conv2d(b.tanh(y), "behind", 5, {.kernel = 1});
        },
        of_picture);
  }
}

TEST_CASE("Compiled convolutions in groups, with dilations and padding of each side its own", "[compiled]") {
  struct Groups {
    std::int64_t count, in, out, kernel;
  };
  for (const Groups& each : {Groups{5, 1, 1, 3}, {24, 1, 1, 5}, {2, 16, 16, 3}, {2, 6, 3, 3}, {2, 3, 16, 3}})
    for (const Integers& dilations : {Integers{1, 1}, {2, 1}, {1, 2}})
      for (const Integers& pads : {Integers{2, 1, 0, 3}, {0, 2, 3, 1}})
        for (const std::int64_t stride : {1, 2}) {
          INFO(each.count << " groups of " << each.in << " to " << each.out << ", kernel " << each.kernel
                          << ", dilations " << dilations[0] << " " << dilations[1] << ", pads from "
                          << pads[0] << ", stride " << stride);
          check_images(3, each.count * each.in, 9, 8, [&](GraphBuilder& b, ValueId x) {
            return b.node("Conv", "grouped",
                          {x, weight(b, "w", {each.count * each.out, each.in, each.kernel, each.kernel}),
                           weight(b, "bias", {each.count * each.out})},
                          {{"group", each.count},
                           {"kernel_shape", Integers{each.kernel, each.kernel}},
                           {"strides", Integers{stride, stride}},
                           {"dilations", dilations},
                           {"pads", pads}});
          });
        }
  // Its second window begins at 2, and all of the image is in reach of two that are beside each other.
  check_images(3, 6, 4, 4, [&](GraphBuilder& b, ValueId x) {
    return b.node("Conv", "narrow", {x, weight(b, "w", {32, 3, 3, 3})},
                  {{"group", std::int64_t{2}},
                   {"kernel_shape", Integers{3, 3}},
                   {"strides", Integers{2, 2}},
                   {"pads", Integers{0, 0, 1, 1}}});
  });
  // What is added to the output of a transposed one is as large as its stride: oneDNN has no kernel.
  check_images(
      3, 6, 5, 6,
      [&](GraphBuilder& b, ValueId x) {
        return b.node("ConvTranspose", "up", {x, weight(b, "w", {6, 5, 3, 3})},
                      {{"kernel_shape", Integers{3, 3}},
                       {"dilations", Integers{2, 2}},
                       {"output_padding", Integers{1, 1}}});
      },
      false, 1);
}

TEST_CASE("Compiled channels that fill no block behind each other", "[compiled]") {
  check_images(3, 5, 6, 7, [](GraphBuilder& b, ValueId x) {
    const auto up = [&](const char* name, ValueId from, std::int64_t in, std::int64_t out) {
      return b.node("ConvTranspose", name,
                    {from, weight(b, std::string(name) + "w", {in, out, 3, 3}),
                     weight(b, std::string(name) + "b", {out})},
                    {{"kernel_shape", Integers{3, 3}}});
    };
    return up("two", b.tanh(up("one", x, 5, 6)), 6, 5);
  });
}

TEST_CASE("Compiled parameters of groups and norms that two nodes share", "[compiled]") {
  for (const std::int64_t out : {3, 16})
    check_images(3, 6, 6, 7, [&](GraphBuilder& b, ValueId x) {
      const ValueId w = weight(b, "w", {2 * out, 3, 3, 3}), bias = weight(b, "bias", {2 * out}),
                    scale = weight(b, "scale", {2 * out}), shift = weight(b, "shift", {2 * out});
      const auto layer = [&](const std::string& name, ValueId from) {
        const ValueId y = b.node("Conv", name, {from, w, bias},
                                 {{"group", std::int64_t{2}}, {"kernel_shape", Integers{3, 3}}});
        return b.node("GroupNormalization", name + "n", {y, scale, shift},
                      {{"num_groups", std::int64_t{2}}, {"epsilon", 0.1}});
      };
      return b.mul(layer("one", x), layer("two", b.tanh(x)));
    });
}

TEST_CASE("Compiled images resized, to the nearest and linear", "[compiled]") {
  const std::vector<std::map<std::string, Attribute, std::less<>>> modes = {
      {{"mode", std::string("nearest")},
       {"coordinate_transformation_mode", std::string("asymmetric")},
       {"nearest_mode", std::string("floor")}},
      {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("half_pixel")}},
      {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("align_corners")}}};
  for (const auto& mode : modes)
    for (const std::int64_t channels : {1, 5, 16, 24})
      for (const auto& [down, right] :
           {std::pair{2.0, 2.0}, {3.0, 1.0}, {0.5, 0.4}, {1.5, 2.3}, {0.2, 4.0}, {1.15, 1.1}})
        for (const bool sizes : {false, true})
          check_images(
              3, channels, 5, 6,
              [&](GraphBuilder& b, ValueId x) {
                auto attributes = mode;
                attributes["axes"] = Integers{2, 3};
                const ValueId to =
                    sizes
                        ? numbers(b, "to",
                                  {static_cast<std::int64_t>(5 * down), static_cast<std::int64_t>(6 * right)})
                        : b.constant("to", at::tensor({static_cast<float>(down), static_cast<float>(right)}));
                const ValueId y =
                    b.node("Resize", "resize", {x, no_value, sizes ? no_value : to, sizes ? to : no_value},
                           attributes);
                // The other reader comes first on the way back.
                return b.concat({b.flatten(b.conv2d(y, "behind", 4, {.kernel = 1})),
                                 b.flatten(b.conv2d(x, "beside", 2, {.kernel = 1}))},
                                1);
              },
              channels == 5);
}

TEST_CASE("Compiled normalizations of groups and of channels", "[compiled]") {
  for (const auto& [channels, groups] :
       {std::pair<std::int64_t, std::int64_t>{5, 1}, {6, 3}, {16, 4}, {24, 2}, {20, 20}, {48, 8}})
    for (const bool is_instance : {false, true}) {
      const auto norm = [&](GraphBuilder& b, ValueId x, std::int64_t of) {
        const std::vector<ValueId> inputs = {x, weight(b, "scale", {of}), weight(b, "shift", {of})};
        return is_instance ? b.node("InstanceNormalization", "norm", inputs)
                           : b.node("GroupNormalization", "norm", inputs, {{"num_groups", groups}});
      };
      check_images(3, channels, 5, 6, [&](GraphBuilder& b, ValueId x) {
        return b.conv2d(b.add(norm(b, x, channels), x), "behind", 4, {.kernel = 1});
      });
      // Of rows, as exporters write groups, with numbers that are fixed; their places fill no vector.
      check_between({3, channels, 37}, [&](GraphBuilder& b, ValueId x) {
        return b.add(norm(b, x, channels), b.node("InstanceNormalization", "plain",
                                                  {x, b.constant("ones", at::ones({channels})),
                                                   b.constant("zeros", at::zeros({channels}))}));
      });
    }
}

TEST_CASE("Compiled sums and means over dimensions", "[compiled]") {
  const auto check = [](const Integers& shape, const char* op, const Integers& axes, bool kept) {
    INFO(op << " over " << axes.size() << " from " << axes[0] << ", kept " << kept);
    check_between(shape, [&](GraphBuilder& b, ValueId x) {
      const ValueId y =
          b.node(op, "reduce", {x, numbers(b, "axes", axes)}, {{"keepdims", std::int64_t{kept ? 1 : 0}}});
      return b.concat({b.flatten(y), b.flatten(b.tanh(x))}, 1);
    });
  };
  for (const char* const op : {"ReduceMean", "ReduceSum"})
    for (const bool kept : {false, true}) {
      for (const Integers& axes : {Integers{1}, {-1}, {2}, {1, 2}, {1, 3}, {2, 3}, {-1, -2}, {1, 2, 3}})
        check({3, 4, 5, 7}, op, axes, kept);
      for (const Integers& axes : {Integers{1}, {2}}) check({40, 9, 130}, op, axes, kept);
    }
  for (const std::int64_t channels : {1, 5, 16})
    for (const Integers& axes : {Integers{2, 3}, {-1, 2}, {1}})
      for (const bool kept : {false, true})
        check_images(3, channels, 6, 7, [&](GraphBuilder& b, ValueId x) {
          const ValueId y = b.node("ReduceMean", "mean", {x, numbers(b, "axes", axes)},
                                   {{"keepdims", std::int64_t{kept ? 1 : 0}}});
          return b.concat({b.flatten(y), b.flatten(b.conv2d(x, "c", 2, {.kernel = 1}))}, 1);
        });
}

TEST_CASE("Compiled images that were rows, or chains of the picture", "[compiled]") {
  check_rules(
      [] {
        GraphBuilder b(schema_of({6}), 3);
        const ValueId x = b.reshape(b.linear(b.input(), "in", 5 * 4 * 3), {-1, 5, 4, 3});
        return b.finish(b.linear(b.flatten(b.conv2d(x, "c", 8, {.padding = 1})), "out", 3));
      },
      batches({3, 6}));
  for (const bool pools : {false, true})
    check_images(
        5, 5, 6, 8,
        [&](GraphBuilder& b, ValueId x) {
          const ValueId y = b.tanh(b.sigmoid(x));
          return pools ? b.max_pool2d(y, 2, 2) : b.conv2d(y, "c", 8, {.padding = 1});
        },
        true);
}

TEST_CASE("Compiled convolutions in narrow groups", "[compiled]") {
  struct Groups {
    std::int64_t groups, in, out, rows, columns, pads;
  };
  for (const Groups& each :
       {Groups{2, 3, 16, 3, 3, 1}, {8, 6, 16, 5, 5, 0}, {3, 5, 32, 1, 4, 2}, {4, 2, 16, 3, 1, 0}})
    for (const bool bias : {false, true})
      for (const bool relu : {false, true})
        for (const bool joined : {false, true}) {
          INFO(each.groups << " groups of " << each.in << " to " << each.out << ", bias " << bias << ", ReLU "
                           << relu << ", weights joined " << joined);
          check_rules(
              [&] {
                GraphBuilder b(schema_of({3, 9, 8}), 3);
                const std::int64_t channels = each.groups * each.in, out = each.groups * each.out;
                const ValueId x = b.tanh(b.conv2d(b.input(), "a", channels, {.kernel = 1}));
                const auto of_groups = [&](const std::string& name, std::vector<std::int64_t> shape) {
                  if (!joined) return weight(b, name, shape);
                  shape[0] = each.out;
                  std::vector<ValueId> parts;
                  for (std::int64_t g = 0; g < each.groups; ++g)
                    parts.push_back(weight(b, name + std::to_string(g), shape));
                  return b.concat(parts, 0);
                };
                std::vector<ValueId> inputs = {x, of_groups("w", {out, each.in, each.rows, each.columns})};
                if (bias) inputs.push_back(of_groups("bias", {out}));
                const ValueId y =
                    b.node("Conv", "groups", inputs,
                           {{"group", each.groups},
                            {"kernel_shape", std::vector<std::int64_t>{each.rows, each.columns}},
                            {"pads", std::vector<std::int64_t>(4, each.pads)}});
                const ValueId z = relu ? b.relu(y) : b.tanh(y);
                return b.finish(b.linear(b.flatten(b.max_pool2d(z, 2, 2)), "c", 4));
              },
              batches({3, 3, 9, 8}), 0, /*halves=*/false);
        }
  // The input is read by another, too, so that its gradient is a sum; and a picture, which wants none.
  check_rules(
      [&] {
        GraphBuilder b(schema_of({4, 6, 6}), 3);
        const ValueId x = b.relu(b.conv2d(b.input(), "a", 6, {.kernel = 1}));
        const ValueId y = b.conv2d(x, "b", 32, {.kernel = 3, .padding = 1, .groups = 2}),
                      z = b.conv2d(x, "c", 32, {.kernel = 1, .groups = 2}),
                      of_input = b.conv2d(b.input(), "d", 32, {.kernel = 3, .padding = 1, .groups = 2});
        return b.finish(b.flatten(b.relu(b.add(b.add(y, z), of_input))));
      },
      batches({3, 4, 6, 6}), 0, /*halves=*/false);
}

/// Some of these operators, one after another, on N x 4 x 6.
Graph random_exported(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](std::size_t below) { return random() % below; };
  GraphBuilder b(schema_of({4, 6}), seed);
  std::vector<ValueId> values = {b.input(), b.tanh(b.linear(b.input(), "in", 6))};
  for (std::size_t i = 0; i < 9; ++i) {
    const std::string name = "n" + std::to_string(i);
    const ValueId x = values[draw(values.size())], y = values[draw(values.size())];
    const char* const op = std::array{"Add", "Sub", "Mul"}[draw(3)];
    const auto made = [&]() -> ValueId {
      switch (draw(8)) {
        case 0:
          return b.add(b.node("MatMul", name, {x, weight(b, name + "w", {6, 6})}),
                       weight(b, name + "b", {6}));
        case 1: {
          static const std::vector<std::vector<std::int64_t>> shapes = {
              {6}, {4, 1}, {4, 6}, {1, 4, 1}, {1, 1, 1}};
          return b.node(op, name, {x, weight(b, name + "w", shapes[draw(shapes.size())])});
        }
        case 2:
          return b.node("MatMul", name,
                        {b.softmax(b.node("MatMul", name + "s", {x, b.transpose(y, {0, 2, 1})})), x});
        case 3:
          return b.transpose(b.node(op, name, {b.transpose(x, {1, 0, 2}), b.transpose(y, {1, 0, 2})}),
                             {1, 0, 2});
        case 4: {
          const ValueId row =
              b.node("Gather", name + "g", {x, numbers(b, name + "p", {static_cast<std::int64_t>(draw(4))})},
                     {{"axis", std::int64_t{1}}});
          return b.node(op, name, {draw(2) == 0 ? y : x, row});
        }
        case 5: return b.node(op, name, {x, y});
        case 6: return b.layer_norm(x, name);
        default: return b.softmax(b.relu(x));
      }
    };
    values.push_back(made());
  }
  return b.finish(b.linear(b.concat({values[values.size() - 1], values[values.size() - 2]}, 2), "out", 3));
}

TEST_CASE("Networks of what exporters write, made at random, are the same compiled", "[compiled]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    test::check_same([&] { return random_exported(seed); }, batches({seed % 3 == 0 ? 1 : 5, 4, 6}),
                     [&](GraphNetwork& network, const Batch& batch) {
                       return std::make_shared<Plan>(
                           network, PlanKey{.inputs = {batch.inputs[0].sizes().vec()}}, compiled::Choices{});
                     });
  }
}

}  // namespace

}  // namespace compiled_rules_tests
