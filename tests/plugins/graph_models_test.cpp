// Models of nodes: against dense formulas and PyTorch Geometric, gradients by finite differences, sampled
// blocks against the whole graph, dropout, twins, and what is refused.
#include <map>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/helpers/blocks.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/model.hpp>
#include <trainyard/optimizer.hpp>

#include "golden.hpp"
#include "tests/support/plugin.hpp"

namespace graph_models_tests {

using namespace trainyard;
using Catch::Contains;
using nlohmann::json;
using test::table;
using Tensors = std::map<std::string, at::Tensor>;
using Indices = std::vector<std::int64_t>;

namespace {

/// Who is whose neighbour.
struct Nodes {
  std::vector<Indices> neighbours;
  at::Tensor features;  ///< [nodes, width], double

  std::int64_t size() const { return static_cast<std::int64_t>(neighbours.size()); }
  /// How often u is a neighbour of v, [nodes, nodes].
  at::Tensor dense() const {
    const at::Tensor a = at::zeros({size(), size()}, at::kDouble);
    for (std::int64_t v = 0; v < size(); ++v)
      for (const std::int64_t u : neighbours[static_cast<std::size_t>(v)]) a[v][u] += 1;
    return a;
  }
};

/// 0 to 5 neighbours each, some of them twice; node 3 has none.
Nodes random_nodes(std::int64_t count, std::int64_t width) {
  Nodes nodes{std::vector<Indices>(static_cast<std::size_t>(count)), at::randn({count, width}, at::kDouble)};
  for (std::int64_t v = 0; v < count; ++v) {
    const std::int64_t degree = v == 3 ? 0 : at::randint(6, {1}).item<std::int64_t>();
    for (std::int64_t i = 0; i < degree; ++i)
      nodes.neighbours[static_cast<std::size_t>(v)].push_back(
          i == 2 ? nodes.neighbours[static_cast<std::size_t>(v)].back()
                 : at::randint(count, {1}).item<std::int64_t>());
  }
  return nodes;
}

at::Tensor longs(const Indices& values) {
  return at::tensor(values, at::kLong);
}

/// Blocks of all neighbours of `seeds`, over so many hops. Zero hops: one block of all nodes, which are
/// numbered as they are, and whose first nodes are the samples.
Batch batch_of(const Nodes& nodes, Indices seeds, std::size_t hops, at::ScalarType type) {
  Batch batch;
  batch.indices = seeds;
  Indices order = std::move(seeds);
  std::map<std::int64_t, std::int64_t> place;
  if (hops == 0)
    for (std::int64_t v = 0; v < nodes.size(); ++v)
      if (v >= static_cast<std::int64_t>(order.size())) order.push_back(v);
  for (std::size_t i = 0; i < order.size(); ++i) place.emplace(order[i], static_cast<std::int64_t>(i));
  std::vector<at::Tensor> lists;  // outermost first
  for (std::size_t hop = 0; hop < std::max<std::size_t>(hops, 1); ++hop) {
    Indices rowptr = {0}, col;
    const std::size_t targets = order.size();
    for (std::size_t t = 0; t < targets; ++t) {
      for (const std::int64_t u : nodes.neighbours[static_cast<std::size_t>(order[t])]) {
        if (place.emplace(u, static_cast<std::int64_t>(order.size())).second) order.push_back(u);
        col.push_back(place.at(u));
      }
      rowptr.push_back(static_cast<std::int64_t>(col.size()));
    }
    lists.insert(lists.begin(), {longs(rowptr), longs(col)});
  }
  Indices degree;
  for (const std::int64_t v : order)
    degree.push_back(static_cast<std::int64_t>(nodes.neighbours[static_cast<std::size_t>(v)].size()));
  batch.inputs = {nodes.features.index_select(0, longs(order)).to(type)};
  batch.inputs.insert(batch.inputs.end(), lists.begin(), lists.end());
  batch.inputs.push_back(longs(degree));
  return batch;
}

Indices all_of(const Nodes& nodes) {
  Indices all;
  for (std::int64_t v = 0; v < nodes.size(); ++v) all.push_back(v);
  return all;
}

BatchSchema schema(std::int64_t width, std::size_t hops, std::int64_t classes = 3, bool degree = true,
                   at::ScalarType type = at::kFloat) {
  BatchSchema result;
  result.inputs = block_fields(width, type, hops, degree);
  result.target = {"label", {}, at::kLong};
  result.classes = classes;
  return result;
}

std::unique_ptr<Network> build(const std::string& name, const Table& options, const BatchSchema& schema,
                               std::uint64_t seed = 1) {
  return test::make<Model>(name, options)->build({schema, seed});
}

/// Every model, as small as it goes; two layers each.
std::vector<std::pair<const char*, Table>> models() {
  return {{"sage", table({{"hidden", 4}})},
          {"sage", table({{"hidden", 4}, {"aggregator", "max"}})},
          {"sage", table({{"hidden", 4}, {"aggregator", "sum"}})},
          {"gcn", table({{"hidden", 4}})},
          {"gcn", table({{"hidden", 9}})},
          {"gat", table({{"hidden", 2}, {"heads", 3}, {"output_heads", 2}})},
          {"gin", table({{"hidden", 4}, {"train_eps", true}, {"batch_norm", false}})},
          {"gin", table({{"hidden", 4}})}};
}

Tensors tensors_of(const Network& network) {
  Tensors all;
  for (const auto& list : {network.parameters(), network.buffers()})
    for (const NamedTensor& each : list) all.emplace(each.name, each.tensor);
  return all;
}

/// Tensors in double, and away from their first values, which have zeros.
void spread_in_double(const Network& network) {
  const c10::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors_of(network)) {
    tensor.set_data(tensor.to(at::kDouble));
    tensor.data().add_(at::rand_like(tensor), 0.2);
  }
}

// --- the formulas, with a dense matrix and loops over nodes

struct Dense {
  const Tensors& w;
  const Table& options;
  at::Tensor a;  ///< [nodes, nodes]

