// Filters that are cut: outputs against those of the whole network with zeros in their place, and what is refused.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <set>

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

/// Draws a graph that is as unlike a usual network as its operators allow: convolutions read what a transpose made of
/// columns, weights are shared and read by other operators, sides are as long as there are channels.
class Drawn {
 public:
  Drawn(const BatchSchema& schema, std::uint64_t seed) : b_(schema, seed), random_(seed, "graph") {
    values_ = {b_.input()};
    for (std::size_t left = 6 + below(10); left > 0; --left) add(make());
  }

  Graph finish() {
    ValueId sum = no_value;
    for (const ValueId each : values_) {
      if (read_.contains(each)) continue;
      const ValueId part = b_.linear(b_.flatten(each), name("head"), 5);
      sum = sum == no_value ? part : b_.add(sum, part);
    }
    return b_.finish(sum);
  }

 private:
  std::size_t below(std::size_t bound) { return random_.below(next_++, bound); }
  std::int64_t size() { return below(2) == 0 ? 4 : 6; }
  std::string name(const std::string& of) { return of + std::to_string(next_++); }
  const std::vector<std::int64_t>& shape(ValueId x) const { return b_.shape(x); }
  std::size_t rank(ValueId x) const { return shape(x).size(); }
  /// Returns a dimension of a value that does not count samples.
  std::int64_t axis(ValueId x) { return 1 + static_cast<std::int64_t>(below(rank(x) - 1)); }
  std::int64_t side(ValueId x, std::int64_t axis) const { return shape(x)[static_cast<std::size_t>(axis)]; }

  ValueId pick() {
    const ValueId x = values_[below(2) == 0 ? values_.size() - 1 : below(values_.size())];
    read_.insert(x);
    return x;
  }
  /// Returns a value of the shape of `x`, which may be itself; but for the side along `apart`.
  ValueId alike(ValueId x, std::int64_t apart = -1) {
    std::vector<ValueId> all;
    for (const ValueId each : values_) {
      std::vector<std::int64_t> a = shape(x), b = shape(each);
      if (a.size() != b.size()) continue;
      if (apart >= 0) a[static_cast<std::size_t>(apart)] = b[static_cast<std::size_t>(apart)];
      if (a == b) all.push_back(each);
    }
    const ValueId found = all[below(all.size())];
    read_.insert(found);
    return found;
  }
  /// Returns a parameter of this shape, often one that is there already.
  ValueId weight(const std::vector<std::int64_t>& of) {
    std::vector<ValueId>& all = weights_[of];
    if (all.empty() || below(3) > 0) all.push_back(b_.uniform_parameter(name("weight"), of, 0.7));
    return all[below(all.size())];
  }
  void add(ValueId made) {
    std::int64_t count = 1;
    for (std::size_t i = 1; i < rank(made); ++i) count *= shape(made)[i];
    if (count <= 600) values_.push_back(made);
  }

