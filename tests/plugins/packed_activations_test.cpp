// packed_activations: gradients against those of PyTorch with saved_tensors_hooks and codes by NumPy
// (tests/golden/packed_activations.py), packed codes against plain ones to the bit, what is kept and what is let go.
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch.hpp>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/transform.hpp>

#include "plugins/transform/packed_activations/packer.hpp"
#include "tests/plugins/golden.hpp"
#include "tests/support/plugin.hpp"

namespace packed_activations_test {

using namespace trainyard;
using namespace packed_activations;
using Names = std::set<std::string, std::less<>>;
using Tensors = std::map<std::string, at::Tensor>;

namespace {

/// The network of tests/golden/packed_activations.py.
std::unique_ptr<Network> network_of(std::int64_t side = 6) {
  BatchSchema schema = testing::tiny_schema();
  schema.inputs[0].shape = {2, side, side};
  GraphBuilder b(schema, 3);
  ValueId x = b.conv2d(b.input(), "c1", 4, {.kernel = 3, .padding = 1});
  x = b.max_pool2d(b.relu(b.batch_norm(x, "bn1")), 2, 2);
  x = b.gelu(b.conv2d(x, "c2", 5, {.kernel = 3, .padding = 1}));
  x = b.tanh(b.linear(b.flatten(x), "fc1", 12));
  x = b.relu(b.linear(x, "fc2", 6));
  return std::make_unique<GraphNetwork>(b.finish(b.linear(x, "fc3", 3)));
}

at::Tensor floats(const nlohmann::json& json) {
  return test::tensor(json["values"], json["shape"].get<std::vector<std::int64_t>>()).to(at::kFloat);
}

Names all_nodes(const Network& network) {
  Names names;
  for (const Node& node : network.graph()->nodes)
    if (keeps_activations(node.op)) names.insert(node.name);
  return names;
}

std::shared_ptr<const Codec> codec_of(const std::string& name) {
  return name.empty() ? nullptr : std::shared_ptr<const Codec>(test::make<Codec>(name));
}

std::shared_ptr<Packer> watched(Network& network, const Quantiser& quantiser, const std::string& codec,
                                const Names& nodes = {}) {
  auto packer = std::make_shared<Packer>(network, nodes.empty() ? all_nodes(network) : nodes, quantiser,
                                         codec_of(codec));
  packer->watch(network, packer.get());
  return packer;
}

Batch batch_of(const at::Tensor& x) {
  Batch batch;
  batch.inputs = {x};
  return batch;
}

constexpr ForwardContext training{.training = true};

Tensors gradients(const Network& network) {
  Tensors found;
  for (const NamedTensor& each : network.parameters()) {
    found.emplace(each.name, each.tensor.grad().clone());
    each.tensor.mutable_grad().reset();
  }
  return found;
}

bool equal(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.equal(other.second);
  });
}

/// The values of a tensor after a round trip.
at::Tensor round_trip(const at::Tensor& x, const Quantiser& quantiser, bool keeps_positive,
                      const Codec* codec) {
  return PackedTensor(x, quantiser, keeps_positive, codec).values();
}

}  // namespace

