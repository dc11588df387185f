// Boosted trees: the model trees and the executor boosting, against the Python package of XGBoost (tests/golden/trees.py),
// finite differences, and a training that is broken off.
#include <catch2/catch.hpp>

#include <functional>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <trainyard/executor.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/mixins/grows.hpp>
#include <trainyard/model.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/testing/run.hpp>

#include "plugins/executor/derivatives.hpp"
#include "plugins/model/trees/network.hpp"
#include "tests/plugins/golden.hpp"
#include "tests/support/plugin.hpp"

namespace trees_tests {

using namespace trainyard;
using Catch::Contains;
using trees::Growth;
using trees::TreesNetwork;

namespace {

constexpr std::int64_t features = 4;
constexpr double rate = 0.2;  // as in the goldens; that of XGBoost is 0.3
const ForwardContext evaluation{};

/// Rows of which a tenth of the numbers are missing, and a class that they tell.
Batch made_batch(std::int64_t size, std::int64_t classes, std::uint64_t seed) {
  Batch batch = testing::tiny_batch(testing::tiny_schema(classes), size, seed);
  batch.inputs[0].masked_fill_(
      at::rand(batch.inputs[0].sizes(), at::detail::createCPUGenerator(seed)).lt(0.1),
      std::numeric_limits<double>::quiet_NaN());
  return batch;
}

Batch reordered(const Batch& batch, const at::Tensor& order) {
  Batch other = batch;
  other.inputs[0] = batch.inputs[0].index_select(0, order);
  other.target = batch.target.index_select(0, order);
  for (std::size_t i = 0; i < other.indices.size(); ++i)
    other.indices[i] =
        batch.indices[static_cast<std::size_t>(order[static_cast<std::int64_t>(i)].item<std::int64_t>())];
  return other;
}

/// A round, as the executor has it.
void round(TreesNetwork& network, const Loss& loss, const Batch& batch,
           executors::Curvature curvature = executors::Curvature::row_sums) {
  const at::Tensor margins = network.margins(batch).requires_grad_(true);
  const auto found = executors::derivatives(loss.forward(margins, batch), margins, curvature);
  network.grow(batch, found.first.mul(batch.weight), found.second.mul(batch.weight).clamp_min(1e-16), rate);
}

std::unique_ptr<Loss> made_loss(const std::string& name, const Table& options = {}) {
  return test::make<Loss>(name, options);
}

at::Tensor bytes_of(const TreesNetwork& network) {
  return network.buffers().front().tensor.clone();
}

/// What a checkpoint makes of a network: bytes are resized and written.
void load(const TreesNetwork& network, const at::Tensor& bytes) {
  at::Tensor handle = network.buffers().front().tensor;
  handle.resize_(bytes.sizes()).copy_(bytes);
}

const Growth sampling{.max_leaves = 5, .row_sample = 0.7, .column_sample = 0.5};

/// Sets LibTorch's threads for a while.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace

TEST_CASE("trees: margins are those of XGBoost's own package") {
  const nlohmann::json golden = test::golden("trees.json");
  std::vector<float> flat;
  for (const auto& row : golden["features"])
    for (const auto& value : row)
      flat.push_back(value.is_null() ? std::numeric_limits<float>::quiet_NaN() : value.get<float>());
  const std::int64_t size = std::ssize(golden["features"]);
  Batch batch;
  batch.inputs = {at::from_blob(flat.data(), {size, features}).clone()};
  for (std::int64_t i = 0; i < size; ++i) batch.indices.push_back(i);
  for (const auto& each : golden["cases"]) {
    INFO(each["name"].get<std::string>());
    const auto loss = made_loss(each["loss"], test::options(each["options"]));
    const auto target = each["target"].get<std::vector<double>>();
    batch.target = at::tensor(target, each["loss"] == "cross_entropy" ? at::kLong : at::kFloat);
    batch.weight = loss->weight(batch);
    const auto& given = each["model"];
    const Growth growth{.max_leaves = given["max_leaves"],
                        .max_depth = given.value("max_depth", 0),
                        .max_bin = given.value("max_bin", 256),
                        .min_child_weight = given.value("min_child_weight", 1.0),
                        .min_gain = given.value("min_gain", 0.0),
                        .l1 = given.value("l1", 0.0),
                        .l2 = given.value("l2", 1.0)};
    TreesNetwork network(growth, features, {each["outputs"].get<std::int64_t>()}, 1);
    const auto curvature =
        given.contains("curvature") ? executors::Curvature::diagonal : executors::Curvature::row_sums;
    for (int i = 0; i < golden["rounds"].get<int>(); ++i) round(network, *loss, batch, curvature);
    const at::Tensor found = network.forward(batch, evaluation);
    const auto& rows = each["margins"];
    double most = 0.0;
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t k = 0; k < rows[i].size(); ++k)
        most = std::max(
            most, std::abs(rows[i][k].get<double>() -
                           found[static_cast<std::int64_t>(i)][static_cast<std::int64_t>(k)].item<double>()));
    CHECK(most < 1e-5);
    CHECK(network.matrices_made() == 1);
    CHECK(at::equal(network.margins(batch), found));
  }
}

TEST_CASE("boosting: second derivatives are those of finite differences in double") {
  struct Case {
    std::string loss;
    Table options;
    at::Tensor output, target;
  };
  at::manual_seed(5);
  const std::vector<Case> cases = {
      {"cross_entropy", {}, at::randn({6, 4}, at::kDouble), at::randint(4, {6}, at::kLong)},
      {"cross_entropy", test::table({{"label_smoothing", 0.1}}), at::randn({6, 4}, at::kDouble),
       at::randint(4, {6}, at::kLong)},
      {"cross_entropy", test::table({{"class_weights", Array{1.0, 2.0, 0.5}}}),
       at::randn({6, 3}, at::kDouble), at::randint(3, {6}, at::kLong)},
      {"mse", {}, at::randn({6, 2}, at::kDouble), at::randn({6, 2}, at::kDouble)},
      {"bce_with_logits", {}, at::randn({6, 3}, at::kDouble), at::rand({6, 3}, at::kDouble)},
      {"bce_with_logits", test::table({{"pos_weight", 3.0}}), at::randn({6, 1}, at::kDouble),
       at::rand({6, 1}, at::kDouble)},
      {"nll", {}, at::randn({6, 2}, at::kDouble), at::randn({6, 1}, at::kDouble)}};
  for (const Case& test : cases) {
    const auto loss = made_loss(test.loss, test.options);
    INFO(test.loss);
    Batch batch;
    batch.target = test.target;
    for (std::int64_t i = 0; i < 6; ++i) batch.indices.push_back(i);
    const at::Tensor leaf = test.output.clone().requires_grad_(true);
    const auto found =
        executors::derivatives(loss->forward(leaf, batch), leaf, executors::Curvature::diagonal);
    const auto bound =
        executors::derivatives(loss->forward(leaf, batch), leaf, executors::Curvature::row_sums);
    const std::int64_t outputs = test.output.size(1);
    const auto at_place = [&](std::int64_t i, std::int64_t k, double by, std::int64_t other,
                              double by_other) {
      at::Tensor moved = test.output.clone();
      moved[i][k] += by;
      moved[i][other] += by_other;
      return loss->forward(moved, batch).item<double>();
    };
    constexpr double h = 1e-4;
    for (std::int64_t i = 0; i < 6; ++i)
      for (std::int64_t k = 0; k < outputs; ++k) {
        const double up = at_place(i, k, h, 0, 0.0), down = at_place(i, k, -h, 0, 0.0),
                     here = at_place(i, k, 0.0, 0, 0.0);
        CHECK(found.first[i][k].item<double>() == Approx((up - down) / (2 * h)).margin(1e-7));
        const double own = (up - 2 * here + down) / (h * h);
        CHECK(found.second[i][k].item<double>() == Approx(own).margin(1e-6));
        double sum = std::abs(own);
        for (std::int64_t other = 0; other < outputs; ++other)
          if (other != k)
            sum += std::abs((at_place(i, k, h, other, h) - at_place(i, k, h, other, -h) -
                             at_place(i, k, -h, other, h) + at_place(i, k, -h, other, -h)) /
                            (4 * h * h));
        CHECK(bound.second[i][k].item<double>() == Approx(sum).margin(1e-6));
      }
  }
}

TEST_CASE("boosting: a loss without second derivatives is refused") {
  const at::Tensor output = at::randn({4, 1}).requires_grad_(true);
  CHECK_THROWS_AS(executors::derivatives(output.mean(), output, executors::Curvature::row_sums), ConfigError);
  CHECK_THROWS_WITH(executors::derivatives(output.abs().mean(), output, executors::Curvature::diagonal),
                    Contains("take a loss that is curved"));
}

TEST_CASE(
    "trees: a training that goes on from its bytes comes to the same bits, and its margins to those of a "
    "pass") {
  const Batch batch = made_batch(150, 3, 4);
  const auto loss = made_loss("cross_entropy");
  for (const int threads : {1, 2})
    for (const Growth& growth :
         {Growth{}, sampling, Growth{.max_leaves = 0, .max_depth = 3, .column_sample = 0.6}}) {
      const Threads set(threads);
      INFO(threads << " threads, " << growth.max_leaves << " leaves");
      TreesNetwork whole(growth, features, {3}, 7), again(growth, features, {3}, 7);
      for (int i = 0; i < 12; ++i) {
        round(whole, *loss, batch);
        if (i == 4) load(again, bytes_of(whole));
        if (i > 4) round(again, *loss, batch);
        if (i > 4) CHECK(at::equal(again.margins(batch), whole.margins(batch)));
      }
      CHECK(at::equal(bytes_of(again), bytes_of(whole)));
      CHECK(at::equal(whole.margins(batch), whole.forward(batch, evaluation)));
      TreesNetwork fresh(growth, features, {3}, 7);  // which has all trees at once
      load(fresh, bytes_of(whole));
      CHECK(at::equal(fresh.margins(batch), whole.margins(batch)));
    }
}

TEST_CASE("trees: other draws with another seed, the same with the same") {
  const Batch batch = made_batch(100, 3, 4);
  const auto loss = made_loss("cross_entropy");
  for (const Growth& growth : {Growth{.row_sample = 0.5}, Growth{.column_sample = 0.5}}) {
    TreesNetwork one(growth, features, {3}, 7), same(growth, features, {3}, 7),
        other(growth, features, {3}, 8);
    for (int i = 0; i < 3; ++i)
      for (TreesNetwork* const each : {&one, &same, &other}) round(*each, *loss, batch);
    CHECK(at::equal(bytes_of(one), bytes_of(same)));
    CHECK_FALSE(at::equal(one.margins(batch), other.margins(batch)));
  }
}

TEST_CASE("trees: rows in another order are the same rows: one matrix, the same trees") {
  const Batch batch = made_batch(80, 3, 9);
  const auto loss = made_loss("cross_entropy");
  TreesNetwork sorted(sampling, features, {3}, 7), shuffled(sampling, features, {3}, 7);
  for (int i = 0; i < 5; ++i) {
    at::manual_seed(static_cast<std::uint64_t>(i));
    const at::Tensor order = at::randperm(80);
    round(sorted, *loss, batch);
    round(shuffled, *loss, reordered(batch, order));
    CHECK(at::equal(shuffled.margins(reordered(batch, order)), sorted.margins(batch).index_select(0, order)));
  }
  CHECK(shuffled.matrices_made() == 1);
  CHECK(at::equal(bytes_of(sorted), bytes_of(shuffled)));
  at::Tensor(batch.inputs[0])[3][1] = 7.0;  // in place, as a hook may have it
  round(sorted, *loss, batch);
  CHECK(sorted.matrices_made() == 2);
}

TEST_CASE("trees: of two classes, one tree a round and its mirror image are two trees a round") {
  const Batch batch = made_batch(80, 2, 9), unseen = made_batch(30, 2, 10);
  for (const nlohmann::json& options : {nlohmann::json::object(), nlohmann::json{{"label_smoothing", 0.1}},
                                        nlohmann::json{{"class_weights", {1.0, 3.0}}}}) {
    INFO(options.dump());
    const auto loss = made_loss("cross_entropy", test::options(options));
    Growth one = sampling;
    one.mirrored = true;
    TreesNetwork each(sampling, features, {2}, 7), mirrored(one, features, {2}, 7);
    for (int i = 0; i < 6; ++i) {
      round(each, *loss, batch);
      round(mirrored, *loss, batch);
    }
    CHECK(mirrored.forward(unseen, evaluation).allclose(each.forward(unseen, evaluation), 1e-5, 1e-6));
    CHECK(mirrored.margins(batch).allclose(each.margins(batch), 1e-5, 1e-6));
    CHECK(mirrored.forward(unseen, evaluation).abs().max().item<float>() > 0.1f);
    CHECK(10 * bytes_of(mirrored).numel() < 6 * bytes_of(each).numel());
    CHECK_THROWS_WITH(each.adopt(mirrored.buffers()), Contains("1 outputs") && Contains("has 2"));
  }
}

TEST_CASE("trees: mirror images are refused to a loss that sees more than the difference of two logits") {
  Growth growth;
  growth.mirrored = true;
  Batch batch = made_batch(20, 2, 9);
  batch.target = at::rand({20, 2});
  TreesNetwork network(growth, features, {2}, 7);
  CHECK_THROWS_WITH(round(network, *made_loss("mse"), batch),
                    Contains("take a loss that sees the difference"));
  const Batch three = made_batch(20, 3, 9);
  TreesNetwork own(growth, features, {3}, 7), plain({}, features, {3}, 7);
  for (TreesNetwork* const each : {&own, &plain}) round(*each, *made_loss("cross_entropy"), three);
  CHECK(at::equal(bytes_of(own), bytes_of(plain)));  // three logits have trees of their own
}

TEST_CASE("trees: each round draws features and rows anew") {
  const Batch batch = made_batch(60, 3, 9);
  const auto loss = made_loss("cross_entropy");
  TreesNetwork network({.max_leaves = 3, .column_sample = 0.25}, features, {3}, 7);  // one of four
  for (int i = 0; i < 20; ++i) round(network, *loss, batch);
  for (std::int64_t feature = 0; feature < features; ++feature) {
    Batch without = batch;
    without.inputs[0] = batch.inputs[0].clone();
    without.inputs[0].select(1, feature).zero_();
    CHECK_FALSE(at::equal(network.forward(without, evaluation), network.forward(batch, evaluation)));
  }
  // Each row has a leaf of its own in each tree that sees it: one that no round sees stays at 0.
  Batch apart = testing::tiny_batch(testing::tiny_schema(0), 30, 3);
  apart.inputs[0] = at::arange(30, at::kFloat).unsqueeze(1).expand({30, features}).contiguous();
  apart.target = at::arange(30, at::kFloat).remainder(2).mul(2).sub(1);
  TreesNetwork rows({.max_leaves = 64, .min_child_weight = 0.0, .l2 = 0.0, .row_sample = 0.5}, features, {1},
                    7);
  const auto squares = made_loss("mse");
  round(rows, *squares, apart);
  const at::Tensor first = rows.margins(apart);
  for (int i = 0; i < 9; ++i) round(rows, *squares, apart);
  const at::Tensor last = rows.margins(apart).squeeze(1);
  CHECK((last - apart.target).abs().max().item<float>() <
        (first.squeeze(1) - apart.target).abs().max().item<float>());
  CHECK((last - apart.target).square().mean().item<float>() < 0.5F);
}

TEST_CASE("trees: the bytes have one handle for life, and a rollback is to fewer trees") {
  const Batch batch = made_batch(60, 3, 9);
  const auto loss = made_loss("cross_entropy");
  TreesNetwork network({}, features, {3}, 7);
  const at::Tensor handle = network.buffers().front().tensor;
  CHECK(handle.numel() == 0);
  CHECK(network.margins(batch).abs().max().item<float>() == 0.0F);
  round(network, *loss, batch);
  const at::Tensor one = bytes_of(network), margins = network.margins(batch);
  CHECK(handle.is_same(network.buffers().front().tensor));
  round(network, *loss, batch);
  CHECK(bytes_of(network).numel() > one.numel());
  load(network, one);
  CHECK(at::equal(network.margins(batch), margins));
  load(network, at::empty({0}, at::kByte));
  CHECK(network.margins(batch).abs().max().item<float>() == 0.0F);

  round(network, *loss, batch);
  TreesNetwork next({.max_leaves = 3}, features, {3}, 7);
  next.adopt(network.buffers());
  CHECK(at::equal(next.margins(batch), network.margins(batch)));
  CHECK(next.buffers().front().tensor.is_same(handle));
}

TEST_CASE("trees: what does not fit is refused, by what was found and what is to be done") {
  const Batch batch = made_batch(20, 3, 9);
  const auto loss = made_loss("cross_entropy");
  TreesNetwork network({}, features, {3}, 7);
  CHECK_THROWS_WITH(network.forward(batch, {.training = true}),
                    Contains("set executor = { type = \"boosting\" }"));
  CHECK_THROWS_WITH(network.to(at::Device("cuda:0")), Contains("set run.device = \"cpu\""));
  Batch infinite = batch;
  infinite.inputs[0] = batch.inputs[0].clone();
  infinite.inputs[0][2][1] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH(network.margins(infinite), Contains("feature 1 of row 2 of a batch is infinite"));

  round(network, *loss, batch);
  const std::vector<NamedTensor> trees = network.buffers();
  TreesNetwork wider({}, features + 1, {3}, 7), of_two({}, features, {2}, 7);
  CHECK_THROWS_WITH(wider.adopt(trees), Contains("4 features") && Contains("has 5"));
  CHECK_THROWS_WITH(of_two.adopt(trees), Contains("3 outputs") && Contains("has 2"));
  CHECK_THROWS_WITH(of_two.adopt({{"fc1.weight", at::zeros({2, 2})}}), Contains("another kind"));
  load(of_two, bytes_of(network));
  CHECK_THROWS_WITH(of_two.forward(batch, evaluation), Contains("3 outputs"));
  load(network, at::zeros({40}, at::kByte));
  CHECK_THROWS_AS(network.forward(batch, evaluation), DataError);
}

TEST_CASE("trees: the model fits the data, or says why not") {
  const auto build = [](const Table& options, const BatchSchema& schema) {
    return test::make<Model>("trees", options)->build({schema, 1});
  };
  const BatchSchema classes = testing::tiny_schema(2), number = testing::tiny_schema(0);
  CHECK(build({}, classes)->output_shape() == std::vector<std::int64_t>{2});
  CHECK(build(test::table({{"outputs", 1}}), classes)->output_shape() == std::vector<std::int64_t>{1});
  CHECK(build({}, number)->output_shape() == std::vector<std::int64_t>{1});
  BatchSchema several = number;
  several.target.shape = {3};
  CHECK(build({}, several)->output_shape() == std::vector<std::int64_t>{3});
  CHECK(build({}, classes)->parameters().empty());
  CHECK_THROWS_WITH(build(test::table({{"outputs", 5}}), classes), Contains("model.outputs"));
  CHECK_THROWS_WITH(build(test::table({{"max_leaves", 0}}), classes), Contains("bound one of them"));
  BatchSchema tokens = classes, two = classes;
  tokens.inputs[0].dtype = at::kLong;
  two.inputs.push_back(two.inputs[0]);
  CHECK_THROWS_WITH(build({}, tokens), Contains("floating-point"));
  CHECK_THROWS_WITH(build({}, two), Contains("2 inputs"));
}

TEST_CASE("boosting: a step is a round on its micro-batches together, at the optimizer's rate") {
  for (const int micros : {1, 2}) {
    const testing::TinyRun::Setup setup{.micros = micros, .samples = 16, .lr = rate};
    const BatchSchema schema = testing::tiny_schema();
    testing::TinyRun run(setup);
    auto network = std::make_unique<TreesNetwork>(Growth{.min_child_weight = 0.1}, features,
                                                  std::vector<std::int64_t>{3}, 7);
    TreesNetwork& trees = *network;
    test::Subscribed<Executor> boosting("boosting", {});
    run.use(std::move(network));
    run.use(boosting.plugin());
    run.step();

    Batch whole;
    std::vector<at::Tensor> inputs, targets;
    for (int i = 0; i < micros; ++i) {
      const Batch each =
          testing::tiny_batch(schema, setup.samples, setup.seed + 1 + static_cast<std::uint64_t>(i));
      inputs.push_back(each.input());
      targets.push_back(each.target);
      whole.indices.insert(whole.indices.end(), each.indices.begin(), each.indices.end());
    }
    whole.inputs = {at::cat(inputs)};
    whole.target = at::cat(targets);
    whole.weight = static_cast<double>(setup.samples * micros);
    TreesNetwork expected({.min_child_weight = 0.1}, features, {3}, 7);
    const auto loss = made_loss("cross_entropy");
    round(expected, *loss, whole);
    CHECK(expected.forward(whole, evaluation).abs().max().item<float>() > 0.1F);
    CHECK(at::allclose(trees.forward(whole, evaluation), expected.forward(whole, evaluation), 1e-5, 1e-6));
    run.step(3);
    CHECK(trees.buffers().front().tensor.numel() > expected.buffers().front().tensor.numel());
  }
}

TEST_CASE("boosting: a network with weights is refused, and one that grows has a group with the rate") {
  testing::TinyRun run;
  test::Subscribed<Executor> boosting("boosting", {});
  run.use(boosting.plugin());
  CHECK_THROWS_WITH(run.step(), Contains("set model = { type = \"trees\" }"));
  const std::vector<ParamGroup> groups = make_groups({}, [] {
    OptimizerCommon common;
    common.lr = 0.25;
    return common;
  }());
  REQUIRE(groups.size() == 1);
  CHECK(groups.front().lr == 0.25);
  for (const char* const name : {"sgd", "adam", "adamw", "lamb", "lars", "rmsprop", "adagrad"}) {
    const auto optimizer = test::make<Optimizer>(name);
    optimizer->open(groups);
    CHECK_NOTHROW(optimizer->step());
  }
}

}  // namespace trees_tests