  std::int64_t heads(bool last) const {
    const Value* given = options.find(last ? "output_heads" : "heads");
    return given != nullptr ? given->as<std::int64_t>() : last ? 1 : 8;
  }

  at::Tensor sage(const at::Tensor& x, const std::string& name) const {
    const Value* given = options.find("aggregator");
    const std::string how = given == nullptr ? "mean" : given->as<std::string>();
    at::Tensor around = a.mm(x);
    if (how == "mean") around = around / a.sum(1, true).clamp_min(1);
    if (how == "max")
      for (std::int64_t v = 0; v < a.size(0); ++v)
        if (const at::Tensor who = a[v].nonzero().flatten(); who.numel() > 0)
          around[v] = std::get<0>(x.index_select(0, who).max(0));
    return at::linear(around, w.at(name + ".lin_l.weight"), w.at(name + ".lin_l.bias")) +
           at::linear(x, w.at(name + ".lin_r.weight"));
  }
  at::Tensor gcn(const at::Tensor& x, const std::string& name) const {
    const at::Tensor with_self = a + at::eye(a.size(0), at::kDouble);
    const at::Tensor scale = at::diag(with_self.sum(1).pow(-0.5));
    return scale.mm(with_self).mm(scale).mm(x).mm(w.at(name + ".lin.weight").t()) + w.at(name + ".bias");
  }
  at::Tensor gat(const at::Tensor& x, const std::string& name, bool last) const {
    const at::Tensor with_self = a + at::eye(a.size(0), at::kDouble);
    const at::Tensor z = x.mm(w.at(name + ".lin.weight").t()).view({x.size(0), heads(last), -1});
    std::vector<at::Tensor> all;
    for (std::int64_t h = 0; h < heads(last); ++h) {
      const at::Tensor own = z.select(1, h);
      const at::Tensor s = own.mv(w.at(name + ".att_src")[0][h]), t = own.mv(w.at(name + ".att_dst")[0][h]);
      const at::Tensor powers = at::leaky_relu(t.unsqueeze(1) + s.unsqueeze(0), 0.2).exp() * with_self;
      all.push_back((powers / powers.sum(1, true)).mm(own));
    }
    return (last ? at::stack(all).mean(0) : at::cat(all, 1)) + w.at(name + ".bias");
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    if (!w.contains(name + ".weight")) return x;
    return (x - w.at(name + ".running_mean")) / (w.at(name + ".running_var") + 1e-5).sqrt() *
               w.at(name + ".weight") +
           w.at(name + ".bias");
  }
  at::Tensor gin(const at::Tensor& x, const std::string& name) const {
    at::Tensor y = a.mm(x) + (1 + w.at(name + ".eps")) * x;
    y = at::linear(y, w.at(name + ".nn.lins.0.weight"), w.at(name + ".nn.lins.0.bias"));
    y = at::relu(norm(y, name + ".nn.norms.0.module"));
    y = at::linear(y, w.at(name + ".nn.lins.1.weight"), w.at(name + ".nn.lins.1.bias"));
    return norm(y, "norms." + name.substr(6) + ".module");
  }

