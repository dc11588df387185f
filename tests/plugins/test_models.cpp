// The shipped models: gradients by finite differences, initial values, reproducible masks, option errors.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "support/parts.hpp"
#include "support/plugin.hpp"

namespace test_models_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
using test::table;

namespace {

Array numbers(std::initializer_list<int> values) {
  Array array;
  for (const int value : values) array.emplace_back(value);
  return array;
}

BatchSchema vectors(std::int64_t features = 6, std::int64_t classes = 3) {
  BatchSchema schema;
  schema.inputs = {{"x", {features}}};
  schema.target = {"y", {}, at::kLong};
  schema.classes = classes;
  return schema;
}

BatchSchema images(std::vector<std::int64_t> shape, std::int64_t classes = 3) {
  BatchSchema schema = vectors(1, classes);
  schema.inputs = {{"image", std::move(shape)}};
  return schema;
}

BatchSchema tokens(std::int64_t time = 5, std::int64_t vocabulary = 7) {
  BatchSchema schema;
  schema.inputs = {{"tokens", {time}, at::kLong}};
  schema.target = {"next", {time}, at::kLong};
  schema.classes = schema.vocabulary = vocabulary;
  schema.tokens_per_sample = time;
  return schema;
}

BatchSchema clicks(std::int64_t features = 5, std::int64_t tables = 3, std::int64_t rows = 6) {
  BatchSchema schema;
  if (features > 0) schema.inputs = {{"features", {features}}};
  schema.inputs.push_back({"ids", {tables}, at::kLong});
  schema.target = {"click", {}, at::kLong};
  schema.classes = 2;
  schema.vocabulary = rows;
  return schema;
}

std::unique_ptr<Network> build(const std::string& name, const Table& options, const BatchSchema& schema,
                               std::uint64_t seed = 1) {
  return test::make<Model>(name, options)->build({schema, seed});
}

Table layer(const char* type, std::initializer_list<std::pair<const char*, Value>> options = {}) {
  Table result = table(options);
  result.set("type", type);
  return result;
}

Table layers(std::initializer_list<Table> list) {
  Array array;
  for (const Table& entry : list) array.emplace_back(entry);
  return table({{"layers", array}});
}

struct ModelCase {
  const char* name;
  Table options;
  BatchSchema schema;
};

/// Every model, as small as it goes.
std::vector<ModelCase> small_models() {
  const Table sequential =
      layers({layer("conv2d", {{"out", 4}, {"kernel", 3}, {"padding", 1}}), layer("batch_norm"),
              layer("gelu"), layer("average_pool", {{"kernel", 2}}),
              layer("conv2d", {{"out", 4}, {"kernel", 3}, {"groups", 2}, {"bias", false}}), layer("elu"),
              layer("flatten"), layer("selu"), layer("layer_norm"), layer("linear", {{"out", 5}}),
              layer("tanh"), layer("dropout"), layer("linear", {{"out", 3}})});
  const Table recurrent =
      layers({layer("embedding", {{"out", 4}}), layer("lstm", {{"out", 3}}), layer("linear", {{"out", 7}})});
  return {
      {"mlp", table({{"layers", numbers({6, 5, 4, 3})}, {"activation", "tanh"}}), vectors()},
      {"mlp", table({{"layers", numbers({6, 5, 3})}, {"activation", "selu"}}), vectors()},
      {"lenet", table({{"channels", numbers({2, 3})}, {"hidden", numbers({6, 5})}}), images({1, 12, 12})},
      {"resnet", table({{"depth", 8}, {"width", 2}}), images({2, 7, 8})},
      {"resnet", table({{"depth", 8}, {"width", 2}, {"shortcut", "projection"}}), images({2, 7, 8})},
      {"resnet", table({{"depth", 8}, {"width", 2}, {"activation", "pre"}, {"norm", "group"}, {"groups", 2}}),
       images({2, 7, 8})},
      {"resnet",
       table({{"depth", 8}, {"width", 2}, {"shortcut", "projection"}, {"norm", "group"}, {"groups", 1}}),
       images({2, 7, 8})},
      {"gpt", table({{"n_layer", 2}, {"n_head", 2}, {"d_model", 6}, {"seq_len", 5}}), tokens()},
      {"gpt",
       table({{"n_layer", 1},
              {"n_head", 2},
              {"d_model", 6},
              {"n_positions", 8},
              {"mlp", "gelu"},
              {"norm", "rms"}}),
       tokens()},
      {"gpt",
       table({{"n_layer", 2},
              {"n_head", 4},
              {"d_model", 8},
              {"n_kv_head", 2},
              {"position", "rope"},
              {"norm", "rms"},
              {"mlp", "swiglu"},
              {"mlp_width", 6},
              {"bias", false},
              {"tied", false}}),
       tokens()},
      {"vit", table({{"n_layer", 2}, {"n_head", 2}, {"d_model", 6}, {"patch", 4}}), images({2, 12, 8})},
      {"vit",
       table({{"n_layer", 1},
              {"n_head", 2},
              {"d_model", 6},
              {"patch", 4},
              {"pool", "mean"},
              {"mlp", "gelu_tanh"}}),
       images({2, 12, 8})},
      {"resnet_imagenet", table({{"width", 2}}), images({2, 40, 36})},
      {"lstm", table({{"n_layer", 2}, {"embedding", 4}, {"hidden", 3}}), tokens()},
      {"sequential", sequential, images({2, 8, 8})},
      {"sequential", recurrent, tokens()},
      {"dlrm", table({{"dim", 4}, {"bottom", numbers({6})}, {"top", numbers({5})}}), clicks()},
      {"dlrm", table({{"dim", 3}, {"top", Array{}}, {"tables", numbers({6, 7})}}), clicks(0, 2)},
  };
}

/// The same network in double precision.
GraphNetwork in_double(const Network& network) {
  Graph graph = *network.graph();
  for (GraphValue& value : graph.values) {
    if (value.initializer.defined() && value.initializer.is_floating_point())
      value.initializer = value.initializer.detach().to(at::kDouble);
    if (value.dtype == at::kFloat) value.dtype = at::kDouble;
  }
  graph.infer_shapes();
  return GraphNetwork(std::move(graph));
}

Batch random_batch(const BatchSchema& schema, std::int64_t size, at::ScalarType dtype) {
  Batch batch;
  for (const FieldSchema& field : schema.inputs) {
    std::vector<std::int64_t> shape = field.shape;
    shape.insert(shape.begin(), size);
    batch.inputs.push_back(field.dtype == at::kLong ? at::randint(schema.vocabulary, shape, at::kLong)
                                                    : at::randn(shape, dtype));
  }
  return batch;
}

}  // namespace

