// Twins of a network: the same weights, gradients and activations of their own.
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

namespace twin_tests {

using namespace trainyard;

namespace {

using Catch::Matchers::Contains;

GraphNetwork convolutional() {
  BatchSchema schema;
  schema.inputs = {{"image", {2, 6, 6}}};
  GraphBuilder b(schema, 3);
  ValueId x = b.relu(b.batch_norm(b.conv2d(b.input(), "conv", 4, {.padding = 1}), "bn"));
  x = b.tanh(b.linear(b.flatten(x), "fc1", 8));
  return GraphNetwork(b.finish(b.linear(x, "fc2", 3)));
}

Batch batch_of(at::Tensor x) {
  Batch batch;
  batch.inputs = {std::move(x)};
  return batch;
}

at::Tensor parameter(const Network& network, std::string_view name) {
  for (const NamedTensor& each : network.parameters())
    if (each.name == name) return each.tensor;
  throw std::logic_error("no parameter " + std::string(name));
}

/// What a pass and its backward leave.
struct Pass {
  at::Tensor output;
  std::vector<at::Tensor> gradients;

  bool operator==(const Pass& other) const {
    return at::equal(output, other.output) &&
           std::equal(gradients.begin(), gradients.end(), other.gradients.begin(), other.gradients.end(),
                      [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
  }
};

std::vector<at::Tensor> gradients(const Network& network) {
  std::vector<at::Tensor> result;
  for (const NamedTensor& each : network.parameters()) result.push_back(each.tensor.grad());
  return result;
}

void clear_gradients(const Network& network) {
  for (const NamedTensor& each : network.parameters()) each.tensor.mutable_grad().reset();
}

Pass run(Network& network, const at::Tensor& x) {
  clear_gradients(network);
  const at::Tensor y = network.forward(batch_of(x), {});
  y.square().sum().backward();
  return {y.detach(), gradients(network)};
}

class NoGraph final : public Network {
 public:
  at::Tensor forward(const Batch& batch, const ForwardContext&) override { return batch.input(); }
  std::vector<NamedTensor> parameters() const override { return {}; }
  std::vector<NamedTensor> buffers() const override { return {}; }
  std::vector<std::int64_t> output_shape() const override { return {}; }
  void to(at::Device) override {}
};

}  // namespace

TEST_CASE("a twin has tensors of its own on the storage of the network's", "[twin]") {
  GraphNetwork network = convolutional();
  const auto twin = network.twin();
  const auto shared = [](const std::vector<NamedTensor>& ours, const std::vector<NamedTensor>& theirs,
                         bool parameters) {
    REQUIRE(ours.size() == theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      CHECK(ours[i].name == theirs[i].name);
      CHECK_FALSE(ours[i].tensor.is_same(theirs[i].tensor));
      CHECK(ours[i].tensor.data_ptr() == theirs[i].tensor.data_ptr());
      CHECK(theirs[i].tensor.is_leaf());
      CHECK(theirs[i].tensor.requires_grad() == parameters);
    }
  };
  shared(network.parameters(), twin->parameters(), true);
  shared(network.buffers(), twin->buffers(), false);
  CHECK(twin->output_shape() == network.output_shape());

  const at::Tensor x = at::randn({5, 2, 6, 6});
  CHECK(at::equal(twin->forward(batch_of(x), {}), network.forward(batch_of(x), {})));
  const c10::NoGradGuard no_grad;
  parameter(network, "fc1.weight").add_(0.25);
  CHECK(at::equal(parameter(*twin, "fc1.weight"), parameter(network, "fc1.weight")));
  CHECK(at::equal(twin->forward(batch_of(x), {}), network.forward(batch_of(x), {})));
  const at::Tensor before = twin->buffers()[0].tensor.clone();
  network.forward(batch_of(x), {.training = true});
  CHECK_FALSE(at::equal(twin->buffers()[0].tensor, before));
}

TEST_CASE("a twin outlives the network, and has twins", "[twin]") {
  const at::Tensor x = at::randn({5, 2, 6, 6});
  std::unique_ptr<Network> last;
  at::Tensor expected;
  {
    GraphNetwork network = convolutional();
    expected = network.forward(batch_of(x), {}).detach();
    last = network.twin()->twin();
  }
  CHECK(at::equal(last->forward(batch_of(x), {}), expected));
}

TEST_CASE("gradients of network and twin are apart", "[twin]") {
  GraphNetwork network = convolutional();
  const auto twin = network.twin();
  const at::Tensor x = at::randn({5, 2, 6, 6}), other = at::randn({5, 2, 6, 6});
  const Pass alone = run(network, other);
  clear_gradients(network);

  const Pass of_twin = run(*twin, x);
  for (const at::Tensor& gradient : gradients(network)) CHECK_FALSE(gradient.defined());
  CHECK((run(network, other) == alone));
  CHECK_FALSE((run(network, other) == of_twin));
  CHECK((of_twin == Pass{of_twin.output, gradients(*twin)}));
  CHECK((run(network, x) == of_twin));
}

TEST_CASE("a twin has neither the taps nor the dropout of the network", "[twin]") {
  struct Dropped final : Dropout {
    void open(const DropoutPlaces&) override {}
    at::Tensor apply(const at::Tensor& x, std::size_t, const DropoutCall&) override { return x * 0; }
  } dropout;
  BatchSchema schema;
  schema.inputs = {{"x", {6}}};
  GraphBuilder b(schema, 3);
  GraphNetwork network(b.finish(b.dropout(b.linear(b.input(), "fc", 6), "drop")));
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 1);
  int seen = 0;
  network.add_tap(&seen, [&](const NodeActivity&) { ++seen; });
  const auto twin = network.twin();
  const Batch batch = batch_of(at::ones({2, 6}));
  CHECK(at::count_nonzero(twin->forward(batch, {.training = true})).item<std::int64_t>() == 12);
  CHECK(seen == 0);
  twin->set_dropout(&plan, 1);
  CHECK(at::count_nonzero(twin->forward(batch, {.training = true})).item<std::int64_t>() == 0);
}

TEST_CASE("network and twins on threads of their own give what they give in turn", "[twin]") {
  GraphNetwork network = convolutional();
  constexpr std::size_t count = 3, passes = 50;
  std::vector<std::unique_ptr<Network>> twins;
  for (std::size_t i = 0; i < count; ++i) twins.push_back(network.twin());
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < count * passes; ++i) inputs.push_back(at::randn({4, 2, 6, 6}));

