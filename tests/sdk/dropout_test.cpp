// Places of dropout in a graph, which of them a run means, rates over time, and what a network does with
// them.
#include <functional>
#include <map>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/dropout.hpp>
#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

namespace dropout_tests {

using namespace trainyard;

namespace {

using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

BatchSchema schema_of(std::vector<std::int64_t> shape) {
  BatchSchema schema;
  schema.inputs = {{"x", std::move(shape)}};
  schema.classes = 10;
  return schema;
}

Batch batch_of(at::Tensor x) {
  Batch batch;
  batch.inputs = {std::move(x)};
  return batch;
}

/// Serves places as it is told to, and counts.
class Fake final : public Dropout,
                   public MasksWeights,
                   public EvaluatesLinears,
                   public FusesLinears,
                   public CarriesStates {
 public:
  void open(const DropoutPlaces&) override {}
  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    ++applied[site];
    seen.push_back(call);
    return x * 2;
  }
  MasksWeights* masks_weights() override { return masks ? this : nullptr; }
  at::Tensor mask_weight(const at::Tensor& weight, std::size_t index, const DropoutCall&) override {
    ++masked[index];
    return masks(weight);
  }
  EvaluatesLinears* evaluates_linears() override { return evaluated ? this : nullptr; }
  at::Tensor evaluate_linear(const at::Tensor& x, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, const Activation& activation,
                             std::size_t index, const DropoutCall& call) override {
    seen.push_back(call);
    return evaluated(at::linear(x, weight, bias), activation, index);
  }
  FusesLinears* fuses_linears() override { return this; }
  bool fuses(std::size_t linear) const override { return linears.contains(linear); }
  at::Tensor masked_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& b,
                           std::size_t linear, const DropoutCall&) override {
    ++linears[linear];
    return at::relu(at::linear(x, weight, b)) * 3;
  }
  CarriesStates* carries_states() override { return carried ? this : nullptr; }
  at::Tensor carry(const at::Tensor& before, const at::Tensor& now, std::size_t, bool memory,
                   std::int64_t time, const DropoutCall& call) override {
    seen.push_back(call);
    return carried(before, now, memory, time);
  }

  std::function<at::Tensor(const at::Tensor&)> masks;
  std::function<at::Tensor(const at::Tensor&, const Activation&, std::size_t)> evaluated;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&, bool, std::int64_t)> carried;
  std::map<std::size_t, int> applied, masked, linears;
  std::vector<DropoutCall> seen;
};

/// 6 -> site "in" -> fc1 8 -> ReLU -> site "a" -> fc2 8 -> site "b" -> fc3 3.
GraphNetwork chain() {
  GraphBuilder b(schema_of({6}), 1);
  ValueId x = b.dropout(b.input(), "in");
  x = b.dropout(b.relu(b.linear(x, "fc1", 8)), "a");
  x = b.dropout(b.linear(x, "fc2", 8), "b");
  return GraphNetwork(b.finish(b.linear(x, "fc3", 3)));
}

template <class Place>
Names names(const std::vector<Place>& places) {
  Names result;
  for (const Place& place : places)
    if (place.active) result.push_back(place.id);
  return result;
}

const DropoutLinear& linear(const DropoutPlaces& places, const std::string& id) {
  for (const DropoutLinear& each : places.linears)
    if (each.id == id) return each;
  throw std::logic_error("no linear layer " + id);
}

at::Tensor parameter(const Network& network, const std::string& name) {
  for (const NamedTensor& each : network.parameters())
    if (each.name == name) return each.tensor;
  throw std::logic_error("no parameter " + name);
}

}  // namespace

TEST_CASE("linear layers are found between the sites beside them", "[dropout]") {
  const DropoutPlaces places = chain().dropout_places();
  CHECK(names(places.sites) == Names{"in", "a", "b"});
  REQUIRE(places.linears.size() == 3);
  const auto check = [&](const char* id, std::optional<std::size_t> in, std::optional<std::size_t> out,
                         bool relu) {
    INFO(id);
    CHECK(linear(places, id).input_site == in);
    CHECK(linear(places, id).output_site == out);
    CHECK(linear(places, id).relu == relu);
  };
  check("fc1", 0, 1, true);
  check("fc2", 1, 2, false);
  check("fc3", 2, {}, false);
  CHECK(linear(places, "fc1").in == 6);
  CHECK(linear(places, "fc1").out == 8);
}