TEST_CASE("every model, cut anywhere in the order of its nodes, is its parts to the bit", "[models]") {
  for (const ModelCase& c : small_models()) {
    const auto network = build(c.name, c.options, c.schema);
    const std::size_t nodes = network->graph()->nodes.size();
    for (const std::size_t length : {std::size_t{1}, std::size_t{3}, nodes / 2}) {
      INFO(c.name << " in parts of " << length << " nodes");
      std::vector<int> parts;
      for (std::size_t i = 0; i < nodes; ++i) parts.push_back(static_cast<int>(i / length));
      at::manual_seed(4);
      const Batch batch = random_batch(c.schema, 4, at::kFloat);
      const test::Differences found = test::compare_with_parts(*network->graph(), parts, batch.inputs);
      CHECK(found.exact);
      CHECK(found.parts == (nodes + length - 1) / length);
    }
  }
}

TEST_CASE("every model has a twin that computes the same and keeps its gradients", "[models]") {
  at::manual_seed(5);
  for (const ModelCase& c : small_models()) {
    INFO(c.name);
    const auto network = build(c.name, c.options, c.schema), twin = network->twin();
    const Batch batch = random_batch(c.schema, 3, at::kFloat);
    const at::Tensor y = twin->forward(batch, {});
    CHECK(at::equal(y, network->forward(batch, {})));
    y.sum().backward();
    for (const NamedTensor& parameter : twin->parameters()) CHECK(parameter.tensor.grad().defined());
    for (const NamedTensor& parameter : network->parameters()) CHECK_FALSE(parameter.tensor.grad().defined());
  }
}