  at::Tensor forward(const std::string& model, at::Tensor x) const {
    for (const bool last : {false, true}) {
      const std::string name = last ? "convs.1" : "convs.0";
      x = model == "sage"  ? sage(x, name)
          : model == "gcn" ? gcn(x, name)
          : model == "gat" ? gat(x, name, last)
                           : gin(x, name);
      if (!last) x = model == "gat" ? at::elu(x) : at::relu(x);
    }
    return x;
  }
};

std::string title(const std::pair<const char*, Table>& model) {
  std::string text = model.first;
  for (const Table::Entry& option : model.second.entries())
    if (const std::string* value = option.value.get_if<std::string>())
      text += " " + *value;
    else
      text += " " + option.key;
  return text;
}

/// LibTorch's autocast, for a test.
struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

}  // namespace

TEST_CASE("the samples of any blocks of all neighbours get what the dense formula gives", "[graph_models]") {
  at::manual_seed(1);
  const Nodes nodes = random_nodes(30, 6);
  for (const auto& model : models()) {
    INFO(title(model));
    const auto network = build(model.first, model.second, schema(6, 2)),
               whole = build(model.first, model.second, schema(6, 1));
    spread_in_double(*network);
    spread_in_double(*whole);
    whole->adopt([&] {
      std::vector<NamedTensor> all = network->parameters();
      for (const NamedTensor& each : network->buffers()) all.push_back(each);
      return all;
    }());
    const Tensors tensors = tensors_of(*network);
    const at::Tensor expected =
        Dense{tensors, model.second, nodes.dense()}.forward(model.first, nodes.features);
    for (const Indices& seeds : {Indices{7, 3, 21, 0, 29}, Indices{3}, all_of(nodes)}) {
      const at::Tensor wanted = expected.index_select(0, longs(seeds));
      CHECK(test::distance(network->forward(batch_of(nodes, seeds, 2, at::kDouble), {}), wanted) < 1e-12);
    }
    // One block of all nodes, of which the first are the samples.
    const at::Tensor found = whole->forward(batch_of(nodes, {0, 1, 2, 3, 4}, 0, at::kDouble), {});
    CHECK(test::distance(found, expected.narrow(0, 0, 5)) < 1e-12);
  }
}

TEST_CASE("in float the same holds to 1e-5, whatever the width", "[graph_models]") {
  at::manual_seed(2);
  for (const std::int64_t width : {1, 3, 100, 127, 513}) {
    const Nodes nodes = random_nodes(40, width);
    for (const auto& model : models()) {
      INFO(title(model) << ", width " << width);
      const auto network = build(model.first, model.second, schema(width, 2));
      const Indices seeds = {5, 3, 39, 12};
      const at::Tensor found = network->forward(batch_of(nodes, seeds, 2, at::kFloat), {});
      spread_in_double(*network);
      {  // the same weights in double
        const c10::NoGradGuard no_grad;
        const Tensors first = tensors_of(*build(model.first, model.second, schema(width, 2)));
        for (auto& [name, tensor] : tensors_of(*network)) tensor.data().copy_(first.at(name));
      }
      const Tensors tensors = tensors_of(*network);
      const at::Tensor expected =
          Dense{tensors, model.second, nodes.dense()}.forward(model.first, nodes.features);
      CHECK(test::distance(found, expected.index_select(0, longs(seeds))) < 1e-5);
    }
  }
}

