// Operations over the edges of a block against LibTorch's own, with gradients, and over any number of
// threads: compiled with OpenMP, as the models are.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <catch2/catch.hpp>

#include "plugins/model/segments.hpp"

namespace segments_tests {

using namespace models;
using Catch::Contains;

namespace {

at::Tensor longs(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

/// Targets of 0 to 5 edges, edges that are there twice, and a target of 60.
EdgesPtr random_edges(std::int64_t targets = 40, std::int64_t sources = 70) {
  std::vector<std::int64_t> rowptr = {0}, col;
  for (std::int64_t t = 0; t < targets; ++t) {
    const std::int64_t count = t == 7 ? 60 : at::randint(6, {1}).item<std::int64_t>();
    for (std::int64_t i = 0; i < count; ++i)
      col.push_back(i == 2 ? col.back() : at::randint(sources, {1}).item<std::int64_t>());
    rowptr.push_back(static_cast<std::int64_t>(col.size()));
  }
  return std::make_shared<Edges>(Block{longs(rowptr), longs(col), sources});
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// Results and gradients of all inputs, for random weights on the results.
std::vector<Tensor> results(const Function& f, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& each : inputs) leaves.push_back(each.detach().requires_grad_());
  const Tensor y = f(leaves);
  const Tensor weights = at::arange(y.numel(), y.options()).sin_().view(y.sizes());
  std::vector<Tensor> all = torch::autograd::grad({y.mul(weights).sum()}, leaves);
  all.push_back(y.detach());
  return all;
}

void check_same(const Function& ours, const Function& theirs, const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> found = results(ours, inputs), expected = results(theirs, inputs);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("gradient or, last, result " << i);
    REQUIRE(found[i].sizes() == expected[i].sizes());
    CHECK(found[i].scalar_type() == expected[i].scalar_type());
    const bool wide = found[i].scalar_type() == at::kDouble;
    CHECK(at::allclose(found[i], expected[i], wide ? 1e-10 : 1e-4, wide ? 1e-12 : 1e-5));
  }
}

/// Every operation, with the one that LibTorch's operators make and inputs of its shapes.
struct Operation {
  const char* name;
  Function ours, theirs;
  std::vector<Tensor> inputs;
};

std::vector<Operation> operations(const EdgesPtr& edges, std::int64_t width, at::ScalarType type) {
  const auto randn = [&](std::vector<std::int64_t> shape) { return at::randn(shape, type); };
  const auto of_col = [edges](const Tensor& x) { return x.index_select(0, edges->col()); };
  const Tensor x = randn({edges->sources(), width});
  const Tensor heads = randn({edges->sources(), 3, width}), scores = randn({edges->count(), 3});
  return {
      {"sum",
       [=](auto& in) { return sum_neighbours(in[0], edges); },
       [=](auto& in) { return plain::sum(of_col(in[0]), *edges); },
       {x}},
      {"mean",
       [=](auto& in) { return mean_neighbours(in[0], edges); },
       [=](auto& in) {
         const Tensor count = edges->degrees().clamp_min(1).unsqueeze(1);
         return plain::sum(of_col(in[0]), *edges).div(count);
       },
       {x}},
      {"max",
       [=](auto& in) { return max_neighbours(in[0], edges); },
       [=](auto& in) { return plain::maximum(of_col(in[0]), *edges); },
       {x}},
      {"weighted sum",
       [=](auto& in) { return weighted_sum(in[0], in[1], edges); },
       [=](auto& in) { return plain::sum(of_col(in[1]).mul(in[0].unsqueeze(2)), *edges); },
       {scores, heads}},
      {"ends",
       [=](auto& in) { return add_ends(in[0], in[1], edges); },
       [=](auto& in) { return of_col(in[0]).add(in[1].index_select(0, edges->target())); },
       {randn({edges->sources(), 3}), randn({edges->targets(), 3})}},
      {"softmax",
       [=](auto& in) { return edge_softmax(in[0], edges); },
       [=](auto& in) { return plain::softmax(in[0], *edges); },
       {scores}},
  };
}

/// LibTorch's threads, back as they were.
struct Threads {
  explicit Threads(int threads) { at::set_num_threads(threads); }
  ~Threads() { at::set_num_threads(before); }
  int before = at::get_num_threads();
};

Tensor dense(const Edges& edges) {
  const Tensor a = at::zeros({edges.targets(), edges.sources()}, at::kDouble);
  for (std::int64_t t = 0; t < edges.targets(); ++t)
    for (std::int64_t e = edges.rowptr()[t].item<std::int64_t>();
         e < edges.rowptr()[t + 1].item<std::int64_t>(); ++e)
      a[t][edges.col()[e].item<std::int64_t>()] += 1;
  return a;
}

}  // namespace

TEST_CASE("operations over edges are LibTorch's, and so are their gradients", "[segments]") {
  at::manual_seed(1);
  for (const std::int64_t width : {1, 3, 16, 100, 127, 513})
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      for (const Operation& each : operations(random_edges(), width, type)) {
        INFO(each.name << ", width " << width << ", " << type);
        check_same(each.ours, each.theirs, each.inputs);
      }
}

TEST_CASE("sums and means are products with the dense matrix", "[segments]") {
  at::manual_seed(2);
  const EdgesPtr edges = random_edges();
  const Tensor a = dense(*edges), x = at::randn({70, 12}, at::kDouble);
  CHECK(at::allclose(sum_neighbours(x, edges), a.mm(x)));
  CHECK(at::allclose(mean_neighbours(x, edges), a.mm(x) / a.sum(1, true).clamp_min(1)));
  // Weights of a softmax add up to one wherever there are edges.
  const Tensor ones = at::ones({70, 2, 1}, at::kDouble);
  const Tensor sums =
      weighted_sum(edge_softmax(at::randn({edges->count(), 2}, at::kDouble), edges), ones, edges);
  CHECK(at::allclose(sums.squeeze(2), a.sum(1, true).gt(0).to(at::kDouble).expand({40, 2})));
}

TEST_CASE("operations work on no edges, one node, and targets without edges", "[segments]") {
  const auto block = [](std::vector<std::int64_t> rowptr, std::vector<std::int64_t> col,
                        std::int64_t sources) {
    return std::make_shared<Edges>(Block{longs(rowptr), longs(col), sources});
  };
  for (const EdgesPtr& edges : {block({0, 0}, {}, 1), block({0, 0, 0, 0}, {}, 5), block({0, 1}, {0}, 1),
                                block({0, 3}, {0, 0, 0}, 1), block({0, 0, 2, 2}, {2, 4}, 5)})
    for (const Operation& each : operations(edges, 5, at::kDouble)) {
      INFO(each.name << " of " << edges->count() << " edges");
      check_same(each.ours, each.theirs, each.inputs);
    }
  // Of edges that tie, the first has the gradient.
  const EdgesPtr tied = block({0, 3}, {1, 0, 1}, 2);
  const Tensor x = at::ones({2, 1}).requires_grad_();
  max_neighbours(x, tied).sum().backward();
  CHECK(x.grad()[1].item<float>() == 1.0f);
  CHECK(x.grad()[0].item<float>() == 0.0f);
}

TEST_CASE("operations give the same bits whatever the threads", "[segments]") {
  at::manual_seed(3);
  const EdgesPtr edges = random_edges(500, 900);
  for (const Operation& each : operations(edges, 33, at::kFloat)) {
    INFO(each.name);
    const Threads one(1);
    const std::vector<Tensor> expected = results(each.ours, each.inputs);
    for (const int threads : {2, 3, 7}) {
      const Threads several(threads);
      const std::vector<Tensor> found = results(each.ours, each.inputs);
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], expected[i]));
    }
  }
}