TEST_CASE("gradients of every model agree with finite differences", "[models]") {
  at::manual_seed(3);
  for (const ModelCase& c : small_models()) {
    INFO(c.name);
    GraphNetwork network = in_double(*build(c.name, c.options, c.schema));
    const Batch batch = random_batch(c.schema, 3, at::kDouble);
    // Random weights on the outputs make a loss that no symmetry cancels. Small initial weights are spread,
    // so that the gradients are well above rounding.
    std::vector<std::int64_t> shape = network.output_shape();
    shape.insert(shape.begin(), 3);
    const at::Tensor weights = at::randn(shape, at::kDouble);
    const auto loss = [&] {
      const at::Tensor y = network.forward(batch, {.training = true});
      return (y * weights).sum() + 0.1 * y.square().sum();
    };
    for (const NamedTensor& p : network.parameters()) p.tensor.data().add_(at::randn_like(p.tensor), 0.1);
    loss().backward();

    for (const NamedTensor& p : network.parameters()) {
      INFO(p.name);
      REQUIRE(p.tensor.grad().defined());
      c10::NoGradGuard no_grad;
      // Along a random direction of the whole tensor, and along single elements.
      std::vector<at::Tensor> directions = {at::randn_like(p.tensor)};
      for (int i = 0; i < 3; ++i) {
        at::Tensor unit = at::zeros_like(p.tensor);
        unit.view(-1)[at::randint(unit.numel(), {1}).item<std::int64_t>()] = 1.0;
        directions.push_back(unit);
      }
      for (const at::Tensor& direction : directions) {
        constexpr double h = 1e-6;
        const at::Tensor saved = p.tensor.clone();
        p.tensor.data().add_(direction, h);
        const double above = loss().item<double>();
        p.tensor.data().copy_(saved).sub_(direction, h);
        const double below = loss().item<double>();
        p.tensor.data().copy_(saved);
        const double expected = (above - below) / (2 * h);
        const double found = (p.tensor.grad() * direction).sum().item<double>();
        CHECK(found == Approx(expected).epsilon(1e-5).margin(1e-6));
      }
    }
  }
}

