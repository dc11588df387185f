// The way back through a chain of nodes is that of autograd's engine, and is gone without it only where nobody would
// notice.
#include <catch2/catch.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "core/engine/train/backward.hpp"

namespace backward_tests {

namespace {

using trainyard::train::backward;

bool by_engine = false;

/// 3 x, which notes who calls it on the way back.
struct Threefold : torch::autograd::Function<Threefold> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 3; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    by_engine = torch::autograd::get_current_graph_task_id() != -1;
    CHECK(!at::GradMode::is_enabled());
    return {gradients[0] * 3};
  }
};

at::Tensor parameter() {
  return at::arange(4.0f).requires_grad_();
}
at::Tensor root(double value) {
  return at::full({}, value);
}

TEST_CASE("A chain is gone back without the engine, and gradients add up", "[backward]") {
  const at::Tensor x = parameter();
  for (const double times : {1.0, 2.0}) {
    backward(Threefold::apply(x).pow(2).sum(), root(0.5));
    CHECK_FALSE(by_engine);
    CHECK(at::allclose(x.grad(), times * 9.0 * x.detach()));
  }
}

TEST_CASE("A node that gives to several parameters ends a chain", "[backward]") {
  const at::Tensor x = parameter(), y = parameter();
  backward(Threefold::apply(x * y).sum(), root(1.0));
  CHECK_FALSE(by_engine);
  CHECK(at::equal(x.grad(), 3.0f * y.detach()));
  CHECK(at::equal(y.grad(), 3.0f * x.detach()));
}

TEST_CASE("A chain without parameters that want gradients is refused as ever", "[backward]") {
  CHECK_THROWS_WITH(backward(at::ones({}), root(1.0)), Catch::Contains("does not require grad"));
}

TEST_CASE("A graph that forks is the engine's", "[backward]") {
  const at::Tensor x = parameter();
  const at::Tensor middle = Threefold::apply(x);
  backward((middle * middle.exp()).sum(), root(1.0));
  CHECK(by_engine);
  const at::Tensor y = 3.0f * x.detach();
  CHECK(at::allclose(x.grad(), 3.0f * (y.exp() + y * y.exp())));
}

TEST_CASE("Who listens to a node or a gradient is told", "[backward]") {
  int told = 0;
  SECTION("a hook of an output") {
    const at::Tensor x = parameter();
    const at::Tensor output = Threefold::apply(x);
    output.register_hook([&](const at::Tensor& gradient) {
      ++told;
      return gradient * 2;
    });
    backward(output.sum(), root(1.0));
    CHECK(by_engine);
    CHECK(at::equal(x.grad(), at::full({4}, 6.0f)));
  }
  SECTION("a gradient that is kept") {
    const at::Tensor x = parameter();
    const at::Tensor output = Threefold::apply(x);
    output.retain_grad();
    backward(output.sum(), root(1.0));
    told = output.grad().defined() ? 1 : 0;
    CHECK(x.grad().defined());
  }
  SECTION("a hook of a parameter") {
    const at::Tensor x = parameter();
    x.register_hook([&](const at::Tensor& gradient) {
      ++told;
      return gradient * 2;
    });
    backward(Threefold::apply(x).sum(), root(1.0));
    CHECK(at::equal(x.grad(), at::full({4}, 6.0f)));
  }
  CHECK(told == 1);
}

TEST_CASE("A graph is gone back once", "[backward]") {
  const at::Tensor x = parameter();
  const at::Tensor loss = Threefold::apply(x).pow(2).sum();
  backward(loss, root(1.0));
  CHECK_THROWS_WITH(backward(loss, root(1.0)), Catch::Contains("second time"));
}

TEST_CASE("A gradient of another shape than what it is of is refused", "[backward]") {
  struct Wrong : torch::autograd::Function<Wrong> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.sum(); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list) {
      return {at::ones({5})};
    }
  };
  const at::Tensor x = parameter();
  CHECK_THROWS_WITH(backward(Wrong::apply(Threefold::apply(x)), root(1.0)), Catch::Contains("shape"));
}

}  // namespace

}  // namespace backward_tests
