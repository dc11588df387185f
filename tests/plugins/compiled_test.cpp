// The compiled pass against the network's own, on networks made for it and at random.
#include <catch2/catch.hpp>

#include <random>

#include "tests/plugins/compiled_plans.hpp"

namespace compiled_tests {

namespace {

using namespace trainyard;
using namespace trainyard::test;
using compiled::Plan;
using compiled::PlanKey;

TEST_CASE("Compiled passes are tried with bfloat16 where the processor has it", "[compiled]") {
  if (!compiled::has_halves()) WARN("no AVX512-BF16: passes with bfloat16 are not checked");
}

TEST_CASE("A compiled multilayer perceptron is the network", "[compiled]") {
  check_same(
      [] {
        GraphBuilder b(schema_of({20}), 3);
        ValueId x = b.relu(b.linear(b.input(), "a", 33));
        x = b.gelu(b.linear(x, "b", 16, false), true);
        x = b.tanh(b.linear(x, "c", 7));
        return b.finish(b.linear(b.sigmoid(x), "d", 5));
      },
      several({9, 20}));
}

TEST_CASE("Compiled layers of many products are the network", "[compiled]") {
  check_same(
      [] {
        GraphBuilder b(schema_of({128}), 3);
        const ValueId x = b.relu(b.linear(b.input(), "a", 136));
        return b.finish(b.linear(b.tanh(b.linear(x, "b", 128, false)), "c", 136));
      },
      several({160, 128}));
  const auto tokens = [] { return at::randint(0, 136, {40, 4}, at::kLong); };
  check_same(
      [] {
        GraphBuilder b(schema_of({4}, at::kLong), 3);
        const auto embedded = b.embedding(b.input(), "wte", 136, 128);
        const ValueId x = b.tied_linear(b.tanh(b.flatten(embedded.output, 2)), "one", embedded.weight);
        return b.finish(
            b.reshape(b.tied_linear(b.linear(x, "down", 128), "two", embedded.weight), {-1, 4, 136}));
      },
      {tokens(), tokens(), tokens()});
}

TEST_CASE("Compiled convolutions fill up channels and read pictures as they are", "[compiled]") {
  for (const std::int64_t colours : {1, 3, 5, 16})
    check_same(
        [&] {
          GraphBuilder b(schema_of({colours, 14, 14}), 3);
          ValueId x = b.max_pool2d(b.relu(b.conv2d(b.input(), "a", 6, {.kernel = 5, .padding = 2})), 2, 2);
          x = b.relu(b.batch_norm(
              b.conv2d(x, "b", 20, {.kernel = 3, .stride = 2, .padding = 1, .bias = false}), "n"));
          x = b.average_pool2d(x, 2, 2);
          return b.finish(b.linear(b.flatten(x), "c", 4));
        },
        several({5, colours, 14, 14}));
}

TEST_CASE("Compiled residual blocks keep the gradients of both ways", "[compiled]") {
  const auto block = [](GraphBuilder& b, ValueId x, const std::string& name) {
    ValueId y =
        b.relu(b.batch_norm(b.conv2d(x, name + ".1", 16, {.padding = 1, .bias = false}), name + ".n1"));
    y = b.batch_norm(b.conv2d(y, name + ".2", 16, {.padding = 1, .bias = false}), name + ".n2");
    return b.relu(b.add(y, x));
  };
  check_same(
      [&] {
        GraphBuilder b(schema_of({3, 8, 8}), 3);
        ValueId x = b.relu(b.conv2d(b.input(), "stem", 16, {.padding = 1}));
        x = block(b, block(b, x, "a"), "b");
        return b.finish(b.linear(b.flatten(b.global_average_pool(x)), "c", 4));
      },
      several({6, 3, 8, 8}));
}

TEST_CASE("A compiled ResNet-20 is the network", "[compiled]") {
  const auto check = [](bool smooth) {
    check_same(
        [&] {
          GraphBuilder b(schema_of({3, 16, 16}), 3);
          const auto activation = [&](ValueId x) { return smooth ? b.tanh(x) : b.relu(x); };
          const auto conv = [&](ValueId x, const std::string& name, std::int64_t out, std::int64_t stride) {
            return b.batch_norm(b.conv2d(x, name, out, {.stride = stride, .padding = 1, .bias = false}),
                                name + ".bn");
          };
          ValueId x = activation(conv(b.input(), "stem", 16, 1));
          for (std::int64_t i = 0; i < 9; ++i) {
            const std::int64_t out = 16 << i / 3, stride = i == 3 || i == 6 ? 2 : 1;
            const std::string name = std::to_string(i);
            const ValueId y = conv(activation(conv(x, name + ".1", out, stride)), name + ".2", out, 1);
            if (stride == 2) {
              const std::int64_t size = b.shape(x)[2];
              x = b.pad(b.slice(b.slice(x, 2, 0, size, 2), 3, 0, size, 2), 1, out / 4, out / 4);
            }
            x = activation(b.add(y, x));
          }
          return b.finish(b.linear(b.flatten(b.global_average_pool(x)), "fc", 10));
        },
        several({8, 3, 16, 16}), {.winograd = smooth});
  };
  check(true);
  check(false);
}

TEST_CASE("Compiled convolutions with fewer products have bias and ReLU, and forward may be the only one",
          "[compiled]") {
  // Of 5 x 5: few channels come in and many go out, so that the way back is the plain one.
  for (const std::int64_t kernel : {3, 5})
    check_same(
        [&] {
          GraphBuilder b(schema_of({16, 13, 13}), 3);
          const ValueId x = b.relu(b.conv2d(b.conv2d(b.input(), "a", 16, {.padding = 1}), "b", 24,
                                            {.kernel = kernel, .padding = kernel / 2}));
          return b.finish(b.linear(b.flatten(b.average_pool2d(x, 3, 3)), "c", 4));
        },
        several({3, 16, 13, 13}));
}

TEST_CASE("A compiled transformer is the network, its tied weights with it", "[compiled]") {
  const auto tokens = [] { return at::randint(0, 11, {3, 8}, at::kLong); };
  check_same(
      [] {
        GraphBuilder b(schema_of({8}, at::kLong), 3);
        const auto embedded = b.embedding(b.input(), "wte", 11, 16);
        ValueId x = b.flatten(b.add(embedded.output, b.normal_parameter("wpe", {8, 16}, 0.1)), 2);
        ValueId y = b.linear(b.layer_norm(x, "n1"), "qkv", 48);
        const auto qkv = b.split(b.reshape(y, {-1, 8, 48}), 3, 2);
        y = b.flatten(b.attention(qkv[0], qkv[1], qkv[2], "attn", 4, true), 2);
        x = b.add(x, b.dropout(b.linear(y, "proj", 16), "drop"));
        y = b.linear(b.gelu(b.linear(b.layer_norm(x, "n2"), "fc", 64), true), "out", 16);
        x = b.add(x, y);
        return b.finish(b.reshape(b.tied_linear(b.layer_norm(x, "f"), "head", embedded.weight), {-1, 8, 11}));
      },
      {tokens(), tokens(), tokens()});
}

TEST_CASE("Compiled attention is whole or causal, and of queries, keys and values apart", "[compiled]") {
  for (const bool causal : {true, false})
    for (const std::int64_t time : {1, 5, 40, 70, 130})
      check_same(
          [&] {
            GraphBuilder b(schema_of({time, 12}), 3);
            const ValueId x = b.tanh(b.linear(b.input(), "x", 12));
            const ValueId q = b.linear(x, "q", 12), k = b.linear(x, "k", 12), v = b.linear(x, "v", 12);
            return b.finish(b.add(b.linear(b.attention(q, k, v, "attn", 2, causal), "out", 12), x));
          },
          several({3, time, 12}));
}

TEST_CASE("Compiled attention of packed rows that others read, too", "[compiled]") {
  check_same(
      [] {
        GraphBuilder b(schema_of({40, 12}), 3);
        const ValueId packed = b.linear(b.input(), "qkv", 36), side = b.linear(packed, "side", 12);
        const std::vector<ValueId> parts = b.split(packed, 3, 2);
        const ValueId y = b.attention(parts[0], parts[1], parts[2], "attn", 2, true);
        return b.finish(b.add(b.linear(y, "out", 12), b.add(side, b.linear(packed, "other", 12))));
      },
      several({3, 40, 12}));
}

TEST_CASE("Compiled shortcuts put channels of zeros where they were", "[compiled]") {
  for (const auto& [inside, out, size] : {std::array{16, 32, 8}, std::array{20, 24, 7}, std::array{8, 40, 6}})
    check_same(
        [&] {
          GraphBuilder b(schema_of({3, size, size}), 3);
          ValueId x = b.relu(b.conv2d(b.input(), "a", inside, {.padding = 1}));
          const ValueId y = b.conv2d(x, "b", out, {.kernel = 3, .stride = 2, .padding = 1});
          x = b.slice(b.slice(x, 2, 0, size, 2), 3, 0, size, 2);
          const std::int64_t before = (out - inside) / 2;
          x = b.relu(b.add(y, b.pad(x, 1, before, out - inside - before)));
          return b.finish(b.linear(b.flatten(x), "c", 4));
        },
        several({5, 3, size, size}));
}

TEST_CASE("Compiled pieces of rows and images, joined and cut", "[compiled]") {
  for (const std::int64_t samples : {1, 5}) {
    check_same(
        [] {
          GraphBuilder b(schema_of({12}), 3);
          const ValueId x = b.tanh(b.linear(b.input(), "x", 12));
          const std::vector<ValueId> parts = b.split(x, 3, 1);  // one of them is read by nobody, one twice
          return b.finish(b.linear(b.concat({parts[2], b.relu(parts[0]), parts[2], b.input()}, 1), "out", 5));
        },
        several({samples, 12}));
    // Channels that fill blocks, and such as do not.
    for (const std::int64_t channels : {4, 16, 32})
      check_same(
          [&] {
            GraphBuilder b(schema_of({3, 9, 9}), 3);
            const ValueId x = b.tanh(b.conv2d(b.input(), "a", 2 * channels, {.padding = 1}));
            const std::vector<ValueId> parts = b.split(x, 2, 1);
            const ValueId y = b.conv2d(parts[1], "b", 32, {.padding = 1});
            const ValueId z = b.conv2d(b.concat({y, parts[0], x}, 1), "c", 8, {.kernel = 1});
            return b.finish(b.linear(b.flatten(b.average_pool2d(b.add(z, b.tanh(z)), 3, 3)), "d", 4));
          },
          several({samples, 3, 9, 9}));
  }
}

/// Joined weights of a layer and of a convolution; of the layer the last is read by another, too.
Graph of_joined_weights(bool behind) {
  GraphBuilder b(schema_of({3, 6, 6}), 3);
  const auto parameter = [&](const std::string& name, std::vector<std::int64_t> shape) {
    return b.uniform_parameter(name, std::move(shape), 0.3);
  };
  const std::vector<ValueId> filters = {parameter("f0", {8, 3, 3, 3}), parameter("f1", {12, 3, 3, 3})},
                             of_filters = {parameter("g0", {8}), parameter("g1", {12})},
                             weights = {parameter("w0", {3, 20}), parameter("w1", {5, 20}),
                                        parameter("w2", {4, 20})};
  const ValueId filter = b.concat(filters, 0), bias = b.concat(of_filters, 0), weight = b.concat(weights, 0);
  const ValueId y =
      b.node("Conv", "conv", {b.input(), filter, bias}, {{"kernel_shape", std::vector<std::int64_t>{3, 3}}});
  const ValueId x = b.tanh(b.flatten(b.global_average_pool(y)));
  const auto layer = [&](const char* name, ValueId of, ValueId w) {
    return b.node("Gemm", name, {of, w}, {{"transB", std::int64_t{1}}});
  };
  const ValueId one = layer("one", x, weight), other = layer("other", x, weights[2]);
  Graph graph = b.finish(b.concat({b.tanh(one), other}, 1));
  if (!behind) return graph;
  for (const std::vector<ValueId>& ids : {filters, of_filters, weights}) {
    std::vector<at::Tensor> tensors;
    for (const ValueId id : ids) tensors.push_back(graph.values[static_cast<std::size_t>(id)].initializer);
    const at::Tensor whole = at::cat(tensors, 0);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < ids.size(); begin += tensors[i++].size(0))
      graph.values[static_cast<std::size_t>(ids[i])].initializer = whole.narrow(0, begin, tensors[i].size(0));
  }
  return graph;
}

TEST_CASE("Compiled weights that are joined, where they lie and copied", "[compiled]") {
  for (const bool behind : {false, true}) {
    check_same([&] { return of_joined_weights(behind); }, several({4, 3, 6, 6}));
    GraphNetwork network(of_joined_weights(behind));
    const Batch batch = batch_of(several({4, 3, 6, 6})[0]);
    const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {batch.inputs[0].sizes().vec()}},
                                             compiled::Choices{});
    CHECK(plan->by_libtorch().empty());
    const at::Tensor before = plan->forward(batch, training);
    {
      const at::NoGradGuard off;
      network.parameters()[1].tensor.mul_(2.0);
    }
    // What was handed out for one pass stays as it was when the next one comes; changed weights are seen.
    std::vector<at::Tensor> parameters;
    for (const NamedTensor& each : network.parameters()) parameters.push_back(each.tensor);
    const auto gradients = [&] {
      const at::Tensor output = plan->forward(batch, training);
      return torch::autograd::grad({output}, parameters, {at::ones_like(output)}, std::nullopt, false, true);
    };
    const std::vector<at::Tensor> first = gradients();
    std::vector<at::Tensor> kept;
    for (const at::Tensor& each : first) kept.push_back(each.clone());
    {
      const at::NoGradGuard off;
      for (const at::Tensor& each : parameters) each.add_(0.1);
    }
    gradients();
    for (std::size_t i = 0; i < kept.size(); ++i) CHECK(first[i].equal(kept[i]));
    // Filters: one tensor has the gradients of both, whether the weights lie behind each other or not.
    CHECK(first[0].storage().is_alias_of(first[1].storage()));
    // Where they lie behind each other the way back reads them as they are by then: there is no copy.
    const at::Tensor output = plan->forward(batch, training);
    {
      const at::NoGradGuard off;
      for (const at::Tensor& each : {parameters[4], parameters[5], parameters[6]}) each.zero_();
    }
    const at::Tensor of_filter = torch::autograd::grad({output}, parameters, {at::ones_like(output)})[0];
    CHECK((of_filter.abs().max().item<double>() == 0.0) == behind);
  }
}