TEST_CASE("gradients of models of nodes agree with finite differences", "[graph_models]") {
  at::manual_seed(3);
  const Nodes nodes = random_nodes(25, 5);
  const Batch batch = batch_of(nodes, {4, 9, 3, 17, 20}, 2, at::kDouble);
  for (const auto& model : models()) {
    INFO(title(model));
    const auto network = build(model.first, model.second, schema(5, 2));
    spread_in_double(*network);
    const at::Tensor weights = at::randn({5, 3}, at::kDouble);
    const auto loss = [&] {
      const at::Tensor y = network->forward(batch, {.training = true});
      return (y * weights).sum() + 0.1 * y.square().sum();
    };
    loss().backward();
    for (const NamedTensor& p : network->parameters()) {
      INFO(p.name);
      REQUIRE(p.tensor.grad().defined());
      const c10::NoGradGuard no_grad;
      for (int i = 0; i < 3; ++i) {
        const at::Tensor direction = at::randn_like(p.tensor), saved = p.tensor.clone();
        constexpr double h = 1e-6;
        p.tensor.data().add_(direction, h);
        const double above = loss().item<double>();
        p.tensor.data().copy_(saved).sub_(direction, h);
        const double below = loss().item<double>();
        p.tensor.data().copy_(saved);
        CHECK((p.tensor.grad() * direction).sum().item<double>() ==
              Approx((above - below) / (2 * h)).epsilon(1e-5).margin(1e-6));
      }
    }
  }
}

TEST_CASE("outputs, gradients and running statistics are those of PyTorch Geometric", "[graph_models]") {
  const json golden = test::golden("nodes.json");
  const json& graph = golden["graph"];
  const std::int64_t width = graph["width"], count = graph["nodes"], classes = graph["classes"];
  Nodes nodes{std::vector<Indices>(static_cast<std::size_t>(count)),
              test::tensor(graph["features"], {count, width})};
  for (const json& edge : graph["edges"])
    nodes.neighbours[edge[1].get<std::size_t>()].push_back(edge[0].get<std::int64_t>());
  const Batch batch = batch_of(nodes, all_of(nodes), 0, at::kDouble);
  for (const json& c : golden["cases"]) {
    INFO(c["model"] << " " << c["options"]);
    const auto network =
        build(c["model"].get<std::string>(), test::options(c["options"]), schema(width, 1, classes));
    Tensors tensors = tensors_of(*network);
    REQUIRE(tensors.size() == c["tensors"].size());
    for (const auto& [name, value] : c["tensors"].items()) {
      INFO(name);
      REQUIRE(tensors.contains(name));
      REQUIRE(tensors.at(name).sizes().vec() == value["shape"].get<Indices>());
      tensors.at(name).set_data(test::tensor(value["values"], value["shape"].get<Indices>()));
    }
    const at::Tensor y = network->forward(batch, {.training = true});
    CHECK(test::distance(y, test::tensor(c["output"], {count, classes})) < 1e-12);
    y.mul(at::arange(y.numel(), at::kDouble).sin_().view(y.sizes())).sum().backward();
    CHECK(c["gradients"].size() == network->parameters().size());
    for (const NamedTensor& p : network->parameters()) {
      INFO(p.name);
      REQUIRE(c["gradients"].contains(p.name));
      CHECK(test::distance(p.tensor.grad(), test::tensor(c["gradients"][p.name], p.tensor.sizes().vec())) <
            1e-11);
    }
    for (const NamedTensor& b : network->buffers())
      CHECK(test::distance(b.tensor, test::tensor(c["buffers_after"][b.name], b.tensor.sizes().vec())) <
            1e-12);
  }
}

