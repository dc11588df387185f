// doped: sums of matrices against dense ones made by loops, sizes of structures, how elements are taken away, silent rows.
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch.hpp>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/helpers/co_matrix.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/transform.hpp>

#include "plugins/transform/annealing.hpp"
#include "plugins/transform/doped/nearest.hpp"
#include "plugins/transform/doped/structure.hpp"
#include "plugins/transform/masked.hpp"
#include "tests/support/plugin.hpp"

namespace doped_test {

using namespace trainyard;
using doped::Form, doped::largest, doped::Structure;

namespace {

using Catch::Matchers::Contains;
using Tensors = std::map<std::string, at::Tensor>;

/// y = W x + b with one layer, "fc".
std::unique_ptr<Network> layer(std::int64_t in, std::int64_t out) {
  BatchSchema schema = testing::tiny_schema();
  schema.inputs[0].shape = {in};
  GraphBuilder b(schema, 3);
  return std::make_unique<GraphNetwork>(b.finish(b.linear(b.input(), "fc", out)));
}

std::unique_ptr<Network> recurrent(std::int64_t in, std::int64_t hidden) {
  BatchSchema schema = testing::tiny_schema();
  schema.inputs[0].shape = {5, in};
  GraphBuilder b(schema, 3);
  return std::make_unique<GraphNetwork>(b.finish(b.lstm(b.input(), "rnn", hidden)));
}

std::unique_ptr<Network> doped_of(std::unique_ptr<Network> network, const Table& options) {
  const BatchSchema schema = testing::tiny_schema();
  return test::make<Transform>("doped", options)->apply(std::move(network), {schema, 1});
}

Tensors tensors_of(const Network& network) {
  Tensors all;
  for (const NamedTensor& each : network.parameters()) all.emplace(each.name, each.tensor);
  for (const NamedTensor& each : network.buffers()) all.emplace(each.name, each.tensor);
  return all;
}

at::Tensor dense_kp(const at::Tensor& left, const at::Tensor& right) {
  at::Tensor dense = at::zeros({left.size(0) * right.size(0), left.size(1) * right.size(1)}, left.options());
  for (std::int64_t i = 0; i < left.size(0); ++i)
    for (std::int64_t j = 0; j < left.size(1); ++j)
      for (std::int64_t k = 0; k < right.size(0); ++k)
        for (std::int64_t l = 0; l < right.size(1); ++l)
          dense[i * right.size(0) + k][j * right.size(1) + l] = left[i][j] * right[k][l];
  return dense;
}

/// W of a doped layer, an element at a time, under autograd.
at::Tensor dense(const Tensors& all, const std::string& weight) {
  at::Tensor sum;
  if (all.contains(weight + ".kron.left")) {
    sum = dense_kp(all.at(weight + ".kron.left"), all.at(weight + ".kron.right"));
  } else if (all.contains(weight + ".low_rank.u")) {
    const at::Tensor &u = all.at(weight + ".low_rank.u"), &v = all.at(weight + ".low_rank.v");
    sum = at::zeros({u.size(0), v.size(1)}, u.options());
    for (std::int64_t r = 0; r < u.size(1); ++r) sum = sum + at::outer(u.select(1, r), v.select(0, r));
  } else {
    const at::Tensor &u = all.at(weight + ".hmd.u"), &v = all.at(weight + ".hmd.v");
    std::vector<at::Tensor> rows;
    for (std::int64_t block = 0; block < u.size(0); ++block) {
      if (all.contains(weight + ".hmd.rows")) rows.push_back(all.at(weight + ".hmd.rows")[block]);
      rows.push_back(at::outer(u[block].flatten(), v[block].flatten()));
    }
    sum = at::cat(rows);
  }
  if (!all.contains(weight + ".sparse")) return sum;
  return sum + all.at(weight + ".sparse");
}

Batch batch_of(const at::Tensor& x) {
  Batch batch;
  batch.inputs = {x};
  return batch;
}

/// The whole annealing at the second step.
Value sparse() {
  return Value(test::table({{"begin", "1ba"}, {"end", "2ba"}, {"every", std::int64_t{1}}}));
}

double relative(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace

TEST_CASE("a product, its sum with a sparse matrix and all gradients are those of an example by hand",
          "[doped]") {
  const std::unique_ptr<Network> network = doped_of(layer(4, 4), test::table({{"target_cf", 1.6}}));
  Tensors all = tensors_of(*network);
  REQUIRE(all.at("fc.weight.kron.left").sizes() == at::IntArrayRef({2, 2}));
  const at::NoGradGuard untracked;
  all.at("fc.weight.kron.left").copy_(at::tensor({1.0, 2.0, 0.0, -1.0}).view({2, 2}));
  all.at("fc.weight.kron.right").copy_(at::tensor({0.0, 1.0, 1.0, 1.0}).view({2, 2}));
  all.at("fc.weight.sparse").zero_();
  all.at("fc.bias").zero_();
  const Batch batch = batch_of(at::tensor({1.0f, 2.0f, 3.0f, 4.0f}).view({1, 4}));
  CHECK(network->forward(batch, {}).equal(at::tensor({10.0f, 17.0f, -4.0f, -7.0f}).view({1, 4})));
  all.at("fc.weight.sparse")[0][3] = 0.5;
  all.at("fc.weight.sparse")[3][0] = -2.0;
  CHECK(network->forward(batch, {}).equal(at::tensor({12.0f, 17.0f, -4.0f, -9.0f}).view({1, 4})));

  const at::AutoGradMode tracked(true);
  network->forward(batch, {}).backward(at::tensor({1.0f, 0.0f, -1.0f, 2.0f}).view({1, 4}));
  CHECK(all.at("fc.weight.kron.left").grad().equal(at::tensor({2.0f, 4.0f, 4.0f, 10.0f}).view({2, 2})));
  CHECK(all.at("fc.weight.kron.right").grad().equal(at::tensor({10.0f, 14.0f, -6.0f, -8.0f}).view({2, 2})));
  CHECK(all.at("fc.weight.sparse").grad()[0][3].item<float>() == 4.0f);
  CHECK(all.at("fc.weight.sparse").grad()[3][0].item<float>() == 2.0f);
}

TEST_CASE("all structures are the dense matrix of their elements, forward and backward", "[doped]") {
  at::manual_seed(2);
  for (const char* const structure : {"kp", "lmf", "hmd"})
    for (const bool alone : {false, true})
      for (const auto& [in, out] : {std::pair{24, 36}, {13, 7}, {1, 12}, {48, 31}, {60, 8}})
        for (const bool doubles : {false, true}) {
          const std::int64_t room = doubles ? 1 : 4;
          INFO(structure << " " << in << " to " << out << (alone ? " alone" : "")
                         << (doubles ? " doubles" : ""));
          const std::int64_t small = in + out + 2;  // a product of rank one always fits
          const double cf = std::max(1.01, static_cast<double>(in * out) / static_cast<double>(room * small));
          std::unique_ptr<Network> network;
          try {
            network = doped_of(layer(in, out),
                               test::table({{"target_cf", cf}, {"structure", structure}, {"alone", alone}}));
          } catch (const ConfigError& error) {
            CHECK(in == 1);  // which is as small as it is
            continue;
          }
          if (doubles) dynamic_cast<ComputesInDoubles&>(*network).to_doubles();
          const Tensors all = tensors_of(*network);
          if (!alone) {
            const at::NoGradGuard untracked;
            all.at("fc.weight.sparse").mul_(at::rand({out, in}).lt(0.3));
          }
          const at::Tensor x = at::randn({6, in}, doubles ? at::kDouble : at::kFloat);
          const at::Tensor expected = at::linear(x, dense(all, "fc.weight"), all.at("fc.bias"));
          const at::Tensor found = network->forward(batch_of(x), {});
          const double bar = doubles ? 1e-12 : 1e-5;
          CHECK(relative(found, expected) <= bar);
          const at::Tensor given = at::randn_like(expected);
          std::vector<at::Tensor> leaves;
          for (const NamedTensor& each : network->parameters()) leaves.push_back(each.tensor);
          std::vector<at::Tensor> gradients;
          found.backward(given);
          for (const at::Tensor& leaf : leaves) {
            gradients.push_back(leaf.grad().clone());
            leaf.mutable_grad().reset();
          }
          expected.backward(given);
          for (std::size_t i = 0; i < leaves.size(); ++i)
            CHECK(relative(gradients[i], leaves[i].grad()) <= bar);
        }
}

TEST_CASE("both weights of a recurrent layer are replaced, and give what the dense layer gives", "[doped]") {
  const std::unique_ptr<Network> network =
      doped_of(recurrent(12, 16), test::table({{"target_cf", 3.0}, {"structure", "hmd"}}));
  const Tensors all = tensors_of(*network);
  const std::unique_ptr<Network> plain = recurrent(12, 16);
  const at::NoGradGuard untracked;
  for (const NamedTensor& each : plain->parameters())
    each.tensor.copy_(each.name == "rnn.bias" ? all.at("rnn.bias")
                                              : dense(all, each.name).view_as(each.tensor));
  const Batch batch = batch_of(at::randn({4, 5, 12}));
  CHECK(relative(network->forward(batch, {}), plain->forward(batch, {})) <= 1e-5);
}

TEST_CASE("sizes of structures are those of the paper's layers", "[doped]") {
  const Structure medium = largest({.form = Form::kp, .rows = 2600, .columns = 1300}, 3690);
  CHECK(medium.parameters() == 3690);
  CHECK(medium.most_rank() == 1040);
  const Structure small = largest({.form = Form::kp, .rows = 512, .columns = 256}, 0);  // none is as small
  CHECK(small.parameters() == 768);
  CHECK(small.most_rank() == 256);
  CHECK(largest({.form = Form::lmf, .rows = 2600, .columns = 1300}, 2600 * 1300 / 25).rank == 34);
  CHECK(largest({.form = Form::kp, .rows = 127, .columns = 128}, 0).parameters() ==
        255);  // 127 has no factors
  // Against a search over all: the highest rank that there is room for, then the most numbers.
  for (const std::int64_t budget : {60, 100, 400}) {
    std::pair<std::int64_t, std::int64_t> best;
    for (std::int64_t a = 1; a <= 24; ++a)
      for (std::int64_t b = 1; b <= 36; ++b)
        if (24 % a == 0 && 36 % b == 0 && a * b + 24 / a * (36 / b) <= budget)
          best =
              std::max(best, std::pair(std::min(a, b) * std::min(24 / a, 36 / b), a * b + 24 / a * (36 / b)));
    const Structure found = largest({.form = Form::kp, .rows = 24, .columns = 36}, budget);
    CHECK(std::pair(found.most_rank(), found.parameters()) == best);
  }
  for (const std::int64_t budget : {100, 300, 700}) {
    const Structure hmd = largest({.form = Form::hmd, .rows = 40, .columns = 20, .blocks = 4}, budget);
    CHECK(hmd.parameters() <= std::max<std::int64_t>(budget, 4 * (10 + 20)));
    Structure more = hmd;
    ++more.free_rows;
    CHECK((more.parameters() > budget || hmd.free_rows == 9));
  }
}

TEST_CASE("the nearest structure leaves what no better one could leave", "[doped]") {
  at::manual_seed(5);
  const at::Tensor matrix = at::randn({24, 36}, at::kDouble);
  const auto tail = [](const at::Tensor& values, std::int64_t rank) {
    return values.square().slice(-1, rank).sum().item<double>();
  };
  for (const Form form : {Form::kp, Form::lmf, Form::hmd}) {
    const Structure s =
        largest({.form = form, .rows = 24, .columns = 36, .blocks = form == Form::hmd ? 4 : 1}, 400);
    const std::vector<at::Tensor> factors = doped::nearest(s, matrix);
    const double left = (matrix - doped::product(s, factors)).square().sum().item<double>();
    double expected = 0.0;
    if (form == Form::kp) {
      // An element at a time: row (i, j) of the rearranged matrix holds the block that left[i][j] multiplies.
      at::Tensor rearranged =
          at::zeros({s.left_rows * s.left_columns, s.right_rows * s.right_columns}, at::kDouble);
      for (std::int64_t r = 0; r < 24; ++r)
        for (std::int64_t c = 0; c < 36; ++c)
          rearranged[r / s.right_rows * s.left_columns + c / s.right_columns]
                    [r % s.right_rows * s.right_columns + c % s.right_columns] = matrix[r][c];
      expected = tail(at::linalg_svdvals(rearranged), 1);
    } else if (form == Form::lmf) {
      expected = tail(at::linalg_svdvals(matrix), s.rank);
    } else {
      REQUIRE(s.free_rows > 0);
      for (std::int64_t block = 0; block < 4; ++block)
        expected += tail(at::linalg_svdvals(matrix.slice(0, block * 6 + s.free_rows, block * 6 + 6)), 1);
    }
    CHECK(left == Approx(expected).epsilon(1e-10));
  }
  // What is a product is found.
  const Structure s = largest({.form = Form::kp, .rows = 24, .columns = 36}, 0);
  const at::Tensor made = dense_kp(at::randn({s.left_rows, s.left_columns}, at::kDouble),
                                   at::randn({s.right_rows, s.right_columns}, at::kDouble));
  CHECK((made - doped::product(s, doped::nearest(s, made))).abs().max().item<double>() < 1e-12);
}

TEST_CASE("zeros come by the cubic profile", "[doped]") {
  const RunScale scale{.total_steps = 100};
  const transforms::Annealed annealed(
      {.begin = {0, Duration::Unit::steps}, .end = {10, Duration::Unit::steps}, .every = 1}, 0.96, scale);
  const double expected[] = {0,       0.26016, 0.46848, 0.63072, 0.75264, 0.84,
                             0.89856, 0.93408, 0.95232, 0.95904, 0.96,    0.96};
  for (int step = 0; step < 12; ++step)
    CHECK(annealed.sparsity(step) == Approx(expected[step]).margin(1e-12));
  const transforms::Annealed coarse(
      {.begin = {10, Duration::Unit::percent}, .end = {50, Duration::Unit::percent}, .every = 15}, 0.9,
      scale);
  CHECK(coarse.sparsity(9) == 0.0);
  CHECK(coarse.sparsity(24) == 0.0);
  CHECK(coarse.sparsity(25) == Approx(0.9 * (1 - std::pow(1 - 15.0 / 40, 3))));
  CHECK(coarse.sparsity(39) == coarse.sparsity(25));
  CHECK(coarse.sparsity(50) == 0.9);
  using transforms::Profile;
  const auto half = [&](Profile profile) {
    return transforms::Annealed({.begin = {0, Duration::Unit::steps},
                                 .end = {10, Duration::Unit::steps},
                                 .every = 1,
                                 .profile = profile},
                                0.75, scale)
        .sparsity(5);
  };
  CHECK(half(Profile::linear) == 0.375);
  CHECK(half(Profile::exponential) == Approx(0.5));  // a half of what is left, twice
  CHECK(half(Profile::at_once) == 0.75);
  CHECK_THROWS_WITH(transforms::Annealed({}, 0.5, RunScale{}), Contains("sparse.begin = \"10%\""));
}

TEST_CASE("as many elements are left as were asked for, the largest, and none comes back", "[doped]") {
  const std::unique_ptr<Network> network = layer(6, 4);
  const at::NoGradGuard untracked;
  at::Tensor weight = tensors_of(*network).at("fc.weight");
  weight.fill_(1.0);  // all equal
  weight[1][2] = -3.0;
  weight[3][5] = 0.5;
  transforms::Masked masked(*network, {"fc.weight"});
  masked.keep_largest(24);
  CHECK(weight.count_nonzero().item<std::int64_t>() == 24);
  masked.keep_largest(23);
  CHECK(weight[3][5].item<float>() == 0.0f);
  CHECK(weight.count_nonzero().item<std::int64_t>() == 23);
  masked.keep_largest(2);
  CHECK(weight.count_nonzero().item<std::int64_t>() == 2);
  CHECK(weight[1][2].item<float>() == -3.0f);
  CHECK(weight[0][0].item<float>() == 1.0f);  // the first of those that are equal
  masked.note();
  weight.fill_(7.0);  // as momentum would
  masked.enforce();
  CHECK(weight.count_nonzero().item<std::int64_t>() == 2);
  masked.keep_largest(0);
  CHECK(weight.count_nonzero().item<std::int64_t>() == 0);
}

TEST_CASE("what has died stays dead under steps that are large", "[doped]") {
  testing::Made<Transform> prune(test::shipped_file("transform", "prune"),
                                 {{"ratio", 0.5}, {"sparse", sparse()}});
  testing::Made<Transform> doped(test::shipped_file("transform", "doped"),
                                 {{"target_cf", 1.3}, {"sparse", sparse()}});
  for (testing::Made<Transform>* const transform : {&prune, &doped}) {
    testing::TinyRun run({.steps = 12, .lr = 1.0});
    std::unique_ptr<Network> network =
        (*transform)->apply(testing::tiny_network(testing::tiny_schema()), {testing::tiny_schema(), 1});
    const std::string name = transform == &prune ? "fc1.weight" : "fc1.weight.sparse";
    const at::Tensor weight = tensors_of(*network).at(name).detach();
    run.use(std::move(network));
    run.add(*transform);
    run.step(3);
    const at::Tensor dead = weight.eq(0);
    CHECK(dead.sum().item<std::int64_t>() > 3);
    for (int step = 0; step < 4; ++step) {
      run.step();
      REQUIRE(std::isfinite(run.loss()));
      CHECK((weight.eq(0) & dead).equal(dead));
    }
  }
}

TEST_CASE("weights are compared with those of other layers, or of their own alone", "[doped]") {
  for (const bool global : {true, false}) {
    testing::Made<Transform> prune(test::shipped_file("transform", "prune"),
                                   {{"ratio", 0.5}, {"allocation", global ? "global" : "uniform"}});
    testing::TinyRun run({.steps = 10, .lr = 0.0});
    std::unique_ptr<Network> network =
        prune->apply(testing::tiny_network(testing::tiny_schema()), {testing::tiny_schema(), 1});
    const Tensors all = tensors_of(*network);
    const at::Tensor first = all.at("fc1.weight"), second = all.at("fc2.weight");
    {
      const at::NoGradGuard untracked;
      first.mul_(100.0);
    }
    run.use(std::move(network));
    run.add(prune);
    run.step(10);
    CHECK(first.count_nonzero().item<std::int64_t>() + second.count_nonzero().item<std::int64_t>() == 28);
    CHECK(second.count_nonzero().item<std::int64_t>() == (global ? 0 : 12));
  }
}

TEST_CASE("what cannot be replaced is said", "[doped]") {
  const auto said = [](const Table& options) {
    try {
      doped_of(layer(6, 4), options);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(said(test::table({{"target_cf", 20.0}})),
             Contains("\"*\"") && Contains("fc.weight stays as it is: it is 4 x 6"));
  CHECK_THAT(said(test::table({{"target_cf", 1.5}, {"layers", Value(std::vector<Value>{Value("fc9")})}})),
             Contains("\"fc9\" fits no linear or recurrent layer"));
  CHECK_THAT(said(test::table({{"target_cf", 20.0}, {"layers", Value(std::vector<Value>{Value("fc")})}})),
             Contains("target_cf = 20 leaves 1"));
}

TEST_CASE("silent rows: their mean is the sum, and outside of a step there are none", "[doped]") {
  at::manual_seed(4);
  testing::Made<Hook> hook(test::shipped_file("hook", "co_matrix"),
                           {{"p_sparse", 0.4}, {"p_structured", 0.2}, {"until", "2000ba"}});
  testing::TinyRun run({.steps = 4000, .lr = 0.0});
  run.use(doped_of(testing::tiny_network(testing::tiny_schema()), test::table({{"target_cf", 1.3}})));
  run.add(hook);
  run.step();
  const Network& network = run.network();
  const Tensors all = tensors_of(network);
  const std::vector<CoMatrix> terms = co_matrices(*network.graph());
  REQUIRE(terms.size() == 4);  // of fc1, then of fc2
  REQUIRE(terms[0].term == "fc1.weight.kron");
  const at::Tensor product =
      dense_kp(all.at("fc1.weight.kron.left"), all.at("fc1.weight.kron.right")).detach();
  const at::Tensor sparse = all.at("fc1.weight.sparse").detach();
  // What the graph makes of scales: rows of K and of S, apart from each other.
  const at::NoGradGuard untracked;
  at::Tensor weight;
  run.network().add_tap(&run, [&](const NodeActivity& node) {
    if (node.node == "fc1.weight") weight = node.outputs[0].detach().clone();
  });
  const Batch batch = testing::tiny_batch(testing::tiny_schema(), 2);
  terms[1].scales.zero_();
  run.network().forward(batch, {});
  CHECK(weight.equal(product));
  terms[1].scales.fill_(row_scale_one);

  std::vector<at::Tensor> drawn;
  std::set<std::string> patterns;
  for (int step = 1; step < 1500; ++step) {
    run.fire(Event::batch_start);
    run.network().forward(batch, {});
    drawn.push_back(weight);
    std::ostringstream pattern;
    pattern << terms[0].scales.ne(0).flatten() << terms[1].scales.ne(0).flatten();
    patterns.insert(pattern.str());
    run.fire(Event::batch_end);
    run.network().forward(batch, {});
    REQUIRE(at::allclose(weight, product + sparse, 1e-6, 1e-7));
    run.step();
  }
  CHECK(patterns.size() > 500);
  const at::Tensor all_drawn = at::stack(drawn);
  const at::Tensor error = all_drawn.std(0) / std::sqrt(static_cast<double>(drawn.size()));
  CHECK(((all_drawn.mean(0) - (product + sparse)).abs() / error).max().item<double>() <
        4.5);  // of 32 elements
  while (run.clock().step < 2000) run.step();
  run.fire(Event::batch_start);
  CHECK((terms[0].scales.eq(row_scale_one) & terms[1].scales.eq(row_scale_one)).all().item<bool>());
}

}  // namespace doped_test
