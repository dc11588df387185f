// DropConnect's inference: the Gaussian of a unit's input against sums over masks.
#include <bit>
#include <cmath>
#include <list>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/dropout.hpp>
#include <trainyard/error.hpp>
#include <trainyard/model.hpp>

#include "tests/support/plugin.hpp"

namespace dropconnect_tests {

using namespace trainyard;

namespace {

using Catch::Matchers::Contains;

const RandomStream stream(17, "dropout/fc.weight");

std::unique_ptr<Dropout> dropconnect(double p, std::int64_t samples, const char* inference = "gaussian") {
  auto dropout = test::make<Dropout>("dropconnect",
                                     test::table({{"p", p}, {"inference", inference}, {"samples", samples}}));
  dropout->open({.weights = {{.id = "fc.weight", .linear = true}}});
  return dropout;
}

/// A layer of doubles, and what an evaluation makes of it.
struct Layer {
  Layer(std::int64_t in, std::int64_t out, std::int64_t rows)
      : x(at::randn({rows, in}, at::kDouble)),
        weight(at::randn({out, in}, at::kDouble)),
        bias(at::randn({out}, at::kDouble)) {}

  at::Tensor evaluate(Dropout& dropout, const EvaluatesLinears::Activation& activation,
                      const RandomStream& random = stream) const {
    return dropout.evaluates_linears()->evaluate_linear(x, weight, bias, activation, 0,
                                                        {dropout.common.p, random, {}});
  }
  /// Draws of the units' inputs, [samples, rows, out].
  at::Tensor draws(Dropout& dropout) const {
    std::vector<at::Tensor> seen;
    evaluate(dropout, [&](const at::Tensor& y) { return seen.emplace_back(y.clone()); });
    return at::stack(seen);
  }

  at::Tensor x, weight, bias;
};

/// The largest |mean over the first axis - expected| in standard errors.
double errors(const at::Tensor& values, const at::Tensor& expected) {
  const at::Tensor deviation = values.std(0) / std::sqrt(static_cast<double>(values.size(0)));
  return ((values.mean(0) - expected).abs() / deviation).max().item<double>();
}

/// E max(u, 0) of u ~ N(mean, deviation^2).
at::Tensor mean_relu(const at::Tensor& mean, const at::Tensor& deviation) {
  const at::Tensor z = mean / deviation;
  const at::Tensor density = (-z.square() / 2).exp() / std::sqrt(2 * M_PI);
  return mean * at::special_ndtr(z) + deviation * density;
}

}  // namespace

TEST_CASE("the Gaussian has the mean and variance of the sum over all masks", "[dropconnect]") {
  at::manual_seed(1);
  const std::int64_t in = 10, out = 3, rows = 4, samples = 5;
  const Layer layer(in, out, rows);
  for (const double p : {0.1, 0.5, 0.8}) {
    INFO(p);
    // 2^10 masks of a row of weights, which do not depend on those of another.
    at::Tensor mean = at::zeros({rows, out}, at::kDouble), squares = at::zeros_like(mean);
    for (unsigned bits = 0; bits < 1u << in; ++bits) {
      at::Tensor mask = at::zeros({in}, at::kDouble);
      for (std::int64_t i = 0; i < in; ++i) mask[i] = bits >> i & 1u ? 1.0 / (1.0 - p) : 0.0;
      const int kept = std::popcount(bits);
      const double chance = std::pow(1.0 - p, kept) * std::pow(p, static_cast<double>(in) - kept);
      const at::Tensor u = at::linear(layer.x, layer.weight * mask, layer.bias);
      mean += u * chance;
      squares += u.square() * chance;
    }
    const at::Tensor deviation = (squares - mean.square()).sqrt();
    const auto dropout = dropconnect(p, samples);
    const at::Tensor draws = layer.draws(*dropout);
    REQUIRE(draws.size(0) == samples);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      at::Tensor noise = at::empty({rows, out}, at::kDouble);
      fill_normal(noise, stream, 0.0, 1.0, static_cast<std::uint64_t>(sample * rows * out / 4));
      CHECK(at::allclose(draws[sample], mean + deviation * noise, 1e-6, 1e-6));
    }
  }
}

TEST_CASE("draws of masks and of the Gaussian have the same moments; activations are averaged",
          "[dropconnect]") {
  at::manual_seed(2);
  const Layer layer(400, 6, 3);
  const std::int64_t samples = 4000;
  for (const double p : {0.2, 0.5}) {
    INFO(p);
    const auto dropout = dropconnect(p, samples);
    const at::Tensor mean = at::linear(layer.x, layer.weight, layer.bias);
    const at::Tensor variance = at::linear(layer.x.square(), layer.weight.square()) * (p / (1.0 - p));
    std::vector<at::Tensor> masked;
    for (std::int64_t step = 0; step < samples; ++step)
      masked.push_back(at::linear(
          layer.x,
          dropout->masks_weights()->mask_weight(
              layer.weight, 0, {p, stream.at(static_cast<std::uint64_t>(step)), {.training = true}}),
          layer.bias));
    for (const at::Tensor& u : {at::stack(masked), layer.draws(*dropout)}) {
      CHECK(errors(u, mean) < 4);
      CHECK(errors((u - mean).square(), variance) < 4);
      CHECK(errors(at::relu(u), mean_relu(mean, variance.sqrt())) < 4);
    }
    const at::Tensor average = layer.evaluate(*dropout, [](const at::Tensor& y) { return at::relu(y); });
    CHECK(at::allclose(average, at::relu(layer.draws(*dropout)).mean(0), 1e-12, 1e-12));
    CHECK_FALSE(at::allclose(average, at::relu(mean), 1e-2, 1e-2));  // which mean weights give
  }
}