  ValueId make() {
    const ValueId x = pick();
    const std::int64_t a = axis(x), n = side(x, a);
    if (rank(x) == 4) {
      switch (below(7)) {
        case 0:
        case 1: {
          const std::int64_t channels = side(x, 1), way = static_cast<std::int64_t>(below(4)), out = size();
          const std::int64_t groups = way == 0                                        ? channels
                                      : way == 1 && channels % 2 == 0 && out % 2 == 0 ? 2
                                                                                      : 1;
          const std::int64_t made =
              groups == channels ? groups * static_cast<std::int64_t>(1 + below(2)) : out;
          return b_.node("Conv", name("conv"), {x, weight({made, channels / groups, 1, 1}), weight({made})},
                         {{"group", groups}, {"kernel_shape", std::vector<std::int64_t>{1, 1}}});
        }
        case 2: return b_.batch_norm(x, name("norm"));
        case 3: return b_.max_pool2d(x, 1, 1);
        case 4: return below(2) == 0 ? b_.global_average_pool(x) : b_.max_pool2d(x, 3, 1, 1);
        case 5: {
          const std::int64_t out = size();
          return b_.node("ConvTranspose", name("up"), {x, weight({side(x, 1), out, 1, 1}), weight({out})},
                         {{"kernel_shape", std::vector<std::int64_t>{1, 1}}});
        }
        default: break;
      }
    }
    switch (below(13)) {
      case 0: return b_.relu(x);
      case 1: return b_.sigmoid(x);
      case 2: return b_.add(x, alike(x));
      case 3: return b_.mul(x, alike(x));
      case 4: return b_.concat({x, alike(x, a)}, a);
      case 5: return b_.slice(x, a, n / 2, n);
      case 6: {
        const std::vector<ValueId> parts = n % 2 == 0 ? b_.split(x, 2, a) : std::vector<ValueId>{x};
        for (const ValueId part : parts) add(part);
        return parts.front();
      }
      case 7: return b_.pad(x, a, 1, static_cast<std::int64_t>(below(2)));
      case 8: {
        std::vector<std::int64_t> order(rank(x));
        std::iota(order.begin(), order.end(), 0);
        std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(axis(x))]);
        return b_.transpose(x, order);
      }
      case 9: {
        std::vector<std::int64_t> to = {-1};
        if (rank(x) == 4)
          to.insert(to.end(), {side(x, 1) * side(x, 2), side(x, 3)});
        else
          for (std::size_t i = 1; i < rank(x); ++i)
            if (shape(x)[i] % 2 == 0 && rank(x) < 4 && to.size() == i)
              to.insert(to.end(), {shape(x)[i] / 2, 2});
            else
              to.push_back(shape(x)[i]);
        return b_.reshape(x, to);
      }
      case 10: return b_.node("MatMul", name("product"), {x, weight({shape(x).back(), size()})});
      case 11: {
        const std::int64_t out = size();
        return b_.node("MatMul", name("product"), {x, b_.transpose(weight({out, shape(x).back()}), {1, 0})});
      }
      default: {
        std::vector<std::int64_t> of(rank(x) - static_cast<std::size_t>(a), 1);
        of[0] = below(4) > 0 ? n : 1;
        return b_.mul(x, weight(n == 1 && below(2) == 0 ? std::vector<std::int64_t>{4} : of));
      }
    }
  }

  GraphBuilder b_;
  RandomStream random_;
  std::uint64_t next_ = 0;
  std::vector<ValueId> values_;
  std::set<ValueId> read_;
  std::map<std::vector<std::int64_t>, std::vector<ValueId>> weights_;
};

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

/// Returns whether channels could be taken, and compares outputs with those of the whole network with zeros in their place.
bool check_half(Network& network, const BatchSchema& schema, std::uint64_t seed) {
  const at::NoGradGuard untracked;
  const Graph& graph = *network.graph();
  const filters::Channels channels(graph);
  const filters::Gone gone = half(channels, seed);
  if (gone.empty()) return false;
  const filters::Kept kept = filters::kept_after(channels, gone);
  CHECK(filters::gone_by(channels, kept) == gone);
  GraphNetwork smaller(filters::cut(graph, channels, gone));
  std::vector<at::Tensor> before;
  std::vector<NamedTensor> all = network.parameters();
  for (const NamedTensor& buffer : network.buffers()) all.push_back(buffer);
  for (const NamedTensor& one : all) before.push_back(one.tensor.detach().clone());
  std::vector<NamedTensor> detached;
  for (const NamedTensor& one : all) detached.push_back({one.name, one.tensor.detach()});
  filters::mask(graph, channels, gone, detached);
  const Batch batch = testing::tiny_batch(schema, 4);
  const at::Tensor dense = network.forward(batch, {});
  const double size = dense.abs().max().item<double>();
  CHECK((smaller.forward(batch, {}) - dense).abs().max().item<double>() <= 1e-5 * std::max(1.0, size));
  CHECK(size > 1e-2);
  CHECK(parameters(smaller) < parameters(network));
  CHECK(parameters(smaller) == filters::parameters_after(graph, channels, gone));
  const std::vector<NamedTensor> tensors = filters::cut_tensors(graph, channels, gone, detached);
  std::map<std::string, at::Tensor> of_smaller;
  for (const NamedTensor& one : smaller.parameters()) of_smaller.emplace(one.name, one.tensor);
  for (const NamedTensor& one : smaller.buffers()) of_smaller.emplace(one.name, one.tensor);
  CHECK(of_smaller.size() == tensors.size());
  for (const NamedTensor& one : tensors)
    CHECK(of_smaller.at(one.name).detach().sizes() == one.tensor.sizes());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].tensor.detach().copy_(before[i]);
  return true;
}

}  // namespace