TEST_CASE("numbers of half precision are added up in float", "[segments]") {
  at::manual_seed(4);
  const EdgesPtr edges = random_edges();
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const Tensor x = at::randn({70, 9}).to(type).requires_grad_();
    const Tensor y = sum_neighbours(x, edges);
    CHECK(y.scalar_type() == at::kFloat);
    CHECK(at::equal(y, sum_neighbours(x.detach().to(at::kFloat), edges)));
    y.sum().backward();
    CHECK(x.grad().scalar_type() == type);
  }
}

TEST_CASE("a block with loops has one more edge a target, from itself", "[segments]") {
  at::manual_seed(5);
  const EdgesPtr edges = random_edges();
  Edges& looped = *edges->with_self_loops();
  CHECK(looped.count() == edges->count() + 40);
  CHECK(at::equal(dense(looped), dense(*edges) + at::eye(40, 70, at::kDouble)));
  CHECK(edges->with_self_loops().get() == &looped);
}

TEST_CASE("what is not of the block's size is refused, and so is a second derivative", "[segments]") {
  at::manual_seed(6);
  const EdgesPtr edges = random_edges();
  CHECK_THROWS_AS(sum_neighbours(at::randn({69, 3}), edges), PluginError);
  CHECK_THROWS_WITH(sum_neighbours(at::randn({69, 3}), edges), Contains("69 rows") && Contains("70"));
  CHECK_THROWS_AS(edge_softmax(at::randn({edges->count() + 1, 3}), edges), PluginError);
  CHECK_THROWS_AS(add_ends(at::randn({70, 3}), at::randn({41, 3}), edges), PluginError);
  const Tensor x = at::randn({70, 3}).requires_grad_();
  const Tensor y = sum_neighbours(x, edges).square().sum();
  CHECK_THROWS_WITH(torch::autograd::grad({y}, {x}, {}, true, true), Contains("differentiated once"));
}

TEST_CASE("a block whose indices do not fit is refused with what was found", "[segments]") {
  const auto refused = [](std::vector<std::int64_t> rowptr, std::vector<std::int64_t> col,
                          std::int64_t sources, const auto& matcher) {
    const Block block{longs(rowptr), longs(col), sources};
    CHECK_THROWS_AS(Edges(block), DataError);
    CHECK_THROWS_WITH(Edges(block), matcher);
  };
  refused({0, 1, 2}, {0, 3}, 3, Contains("col[1] = 3") && Contains("[0, 3)"));
  refused({0, 1, 2}, {-1, 0}, 3, Contains("col[0] = -1"));
  refused({0, 2, 1}, {0, 0}, 3, Contains("rowptr[2] = 1 after 2"));
  refused({0, 1, 3}, {0, 0}, 3, Contains("from 0 to 3") && Contains("edges, 2"));
  refused({1, 1, 2}, {0, 0}, 3, Contains("from 1 to 2"));
  refused({0, 0, 0}, {}, 1, Contains("2 targets") && Contains("at most, 1"));
}

}  // namespace segments_tests
