// Filters that are cut: outputs against those of the whole network with zeros in their place, and what is refused.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch.hpp>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/transform.hpp>

#include "plugins/transform/filters/cut.hpp"
#include "tests/support/files.hpp"
#include "tests/support/plugin.hpp"

namespace filters_test {

using namespace trainyard;

namespace {

using Catch::Matchers::Contains;

BatchSchema image(std::int64_t channels, std::int64_t size, std::int64_t classes = 10) {
  BatchSchema schema = testing::tiny_schema(classes);
  schema.inputs[0].shape = {channels, size, size};
  return schema;
}

/// Sets all that a new network has at 0 or 1 to something else, so that a mistake shows.
void stir(Network& network) {
  const at::NoGradGuard untracked;
  std::vector<NamedTensor> all = network.parameters();
  for (const NamedTensor& each : network.buffers()) all.push_back(each);
  for (const NamedTensor& each : all) {
    at::Tensor drawn = at::empty_like(each.tensor.detach());
    if (!at::isFloatingType(drawn.scalar_type()) || drawn.dim() != 1) continue;
    fill_uniform(drawn, RandomStream(9, each.name), each.name.ends_with("var") ? 0.5 : -0.5, 1.5);
    each.tensor.detach().copy_(drawn);
  }
}

struct Named {
  const char* name;
  BatchSchema schema;
  std::unique_ptr<Network> network;
};

std::unique_ptr<Network> of_model(const char* type, const BatchSchema& schema, const Table& options) {
  return test::make<Model>(type, options)->build({schema, 3});
}

/// Concatenations, residual sums of three kinds, a split, a depthwise and a pointwise convolution, sigmoid, and a scale.
std::unique_ptr<Network> mixed(const BatchSchema& schema) {
  GraphBuilder b(schema, 3);
  const auto conv = [&](ValueId x, const std::string& name, std::int64_t out, std::int64_t groups = 1,
                        std::int64_t kernel = 3) {
    return b.conv2d(x, name, out, {.kernel = kernel, .padding = kernel / 2, .groups = groups});
  };
  const ValueId x = b.relu(b.batch_norm(conv(b.input(), "stem", 12), "stem.bn"));
  const ValueId left = b.sigmoid(conv(x, "left", 8)), right = b.tanh(conv(x, "right", 6));
  const ValueId both = b.concat({left, x, right}, 1);
  ValueId y = b.relu(b.batch_norm(b.concat({both, b.average_pool2d(both, 1, 1)}, 1), "both.bn"));
  y = conv(b.relu(conv(y, "depth", 52, 52)), "point", 12, 1, 1);
  y = conv(b.relu(conv(y, "grouped", 8, 4)), "behind", 12);
  y = b.add(y, x);
  const std::vector<ValueId> halves = b.split(y, 2, 1);
  const ValueId sum = b.add(halves[0], b.gelu(halves[1]));
  y = b.concat({b.max_pool2d(sum, 2, 2), b.max_pool2d(b.slice(y, 1, 3, 9), 2, 2)}, 1);
  y = b.mul(b.pad(y, 1, 1, 2), b.parameter("scale", at::full({15, 1, 1}, 0.7)));
  y = b.relu(b.linear(b.flatten(y), "fc1", 20));
  const ValueId wide = b.add(b.linear(y, "fc2", 20), y);
  return std::make_unique<GraphNetwork>(b.finish(b.linear(b.relu(wide), "fc3", 10)));
}

std::vector<Named> networks() {
  std::vector<Named> all;
  const auto add = [&](const char* name, const BatchSchema& schema, std::unique_ptr<Network> network) {
    all.push_back({name, schema, std::move(network)});
  };
  const BatchSchema small = image(3, 8), digits = image(1, 28);
  for (const char* shortcut : {"identity", "projection"})
    for (const char* activation : {"post", "pre"})
      add("resnet", small,
          of_model("resnet", small,
                   test::table({{"depth", std::int64_t{14}},
                                {"width", std::int64_t{8}},
                                {"shortcut", shortcut},
                                {"activation", activation}})));
  add("resnet20", small, of_model("resnet", small, test::table({})));
  add("lenet", digits, of_model("lenet", digits, test::table({})));
  BatchSchema flat = testing::tiny_schema(5);
  flat.inputs[0].shape = {16};
  add("mlp", flat,
      of_model("mlp", flat,
               test::table({{"layers", Value(Array{Value(std::int64_t{16}), Value(std::int64_t{12}),
                                                   Value(std::int64_t{9}), Value(std::int64_t{5})})}})));
  add("mixed", small, mixed(small));
  for (const Named& each : all) stir(*each.network);
  return all;
}

/// Takes about half of the channels that can be, and leaves each layer one at least.
filters::Gone half(const filters::Channels& channels, std::uint64_t seed) {
  const RandomStream random(seed, "gone");
  filters::Gone gone, spared;
  for (const filters::Layer& layer : channels.layers())
    if (!layer.outputs.empty())
      spared.insert(channels.root(layer.outputs[random.below(layer.node, layer.outputs.size())]));
  for (const filters::Layer& layer : channels.layers())
    for (const filters::Channel each : layer.outputs) {
      const filters::Channel root = channels.root(each);
      if (channels.obstacle(root).empty() && !spared.contains(root) &&
          random.uniform(1000 + static_cast<std::uint64_t>(root)) < 0.5)
        gone.insert(root);
    }
  return gone;
}

std::int64_t parameters(const Network& network) {
  std::int64_t sum = 0;
  for (const NamedTensor& each : network.parameters()) sum += each.tensor.numel();
  return sum;
}

}  // namespace

TEST_CASE("a network without filters gives what it gives with zeros in their place", "[pruning]") {
  for (const Named& each : networks()) {
    INFO(each.name);
    const at::NoGradGuard untracked;
    const Graph& graph = *each.network->graph();
    const filters::Channels channels(graph);
    for (const std::uint64_t seed : {1, 2}) {
      const filters::Gone gone = half(channels, seed);
      REQUIRE(!gone.empty());
      const filters::Kept kept = filters::kept_after(channels, gone);
      CHECK(filters::gone_by(channels, kept) == gone);
      GraphNetwork smaller(filters::cut(graph, channels, gone));
      std::vector<at::Tensor> before;
      std::vector<NamedTensor> all = each.network->parameters();
      for (const NamedTensor& buffer : each.network->buffers()) all.push_back(buffer);
      for (const NamedTensor& one : all) before.push_back(one.tensor.detach().clone());
      std::vector<NamedTensor> detached;
      for (const NamedTensor& one : all) detached.push_back({one.name, one.tensor.detach()});
      filters::mask(graph, channels, gone, detached);
      const Batch batch = testing::tiny_batch(each.schema, 4);
      const at::Tensor dense = each.network->forward(batch, {});
      CHECK((smaller.forward(batch, {}) - dense).abs().max().item<double>() <= 1e-5);
      CHECK(dense.abs().max().item<double>() > 1e-2);
      CHECK(parameters(smaller) < parameters(*each.network));
      CHECK(parameters(smaller) == filters::parameters_after(graph, channels, gone));
      const std::vector<NamedTensor> tensors = filters::cut_tensors(graph, channels, gone, detached);
      std::map<std::string, at::Tensor> of_smaller;
      for (const NamedTensor& one : smaller.parameters()) of_smaller.emplace(one.name, one.tensor);
      for (const NamedTensor& one : smaller.buffers()) of_smaller.emplace(one.name, one.tensor);
      CHECK(of_smaller.size() == tensors.size());
      for (const NamedTensor& one : tensors)
        CHECK(of_smaller.at(one.name).detach().sizes() == one.tensor.sizes());
      for (std::size_t i = 0; i < all.size(); ++i) all[i].tensor.detach().copy_(before[i]);
    }
  }
}

TEST_CASE("a network that was cut is cut again, and trains", "[pruning]") {
  const BatchSchema schema = image(3, 8);
  std::unique_ptr<Network> network = mixed(schema);
  stir(*network);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const filters::Channels channels(*network->graph());
    const filters::Gone gone = half(channels, seed);
    if (gone.empty()) continue;
    auto smaller = std::make_unique<GraphNetwork>(filters::cut(*network->graph(), channels, gone));
    network = std::move(smaller);
  }
  const Batch batch = testing::tiny_batch(schema, 4);
  network->forward(batch, {.training = true}).square().sum().backward();
  for (const NamedTensor& each : network->parameters()) {
    INFO(each.name);
    CHECK(each.tensor.grad().defined());
  }
}

