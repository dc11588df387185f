// Multi-sample dropout against one pass for each mask.
#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/dropout.hpp>
#include <trainyard/error.hpp>
#include <trainyard/model.hpp>

#include "tests/support/plugin.hpp"

namespace multi_sample_tests {

using namespace trainyard;

namespace {

using Catch::Matchers::Contains;

const RandomStream stream(17, "dropout/site");

/// The loop's place around the plugin.
struct Around final : StepContext {
  Around(const Table& options, const DropoutPlaces& places) : dropout("multi_sample", options) {
    dropout.plugin().open(places);
    batch_ = &batch;
    caller_ = &caller;
  }
  void fire(Event event) {
    event_ = event;
    dropout.fire(*this);
  }

  Batch batch;
  Caller caller{"model.dropout", Region::batch};
  test::Subscribed<Dropout> dropout;
};

DropoutPlaces one_site(std::int64_t width) {
  return {.sites = {{.id = "head", .width = width, .head = true}}};
}

}  // namespace

TEST_CASE("multi-sample: loss and gradients are the means over the masks, of one pass", "[multi_sample]") {
  const std::int64_t samples = 4, rows = 6, width = 8, classes = 3;
  Around run(test::table({{"samples", samples}, {"p", 0.5}}), one_site(width));
  const at::Tensor features = at::randn({rows, width}).requires_grad_(),
                   weight = at::randn({classes, width}).requires_grad_(),
                   target = at::randint(classes, {rows}, at::kLong);
  run.batch = {.inputs = {at::zeros({rows, 2})},
               .target = target,
               .indices = {0, 1, 2, 3, 4, 5},
               .weight = static_cast<double>(rows)};
  run.fire(Event::micro_start);
  const at::Tensor dropped = run.dropout.plugin().apply(features, 0, {0.5, stream, {.training = true}});
  REQUIRE(dropped.sizes() == at::IntArrayRef({samples * rows, width}));
  run.fire(Event::before_loss);
  CHECK(at::equal(run.batch.target, target.repeat({samples})));
  CHECK(run.batch.size() == samples * rows);
  CHECK(run.batch.indices[7] == 1);
  CHECK(run.batch.weight == static_cast<double>(rows));  // the items of the data: its share in the step stays
  const at::Tensor loss = at::cross_entropy_loss(at::linear(dropped, weight), run.batch.target);
  loss.backward();
  run.fire(Event::micro_end);
  CHECK(run.batch.target.is_same(target));
  CHECK(run.batch.size() == rows);

  // The masks, as what is left of ones; each mask in a pass of its own.
  const at::Tensor masks = run.dropout.plugin()
                               .apply(at::ones({rows, width}), 0, {0.5, stream, {.training = true}})
                               .chunk(samples)[0];
  const auto all = dropped.detach().div(features.detach().repeat({samples, 1})).chunk(samples);
  CHECK(at::allclose(all[0], masks));
  CHECK_FALSE(at::allclose(all[0], all[1]));
  const at::Tensor x = features.detach().clone().requires_grad_(),
                   w = weight.detach().clone().requires_grad_();
  at::Tensor mean = at::zeros({});
  for (const at::Tensor& mask : all)
    mean = mean + at::cross_entropy_loss(at::linear(x * mask, w), target) / static_cast<double>(samples);
  mean.backward();
  CHECK(at::allclose(loss, mean, 1e-6, 1e-6));
  CHECK(at::allclose(features.grad(), x.grad(), 1e-5, 1e-6));
  CHECK(at::allclose(weight.grad(), w.grad(), 1e-5, 1e-6));
}

TEST_CASE("multi-sample: the batch stays where nothing was dropped, and samples of evaluations are single",
          "[multi_sample]") {
  Around run(test::table({{"samples", 3}}), one_site(8));
  const at::Tensor target = at::zeros({5}, at::kLong);
  run.batch = {.inputs = {at::zeros({5, 2})}, .target = target, .indices = {0, 1, 2, 3, 4}};
  run.fire(Event::before_loss);  // early dropout, after its cutoff
  CHECK(run.batch.target.is_same(target));
  CHECK(run.dropout.plugin().apply(at::ones({5, 8}), 0, {0.5, stream, {.sampling = true}}).size(0) == 5);
  run.fire(Event::before_loss);
  CHECK(run.batch.target.is_same(target));
  run.fire(Event::micro_end);
  CHECK(run.batch.target.is_same(target));
}

TEST_CASE("multi-sample: in a network the copies begin at the last site; branches are refused",
          "[multi_sample]") {
  BatchSchema schema;
  schema.inputs = {{"x", {6}}};
  schema.classes = 3;
  const auto network =
      test::make<Model>("mlp", test::table({{"layers", std::vector<Value>{6, 8, 8, 3}}}))->build({schema, 1});
  const auto dropout = test::make<Dropout>("multi_sample", test::table({{"samples", 5}, {"p", 0.3}}));
  const DropoutPlan plan(*dropout, network->dropout_places(), {});
  const Batch batch{.inputs = {at::randn({4, 6})}};
  const at::Tensor plain = network->forward(batch, {});
  network->set_dropout(&plan, 3);
  std::map<std::string, std::int64_t> rows;
  network->add_tap(network.get(), [&](const NodeActivity& activity) {
    rows[std::string(activity.node)] = activity.outputs.front().size(0);
  });
  CHECK(network->forward(batch, {.training = true}).size(0) == 20);
  CHECK(rows["fc1.dropout"] == 4);
  CHECK(rows["fc2"] == 4);
  CHECK(rows["fc2.dropout"] == 20);
  CHECK(network->forward(batch, {.sampling = true}).size(0) == 4);
  CHECK(at::equal(network->forward(batch, {}), plain));

  // Rate and scale of all masks, and of the other site.
  for (const std::size_t site : {0u, 1u}) {
    const at::Tensor y =
        dropout->apply(at::ones({4000, 8}, at::kDouble), site, {0.3, stream, {.training = true}});
    const auto n = static_cast<double>(y.numel());
    CHECK(y.max().item<double>() == Approx(1 / 0.7).epsilon(1e-6));
    CHECK(std::abs(y.ne(0).to(at::kDouble).mean().item<double>() - 0.7) < 4 * std::sqrt(0.21 / n));
  }

  const auto branch = test::make<Dropout>("multi_sample", {});
  CHECK_THROWS_WITH(branch->open({.sites = {{.id = "in", .head = true}, {.id = "branch"}}}),
                    Contains("\"branch\"") && Contains("model.dropout.sites"));
}

}  // namespace multi_sample_tests