  std::vector<Pass> serial, parallel(inputs.size());
  for (const at::Tensor& x : inputs) serial.push_back(run(network, x));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      for (std::size_t k = i; k < inputs.size(); k += count) parallel[k] = run(*twins[i], inputs[k]);
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t k = 0; k < inputs.size(); ++k) CHECK((serial[k] == parallel[k]));
}

TEST_CASE("an update between a twin's forward pass and its backward is taken as it is", "[twin]") {
  GraphNetwork network = convolutional();
  const at::Tensor x = at::randn({5, 2, 6, 6});
  const auto update = [&] {
    const c10::NoGradGuard no_grad;
    parameter(network, "fc2.weight").mul_(2.0);
  };
  const auto twin = network.twin();
  const at::Tensor y = twin->forward(batch_of(x), {});
  update();
  y.sum().backward();
  // d(sum y)/d(fc1.bias): through the tanh of before, by the weight of now.
  const at::Tensor now = parameter(*twin, "fc1.bias").grad().clone();
  clear_gradients(*twin);
  {
    const c10::NoGradGuard no_grad;
    parameter(network, "fc2.weight").div_(2.0);
  }
  twin->forward(batch_of(x), {}).sum().backward();
  CHECK(at::equal(now, parameter(*twin, "fc1.bias").grad() * 2.0));

  // The network itself notices.
  const at::Tensor own = network.forward(batch_of(x), {});
  update();
  CHECK_THROWS_WITH(own.sum().backward(), Contains("modified by an inplace operation"));
}

TEST_CASE("a network without a graph has no twin and no taps", "[twin]") {
  NoGraph network;
  CHECK_THROWS_AS(network.twin(), PluginError);
  CHECK_THROWS_WITH(network.twin(), Contains("the model has no graph"));
  CHECK_FALSE(network.add_tap(&network, [](const NodeActivity&) {}));
  CHECK_NOTHROW(network.remove_tap(&network));
}

}  // namespace twin_tests