TEST_CASE("gcn takes the mean over draws of sampled neighbours for that of all", "[graph_models]") {
  // Node 0 has neighbours 1 to 4, of which each pair is drawn once: the mean of the outputs is the output of
  // all.
  Nodes nodes{std::vector<Indices>(5), at::randn({5, 3}, at::kDouble)};
  nodes.neighbours[0] = {1, 2, 3, 4};
  const auto network = build("gcn", table({{"layers", 1}}), schema(3, 1));
  spread_in_double(*network);
  const at::Tensor expected = network->forward(batch_of(nodes, {0}, 1, at::kDouble), {});
  at::Tensor sum = at::zeros_like(expected);
  for (std::int64_t a = 1; a < 5; ++a)
    for (std::int64_t b = a + 1; b < 5; ++b) {
      Batch batch;
      batch.indices = {0};
      batch.inputs = {nodes.features.index_select(0, longs({0, a, b})), longs({0, 2}), longs({1, 2}),
                      longs({4, 0, 0})};
      sum += network->forward(batch, {});
    }
  CHECK(test::distance(sum / 6, expected) < 1e-12);
}

TEST_CASE("models of nodes start from their seed, as PyTorch Geometric's layers do", "[graph_models]") {
  for (const auto& model : models()) {
    INFO(title(model));
    const auto one = build(model.first, model.second, schema(6, 2)),
               two = build(model.first, model.second, schema(6, 2)),
               other = build(model.first, model.second, schema(6, 2), 2);
    bool differs = false;
    for (std::size_t i = 0; i < one->parameters().size(); ++i) {
      CHECK(one->parameters()[i].tensor.requires_grad());
      CHECK(at::equal(one->parameters()[i].tensor, two->parameters()[i].tensor));
      differs |= !at::equal(one->parameters()[i].tensor, other->parameters()[i].tensor);
    }
    CHECK(differs);
    CHECK(one->output_shape() == Indices{3});
  }
  const auto check = [](const Network& network, const char* name, double bound) {
    const at::Tensor tensor = tensors_of(network).at(name);
    INFO(name);
    CHECK(tensor.abs().max().item<double>() <= bound);
    CHECK(tensor.std().item<double>() == Approx(bound / std::sqrt(3.0)).epsilon(0.1));
  };
  const auto sage = build("sage", table({{"hidden", 64}}), schema(100, 2));
  check(*sage, "convs.0.lin_l.weight", 0.1);
  check(*sage, "convs.0.lin_r.weight", 0.1);
  check(*sage, "convs.1.lin_r.weight", 0.125);
  const auto gcn = build("gcn", table({{"hidden", 50}}), schema(100, 2));
  check(*gcn, "convs.0.lin.weight", 0.2);
  CHECK(tensors_of(*gcn).at("convs.0.bias").abs().max().item<double>() == 0.0);
  const auto gat = build("gat", table({{"hidden", 25}, {"heads", 5}}), schema(100, 2));
  check(*gat, "convs.0.lin.weight", std::sqrt(6.0 / 225));
  check(*gat, "convs.0.att_src", std::sqrt(6.0 / 30));
}

TEST_CASE("models of nodes have the sizes that their papers give", "[graph_models]") {
  const auto count = [](const Network& network) {
    std::int64_t result = 0;
    for (const NamedTensor& p : network.parameters()) result += p.tensor.numel();
    return result;
  };
  // On Cora: 1433 features, 7 classes.
  CHECK(count(*build("gcn", {}, schema(1433, 2, 7))) == 1433 * 16 + 16 + 16 * 7 + 7);
  CHECK(count(*build("gat", {}, schema(1433, 2, 7))) == 1433 * 64 + 3 * 64 + 64 * 7 + 3 * 7);
  CHECK(count(*build("sage", {}, schema(100, 2, 47))) == 2 * 100 * 256 + 256 + 2 * 256 * 47 + 47);
}