TEST_CASE("a layer whose output something else reads, or that ends otherwise, has no output site",
          "[dropout]") {
  GraphBuilder b(schema_of({6}), 1);
  const ValueId x = b.dropout(b.input(), "in");
  const ValueId twice = b.linear(x, "twice", 6), rectified = b.relu(twice);
  const ValueId read = b.relu(b.linear(x, "read", 6));
  const ValueId sum = b.add(b.add(b.dropout(rectified, "a"), twice), b.add(b.dropout(read, "b"), read));
  const ValueId smooth = b.dropout(b.sigmoid(b.linear(sum, "smooth", 6)), "c");
  const GraphNetwork network(b.finish(b.linear(b.relu(smooth), "out", 2)));
  const DropoutPlaces places = network.dropout_places();
  REQUIRE(places.linears.size() == 2);
  CHECK_FALSE(linear(places, "twice").output_site);
  CHECK_FALSE(linear(places, "read").output_site);
  CHECK_FALSE(linear(places, "read").relu);
}

TEST_CASE("weights are those of layers, each once; one that two layers share is left alone", "[dropout]") {
  BatchSchema schema;
  schema.inputs = {{"tokens", {4}, at::kLong}};
  GraphBuilder b(schema, 0);
  const auto tokens = b.embedding(b.input(), "wte", 11, 6);
  ValueId x = b.lstm(tokens.output, "cell", 6);
  x = b.linear(x, "fc", 6);
  const GraphNetwork network(
      b.finish(b.reshape(b.tied_linear(b.flatten(x, 2), "head", tokens.weight), {-1, 4, 11})));
  const DropoutPlaces places = network.dropout_places();
  CHECK(names(places.weights) == Names{"cell.weight_ih", "cell.weight_hh", "fc.weight"});
  CHECK(places.weights[1].shape == std::vector<std::int64_t>{1, 24, 6});
  REQUIRE(places.cells.size() == 1);
  CHECK(places.cells[0].id == "cell");
  CHECK(places.cells[0].hidden == 6);
}

TEST_CASE("sites say how many rows a sample has, and where its features are", "[dropout]") {
  GraphBuilder b(schema_of({5, 4}), 0);
  const ValueId x = b.dropout(b.input(), "sequence", -1);
  const GraphNetwork network(b.finish(b.reshape(b.dropout(b.flatten(x, 2), "rows"), {-1, 5, 4})));
  const std::vector<DropoutSite> sites = network.dropout_places().sites;
  REQUIRE(sites.size() == 2);
  CHECK(sites[0].rank == 3);
  CHECK(sites[0].axis == 2);
  CHECK(sites[0].rows == 1);
  CHECK(sites[1].rank == 2);
  CHECK(sites[1].axis == 1);
  CHECK(sites[1].rows == 5);
  CHECK(sites[1].width == 4);
}

TEST_CASE("patterns choose among the places of a plugin's kind", "[dropout]") {
  const DropoutPlaces all = chain().dropout_places();
  Fake dropout;
  const auto chosen = [&] { return DropoutPlan(dropout, all, {}).places(); };
  CHECK(names(chosen().sites) == Names{"in", "a", "b"});
  CHECK(names(chosen().weights).empty());

  dropout.common.sites = {"?"};
  const DropoutPlaces places = chosen();
  CHECK(names(places.sites) == Names{"a", "b"});
  CHECK_FALSE(linear(places, "fc1").input_site);
  CHECK(linear(places, "fc1").output_site == 1u);

  dropout.common.sites = {"in", "b"};
  CHECK(names(chosen().sites) == Names{"in", "b"});
  CHECK_FALSE(linear(chosen(), "fc1").output_site);
  CHECK_FALSE(linear(chosen(), "fc1").relu);

  dropout.common.sites = {"a", "fc*"};
  CHECK_THROWS_WITH(chosen(), Contains("\"fc*\" fits none of the model's: in, a, b"));
  dropout.masks = [](const at::Tensor& weight) { return weight; };
  CHECK_THROWS_WITH(chosen(), Contains("\"a\" fits none") && Contains("fc1.weight"));
  dropout.common.sites = {"fc[12]*", "fc?.w*"};
  CHECK_THROWS_WITH(chosen(), Contains("fc[12]*"));
  dropout.common.sites = {"fc?.w*"};
  CHECK(names(chosen().weights) == Names{"fc1.weight", "fc2.weight", "fc3.weight"});
  CHECK(names(chosen().sites).empty());
  CHECK_FALSE(linear(chosen(), "fc2").input_site);
  dropout.masks = nullptr;
  dropout.carried = [](auto&, auto& now, auto...) { return now; };
  CHECK_THROWS_WITH(chosen(), Contains("no recurrent layer where this dropout could act"));
}

