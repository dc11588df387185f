// Where somebody waits for gradients as they are made, a compiled pass hands them out while it is on its way back.
#include <torch/csrc/autograd/custom_function.h>  // first: it has a CHECK of its own

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "plugins/executor/compiled/plan.hpp"
#include "tests/plugins/compiled_networks.hpp"

namespace stretches_tests {

namespace {

using namespace trainyard;
using namespace trainyard::test;
using compiled::Plan;
using compiled::PlanKey;

constexpr std::int64_t width = 8;

/// Four layers behind each other, with biases.
Graph layers() {
  GraphBuilder b(schema_of({width}), 3);
  ValueId x = b.input();
  for (const char* name : {"a", "b", "c", "d"}) x = b.tanh(b.linear(x, name, width));
  return b.finish(x);
}

struct Pass {
  explicit Pass(std::size_t message = 1)
      : network(layers()),
        plan(std::make_shared<Plan>(network, PlanKey{.inputs = {{5, width}}},
                                    compiled::Choices{.message = message})) {}
  at::Tensor forward() { return plan->forward(batch_of(x), training).sum(); }
  at::Tensor weight(std::size_t layer) const { return network.parameters()[2 * layer].tensor; }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const NamedTensor& each : network.parameters()) all.push_back(each.tensor.grad());
    return all;
  }
  void clear() {
    for (const NamedTensor& each : network.parameters()) at::Tensor(each.tensor).mutable_grad().reset();
  }

  GraphNetwork network;
  std::shared_ptr<Plan> plan;
  at::Tensor x = several({5, width})[0];
};

/// Of a pass for which nobody waits.
std::vector<at::Tensor> expected() {
  Pass alone;
  alone.forward().backward();
  return alone.gradients();
}

void check_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    REQUIRE(found[i].defined());
    CHECK(found[i].equal(expected[i]));
  }
}

std::size_t nodes_of(const at::Tensor& output) {
  std::size_t count = 0;
  for (const torch::autograd::Node* node = output.grad_fn().get(); node != nullptr;) {
    if (node->name() == "CompiledStep") ++count;
    const torch::autograd::edge_list& edges = node->next_edges();
    node = nullptr;
    for (const torch::autograd::Edge& edge : edges)
      if (edge.is_valid() && edge.function->name().find("AccumulateGrad") == std::string::npos)
        node = edge.function.get();
  }
  return count;
}

}  // namespace

TEST_CASE("Compiled gradients come while those of earlier layers are still to be computed", "[compiled]") {
  Pass it;
  std::vector<std::size_t> order;
  std::vector<std::size_t> there;  // gradients, by the time that one comes
  const Listener listener(it.network, [&](std::size_t parameter) {
    order.push_back(parameter);
    const std::vector<at::Tensor> all = it.gradients();
    there.push_back(static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const at::Tensor& each) { return each.defined(); })));
    // From here on the third layer gives nothing to those ahead of it.
    if (order.size() == 1) it.weight(2).detach().zero_();
    CHECK(it.plan->is_busy() == (order.size() <= 6));
  });
  it.forward().backward();
  REQUIRE(order.size() == 8);
  for (std::size_t i = 0; i < order.size(); ++i) {
    CHECK(order[i] / 2 == 3 - i / 2);
    CHECK(there[i] == i + 1);
  }
  const std::vector<at::Tensor> found = it.gradients(), alone = expected();
  for (const std::size_t i : {4, 5, 6, 7}) CHECK(found[i].equal(alone[i]));
  for (const std::size_t i : {0, 1, 2, 3}) CHECK(found[i].abs().max().item<double>() == 0.0);
}

TEST_CASE("A compiled pass is one node where nobody waits, or where all gradients are less than a message",
          "[compiled]") {
  const std::size_t layer = (width + 1) * width * sizeof(float);
  const auto nodes = [](std::size_t message, bool waits) {
    Pass it(message);
    std::optional<Listener> listener;
    if (waits) listener.emplace(it.network, [](std::size_t) {});
    return nodes_of(it.forward());
  };
  CHECK(nodes(1, false) == 1);
  CHECK(nodes(1, true) == 4);
  CHECK(nodes(layer, true) == 4);
  CHECK(nodes(layer + 1, true) == 2);
  CHECK(nodes(3 * layer, true) == 2);
  CHECK(nodes(4 * layer, true) == 1);
  CHECK(nodes(std::size_t{1} << 20, true) == 1);
}