TEST_CASE("dropout acts at the sites and on the weights that models of nodes announce", "[graph_models]") {
  at::manual_seed(4);
  const auto names = [](const auto& places) {
    std::vector<std::string> result;
    for (const auto& place : places) result.push_back(place.id + (place.active ? "" : " (off)"));
    return result;
  };
  using Names = std::vector<std::string>;
  const Nodes nodes = random_nodes(40, 6);
  const Batch batch = batch_of(nodes, {1, 2, 5, 8}, 2, at::kFloat);
  const auto gat = build("gat", table({{"hidden", 2}, {"heads", 3}}), schema(6, 2));
  const DropoutPlaces places = gat->dropout_places();
  CHECK(names(places.sites) ==
        Names{"input.dropout", "convs.0.attn_weights", "convs.0.dropout", "convs.1.attn_weights"});
  CHECK(names(places.weights) == Names{"convs.0.lin.weight", "convs.1.lin.weight"});
  CHECK(places.sites[2].width == 6);

  const at::Tensor plain = gat->forward(batch, {.training = true});
  const auto with = [&](Array sites, const char* type, const ForwardContext& context) {
    const auto dropout = test::make<Dropout>(type, table({{"p", 0.5}, {"sites", std::move(sites)}}));
    const DropoutPlan plan(*dropout, gat->dropout_places(), {});
    gat->set_dropout(&plan, 9);
    const at::Tensor y = gat->forward(batch, context);
    gat->set_dropout(nullptr, 9);
    return y;
  };
  const auto everywhere = [&](const ForwardContext& context) { return with({}, "standard", context); };
  CHECK_FALSE(at::equal(everywhere({.training = true}), plain));
  CHECK(at::equal(everywhere({.training = true, .step = 3}), everywhere({.training = true, .step = 3})));
  CHECK_FALSE(
      at::equal(everywhere({.training = true, .step = 3}), everywhere({.training = true, .step = 4})));
  CHECK_FALSE(
      at::equal(everywhere({.training = true, .micro = 1}), everywhere({.training = true, .micro = 2})));
  CHECK(at::equal(everywhere({}), plain));
  CHECK_FALSE(at::equal(everywhere({.sampling = true}), plain));
  CHECK_FALSE(at::equal(everywhere({.sampling = true}), everywhere({.training = true})));
  CHECK_FALSE(at::equal(with({"*.attn_weights"}, "standard", {.training = true}), plain));
  CHECK_FALSE(at::equal(with({"input.dropout"}, "standard", {.training = true}), plain));
  CHECK_FALSE(at::equal(with({}, "dropconnect", {.training = true}), plain));
  CHECK(at::equal(with({}, "dropconnect", {}), plain));
  CHECK(at::equal(gat->forward(batch, {.training = true}), plain));

  const auto dropout = test::make<Dropout>("standard", {});
  const DropoutPlan all(*dropout, places, {});  // the input and the attention only where they are named
  CHECK(names(all.places().sites) == Names{"input.dropout (off)", "convs.0.attn_weights (off)",
                                           "convs.0.dropout", "convs.1.attn_weights (off)"});
  const auto sage = build("sage", {}, schema(6, 2));
  CHECK_THROWS_AS(sage->set_dropout(&all, 1), PluginError);
}

TEST_CASE("a twin shares the weights of a model of nodes, and adopting takes the handles", "[graph_models]") {
  at::manual_seed(5);
  const Nodes nodes = random_nodes(30, 6);
  const Batch batch = batch_of(nodes, {1, 2, 3}, 2, at::kFloat);
  for (const auto& model : models()) {
    INFO(title(model));
    const auto network = build(model.first, model.second, schema(6, 2)), twin = network->twin();
    const at::Tensor y = twin->forward(batch, {});
    CHECK(at::equal(y, network->forward(batch, {})));
    y.sum().backward();
    for (const NamedTensor& p : twin->parameters()) CHECK(p.tensor.grad().defined());
    for (const NamedTensor& p : network->parameters()) CHECK_FALSE(p.tensor.grad().defined());
    network->parameters()[0].tensor.data().add_(1);
    CHECK(at::equal(twin->parameters()[0].tensor, network->parameters()[0].tensor));

    const auto other = build(model.first, model.second, schema(6, 2), 2);
    std::vector<NamedTensor> tensors = network->parameters();
    for (const NamedTensor& each : network->buffers()) tensors.push_back(each);
    other->adopt(tensors);
    CHECK(other->parameters()[1].tensor.is_same(network->parameters()[1].tensor));
    CHECK(at::equal(other->forward(batch, {}), network->forward(batch, {})));
    tensors.front().tensor = at::zeros({2, 2});
    CHECK_THROWS_WITH(other->adopt(tensors), Contains(tensors.front().name) && Contains("[2, 2]"));
    tensors.front().name = "else";
    CHECK_THROWS_AS(other->adopt(tensors), ConfigError);
    tensors = network->parameters();
    tensors.push_back({"more", at::zeros({1})});
    CHECK_THROWS_AS(other->adopt(tensors), ConfigError);
    CHECK(other->parameters()[0].tensor.is_same(network->parameters()[0].tensor));
  }
}