TEST_CASE("sites that act by name are meant by patterns that fit no others", "[dropout]") {
  GraphBuilder b(schema_of({4, 6}), 1);
  const ValueId x = b.dropout(b.input(), "h.0.drop", 2);
  GraphNetwork network(b.finish(b.dropout(b.attention(x, x, x, "h.0.attn", 3, true), "h.1.drop", 2)));
  const DropoutPlaces all = network.dropout_places();
  REQUIRE(all.sites.size() == 3);
  CHECK(all.sites[1].id == "h.0.attn_weights");
  CHECK(all.sites[1].rank == 4);
  CHECK(all.sites[1].axis == 1);
  CHECK(all.sites[1].width == 3);
  Fake dropout;
  const auto meant = [&](Names patterns) {
    dropout.common.sites = std::move(patterns);
    return names(DropoutPlan(dropout, all, {}).places().sites);
  };
  const Names others = {"h.0.drop", "h.1.drop"};
  CHECK(meant({}) == others);
  CHECK(meant({"*"}) == others);
  CHECK(meant({"h.*"}) == others);
  CHECK(meant({"h.0.*"}) == Names{"h.0.drop"});
  CHECK(meant({"*attn_weights"}) == Names{"h.0.attn_weights"});
  CHECK(meant({"h.1*", "*.attn*"}) == Names{"h.0.attn_weights", "h.1.drop"});
  CHECK_THROWS_WITH(meant({"fc*"}), Contains("\"fc*\" fits none of the model's: h.0.drop, h.0.attn_weights"));

  GraphBuilder only(schema_of({4, 6}), 1);
  const ValueId in = only.input();
  const GraphNetwork attention(only.finish(only.attention(in, in, in, "attn", 3, true)));
  dropout.common.sites = {};
  CHECK_THROWS_WITH(DropoutPlan(dropout, attention.dropout_places(), {}),
                    Contains("by name only") && Contains("attn_weights"));
}

TEST_CASE("a head is a site through which all that comes after it depends on the batch", "[dropout]") {
  GraphBuilder b(schema_of({6}), 1);
  const ValueId x = b.dropout(b.linear(b.input(), "fc1", 6), "whole");
  const ValueId branch = b.dropout(b.linear(x, "fc2", 6), "branch");
  const ValueId sum = b.dropout(b.add(x, branch), "sum");
  const GraphNetwork network(b.finish(b.linear(b.relu(sum), "fc3", 2)));
  const std::vector<DropoutSite> sites = network.dropout_places().sites;
  REQUIRE(sites.size() == 3);
  CHECK(sites[0].head);
  CHECK_FALSE(sites[1].head);
  CHECK(sites[2].head);

  GraphBuilder around(schema_of({6}), 1);  // the output comes from before the site
  const ValueId y = around.relu(around.input());
  around.dropout(y, "unread");
  CHECK_FALSE(GraphNetwork(around.finish(y)).dropout_places().sites[0].head);
}

TEST_CASE("a dropout that cannot serve the model leaves the one before in place", "[dropout]") {
  GraphNetwork network = chain();
  Fake one, other;
  const DropoutPlan plan(one, network.dropout_places(), {});
  network.set_dropout(&plan, 0);
  GraphBuilder b(schema_of({6}), 1);
  const GraphNetwork stranger(b.finish(b.dropout(b.input(), "elsewhere")));
  const DropoutPlan of_stranger(other, stranger.dropout_places(), {});
  CHECK_THROWS_AS(network.set_dropout(&of_stranger, 0), PluginError);
  CHECK_THROWS_WITH(network.set_dropout(&of_stranger, 0), Contains("the places of another network"));
  network.forward(batch_of(at::ones({2, 6})), {.training = true});
  CHECK(one.applied.size() == 3);
}