TEST_CASE("draws are those of the stream; types stay; nothing is drawn without an activation",
          "[dropconnect]") {
  const Layer layer(20, 8, 5);
  const auto dropout = dropconnect(0.5, 4), again = dropconnect(0.5, 4);
  const EvaluatesLinears::Activation relu = [](const at::Tensor& y) { return at::relu(y); };
  const at::Tensor y = layer.evaluate(*dropout, relu);
  CHECK(at::equal(y, layer.evaluate(*again, relu)));
  CHECK_FALSE(at::equal(y, layer.evaluate(*dropout, relu, stream.at(1))));
  CHECK_FALSE(at::equal(y, layer.evaluate(*dropout, relu, stream.at(0, 1))));
  CHECK(at::equal(layer.evaluate(*dropout, {}), at::linear(layer.x, layer.weight, layer.bias)));
  const auto as = [&](at::ScalarType type) {
    return dropout->evaluates_linears()->evaluate_linear(layer.x.to(type), layer.weight.to(type),
                                                         layer.bias.to(type), relu, 0, {0.5, stream, {}});
  };
  CHECK(as(at::kBFloat16).scalar_type() == at::kBFloat16);
  CHECK(at::allclose(as(at::kBFloat16).to(at::kDouble), y, 0.1, 0.1));
  CHECK(at::allclose(as(at::kFloat).to(at::kDouble), y, 1e-4, 1e-4));
}

TEST_CASE("in a network: masks in training and samples, the Gaussian in evaluations, the mean at the end",
          "[dropconnect]") {
  BatchSchema schema;
  schema.inputs = {{"x", {9}}};
  schema.classes = 3;
  const auto network =
      test::make<Model>("mlp",
                        test::table({{"layers", std::vector<Value>{9, 16, 3}}, {"activation", "tanh"}}))
          ->build({schema, 1});
  const Batch batch{.inputs = {at::randn({6, 9})}};
  const at::Tensor plain = network->forward(batch, {});
  std::list<DropoutPlan> plans;
  const auto serve = [&](const char* inference, std::int64_t samples) {
    auto dropout =
        test::make<Dropout>("dropconnect", test::table({{"inference", inference}, {"samples", samples}}));
    plans.emplace_back(*dropout, network->dropout_places(), RunScale{});
    network->set_dropout(&plans.back(), 3);
    return dropout;
  };
  const auto of_mean = serve("mean", 1);
  CHECK(at::equal(network->forward(batch, {}), plain));
  const at::Tensor trained = network->forward(batch, {.training = true}),
                   sampled = network->forward(batch, {.sampling = true});
  const auto of_gaussian = serve("gaussian", 20000);
  CHECK(at::equal(network->forward(batch, {.training = true}), trained));
  CHECK(at::equal(network->forward(batch, {.sampling = true}), sampled));

  std::vector<at::Tensor> weights;
  for (const NamedTensor& each : network->parameters())
    weights.push_back(each.tensor.detach().to(at::kDouble));
  const at::Tensor x = batch.input().to(at::kDouble), mean = at::linear(x, weights[0], weights[1]),
                   deviation = at::linear(x.square(), weights[0].square()).sqrt();  // p = 0.5
  at::Tensor hidden = at::zeros_like(mean);                                         // E tanh, by quadrature
  const double width = 0.01;
  for (double z = -8.0; z < 8.0; z += width)
    hidden += at::tanh(mean + deviation * z) * (std::exp(-z * z / 2) / std::sqrt(2 * M_PI) * width);
  const at::Tensor y = network->forward(batch, {});
  CHECK(at::allclose(y.to(at::kDouble), at::linear(hidden, weights[2], weights[3]), 0.0, 0.02));
  CHECK_FALSE(at::allclose(y, plain, 0.0, 0.02));
  CHECK(at::equal(y, network->forward(batch, {})));
  CHECK_FALSE(at::equal(y, network->forward(batch, {.micro = 1})));

  of_gaussian->common.when = "late";
  RunScale scale;
  scale.total_steps = 20;
  const DropoutPlan late(*of_gaussian, network->dropout_places(), scale);
  network->set_dropout(&late, 3);
  CHECK(at::equal(network->forward(batch, {.step = 9}), plain));
  CHECK_FALSE(at::equal(network->forward(batch, {.step = 10}), plain));
}

TEST_CASE("it is for linear layers", "[dropconnect]") {
  const auto open = [](const char* inference, bool linear, bool active) {
    test::make<Dropout>("dropconnect", test::table({{"inference", inference}}))
        ->open({.weights = {{.id = "lstm1.weight_hh", .linear = linear, .active = active}}});
  };
  CHECK_THROWS_WITH(open("gaussian", false, true),
                    Contains("model.dropout.inference") && Contains("\"lstm1.weight_hh\""));
  CHECK_NOTHROW(open("gaussian", true, true));
  CHECK_NOTHROW(open("gaussian", false, false));
  CHECK_NOTHROW(open("mean", false, true));
}

}  // namespace dropconnect_tests