TEST_CASE("those who look on see each layer, activation and dropout of a model of nodes", "[graph_models]") {
  at::manual_seed(6);
  const Nodes nodes = random_nodes(30, 6);
  const Batch batch = batch_of(nodes, {1, 2, 3}, 2, at::kFloat);
  const auto network = build("sage", table({{"hidden", 4}}), schema(6, 2));
  std::vector<std::string> seen;
  at::Tensor last;
  CHECK(network->add_tap(&seen, [&](const NodeActivity& node) {
    seen.push_back(std::string(node.node) + " " + std::string(node.op));
    last = node.outputs[0];
  }));
  const at::Tensor y = network->forward(batch, {});
  CHECK(seen == std::vector<std::string>{"input.dropout Dropout", "convs.0 SAGEConv", "convs.0.act Relu",
                                         "convs.0.dropout Dropout", "convs.1 SAGEConv"});
  CHECK(at::equal(last, y));
  network->remove_tap(&seen);
  network->forward(batch, {});
  CHECK(seen.size() == 5);
}

TEST_CASE("features of half precision are cast once, and models train under autocast", "[graph_models]") {
  at::manual_seed(7);
  const Nodes nodes = random_nodes(40, 6);
  for (const auto& model : models()) {
    INFO(title(model));
    const auto network = build(model.first, model.second, schema(6, 2, 3, true, at::kHalf));
    Batch half = batch_of(nodes, {1, 2, 3, 4}, 2, at::kHalf), wide = half;
    wide.inputs[0] = half.inputs[0].to(at::kFloat);
    const at::Tensor y = network->forward(half, {});
    CHECK(y.scalar_type() == at::kFloat);
    CHECK(at::equal(y, network->forward(wide, {})));
    const Autocast autocast;
    network->forward(half, {.training = true}).to(at::kFloat).square().sum().backward();
    for (const NamedTensor& p : network->parameters()) {
      INFO(p.name);
      CHECK(p.tensor.grad().scalar_type() == at::kFloat);
      CHECK(p.tensor.grad().isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("nodes without neighbours, and a graph of one node, train", "[graph_models]") {
  at::manual_seed(8);
  const Nodes lonely{std::vector<Indices>(4), at::randn({4, 6}, at::kDouble)};
  const Nodes single{std::vector<Indices>(1), at::randn({1, 6}, at::kDouble)};
  for (const auto& model : models()) {
    INFO(title(model));
    const auto network = build(model.first, model.second, schema(6, 2));
    const at::Tensor y =
        network->forward(batch_of(lonely, all_of(lonely), 2, at::kFloat), {.training = true});
    CHECK(y.isfinite().all().item<bool>());
    y.square().sum().backward();
    for (const NamedTensor& p : network->parameters()) CHECK(p.tensor.grad().isfinite().all().item<bool>());
    CHECK(network->forward(batch_of(single, {0}, 2, at::kFloat), {}).isfinite().all().item<bool>());
  }
  const auto gin = build("gin", table({{"hidden", 4}}), schema(6, 2));
  CHECK_THROWS_AS(gin->forward(batch_of(single, {0}, 2, at::kFloat), {.training = true}), DataError);
  CHECK_THROWS_WITH(gin->forward(batch_of(single, {0}, 2, at::kFloat), {.training = true}),
                    Contains("1 nodes") && Contains("drop_last"));
}

TEST_CASE("models of nodes learn communities, and not labels that mean nothing", "[graph_models]") {
  // 240 nodes in 3 communities; most neighbours are of the own one. Features are noise, with a little of the
  // class.
  at::manual_seed(9);
  Nodes nodes{std::vector<Indices>(240), at::randn({240, 8}, at::kDouble)};
  Indices labels;
  for (std::int64_t v = 0; v < 240; ++v) {
    labels.push_back(v % 3);
    nodes.features[v][v % 3] += 1.0;
    for (int i = 0; i < 8; ++i) {
      const std::int64_t any = at::randint(240, {1}).item<std::int64_t>();
      nodes.neighbours[static_cast<std::size_t>(v)].push_back(i < 6 ? (any / 3) * 3 + v % 3 : any);
    }
  }
  const auto accuracy = [&](const std::pair<const char*, Table>& model, const at::Tensor& target) {
    const auto network = build(model.first, model.second, schema(8, 2));
    const auto loss = test::make<Loss>("cross_entropy");
    const auto optimizer = test::make<Optimizer>("adam", table({{"lr", 0.02}}));
    optimizer->open(make_groups(network->parameters(), optimizer->common));
    Indices train, rest;
    for (std::int64_t v = 0; v < 240; ++v) (v < 120 ? train : rest).push_back(v);
    Batch batch = batch_of(nodes, train, 2, at::kFloat);
    batch.target = target.narrow(0, 0, 120);
    for (std::uint64_t step = 0; step < 60; ++step) {
      loss->forward(network->forward(batch, {.training = true, .step = step}), batch).backward();
      const c10::NoGradGuard no_grad;
      optimizer->step();
      for (const NamedTensor& p : network->parameters()) p.tensor.mutable_grad() = at::Tensor();
    }
    const at::Tensor y = network->forward(batch_of(nodes, rest, 2, at::kFloat), {});
    return y.argmax(1).eq(target.narrow(0, 120, 120)).to(at::kDouble).mean().item<double>();
  };
  const at::Tensor target = longs(labels), permuted = target.index_select(0, at::randperm(240));
  for (const auto& model : models()) {
    INFO(title(model));
    CHECK(accuracy(model, target) > 0.75);
    CHECK(accuracy(model, permuted) < 0.55);
  }
}

TEST_CASE("data that models of nodes cannot take is refused with what was found", "[graph_models]") {
  BatchSchema rows;
  rows.inputs = {{"x", {6}}};
  rows.classes = 3;
  for (const char* name : {"sage", "gcn", "gat", "gin"}) {
    INFO(name);
    CHECK_THROWS_AS(build(name, {}, rows), ConfigError);
    CHECK_THROWS_WITH(build(name, {}, rows), Contains("nodes of a graph"));
    CHECK_THROWS_AS(build(name, {}, schema(6, 3)), ConfigError);
    CHECK_THROWS_WITH(build(name, {}, schema(6, 3)),
                      Contains("model.layers is 2") && Contains("3 hops") && Contains("model.layers = 3"));
    CHECK_NOTHROW(build(name, table({{"layers", 3}}), schema(6, 3)));
    CHECK_NOTHROW(build(name, {}, schema(6, 1)));  // one block may serve both layers
  }
  CHECK_THROWS_AS(build("gcn", {}, schema(6, 2, 3, false)), ConfigError);
  CHECK_THROWS_WITH(build("gcn", {}, schema(6, 2, 3, false)), Contains("degree = true"));
  CHECK_NOTHROW(build("sage", {}, schema(6, 2, 3, false)));

  at::manual_seed(10);
  const Nodes nodes = random_nodes(20, 6);
  const auto sage = build("sage", {}, schema(6, 2));
  Batch batch = batch_of(nodes, {1, 2}, 2, at::kFloat);
  batch.inputs[2] = batch.inputs[2].clone();
  batch.inputs[2][1] = 1000;
  CHECK_THROWS_AS(sage->forward(batch, {}), DataError);
  CHECK_THROWS_WITH(sage->forward(batch, {}), Contains("col[1] = 1000"));
  batch = batch_of(nodes, {1, 2}, 2, at::kFloat);
  batch.indices = {1, 2, 3};
  CHECK_THROWS_WITH(sage->forward(batch, {}), Contains("3 samples") && Contains("2 targets"));
  const auto one_block = build("sage", {}, schema(6, 1));
  CHECK_THROWS_AS(one_block->forward(batch_of(nodes, {1, 2}, 1, at::kFloat), {}), ConfigError);
}

}  // namespace graph_models_tests