TEST_CASE("rates over time are those of early and late dropout, end points included", "[dropout]") {
  Fake dropout;
  const DropoutPlaces places = chain().dropout_places();
  dropout.common.p = 0.1;
  std::optional<DropoutPlan> plan;
  const auto set = [&](const char* when, const char* ramp, Duration cutoff = {50, Duration::Unit::percent}) {
    dropout.common.when = when;
    dropout.common.ramp = ramp;
    dropout.common.cutoff = cutoff;
    RunScale scale;
    scale.steps_per_epoch = 4;
    scale.total_steps = 300 * 4;
    plan.emplace(dropout, places, scale);
  };
  set("always", "constant");
  for (const std::int64_t step : {0, 599, 600, 1199}) CHECK(plan->rate(step) == 0.1);
  set("always", "linear");
  CHECK(plan->rate(0) == 0.0);
  CHECK(plan->rate(1199) == Approx(0.1).epsilon(1e-12));
  CHECK(plan->rate(1200) == Approx(0.1).epsilon(1e-12));  // the evaluation after the last step
  CHECK(plan->rate(400) == Approx(0.1 * 400 / 1199).epsilon(1e-12));

  // numpy.linspace(0.1, 0, 200) for 50 of 300 epochs, then 0: drop_scheduler of the authors.
  set("early", "linear", {50, Duration::Unit::epochs});
  for (const std::int64_t step : {0, 1, 77, 199})
    CHECK(plan->rate(step) == Approx(0.1 * (1.0 - static_cast<double>(step) / 199)).margin(1e-15));
  CHECK(plan->rate(200) == 0.0);
  CHECK(plan->rate(1199) == 0.0);
  set("early", "constant");
  CHECK(plan->rate(599) == 0.1);
  CHECK(plan->rate(600) == 0.0);
  set("late", "constant");
  CHECK(plan->rate(599) == 0.0);
  CHECK(plan->rate(600) == 0.1);
  CHECK(plan->rate(1200) == 0.1);
  set("late", "linear");
  CHECK(plan->rate(600) == 0.0);
  CHECK(plan->rate(1199) == Approx(0.1).epsilon(1e-12));
  set("early", "linear", {1, Duration::Unit::steps});  // as linspace(0.1, 0, 1)
  CHECK(plan->rate(0) == 0.1);
  CHECK(plan->rate(1) == 0.0);

  dropout.common.when = "early";
  dropout.common.cutoff = {50, Duration::Unit::percent};
  CHECK_THROWS_WITH(DropoutPlan(dropout, places, {}), Contains("model.dropout.cutoff") && Contains("use ba"));
  dropout.common.when = "always";
  CHECK_THROWS_WITH(DropoutPlan(dropout, places, {}), Contains("model.dropout.ramp"));
  dropout.common.ramp = "constant";
  CHECK_NOTHROW(DropoutPlan(dropout, places, {}));
}

TEST_CASE("places get no call while the rate is 0", "[dropout]") {
  GraphNetwork network = chain();
  Fake dropout;
  dropout.common.when = "early";
  dropout.common.cutoff = {10, Duration::Unit::steps};
  RunScale scale;
  scale.total_steps = 20;
  dropout.linears[0] = 0;
  const DropoutPlan plan(dropout, network.dropout_places(), scale);
  network.set_dropout(&plan, 0);
  const Batch batch = batch_of(at::rand({2, 6}));
  network.forward(batch, {.training = true, .step = 10});
  CHECK(dropout.applied.empty());
  CHECK(dropout.linears[0] == 0);
  network.forward(batch, {.training = true, .step = 9});
  CHECK(dropout.applied.size() == 2);
  CHECK(dropout.linears[0] == 1);
}