TEST_CASE("models are the same for the same seed and give finite outputs of their shape", "[models]") {
  for (const ModelCase& c : small_models()) {
    INFO(c.name);
    const auto one = build(c.name, c.options, c.schema), two = build(c.name, c.options, c.schema),
               other = build(c.name, c.options, c.schema, 2);
    bool differs = false;
    for (std::size_t i = 0; i < one->parameters().size(); ++i) {
      CHECK(one->parameters()[i].name == two->parameters()[i].name);
      CHECK(at::equal(one->parameters()[i].tensor, two->parameters()[i].tensor));
      differs |= !at::equal(one->parameters()[i].tensor, other->parameters()[i].tensor);
    }
    CHECK(differs);
    // Two classes may have one output, a logit.
    CHECK(one->output_shape().back() == (c.schema.classes == 2 ? 1 : c.schema.classes));
    for (const std::int64_t size : {1, 4}) {
      const at::Tensor y = one->forward(random_batch(c.schema, size, at::kFloat), {});
      std::vector<std::int64_t> shape = one->output_shape();
      shape.insert(shape.begin(), size);
      CHECK(y.sizes().vec() == shape);
      CHECK(y.isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("every model trains under autocast", "[models]") {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  for (const ModelCase& c : small_models()) {
    INFO(c.name);
    const auto network = build(c.name, c.options, c.schema);
    const at::Tensor y = network->forward(random_batch(c.schema, 4, at::kFloat), {.training = true});
    y.to(at::kFloat).square().sum().backward();
    for (const NamedTensor& p : network->parameters()) {
      INFO(p.name);
      CHECK(p.tensor.grad().scalar_type() == at::kFloat);
      CHECK(p.tensor.grad().isfinite().all().item<bool>());
    }
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST_CASE("parameter counts are those of the papers", "[models]") {
  const auto count = [](const Network& network) {
    std::int64_t result = 0;
    for (const NamedTensor& p : network.parameters()) result += p.tensor.numel();
    return result;
  };
  // LeNet-5 with full connections in its second convolution.
  CHECK(count(*build("lenet", {}, images({1, 28, 28}, 10))) == 61706);
  // He et al. 2016, table 6: 0.27 M for ResNet-20, 0.46 M for 32, 0.85 M for 56.
  CHECK(count(*build("resnet", table({{"depth", 20}}), images({3, 32, 32}, 10))) == 269722);
  CHECK(count(*build("resnet", table({{"depth", 32}}), images({3, 32, 32}, 10))) == 464154);
  CHECK(count(*build("resnet", table({{"depth", 56}}), images({3, 32, 32}, 10))) == 853018);
  // GPT-2 small: 124,439,808 with 50257 tokens and 1024 positions.
  // DLRM's run_and_time script for Kaggle: 13-512-256-64-16, 27 vectors, 512-256-1.
  CHECK(count(*build("dlrm", {}, clicks(13, 26, 10))) == 26 * 10 * 16 + (13 + 1) * 512 + 513 * 256 +
                                                             257 * 64 + 65 * 16 +
                                                             (16 + 27 * 26 / 2 + 1) * 512 + 513 * 256 + 257);
  CHECK(12 * (12 * 768 * 768 + 13 * 768) + 2 * 768 + 50257 * 768 + 1024 * 768 == 124439808);
  const std::int64_t w = 32, layers = 3, vocabulary = 65, time = 16;
  CHECK(count(*build("gpt", table({{"n_layer", 3}, {"n_head", 2}, {"d_model", 32}}),
                     tokens(time, vocabulary))) ==
        layers * (12 * w * w + 13 * w) + 2 * w + vocabulary * w + time * w);
}

TEST_CASE("gpt and resnet start as their papers say", "[models]") {
  const auto deviation = [](const Network& network, const std::string& name) {
    for (const NamedTensor& p : network.parameters())
      if (p.name == name) return p.tensor.std().item<double>();
    FAIL(name);
    return 0.0;
  };
  const auto gpt = build("gpt", table({{"n_layer", 2}, {"n_head", 2}, {"d_model", 64}}), tokens(32, 65));
  CHECK(deviation(*gpt, "wte.weight") == Approx(0.02).epsilon(0.05));
  CHECK(deviation(*gpt, "wpe.weight") == Approx(0.02).epsilon(0.07));
  CHECK(deviation(*gpt, "h.1.attn.qkv.weight") == Approx(0.02).epsilon(0.05));
  CHECK(deviation(*gpt, "h.1.attn.proj.weight") == Approx(0.01).epsilon(0.05));
  CHECK(deviation(*gpt, "h.0.mlp.proj.weight") == Approx(0.01).epsilon(0.05));
  CHECK(deviation(*gpt, "h.0.mlp.fc.bias") == 0.0);
  const auto resnet = build("resnet", {}, images({3, 32, 32}, 10));
  CHECK(deviation(*resnet, "layer3.1.conv2.weight") == Approx(std::sqrt(2.0 / (9 * 64))).epsilon(0.03));
}

namespace {

/// Of each sample, over the pixels of each group of channels: (x - mean) / sqrt(variance + 1e-5), then a factor and a
/// summand for each channel.
at::Tensor group_norm_by_hand(const at::Tensor& x, std::int64_t groups, const at::Tensor& weight,
                              const at::Tensor& bias) {
  at::Tensor y = at::empty_like(x);
  const std::int64_t members = x.size(1) / groups, pixels = x.size(2) * x.size(3), count = members * pixels;
  const double* from = x.const_data_ptr<double>();
  double* to = y.mutable_data_ptr<double>();
  for (std::int64_t group = 0; group < x.size(0) * groups; ++group, from += count, to += count) {
    double mean = 0.0, variance = 0.0;
    for (std::int64_t i = 0; i < count; ++i) mean += from[i] / static_cast<double>(count);
    for (std::int64_t i = 0; i < count; ++i)
      variance += (from[i] - mean) * (from[i] - mean) / static_cast<double>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t channel = group % groups * members + i / pixels;
      to[i] = (from[i] - mean) / std::sqrt(variance + 1e-5) * weight[channel].item<double>() +
              bias[channel].item<double>();
    }
  }
  return y;
}

}  // namespace

TEST_CASE("a residual network with group norm ahead of its convolutions is what its papers say", "[models]") {
  for (const std::string shortcut : {"identity", "projection"}) {
    INFO(shortcut);
    const Table options = table({{"depth", 8},
                                 {"width", 4},
                                 {"activation", "pre"},
                                 {"norm", "group"},
                                 {"groups", 2},
                                 {"shortcut", shortcut}});
    GraphNetwork network = in_double(*build("resnet", options, images({2, 7, 8})));
    std::map<std::string, at::Tensor> of;
    const at::NoGradGuard no_grad;
    for (const NamedTensor& each : network.parameters()) {
      if (each.name.find("gn") != std::string::npos) at::Tensor(each.tensor).add_(at::rand_like(each.tensor));
      of[each.name] = each.tensor.detach();
    }
    const auto norm = [&](const at::Tensor& x, const std::string& name) {
      const at::Tensor &weight = of.at(name + ".weight"), &bias = of.at(name + ".bias");
      const at::Tensor y = group_norm_by_hand(x.contiguous(), 2, weight, bias);
      CHECK(at::allclose(y, at::group_norm(x, 2, weight, bias, 1e-5), 1e-10, 1e-12));
      return at::relu(y);
    };
    const auto conv = [&](const at::Tensor& x, const std::string& name, std::int64_t stride) {
      const at::Tensor& weight = of.at(name + ".weight");
      return at::conv2d(x, weight, {}, stride, weight.size(2) / 2);
    };
    const Batch batch = random_batch(images({2, 7, 8}), 3, at::kDouble);
    at::Tensor x = conv(batch.inputs[0], "conv1", 1);
    for (std::int64_t stage = 1; stage <= 3; ++stage) {
      const std::string name = "layer" + std::to_string(stage) + ".0";
      const std::int64_t stride = stage > 1 ? 2 : 1;
      const at::Tensor in = norm(x, name + ".gn1");
      const at::Tensor y = conv(norm(conv(in, name + ".conv1", stride), name + ".gn2"), name + ".conv2", 1);
      if (stride > 1 && shortcut == "projection")
        x = conv(in, name + ".shortcut.conv", 2);
      else if (stride > 1)
        x = at::constant_pad_nd(x.slice(2, 0, {}, 2).slice(3, 0, {}, 2),
                                {0, 0, 0, 0, x.size(1) / 2, x.size(1) / 2});
      x = y + x;
    }
    x = at::linear(norm(x, "gn1").mean({2, 3}), of.at("fc.weight"), of.at("fc.bias"));
    CHECK(at::allclose(network.forward(batch, {}), x, 1e-10, 1e-12));
  }
}

TEST_CASE("other layers start as PyTorch's: uniform, as wide as the root of what a unit sees allows",
          "[models]") {
  const auto lenet = build("lenet", {}, images({1, 28, 28}, 10));
  for (const NamedTensor& p : lenet->parameters()) {
    INFO(p.name);
    if (!p.name.ends_with(".weight")) continue;
    const double bound = 1.0 / std::sqrt(static_cast<double>(p.tensor[0].numel()));
    CHECK(p.tensor.abs().max().item<double>() <= bound);
    CHECK(p.tensor.std().item<double>() == Approx(bound / std::sqrt(3.0)).epsilon(0.15));
  }
}

TEST_CASE("gpt looks at no later token", "[models]") {
  const bool rotated = GENERATE(false, true);
  Table options = table({{"n_layer", 2}, {"n_head", 2}, {"d_model", 8}});
  if (rotated) {
    options.set("position", "rope");
    options.set("n_kv_head", 1);
  }
  const auto network = build("gpt", options, tokens(6, 7));
  Batch batch = random_batch(tokens(6, 7), 2, at::kFloat);
  const at::Tensor before = network->forward(batch, {});
  batch.inputs[0] = batch.inputs[0].clone();
  batch.inputs[0].select(1, 4).add_(1).remainder_(7);
  const at::Tensor after = network->forward(batch, {});
  CHECK(at::equal(before.slice(1, 0, 4), after.slice(1, 0, 4)));
  CHECK_FALSE(at::allclose(before.slice(1, 4), after.slice(1, 4)));
}

TEST_CASE("models announce their dropout sites", "[models]") {
  const auto ids = [](const Network& network) {
    std::vector<std::string> result;
    for (const DropoutSite& site : network.dropout_places().sites)
      result.push_back(site.id + ":" + std::to_string(site.width));
    return result;
  };
  using Ids = std::vector<std::string>;
  CHECK(ids(*build("mlp", table({{"layers", numbers({6, 5, 4, 3})}}), vectors())) ==
        Ids{"fc1.dropout:5", "fc2.dropout:4"});
  CHECK(ids(*build("lenet", {}, images({1, 28, 28}))) == Ids{"fc1.dropout:120", "fc2.dropout:84"});
  CHECK(ids(*build("gpt", table({{"n_layer", 1}, {"n_head", 2}, {"d_model", 8}}), tokens())) ==
        Ids{"drop:8", "h.0.attn_weights:2", "h.0.attn.drop:8", "h.0.mlp.drop:8"});
  CHECK(ids(*build("lstm", table({{"n_layer", 1}, {"hidden", 9}}), tokens())) == Ids{"lstm1.dropout:9"});

  const auto resnet = [&](const char* sites) {
    return build("resnet", table({{"depth", 8}, {"width", 2}, {"dropout_sites", sites}}), images({3, 8, 8}))
        ->dropout_places()
        .sites;
  };
  CHECK(resnet("pool").front().id == "pool.dropout");
  for (const char* place : {"blocks", "branches"}) {
    const std::vector<DropoutSite> sites = resnet(place);
    REQUIRE(sites.size() == 3);
    CHECK(sites[1].id == "layer2.0.dropout");
    CHECK(sites[1].rank == 4);
    CHECK(sites[1].width == 4);
  }
}

TEST_CASE("models announce what else dropout may act on", "[models]") {
  const auto names = [](const auto& places) {
    std::vector<std::string> result;
    for (const auto& place : places) result.push_back(place.id);
    return result;
  };
  using Ids = std::vector<std::string>;
  const DropoutPlaces mlp =
      build("mlp", table({{"layers", numbers({6, 5, 4, 3})}}), vectors())->dropout_places();
  CHECK(names(mlp.weights) == Ids{"fc1.weight", "fc2.weight", "fc3.weight"});
  REQUIRE(names(mlp.linears) == Ids{"fc1", "fc2", "fc3"});
  CHECK(mlp.linears[1].input_site == 0u);
  CHECK(mlp.linears[1].output_site == 1u);
  CHECK(mlp.linears[1].relu);

  const DropoutPlaces lenet = build("lenet", {}, images({1, 28, 28}))->dropout_places();
  CHECK(names(lenet.weights) ==
        Ids{"conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight", "fc3.weight"});
  CHECK(names(lenet.linears) == Ids{"fc1", "fc2", "fc3"});
  CHECK_FALSE(lenet.linears[0].input_site);

  const DropoutPlaces gpt =
      build("gpt", table({{"n_layer", 1}, {"n_head", 2}, {"d_model", 8}}), tokens())->dropout_places();
  CHECK(names(gpt.weights) ==
        Ids{"h.0.attn.qkv.weight", "h.0.attn.proj.weight", "h.0.mlp.fc.weight", "h.0.mlp.proj.weight"});
  CHECK(names(gpt.linears) == Ids{"h.0.attn.proj", "h.0.mlp.proj"});
  for (const DropoutSite& site : gpt.sites) {
    CHECK(site.by_name == (site.id == "h.0.attn_weights"));
    CHECK(site.rows == (site.by_name ? 1 : 5));
  }

  const DropoutPlaces lstm =
      build("lstm", table({{"n_layer", 2}, {"hidden", 9}}), tokens())->dropout_places();
  CHECK(names(lstm.cells) == Ids{"lstm1", "lstm2"});
  CHECK(lstm.cells[1].hidden == 9);
  CHECK(names(lstm.weights) ==
        Ids{"lstm1.weight_ih", "lstm1.weight_hh", "lstm2.weight_ih", "lstm2.weight_hh", "head.weight"});
  CHECK(lstm.sites[0].axis == 2);
  CHECK(lstm.sites[0].rows == 1);

  const DropoutPlaces sequential =
      build("sequential",
            layers({layer("conv2d", {{"out", 4}, {"kernel", 3}, {"name", "conv"}}),
                    layer("dropout", {{"name", "image"}}), layer("global_average_pool"),
                    layer("linear", {{"out", 3}, {"name", "fc"}})}),
            images({2, 6, 6}))
          ->dropout_places();
  CHECK(sequential.sites.at(0).rank == 4);
  CHECK(names(sequential.linears).empty());
}

TEST_CASE("an mlp of hidden widths has those of the data around them", "[models]") {
  const auto weights = [](const Table& options) {
    std::string shapes;
    for (const NamedTensor& each : build("mlp", options, vectors())->parameters())
      shapes += each.name + shape_text(each.tensor.sizes().vec()) + " ";
    return shapes;
  };
  CHECK(weights(table({{"hidden", numbers({5, 4})}})) == weights(table({{"layers", numbers({6, 5, 4, 3})}})));
  CHECK(weights(table({{"hidden", Array{}}})) == weights(table({{"layers", numbers({6, 3})}})));
}

TEST_CASE("options that do not fit the data are refused with both values", "[models]") {
  const auto refused = [](const char* name, const Table& options, const BatchSchema& schema,
                          const auto& matcher) {
    INFO(name);
    CHECK_THROWS_AS(build(name, options, schema), ConfigError);
    CHECK_THROWS_WITH(build(name, options, schema), matcher);
  };
  refused("mlp", table({{"layers", numbers({64, 5, 3})}}), vectors(),
          Contains("model.layers[0] is 64") && Contains("features of the data are 6"));
  refused("mlp", table({{"layers", numbers({6, 5, 10})}}), vectors(),
          Contains("model.layers[2] is 10") && Contains("classes of the data are 3"));
  refused("mlp", table({{"layers", numbers({6})}}), vectors(), Contains("has 1 widths, needs two or more"));
  refused("mlp", table({{"layers", numbers({6, 3})}}), tokens(), Contains("holds Long"));
  refused("mlp", {}, vectors(), Contains("neither `layers` nor `hidden`"));
  refused("mlp", table({{"layers", numbers({6, 3})}, {"hidden", numbers({4})}}), vectors(),
          Contains("both `layers` and `hidden`"));
  refused("lenet", {}, vectors(), Contains("has shape [6]") && Contains("[channels, height, width]"));
  refused("lenet", {}, images({1, 6, 6}),
          Contains("node \"conv2\" (Conv)") && Contains("smaller than the window"));
  refused("lenet", table({{"channels", numbers({6})}}), images({1, 28, 28}),
          Contains("model.channels has 1 numbers"));
  refused("resnet", table({{"depth", 18}}), images({3, 32, 32}),
          Contains("model.depth is 18") && Contains("14 or 20"));
  refused("resnet", table({{"norm", "group"}, {"groups", 3}}), images({3, 32, 32}),
          Contains("model.width is 16") && Contains("model.groups 3"));
  refused("gpt", table({{"seq_len", 9}}), tokens(), Contains("model.seq_len is 9") && Contains("are 5"));
  refused("gpt", table({{"n_head", 3}, {"d_model", 8}}), tokens(),
          Contains("n_head = 3 does not divide model.d_model = 8"));
  refused("gpt", {}, vectors(), Contains("takes tokens") && Contains("text dataset"));
  refused("lstm", {}, images({1, 8, 8}), Contains("takes tokens"));
  refused("dlrm", {}, vectors(), Contains("no ids of categories"));
  refused("dlrm", {}, images({1, 8, 8}), Contains("\"image\", [1, 8, 8]"));
  refused("dlrm", {}, clicks(0, 1), Contains("no pair"));
  refused("dlrm", table({{"tables", numbers({6, 6})}}), clicks(),
          Contains("model.tables is 2") && Contains("tables of the data are 3"));
  refused("dlrm", table({{"tables", numbers({2, 5, 3})}}), clicks(),
          Contains("has 5 rows") && Contains("run to 5"));
}

TEST_CASE("dlrm is its formula", "[models]") {
  at::manual_seed(8);
  const auto network =
      build("dlrm", table({{"dim", 4}, {"bottom", numbers({6})}, {"top", numbers({5})}}), clicks());
  std::map<std::string, at::Tensor> p;
  for (const NamedTensor& each : network->parameters()) p[each.name] = each.tensor.detach();
  const Batch batch = random_batch(clicks(), 3, at::kFloat);
  const auto dense = [&](const at::Tensor& x, const std::string& layer) {
    return at::matmul(x, p.at(layer + ".weight").t()) + p.at(layer + ".bias");
  };
  const at::Tensor found = network->forward(batch, {}).detach();
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    const at::Tensor x = dense(dense(batch.inputs[0][sample], "bottom.0").relu(), "bottom.1").relu();
    std::vector<at::Tensor> vectors = {x};
    for (int t = 0; t < 3; ++t)
      vectors.push_back(
          p.at("tables." + std::to_string(t) + ".weight")[batch.inputs[1][sample][t].item<std::int64_t>()]);
    std::vector<at::Tensor> numbers = {x};
    for (std::size_t i = 0; i < vectors.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) numbers.push_back(at::dot(vectors[i], vectors[j]).reshape({1}));
    const at::Tensor expected = dense(dense(at::cat(numbers), "top.0").relu(), "top.1");
    CHECK(at::allclose(found[sample], expected, 1e-5, 1e-6));
  }
}

TEST_CASE("activations of sequential are PyTorch's, with their options", "[models]") {
  at::manual_seed(0);
  Batch batch;
  batch.inputs = {at::randn({4, 6})};
  const auto of = [&](const Table& activation) {
    return build("sequential", layers({activation}), vectors(6, 6))->forward(batch, {});
  };
  const at::Tensor& x = batch.inputs[0];
  CHECK(at::equal(of(layer("relu")), at::relu(x)));
  CHECK(at::allclose(of(layer("leaky_relu", {{"alpha", 0.2}})), at::leaky_relu(x, 0.2)));
  CHECK(at::allclose(of(layer("leaky_relu")), at::leaky_relu(x, 0.01)));
  CHECK(at::allclose(of(layer("elu", {{"alpha", 0.5}})), at::elu(x, 0.5)));
  CHECK(at::allclose(of(layer("selu")), at::selu(x)));
  CHECK(at::allclose(of(layer("sigmoid")), at::sigmoid(x)));
  CHECK(at::allclose(of(layer("tanh")), at::tanh(x)));
}

TEST_CASE("sequential names the layer that is wrong", "[models]") {
  const auto refused = [](const Table& options, const auto& matcher) {
    CHECK_THROWS_AS(build("sequential", options, vectors()), ConfigError);
    CHECK_THROWS_WITH(build("sequential", options, vectors()), matcher);
  };
  const Table head = layer("linear", {{"out", 3}});
  refused(layers({}), Contains("model.layers is empty"));
  refused(layers({head, layer("linar")}), Contains("model.layers[1] (linar): unknown type"));
  refused(layers({layer("relu", {{"out", 3}}), head}),
          Contains("model.layers[0] (relu): does not take `out`; takes: none"));
  refused(layers({layer("linear")}), Contains("model.layers[0] (linear): needs `out`"));
  refused(layers({head, layer("linear", {{"out", 3}, {"kernel", 3}})}),
          Contains("model.layers[1] (linear): does not take `kernel`; takes: out, name, bias"));
  refused(layers({layer("conv2d", {{"out", 3}, {"kernel", 3}})}),
          Contains("model.layers[0] (conv2d): node \"conv2d0\" (Conv)") && Contains("[batch, 6]"));
  refused(layers({layer("embedding", {{"out", 3}})}),
          Contains("model.layers[0] (embedding): the model takes tokens"));
  refused(layers({head, layer("linear", {{"out", 4}})}),
          Contains("model.layers[1] (linear) gives 4 outputs") && Contains("3 classes"));
  refused(
      layers({layer("linear", {{"out", 3}, {"name", "a"}}), layer("linear", {{"out", 3}, {"name", "a"}})}),
      Contains("repeats the name \"a.weight\""));
  const auto network = build(
      "sequential", layers({layer("linear", {{"out", 4}, {"name", "in"}}), layer("relu"), head}), vectors());
  CHECK(network->parameters()[0].name == "in.weight");
  CHECK(network->parameters()[2].name == "linear2.weight");
}

}  // namespace test_models_tests