TEST_CASE("gradients are those of PyTorch with the same codes", "[packed_activations]") {
  const nlohmann::json golden = test::golden("packed_activations.json");
  const std::unique_ptr<Network> network = network_of();
  {
    const at::NoGradGuard untracked;
    for (const NamedTensor& each : network->parameters()) {
      at::Tensor handle = each.tensor;
      handle.copy_(floats(golden["parameters"][each.name]));
    }
  }
  const Batch batch = batch_of(floats(golden["input"]));
  const Quantiser affine{.scheme = Scheme::affine, .block = golden["block"]},
      absmax{.scheme = Scheme::absmax, .block = golden["block"]};
  for (const auto& [name, quantiser] : {std::pair{"affine", affine}, {"absmax", absmax}})
    for (const char* const codec : {"", "boveda", "zstd"}) {
      INFO(name << " " << codec);
      const auto packer = watched(*network, quantiser, codec);
      const at::Tensor output = network->forward(batch, training);
      CHECK(packer->kept().tensors == golden[std::string(name) + "_tensors"].get<std::int64_t>());
      CHECK(packer->kept().held == 0);
      CHECK(packer->take_unpacked().empty());
      output.backward(floats(golden["output_gradient"]));
      double away = 0.0;
      for (const auto& [parameter, gradient] : gradients(*network)) {
        INFO(parameter);
        CHECK(test::distance(gradient, floats(golden[name][parameter])) < 2e-6);
        away = std::max(away, test::distance(gradient, floats(golden["whole"][parameter])));
      }
      CHECK(away > 1e-3);  // so it is not the gradient of activations that were kept whole
      network->remove_tap(packer.get());
    }
}

TEST_CASE("packed codes give the bits of plain ones, over borders of pieces and blocks",
          "[packed_activations]") {
  at::manual_seed(4);
  const Quantiser fine{.scheme = Scheme::affine, .block = 64},
      coarse{.scheme = Scheme::absmax, .block = 5000};
  for (const char* const name : {"boveda", "zstd"})
    for (const Quantiser& quantiser : {fine, coarse, Quantiser{}})
      for (const std::int64_t count : {1L, 63L, 4097L, 3 * piece_values + 7})
        for (const bool relu : {false, true}) {
          INFO(name << " " << count << " blocks of " << quantiser.block);
          at::Tensor x = at::randn({count});
          if (relu) x = x.relu();
          const std::shared_ptr<const Codec> codec = codec_of(name);
          const PackedTensor plain(x, quantiser, relu, nullptr), packed(x, quantiser, relu, codec.get());
          CHECK(plain.values().equal(packed.values()));
          CHECK(packed.bytes() <= plain.bytes());
          if (relu && count > piece_values) CHECK(packed.bytes() < 0.85 * static_cast<double>(plain.bytes()));
        }
}

TEST_CASE("values lose half a step at most, and zeros and signs stay", "[packed_activations]") {
  at::manual_seed(6);
  const at::Tensor x =
      at::cat({at::randn({5000}), at::randn({3000}) * 1e-30, at::zeros({700}), at::rand({900}) + 5.0,
               at::full({40}, -3.0), at::randn({1000}).relu() * 1e30});
  for (const Scheme scheme : {Scheme::affine, Scheme::absmax})
    for (const std::int64_t block : {64, 777, 65536}) {
      INFO((scheme == Scheme::affine ? "affine " : "absmax ") << block);
      const Quantiser quantiser{.scheme = scheme, .block = block};
      const at::Tensor rounded = round_trip(x, quantiser, false, nullptr),
                       kept = round_trip(x, quantiser, true, nullptr);
      for (std::int64_t begin = 0; begin < x.numel(); begin += block) {
        const at::Tensor part = x.slice(0, begin, begin + block).to(at::kDouble);
        const double low = std::min(part.min().item<double>(), 0.0),
                     high = std::max(part.max().item<double>(), 0.0);
        const double step = scheme == Scheme::affine ? (high - low) / 255 : std::max(high, -low) / 127;
        const at::Tensor away = (rounded.slice(0, begin, begin + block) - part).abs();
        CHECK(away.max().item<double>() <= (0.5 + 1e-3) * step + 1e-37);
        const at::Tensor away_kept = (kept.slice(0, begin, begin + block) - part).abs();
        CHECK(away_kept.max().item<double>() <= (1.5 + 1e-3) * step + 2e-38);
      }
      CHECK(rounded.index({x == 0}).eq(0).all().item<bool>());
      CHECK(kept.gt(0).equal(x.gt(0)));
    }
}