TEST_CASE("masked weights are taken for a pass; their gradients come to the parameters", "[dropout]") {
  GraphNetwork network = chain();
  const Batch batch = batch_of(at::rand({5, 6}));
  const at::Tensor plain = network.forward(batch, {.training = true});
  Fake dropout;
  at::Tensor mask;
  dropout.masks = [&](const at::Tensor& weight) {
    mask = at::rand_like(weight).gt(0.5).to(at::kFloat) * 2;
    return weight * mask;
  };
  dropout.common.sites = {"fc2.weight"};
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 0);
  const at::Tensor weight = parameter(network, "fc2.weight");
  const at::Tensor before = weight.detach().clone();
  const at::Tensor y = network.forward(batch, {.training = true});
  CHECK(dropout.masked == std::map<std::size_t, int>{{1, 1}});
  CHECK(dropout.applied.empty());
  y.sum().backward();
  CHECK(parameter(network, "fc2.weight").is_same(weight));
  CHECK(at::equal(weight, before));
  CHECK(at::equal(weight.grad().ne(0).logical_and(mask.eq(0)).any(), at::zeros({}, at::kBool)));
  CHECK(weight.grad().ne(0).any().item<bool>());
  {
    c10::NoGradGuard no_grad;
    const at::Tensor hidden =
        at::relu(at::linear(batch.input(), parameter(network, "fc1.weight"), parameter(network, "fc1.bias")));
    const at::Tensor expected = at::linear(at::linear(hidden, weight * mask, parameter(network, "fc2.bias")),
                                           parameter(network, "fc3.weight"), parameter(network, "fc3.bias"));
    CHECK(at::equal(y, expected));
  }
  CHECK(at::equal(network.forward(batch, {}), plain));  // restored: evaluations take the weights as they are
  CHECK(dropout.masked[1] == 1);
  network.forward(batch, {.sampling = true});
  CHECK(dropout.masked[1] == 2);
}

TEST_CASE("weights come back after a pass that failed", "[dropout]") {
  GraphNetwork network = chain();
  Fake dropout;
  const Batch batch = batch_of(at::rand({5, 6}));
  const at::Tensor plain = network.forward(batch, {});
  int calls = 0;
  const bool in_mask = GENERATE(true, false);
  dropout.masks = [&](const at::Tensor& weight) -> at::Tensor {
    if (in_mask && ++calls == 2) throw PluginError("masks fail");
    return in_mask ? weight * 2 : at::ones({7, 7});  // which no layer takes
  };
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 0);
  CHECK_THROWS_WITH(network.forward(batch, {.training = true}),
                    in_mask ? Contains("masks fail") : Contains("node \"fc1\" (Gemm)"));
  CHECK(at::equal(network.forward(batch, {}), plain));
}