TEST_CASE("Compiled weights that an Identity hands on", "[compiled]") {
  const auto make = [] {
    GraphBuilder b(schema_of({3, 6, 6}), 3);
    const ValueId filter = b.uniform_parameter("filter", {16, 3, 3, 3}, 0.3),
                  bias = b.uniform_parameter("bias", {16}, 0.3);  // fill blocks of each processor
    const auto conv = [&](const char* name, ValueId its) {
      return b.node("Conv", name, {b.input(), filter, its},
                    {{"kernel_shape", std::vector<std::int64_t>{3, 3}}});
    };
    const ValueId sum = b.mul(b.tanh(conv("one", bias)), conv("other", b.node("Identity", "same", {bias})));
    return b.finish(b.linear(b.flatten(b.global_average_pool(sum)), "out", 4));
  };
  check_same(make, several({4, 3, 6, 6}));
  GraphNetwork network(make());
  const Plan plan(network, PlanKey{.inputs = {{4, 3, 6, 6}}}, {});
  CHECK(plan.by_libtorch().empty());
}

TEST_CASE("Networks made at random are the same compiled", "[compiled]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    check_same([&] { return random_rows(seed); }, several({5, 12}));
    // Few pixels, and enough of them that convolutions are made with fewer products.
    const std::int64_t size = seed % 2 == 0 ? 6 : 11;
    check_same([&] { return random_images(seed, size); }, several({4, 3, size, size}));
  }
}