TEST_CASE("a network without filters gives what it gives with zeros in their place", "[pruning]") {
  for (const Named& each : networks()) {
    INFO(each.name);
    for (const std::uint64_t seed : {1, 2}) REQUIRE(check_half(*each.network, each.schema, seed));
  }
}

TEST_CASE("so does each of 400 graphs of chance that can be cut at all", "[pruning]") {
  BatchSchema schema = image(4, 4);
  int cut = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    GraphNetwork network(Drawn(schema, seed).finish());
    stir(network);
    INFO("graph " << seed);
    try {
      cut += check_half(network, schema, seed) ? 1 : 0;
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
    }
  }
  CHECK(cut > 100);
}

TEST_CASE("nodes that read channels in a way of their own", "[pruning]") {
  const BatchSchema schema = image(3, 8);
  using Between = std::function<ValueId(GraphBuilder&, ValueId)>;
  const auto network = [&](const Between& between, std::int64_t channels = 8) {
    GraphBuilder b(schema, 1);
    const ValueId x = b.conv2d(b.input(), "first", channels, {.padding = 1});
    auto made = std::make_unique<GraphNetwork>(b.finish(b.linear(b.flatten(between(b, x)), "fc", 10)));
    stir(*made);
    return made;
  };
  const auto obstacle = [&](const Between& between, std::int64_t of = 8) {
    const auto made = network(between, of);
    const filters::Channels channels(*made->graph());
    return channels.obstacle(channels.layers().front().outputs.front());
  };
  const auto columns = [](GraphBuilder& b, ValueId x) { return b.transpose(x, {0, 2, 1, 3}); };
  const auto weight = [](GraphBuilder& b, std::vector<std::int64_t> shape) {
    return b.uniform_parameter("w", shape, 0.5);
  };
  CHECK_THAT(obstacle([&](GraphBuilder& b, ValueId x) { return b.max_pool2d(columns(b, x), 2, 2); }),
             Contains("(MaxPool) reads another dimension"));
  CHECK_THAT(obstacle([&](GraphBuilder& b, ValueId x) { return b.conv2d(columns(b, x), "second", 4, {}); }),
             Contains("second (Conv) reads another dimension"));
  CHECK_THAT(obstacle([&](GraphBuilder& b, ValueId x) {
               return b.node("ConvTranspose", "second", {columns(b, x), weight(b, {8, 4, 1, 1})});
             }),
             Contains("second (ConvTranspose) reads another dimension"));
  CHECK_THAT(obstacle(
                 [&](GraphBuilder& b, ValueId x) {
                   return b.mul(x, weight(b, {4, 1, 1}));
                 },
                 1),
             Contains("has no channels"));
  const auto numbers = [](GraphBuilder& b, const char* name, std::int64_t number) {
    return b.constant(name, at::full({1}, number, at::kInt));
  };
  const std::vector<Between> cut = {
      [&](GraphBuilder& b, ValueId x) {  // integers of 32 bits
        return b.node("Slice", "part",
                      {x, numbers(b, "from", 2), numbers(b, "to", 7), numbers(b, "axis", 1)});
      },
      [&](GraphBuilder& b, ValueId x) {  // the same channels twice, of which a part is taken
        return b.slice(b.concat({x, b.sigmoid(x)}, 1), 1, 8, 16);
      },
      [&](GraphBuilder& b, ValueId x) {
        return b.slice(b.concat({x, b.sigmoid(x)}, 1), 1, 5, 14);
      }};
  for (const Between& between : cut) CHECK(check_half(*network(between), schema, 1));
}

TEST_CASE("a bias that other nodes compute keeps what it is added to", "[pruning]") {
  for (const char* op : {"Conv", "ConvTranspose"}) {
    GraphBuilder b(image(3, 8), 1);
    const ValueId second =
        b.node(op, "second",
               {b.conv2d(b.input(), "first", 8, {.padding = 1}), b.uniform_parameter("w", {8, 8, 1, 1}, 0.5),
                b.relu(b.normal_parameter("bias", {8}, 1.0))});
    const GraphNetwork network(b.finish(b.linear(b.flatten(b.batch_norm(second, "norm")), "fc", 10)));
    const filters::Channels channels(*network.graph());
    const filters::Track& made = channels.track(second);
    REQUIRE(made.channels.size() == 8);
    CHECK_THAT(channels.obstacle(made.channels.front()), Contains("has a bias that other nodes compute"));
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