TEST_CASE("evaluations ask for linear layers and their activations where dropout says so", "[dropout]") {
  GraphBuilder b(schema_of({5, 6}), 1);
  ValueId x = b.gelu(b.linear(b.input(), "fold", 8));  // with a Reshape between
  x = b.relu(b.linear(b.flatten(x), "fc1", 8));
  x = b.sigmoid(b.linear(x, "fc2", 8));
  GraphNetwork network(b.finish(b.linear(x, "head", 3)));
  const Batch batch = batch_of(at::randn({4, 5, 6}));
  const at::Tensor plain = network.forward(batch, {});
  Fake dropout;
  dropout.masks = [](const at::Tensor& weight) { return weight; };
  std::map<std::size_t, bool> activations;
  // Half of what the activation gives at y - 1, and half at y + 1.
  dropout.evaluated = [&](const at::Tensor& y, const EvaluatesLinears::Activation& activation,
                          std::size_t index) {
    activations[index] = static_cast<bool>(activation);
    if (!activation) return y;
    const at::Tensor low = activation(y - 1);
    return (low + activation(y + 1)) / 2;
  };
  dropout.common.sites = {"fold.weight", "fc2.weight", "head.weight"};
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 7);
  const auto weight = [&](const std::string& layer) { return parameter(network, layer + ".weight"); };
  const auto linear = [&](const at::Tensor& in, const std::string& layer) {
    return at::linear(in, weight(layer), parameter(network, layer + ".bias"));
  };
  const at::Tensor y = linear(batch.input(), "fold");
  const at::Tensor folded = (at::gelu(y - 1) + at::gelu(y + 1)) / 2;
  const at::Tensor second = linear(at::relu(linear(folded.flatten(1), "fc1")), "fc2");
  const at::Tensor expected = linear((at::sigmoid(second - 1) + at::sigmoid(second + 1)) / 2, "head");

  Names nodes;
  network.add_tap(&network, [&](const NodeActivity& activity) {
    nodes.push_back(std::string(activity.node) + " " + shape_text(activity.outputs.front().sizes().vec()));
  });
  CHECK(at::allclose(network.forward(batch, {.step = 3, .micro = 1}), expected, 1e-5, 1e-6));
  CHECK(activations == std::map<std::size_t, bool>{{0, true}, {2, true}, {3, false}});
  CHECK(nodes == Names{"flatten1 [20, 6]", "fold [4, 5, 8]", "flatten2 [4, 40]", "fc1 [4, 8]", "relu1 [4, 8]",
                       "fc2 [4, 8]", "head [4, 3]"});
  network.remove_tap(&network);

  activations.clear();  // the masks are what counts in training, and for samples
  CHECK(at::equal(network.forward(batch, {.training = true}), plain));
  CHECK(at::equal(network.forward(batch, {.sampling = true}), plain));
  CHECK(activations.empty());
  dropout.common.p = 0.0;
  const DropoutPlan none(dropout, network.dropout_places(), {});
  network.set_dropout(&none, 7);
  CHECK(at::equal(network.forward(batch, {}), plain));
  CHECK(activations.empty());
  network.set_dropout(&plan, 7);

  // Each batch of an evaluation draws its own numbers, and not those of training.
  REQUIRE(dropout.seen.size() == 3);
  const std::uint64_t drawn = dropout.seen[0].random.bits(0);
  const auto draws = [&](const ForwardContext& pass) {
    dropout.seen.clear();
    network.forward(batch, pass);
    return dropout.seen.at(0).random.bits(0);
  };
  CHECK(draws({.step = 3, .micro = 1}) == drawn);
  CHECK(draws({.step = 3, .micro = 2}) != drawn);
  CHECK(draws({.step = 4, .micro = 1}) != drawn);
  CHECK(RandomStream(7, "dropout/fold.weight", 3, 1).bits(0) != drawn);
}

TEST_CASE("a linear layer that dropout takes over stands for the nodes after it", "[dropout]") {
  GraphNetwork network = chain();
  const Batch batch = batch_of(at::rand({5, 6}));
  Fake dropout;
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 0);
  const auto weight = [&](const char* name) { return parameter(network, name); };
  dropout.linears = {{0, 0}, {2, 0}};  // fc1 with its ReLU and site; fc3 alone
  const at::Tensor y = network.forward(batch, {.training = true});
  CHECK(dropout.applied == std::map<std::size_t, int>{{0, 1}, {2, 1}});
  CHECK(dropout.linears == std::map<std::size_t, int>{{0, 1}, {2, 1}});
  const at::Tensor hidden =
      at::relu(at::linear(batch.input() * 2, weight("fc1.weight"), weight("fc1.bias"))) * 3;
  const at::Tensor second = at::linear(hidden, weight("fc2.weight"), weight("fc2.bias")) * 2;
  CHECK(at::equal(y, at::relu(at::linear(second, weight("fc3.weight"), weight("fc3.bias"))) * 3));
  network.forward(batch, {});
  CHECK(dropout.linears == std::map<std::size_t, int>{{0, 1}, {2, 1}});

  // Only its own node, where the run does not mean the site after it.
  dropout.common.sites = {"in", "b"};
  const DropoutPlan without(dropout, network.dropout_places(), {});
  network.set_dropout(&without, 0);
  dropout.applied.clear();
  network.forward(batch, {.training = true});
  CHECK(dropout.applied == std::map<std::size_t, int>{{0, 1}, {2, 1}});
  CHECK(dropout.linears[0] == 2);
}