TEST_CASE("Chains of operators made at random are the same compiled", "[compiled]") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    check_same([&] { return random_chains(seed); }, several({seed % 3 == 0 ? 700 : 5, 12}));
  }
}

TEST_CASE("A chain is one step, and what others read of it ends it", "[compiled]") {
  const auto steps = [](const std::function<ValueId(GraphBuilder&, ValueId)>& make) {
    GraphBuilder b(schema_of({6}), 3);
    const ValueId x = b.linear(b.input(), "in", 8);
    GraphNetwork network(b.finish(b.linear(make(b, x), "out", 4)));
    const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
    REQUIRE(plan->by_libtorch().empty());
    return plan->steps() - 2;
  };
  const auto half = [](GraphBuilder& b) { return b.constant("half", at::scalar_tensor(0.5f)); };
  REQUIRE(steps([&](GraphBuilder& b, ValueId x) {
            return b.mul(b.tanh(b.node("Sub", "s", {half(b), b.mul(x, b.sigmoid(x))})), x);
          }) == 1);
  REQUIRE(steps([&](GraphBuilder& b, ValueId x) {
            const ValueId y = b.tanh(b.sigmoid(x));
            const ValueId other = b.layer_norm(y, "n");
            return b.add(other, b.node("Exp", "e", {y}));
          }) == 3);
}