TEST_CASE("Compiled gradients of several passes add up as they are handed out", "[compiled]") {
  Pass it, other;
  std::size_t told = 0;
  const Listener listener(it.network, [&](std::size_t) { ++told; });
  for (int i = 0; i < 3; ++i) {
    it.forward().backward();
    other.forward().backward();
  }
  CHECK(told == 3 * 8);
  check_equal(it.gradients(), other.gradients());
}

TEST_CASE("A compiled way back that ends in an error is let go, and the next pass is whole", "[compiled]") {
  Pass it;
  for (std::size_t at = 1; at <= 8; ++at) {
    std::size_t told = 0;
    {
      const Listener listener(it.network, [&](std::size_t) {
        if (++told == at) throw std::runtime_error("no more");
      });
      const at::Tensor output = it.forward();
      CHECK_THROWS_WITH(output.backward(), "no more");
      CHECK(it.plan->is_busy() == (at <= 6));
      CHECK_THROWS_WITH(output.backward(), Catch::Contains("backward twice"));
    }
    CHECK_FALSE(it.plan->is_busy());
    it.clear();
    const Listener listener(it.network, [](std::size_t) {});
    it.forward().backward();
    check_equal(it.gradients(), expected());
    it.clear();
  }
}

TEST_CASE("A compiled way back has its batch to the end, which nobody else need have", "[compiled]") {
  Pass it;
  it.x = it.x.t().contiguous().t();  // the plan has a copy in order
  std::vector<at::Tensor> taken;
  const Listener listener(it.network, [&](std::size_t) { taken.push_back(at::ones_like(it.x)); });
  it.forward().backward();
  check_equal(it.gradients(), expected());
}

TEST_CASE("Gradients of gradients and a second way back are refused where somebody waits", "[compiled]") {
  Pass it;
  const Listener listener(it.network, [](std::size_t) {});
  CHECK_THROWS_WITH(it.forward().backward({}, true, true), Catch::Contains("gradients of gradients"));
  const at::Tensor again = it.forward();
  again.backward({}, true);
  CHECK_FALSE(it.plan->is_busy());
  CHECK_THROWS_WITH(again.backward(), Catch::Contains("backward twice"));
}

TEST_CASE("A way back that nobody needs to its end keeps a compiled pass until its output is gone",
          "[compiled]") {
  Pass it;
  const Listener listener(it.network, [](std::size_t) {});
  {
    const at::Tensor output = it.forward();
    const at::Tensor found = torch::autograd::grad({output}, {it.weight(3)})[0];
    CHECK(found.equal(expected()[6]));
    CHECK(it.plan->is_busy());
    CHECK_THROWS_WITH(torch::autograd::grad({output}, {it.weight(0)}), Catch::Contains("backward twice"));
  }
  CHECK_FALSE(it.plan->is_busy());
  CHECK(torch::autograd::grad({it.forward()}, {it.weight(0)})[0].equal(expected()[0]));
  CHECK_FALSE(it.plan->is_busy());
}

namespace {

/// Its output goes nowhere.
struct Stop : torch::autograd::Function<Stop> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    return {at::Tensor()};
  }
};

}  // namespace

TEST_CASE("Where no gradient comes back to a compiled pass none is made", "[compiled]") {
  for (const bool waits : {false, true}) {
    Pass it;
    std::size_t told = 0;
    std::optional<Listener> listener;
    if (waits) listener.emplace(it.network, [&](std::size_t) { ++told; });
    Stop::apply(it.forward()).backward();
    CHECK(told == (waits ? 8 : 0));  // as LibTorch tells of every network
    for (const at::Tensor& each : it.gradients()) CHECK_FALSE(each.defined());
    CHECK_FALSE(it.plan->is_busy());
  }
}

}  // namespace stretches_tests