TEST_CASE("channels that go together are those of all sums", "[pruning]") {
  const BatchSchema schema = image(3, 8);
  const auto network =
      of_model("resnet", schema, test::table({{"depth", std::int64_t{8}}, {"width", std::int64_t{4}}}));
  const filters::Channels channels(*network->graph());
  const auto outputs = [&](const std::string& name) {
    return std::ranges::find(channels.layers(), name, &filters::Layer::name)->outputs;
  };
  // Stages of 4, 8 and 16 channels; zeros on both sides of a shortcut.
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(channels.root(outputs("conv1")[i]) == channels.root(outputs("layer1.0.conv2")[i]));
    CHECK(channels.root(outputs("conv1")[i]) == channels.root(outputs("layer2.0.conv2")[i + 2]));
    CHECK(channels.root(outputs("conv1")[i]) == channels.root(outputs("layer3.0.conv2")[i + 6]));
    CHECK(channels.root(outputs("conv1")[i]) != channels.root(outputs("layer1.0.conv1")[i]));
  }
  CHECK(channels.root(outputs("layer2.0.conv2")[0]) != channels.root(outputs("conv1")[0]));
  CHECK_THAT(channels.obstacle(outputs("fc")[0]), Contains("the network's output"));
}

TEST_CASE("what cannot be cut is refused by name", "[pruning]") {
  const BatchSchema schema = image(3, 8);
  const auto refused = [&](const Network& network, const filters::Kept& kept) {
    const filters::Channels channels(*network.graph());
    try {
      filters::cut(*network.graph(), channels, filters::gone_by(channels, kept));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto resnet =
      of_model("resnet", schema, test::table({{"depth", std::int64_t{8}}, {"width", std::int64_t{4}}}));
  CHECK_THAT(refused(*resnet, {{"fc", {10, {0, 1}}}}),
             Contains("fc[2] cannot be cut: they are the network's output"));
  CHECK_THAT(refused(*resnet, {{"conv1", {5, {0}}}}),
             Contains("\"conv1\" has 4 outputs, and was written for 5"));
  CHECK_THAT(refused(*resnet, {{"conv9", {4, {0}}}}), Contains("no linear or convolutional layer \"conv9\""));
  CHECK_THAT(refused(*resnet, {{"conv1", {4, {0, 1}}}, {"layer1.0.conv2", {4, {0, 1, 2}}}}),
             Contains("layer1.0.conv2[2] is kept, and conv1[2], which goes together with it, is not"));
  CHECK(refused(*resnet, {{"conv1", {4, {0, 1}}}}).empty());
  const auto normed =
      of_model("resnet", schema,
               test::table({{"depth", std::int64_t{8}}, {"width", std::int64_t{4}}, {"norm", "group"}}));
  CHECK_THAT(refused(*normed, {{"conv1", {4, {0}}}}),
             Contains("conv1[1] cannot be cut: gn1 (GroupNormalization) reads all of them"));
  GraphBuilder b(schema, 1);
  ValueId x = b.conv2d(b.input(), "first", 8, {.padding = 1});
  x = b.conv2d(b.relu(x), "grouped", 8, {.padding = 1, .groups = 2});
  const GraphNetwork grouped(b.finish(b.linear(b.flatten(b.relu(x)), "fc", 10)));
  CHECK_THAT(refused(grouped, {{"first", {8, {0}}}}),
             Contains("grouped (Conv) is a convolution in groups of several channels"));
}

TEST_CASE("half the filters of a wide network take less than half the time", "[.][pruning_latency]") {
  const BatchSchema schema = image(3, 32);
  GraphBuilder b(schema, 1);
  ValueId x = b.input();
  for (const char* name : {"conv1", "conv2", "conv3", "conv4"})
    x = b.relu(
        b.batch_norm(b.conv2d(x, name, 128, {.padding = 1, .bias = false}), std::string(name) + ".bn"));
  GraphNetwork dense(b.finish(b.linear(b.flatten(b.global_average_pool(x)), "fc", 10)));
  const filters::Channels channels(*dense.graph());
  filters::Gone gone;
  for (const filters::Layer& layer : channels.layers())
    for (std::size_t i = 0; i < layer.outputs.size(); i += 2)
      if (layer.name != "fc") gone.insert(channels.root(layer.outputs[i]));
  GraphNetwork half_of_it(filters::cut(*dense.graph(), channels, gone));
  const at::NoGradGuard untracked;
  for (const std::int64_t samples : {1, 16}) {
    const Batch batch = testing::tiny_batch(schema, samples);
    double least[2] = {1e9, 1e9};
    for (int round = 0; round < 15; ++round)
      for (int which = 0; which < 2; ++which) {
        GraphNetwork& network = which == 0 ? dense : half_of_it;
        const auto begun = std::chrono::steady_clock::now();
        network.forward(batch, {});
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
        least[which] = std::min(least[which], took.count());
      }
    std::printf("batch %d: dense %.2f ms, half the filters %.2f ms, %.3f of it\n", static_cast<int>(samples),
                least[0], least[1], least[1] / least[0]);
    CHECK(least[1] <= 0.5 * least[0]);
  }
}

TEST_CASE("a file of what is kept that is damaged is refused", "[pruning]") {
  const test::TempFolder folder;
  const std::string path = folder.path("kept.json");
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    try {
      filters::read_kept(path);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(read(R"({"layers": {"a": {"of": 3, "kept": [0, 2]}}})").empty());
  for (const auto& [text, words] : std::vector<std::pair<const char*, const char*>>{
           {"", "is no JSON of the form"},
           {"[]", "is no JSON of the form"},
           {R"({"layers": {"a": 3}})", "layer \"a\" is not as"},
           {R"({"layers": {"a": {"of": 3, "kept": [3]}}})", "keeps output 3 of 3"},
           {R"({"layers": {"a": {"of": 3, "kept": [1, 1]}}})", "do not ascend"},
           {R"({"layers": {"a": {"of": 3, "kept": [0.5]}}})", "keeps 0.5"},
           {R"({"layers": {"a": {"of": 3, "kept": []}}})", "keeps no output"}})
    CHECK_THAT(read(text), Contains(words));
  CHECK_THROWS_AS(filters::read_kept(folder.path("none.json")), DataError);
}

}  // namespace filters_test