TEST_CASE("Chains leave alone what fills up channels", "[compiled]") {
  // There 0 would become infinite, and NaN in what comes behind.
  check_same(
      [] {
        GraphBuilder b(schema_of({3, 9, 9}), 3);
        ValueId x = b.conv2d(b.input(), "a", 5, {.padding = 1});
        x = b.node("Log", "log", {b.node("Abs", "abs", {x})});
        x = b.conv2d(x, "b", 6, {.kernel = 1});
        return b.finish(b.linear(b.flatten(x), "c", 4));
      },
      several({3, 3, 9, 9}));
}

TEST_CASE("What was given out may be written over ahead of the way back", "[compiled]") {
  GraphBuilder b(schema_of({6}), 3);
  GraphNetwork network(b.finish(b.relu(b.linear(b.input(), "a", 8))));
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  const Batch batch = batch_of(at::randn({5, 6}));
  const at::Tensor weight = network.parameters()[0].tensor, given = at::randn({5, 8});
  const auto gradient = [&](const at::Tensor& output) {
    return torch::autograd::grad({output}, {weight}, {given})[0].clone();
  };
  const at::Tensor expected = gradient(plan->forward(batch, training));
  const at::Tensor output = plan->forward(batch, training);
  output.detach().zero_();
  REQUIRE(gradient(output).equal(expected));
}