TEST_CASE("taps see each node, and one for a layer that was taken over; activations are not kept",
          "[dropout]") {
  GraphNetwork network = chain();
  Fake dropout;
  dropout.linears = {{0, 0}};
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 0);
  Names nodes;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  REQUIRE(network.add_tap(&network, [&](const NodeActivity& activity) {
    nodes.push_back(std::string(activity.node) + " " + std::string(activity.op));
    shapes[std::string(activity.node)] = activity.outputs.front().sizes().vec();
    CHECK(activity.inputs.front().defined());
  }));
  const Batch batch = batch_of(at::rand({5, 6}));
  network.forward(batch, {.training = true});
  CHECK(nodes == Names{"in Dropout", "fc1 Gemm", "fc2 Gemm", "b Dropout", "fc3 Gemm"});
  CHECK(shapes["fc1"] == std::vector<std::int64_t>{5, 8});
  nodes.clear();
  network.forward(batch, {});
  CHECK(nodes.size() == 7);
  network.remove_tap(&network);
  network.forward(batch, {});
  CHECK(nodes.size() == 7);
}

TEST_CASE("states of a cell that are carried as they are make at::lstm's layer", "[dropout]") {
  GraphBuilder b(schema_of({7, 3}), 4);
  GraphNetwork network(b.finish(b.lstm(b.input(), "cell", 5)));
  const Batch batch = batch_of(at::randn({2, 7, 3}));
  const auto gradients = [&](const at::Tensor& y) {
    std::vector<at::Tensor> result;
    for (const NamedTensor& each : network.parameters()) each.tensor.mutable_grad() = at::Tensor();
    y.square().sum().backward();
    for (const NamedTensor& each : network.parameters()) result.push_back(each.tensor.grad().clone());
    return result;
  };
  const at::Tensor plain = network.forward(batch, {.training = true});
  const auto expected = gradients(plain);

  Fake dropout;
  std::vector<std::pair<std::int64_t, bool>> order;
  dropout.carried = [&](const at::Tensor& before, const at::Tensor& now, bool memory, std::int64_t time) {
    CHECK(before.sizes() == now.sizes());
    order.emplace_back(time, memory);
    return now;
  };
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 0);
  const at::Tensor carried = network.forward(batch, {.training = true});
  CHECK(at::allclose(carried, plain, 1e-6, 1e-6));
  const auto found = gradients(carried);
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(at::allclose(found[i], expected[i], 1e-5, 1e-6));
  REQUIRE(order.size() == 14);
  CHECK(order[0] == std::pair<std::int64_t, bool>(0, true));
  CHECK(order[13] == std::pair<std::int64_t, bool>(6, false));

  order.clear();
  network.forward(batch, {});  // evaluations carry, too
  CHECK(order.size() == 14);
  CHECK_FALSE(dropout.seen.back().pass.drops());
  // A state that never changes stays at the zeros of the beginning.
  dropout.carried = [](const at::Tensor& before, auto...) { return before; };
  CHECK(at::equal(network.forward(batch, {.training = true}), at::zeros({2, 7, 5})));
  dropout.common.p = 0.0;
  const DropoutPlan none(dropout, network.dropout_places(), {});
  network.set_dropout(&none, 0);
  CHECK(at::allclose(network.forward(batch, {.training = true}), plain, 1e-6, 1e-6));
}

TEST_CASE("sampling is an evaluation in which dropout acts", "[dropout]") {
  GraphBuilder b(schema_of({4, 3, 3}), 0);
  GraphNetwork network(b.finish(b.dropout(b.batch_norm(b.input(), "bn"), "site")));
  const Batch batch = batch_of(at::randn({6, 4, 3, 3}) + 3);
  const at::Tensor plain = network.forward(batch, {});
  Fake dropout;
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 5);
  CHECK(at::equal(network.forward(batch, {.sampling = true, .step = 2, .micro = 3}), plain * 2));
  for (const NamedTensor& each : network.buffers())
    CHECK(at::equal(each.tensor, each.name == "bn.running_mean" ? at::zeros({4}) : at::ones({4})));
  network.forward(batch, {.sampling = true, .step = 2, .micro = 4});
  network.forward(batch, {.training = true, .step = 2, .micro = 3});
  REQUIRE(dropout.seen.size() == 3);
  CHECK(dropout.seen[0].pass.micro == 3);
  const auto bits = [&](std::size_t call) { return dropout.seen[call].random.bits(0); };
  CHECK(bits(0) != bits(1));
  CHECK(bits(0) != bits(2));
  CHECK(bits(2) == RandomStream(5, "dropout/site", 2, 3).bits(0));
}

}  // namespace dropout_tests