TEST_CASE("a block that is not finite comes back as NaN, and no other does", "[packed_activations]") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    at::Tensor x = at::arange(300, at::kFloat);
    x[130] = odd;
    const at::Tensor back =
        round_trip(x, {.scheme = Scheme::affine, .block = 64}, true, codec_of("boveda").get());
    CHECK(back.slice(0, 128, 192).isnan().all().item<bool>());
    CHECK(back.isnan().sum().item<std::int64_t>() == 64);
  }
}

TEST_CASE("half precision comes back in its own type, positive values above 0", "[packed_activations]") {
  at::manual_seed(9);
  const at::Tensor x = at::cat({at::randn({4000}).relu(), at::rand({4000}) * 1e-6});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor given = x.to(type), back = round_trip(given, {}, true, nullptr);
    CHECK(back.scalar_type() == type);
    CHECK(back.gt(0).equal(given.gt(0)));
    CHECK((back.to(at::kFloat) - given.to(at::kFloat)).abs().max().item<float>() < 0.03f);
  }
}

TEST_CASE("a pass without gradients keeps nothing, and passes may overlap or go backward twice",
          "[packed_activations]") {
  at::manual_seed(1);
  const std::unique_ptr<Network> network = network_of();
  const Batch one = batch_of(at::randn({4, 2, 6, 6})), other = batch_of(at::randn({4, 2, 6, 6}));
  const auto packer = watched(*network, {}, "boveda");
  const auto alone = [&](const Batch& batch) {
    network->forward(batch, {}).sum().backward();
    return gradients(*network);
  };
  const Tensors of_one = alone(one), of_other = alone(other);
  const at::Tensor first = network->forward(one, {}), second = network->forward(other, {});
  {
    const at::NoGradGuard untracked;
    network->forward(one, {});
  }
  CHECK(packer->kept().tensors == 7);  // those of the pass before
  first.sum().backward({}, true);
  CHECK(equal(gradients(*network), of_one));
  second.sum().backward();
  CHECK(equal(gradients(*network), of_other));
  first.sum().backward();
  CHECK(equal(gradients(*network), of_one));
  network->forward(one, {});
  CHECK(packer->kept().tensors == 7);
}

TEST_CASE("what other nodes keep whole is counted", "[packed_activations]") {
  const std::unique_ptr<Network> network = network_of(16);
  const auto packer = watched(*network, {}, "", {"relu1"});  // max_pool2d keeps its output, too
  const at::Tensor output = network->forward(batch_of(at::randn({8, 2, 16, 16})), {});
  const Kept kept = packer->kept();
  CHECK(kept.tensors == 1);
  CHECK(kept.whole == 8 * 4 * 16 * 16 * 4);
  CHECK(kept.held == kept.whole);
  CHECK(kept.holders == "relu1");
  CHECK(kept.packed < kept.whole / 4 + 100);
}

TEST_CASE("the plugin refuses patterns that fit nothing, and says what is kept in a run",
          "[packed_activations]") {
  const BatchSchema schema = testing::tiny_schema();
  const auto made =
      test::make<Transform>("packed_activations", test::table({{"layers", Array{Value("nope*")}}}));
  CHECK_THROWS_WITH(made->apply(testing::tiny_network(schema), {schema, 1}),
                    Catch::Matchers::Contains("\"nope*\" fits no node"));
  testing::FakeHost host;
  test::Subscribed<Transform> plugin("packed_activations", test::table({{"block", std::int64_t{64}}}));
  plugin.plugin().set_host(host);
  testing::TinyRun run;
  run.add(plugin);
  run.step(2);
  run.evaluate();
  run.finish();
  CHECK(host.logged("1 activations are kept for backward in 8 bits a value, which is lossy", LogLevel::info));
  CHECK(host.metrics["activations/whole_bytes"] == std::vector<double>{8 * 8 * 4, 8 * 8 * 4});
  CHECK(host.metrics["activations/bytes"].size() == 2);
  CHECK(host.metrics["activations/bytes"][0] < 8 * 8 + 64);
}

}  // namespace packed_activations_test