TEST_CASE("A number of a chain is read in each pass", "[compiled]") {
  GraphBuilder b(schema_of({6}), 3);
  const ValueId x = b.linear(b.input(), "in", 8), factor = b.constant("factor", at::scalar_tensor(0.5f));
  GraphNetwork network(b.finish(b.mul(b.tanh(x), factor)));
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  const Batch batch = batch_of(at::randn({5, 6}));
  const at::Tensor before = plan->forward(batch, training).detach().clone();
  network.graph()->values[static_cast<std::size_t>(factor)].initializer.mul_(3.0);
  REQUIRE(plan->forward(batch, training).detach().allclose(3.0 * before));
}

TEST_CASE("With nothing fused the bits are the network's", "[compiled]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    check_same([&] { return random_rows(seed); }, several({5, 12}), {.fuses = false});
    check_same([&] { return random_images(seed, 6); }, several({4, 3, 6, 6}), {.fuses = false});
  }
}

TEST_CASE("What a compiled pass gives out stays what it was", "[compiled]") {
  GraphNetwork network(two_layers());
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  std::vector<at::Tensor> outputs, copies;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor output = plan->forward(batch_of(at::randn({5, 6})), training);
    REQUIRE(plan->is_busy());
    output.sum().backward();
    outputs.push_back(output.detach());
    copies.push_back(outputs.back().clone());
    const at::Tensor gradient = network.parameters()[0].tensor.grad();
    outputs.push_back(gradient);
    copies.push_back(gradient.clone());
    network.parameters()[0].tensor.mutable_grad().reset();
  }
  REQUIRE_FALSE(plan->is_busy());
  for (std::size_t i = 0; i < outputs.size(); ++i) REQUIRE(outputs[i].equal(copies[i]));
}

TEST_CASE("Gradients of two compiled passes add up", "[compiled]") {
  GraphNetwork network(two_layers());
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  const at::Tensor x = at::randn({5, 6});
  plan->forward(batch_of(x), training).sum().backward();
  const at::Tensor once = network.parameters()[0].tensor.grad().clone();
  plan->forward(batch_of(x), training).sum().backward();
  REQUIRE(apart(network.parameters()[0].tensor.grad(), 2 * once) < 1e-6);
}

TEST_CASE("Gradients of gradients are refused, and a second way back", "[compiled]") {
  GraphNetwork network(two_layers());
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  const at::Tensor loss = plan->forward(batch_of(at::randn({5, 6})), training).sum();
  REQUIRE_THROWS_WITH(loss.backward({}, true, true), Catch::Contains("gradients of gradients"));
  const at::Tensor again = plan->forward(batch_of(at::randn({5, 6})), training).sum();
  again.backward({}, true);
  REQUIRE_THROWS_WITH(again.backward(), Catch::Contains("backward twice"));
}

TEST_CASE("Buffers that are used at the same time lie apart", "[compiled]") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<compiled::Buffer> buffers;
    for (int i = 0; i < 40; ++i) {
      buffers.emplace_back(1 + random() % 1000, false);
      const int first = static_cast<int>(random() % 50);
      buffers.back().use(first);
      buffers.back().use(first + static_cast<int>(random() % 12));
    }
    std::vector<std::size_t> offsets;
    const std::size_t size = compiled::lay_out(buffers, offsets);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      sum += buffers[i].bytes();
      REQUIRE(offsets[i] + buffers[i].bytes() <= size);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together =
            buffers[i].first() <= buffers[j].last() && buffers[j].first() <= buffers[i].last();
        const bool overlap =
            offsets[i] < offsets[j] + buffers[j].bytes() && offsets[j] < offsets[i] + buffers[i].bytes();
        REQUIRE_FALSE((together && overlap));
      }
    }
    REQUIRE(size < sum);
  }
}

}  // namespace

}  // namespace compiled_tests
