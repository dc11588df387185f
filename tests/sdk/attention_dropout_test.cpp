// Dropout on the weights of attention, against the formula in explicit operations.
#include <cmath>
#include <functional>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/dropout.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

namespace attention_dropout_tests {

using namespace trainyard;

namespace {

/// Makes of the weights what it is told.
class Fake final : public Dropout {
 public:
  explicit Fake(std::function<at::Tensor(const at::Tensor&)> act) : act_(std::move(act)) {
    common.sites = {"*_weights"};
  }
  void open(const DropoutPlaces&) override {}
  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall&) override {
    ++calls;
    last_site = site;
    return act_(x);
  }
  int calls = 0;
  std::size_t last_site = 99;

 private:
  std::function<at::Tensor(const at::Tensor&)> act_;
};

/// Attention of q [4, 12], k [5, 12 or fewer], v [5, 16 or fewer].
struct Case {
  const char* what;
  std::int64_t key_heads = 4, key_time = 5;
  bool causal = false;
  double scale = 0.0;
  at::Tensor mask = {};
};
constexpr std::int64_t heads = 4, samples = 3, query_time = 4, width = 3, value_width = 4;

GraphNetwork network_of(const Case& c) {
  BatchSchema schema;
  schema.inputs = {{"q", {query_time, heads * width}},
                   {"k", {c.key_time, c.key_heads * width}},
                   {"v", {c.key_time, c.key_heads * value_width}}};
  GraphBuilder b(schema, 0);
  std::vector<ValueId> inputs = {b.dropout(b.input(0), "in", 2), b.input(1), b.input(2)};
  if (c.mask.defined()) inputs.push_back(b.constant("mask", c.mask));
  return GraphNetwork(b.finish(b.node("Attention", "attn", inputs,
                                      {{"q_num_heads", heads},
                                       {"kv_num_heads", c.key_heads},
                                       {"is_causal", std::int64_t{c.causal}},
                                       {"scale", c.scale}})));
}

std::vector<at::Tensor> inputs_of(const Case& c) {
  at::manual_seed(4);
  std::vector<at::Tensor> result = {at::randn({samples, query_time, heads * width}),
                                    at::randn({samples, c.key_time, c.key_heads * width}),
                                    at::randn({samples, c.key_time, c.key_heads * value_width})};
  for (at::Tensor& each : result) each.set_requires_grad(true);
  return result;
}

/// The output, and the gradients of the sum of its squares with respect to q, k and v.
std::vector<at::Tensor> with_gradients(const Case& c, const std::function<at::Tensor(Batch)>& output) {
  Batch batch;
  batch.inputs = inputs_of(c);
  std::vector<at::Tensor> result = {output(batch)};
  result[0].square().sum().backward();
  for (const at::Tensor& input : batch.inputs) result.push_back(input.grad());
  return result;
}

/// One query of one head at a time.
at::Tensor by_definition(const Case& c, const std::vector<at::Tensor>& in, const at::Tensor& factors) {
  const double scale = c.scale == 0.0 ? 1.0 / std::sqrt(static_cast<double>(width)) : c.scale;
  std::vector<at::Tensor> rows;
  for (std::int64_t sample = 0; sample < samples; ++sample)
    for (std::int64_t time = 0; time < query_time; ++time)
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t of_key = head * c.key_heads / heads;
        const at::Tensor q = in[0][sample][time].narrow(0, head * width, width);
        const at::Tensor k = in[1][sample].narrow(1, of_key * width, width);
        const at::Tensor v = in[2][sample].narrow(1, of_key * value_width, value_width);
        at::Tensor scores = at::mv(k, q) * scale;
        if (c.causal) scores = scores.narrow(0, 0, time + 1);
        if (c.mask.defined() && c.mask.scalar_type() == at::kBool)
          scores = at::where(c.mask[time], scores, at::full({}, -INFINITY));
        else if (c.mask.defined())
          scores = scores + c.mask[time];
        const at::Tensor weights =
            at::softmax(scores, 0) * factors[sample][head][time].narrow(0, 0, scores.size(0));
        rows.push_back(at::mv(v.narrow(0, 0, scores.size(0)).t(), weights));
      }
  return at::stack(rows).view({samples, query_time, heads * value_width});
}

std::vector<Case> cases() {
  at::manual_seed(5);
  at::Tensor seen = at::rand({query_time, 5}).gt(0.4);
  seen.select(1, 2).fill_(true);
  return {{.what = "plain"},
          {.what = "causal", .key_time = query_time, .causal = true, .scale = 0.3},
          {.what = "causal, more keys than queries", .causal = true},
          {.what = "bias", .mask = at::randn({query_time, 5})},
          {.what = "keys that are not seen", .mask = seen},
          {.what = "two key heads", .key_heads = 2, .key_time = query_time, .causal = true}};
}

}  // namespace

TEST_CASE("dropout multiplies the weights of attention, after the softmax", "[dropout][attention]") {
  for (const Case& c : cases()) {
    INFO(c.what);
    GraphNetwork network = network_of(c);
    const at::Tensor factors = at::rand({samples, heads, query_time, c.key_time}).gt(0.5) * 2.0f;
    Fake dropout([&](const at::Tensor& weights) {
      REQUIRE(weights.sizes() == factors.sizes());
      CHECK(at::allclose(weights.sum(-1), at::ones({samples, heads, query_time})));
      return weights * factors;
    });
    const DropoutPlan plan(dropout, network.dropout_places(), {});
    network.set_dropout(&plan, 0);
    const auto found =
        with_gradients(c, [&](const Batch& batch) { return network.forward(batch, {.training = true}); });
    CHECK(dropout.calls == 1);
    CHECK(dropout.last_site == 1);
    const auto expected =
        with_gradients(c, [&](const Batch& batch) { return by_definition(c, batch.inputs, factors); });
    for (std::size_t i = 0; i < 4; ++i) CHECK(at::allclose(found[i], expected[i], 1e-5, 1e-5));
  }
}

TEST_CASE("where it drops nothing it is the fused attention; evaluations are, to the bit",
          "[dropout][attention]") {
  for (const Case& c : cases()) {
    INFO(c.what);
    GraphNetwork network = network_of(c);
    const auto pass = [&](const ForwardContext& context) {
      return with_gradients(c, [&](const Batch& batch) { return network.forward(batch, context); });
    };
    const auto plain = pass({.training = true});
    Fake dropout([](const at::Tensor& weights) { return weights; });
    const DropoutPlan plan(dropout, network.dropout_places(), {});
    network.set_dropout(&plan, 0);
    const auto found = pass({.training = true});
    CHECK(dropout.calls == 1);
    for (std::size_t i = 0; i < 4; ++i) CHECK(at::allclose(found[i], plain[i], 1e-5, 1e-5));
    CHECK(at::equal(pass({})[0], plain[0]));
    CHECK(dropout.calls == 1);
    pass({.sampling = true});
    CHECK(dropout.calls == 2);
    dropout.common.sites = {"in"};
    const DropoutPlan elsewhere(dropout, network.dropout_places(), {});
    network.set_dropout(&elsewhere, 0);
    CHECK(at::equal(pass({.training = true})[0], plain[0]));
    CHECK(dropout.last_site == 0);
  }
}

TEST_CASE("queries that see nothing attend to nothing, as in the fused attention", "[dropout][attention]") {
  at::Tensor mask = at::ones({query_time, 5}, at::kBool);
  mask.select(0, 1).fill_(false);
  const Case c{.what = "blind", .mask = mask};
  GraphNetwork network = network_of(c);
  Fake dropout([](const at::Tensor& weights) { return weights; });
  const auto pass = [&] {
    return with_gradients(c, [&](const Batch& batch) { return network.forward(batch, {.training = true}); });
  };
  const auto plain = pass();
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 0);
  const auto found = pass();
  CHECK(at::equal(found[0].select(1, 1), at::zeros({samples, heads * value_width})));
  for (std::size_t i = 0; i < 4; ++i) CHECK(at::allclose(found[i], plain[i], 1e-5, 1e-5));
}

}  // namespace attention_dropout_tests
