// Rules over single tensors: gradients, weights, activations.
#include <cmath>

#include <ATen/ATen.h>

#include "tests/support/rule_run.hpp"

namespace rule_tensors_tests {

using namespace trainyard;
using test::infinite;
using test::no_number;
using test::numbers;
using test::raw;
using test::Shown;
using test::steps;
using test::table;
using test::watch;

namespace {

using Steps = std::vector<std::int64_t>;

at::Tensor with(at::Tensor tensor, std::int64_t index, double value) {
  tensor.flatten()[index].fill_(value);
  return tensor;
}

/// One record of these tensors.
std::vector<Shown> once(std::vector<TensorRecord> tensors) {
  return {{.tensors = std::move(tensors)}};
}

}  // namespace

TEST_CASE("vanishing_gradient weighs every gradient by its mean |g|") {
  const std::vector<Shown> run = {
      {.tensors = {numbers("gradient/fc1.weight", at::full({4, 4}, 1e-3)),
                   numbers("gradient/fc2.weight", at::full({4, 4}, -3e-9)),
                   numbers("gradient/fc3.weight", at::zeros({4})), numbers("fc1.weight", at::zeros({4}))}}};
  const auto fired = watch("vanishing_gradient", {}, run);
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.tensors == std::vector<std::string>{"gradient/fc3.weight", "gradient/fc2.weight"});
  CHECK(test::evidence(fired[0].finding, "gradient/fc2.weight") == Approx(3e-9));
  CHECK(test::evidence(fired[0].finding, "threshold") == 1e-7);
  CHECK(fired[0].finding.message == "gradient/fc3.weight: mean |g| is 0, below 1e-07; and 1 other");

  const auto at_mean = [&](double mean) {
    return once({numbers("gradient/w", at::full({8}, mean, at::kDouble))});
  };
  CHECK(watch("vanishing_gradient", {}, at_mean(1e-7)).empty());
  CHECK(watch("vanishing_gradient", {}, at_mean(std::nextafter(1e-7, 0.0))).size() == 1);
  CHECK(watch("vanishing_gradient", table({{"threshold", 0.0}}), at_mean(0.0)).empty());
  // Signs do not cancel; NaN and the empty tensor vanish not.
  CHECK(watch("vanishing_gradient", {}, once({numbers("gradient/w", at::tensor({1.0, -1.0}))})).empty());
  CHECK(watch("vanishing_gradient", {}, once({numbers("gradient/w", at::full({2}, no_number))})).empty());
  CHECK(watch("vanishing_gradient", {}, once({numbers("gradient/w", at::zeros({0}))})).empty());
}

TEST_CASE("exploding_tensor finds one element among many, NaN or infinite") {
  const at::Tensor large = at::ones({10'000'000});
  CHECK(watch("exploding_tensor", {}, once({numbers("fc1.weight", large)})).empty());
  for (const double bad : {no_number, infinite, -infinite, infinite - infinite}) {
    const auto run =
        once({numbers("fc1.weight", with(large.clone(), 7'654'321, bad)),
              numbers("gradient/fc2.bias", at::ones({3})), numbers("loss_output_0", at::ones({}))});
    const auto fired = watch("exploding_tensor", {}, run);
    REQUIRE(fired.size() == 1);
    CHECK(fired[0].finding.tensors == std::vector<std::string>{"fc1.weight"});
    CHECK(test::evidence(fired[0].finding, "fc1.weight") == 1.0);
    CHECK(watch("exploding_tensor", table({{"only_nan", true}}), run).size() == (std::isnan(bad) ? 1 : 0));
  }
  // The worst is the one with the largest share.
  const auto fired = watch("exploding_tensor", {},
                           once({numbers("a.weight", with(at::ones({100}), 0, no_number)),
                                 numbers("loss_output_0", at::full({}, infinite))}));
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.tensors[0] == "loss_output_0");
  // Finite in the dtype that it has.
  CHECK(watch("exploding_tensor", {}, once({numbers("w.weight", at::full({4}, 6e4, at::kHalf))})).empty());
  CHECK(watch("exploding_tensor", {}, once({numbers("w.weight", at::full({4}, 7e4).to(at::kHalf))})).size() ==
        1);
}

TEST_CASE("all_zero counts zeros against its share") {
  at::Tensor half = at::ones({10});
  half.slice(0, 0, 5).zero_();
  const auto run = once({numbers("fc1.weight", at::zeros({3, 3})), numbers("fc2.weight", half),
                         numbers("fc1.bias", at::zeros({3}))});
  const auto fired = watch("all_zero", {}, run);
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.tensors == std::vector<std::string>{"fc1.weight"});
  CHECK(watch("all_zero", table({{"threshold", 50.0}}), run)[0].finding.tensors.size() == 2);
  CHECK(watch("all_zero", table({{"threshold", 50.1}}), run)[0].finding.tensors.size() == 1);
  CHECK(watch("all_zero", {}, once({numbers("a.weight", with(at::zeros({9}), 4, no_number))})).empty());
  CHECK(watch("all_zero", {}, once({numbers("a.weight", at::zeros({0}))})).empty());
}

TEST_CASE("tensor_variance has limits on both sides, and none by default") {
  const at::Tensor x = at::tensor({1.0, 2.0, 3.0, 4.0});  // 5/3, divided by n - 1
  const auto run = once({numbers("a.weight", x), numbers("b.weight", x.mul(10))});
  CHECK(watch("tensor_variance", {}, run).empty());
  const auto high = watch("tensor_variance", table({{"max_threshold", 1.6}}), run);
  REQUIRE(high.size() == 1);
  CHECK(high[0].finding.tensors == std::vector<std::string>{"b.weight", "a.weight"});
  CHECK(test::evidence(high[0].finding, "a.weight") == Approx(5.0 / 3));
  CHECK(watch("tensor_variance", table({{"max_threshold", 200.0}}), run).empty());
  const auto low = watch("tensor_variance", table({{"min_threshold", 2.0}}), run);
  REQUIRE(low.size() == 1);
  CHECK(low[0].finding.tensors == std::vector<std::string>{"a.weight"});
  CHECK(watch("tensor_variance", table({{"min_threshold", 1.0}, {"max_threshold", 1.0}}),
              once({numbers("a.weight", with(x.clone(), 0, no_number)), numbers("b.weight", at::ones({1}))}))
            .empty());
}

TEST_CASE("weight_update_ratio holds the mean update against the mean weight of the look before") {
  const at::Tensor w = at::full({10}, 2.0);
  const auto run = [&](const at::Tensor& next) {
    return std::vector<Shown>{
        {.tensors = {raw("fc1.weight", w), raw("fc2.weight", w)}},
        {.tensors = {raw("fc1.weight", next), raw("fc2.weight", w.add(0.01))}, .step = 7}};
  };
  const auto exploded = watch("weight_update_ratio", {}, run(w.add(30.0)));
  REQUIRE(exploded.size() == 1);
  CHECK(exploded[0].record == 1);
  CHECK(exploded[0].finding.tensors == std::vector<std::string>{"fc1.weight"});
  CHECK(test::evidence(exploded[0].finding, "fc1.weight") == Approx(15.0));
  CHECK(watch("weight_update_ratio", {}, run(w.add(19.0))).empty());
  CHECK(watch("weight_update_ratio", {}, run(w)).size() == 1);  // frozen
  CHECK(watch("weight_update_ratio", table({{"small_threshold", 0.0}}), run(w)).empty());
  CHECK(watch("weight_update_ratio", {}, run(with(w.clone(), 3, no_number))).empty());
  CHECK(watch("weight_update_ratio", {}, run(with(w.clone(), 3, infinite))).size() == 1);
  // epsilon keeps weights of 0 from an infinite ratio; with none it is that.
  const std::vector<Shown> from_zero = {{.tensors = {raw("a.weight", at::zeros({4}))}},
                                        {.tensors = {raw("a.weight", at::full({4}, 1e-9))}, .step = 1}};
  CHECK(watch("weight_update_ratio", {}, from_zero).empty());
  CHECK(watch("weight_update_ratio", table({{"epsilon", 0.0}}), from_zero).size() == 1);
  // Signs do not cancel.
  CHECK(watch("weight_update_ratio", table({{"small_threshold", 0.9}, {"large_threshold", 1.1}}),
              run(w.add(at::tensor({2.0, -2.0}).repeat(5))))
            .at(0)
            .finding.tensors == std::vector<std::string>{"fc2.weight"});
}

TEST_CASE("weight_update_ratio says what it lacks where only statistics were recorded, and is switched off") {
  test::RuleRun run("weight_update_ratio", {});
  for (int step = 0; step < 5; ++step)
    CHECK_FALSE(run.show({.tensors = {numbers("fc1.weight", at::ones({4}))}, .step = step}));
  REQUIRE(run.complaints.size() == 3);
  CHECK(run.complaints[2].find("switched off") != std::string::npos);
  CHECK(run.complaints[0].find("\"fc1.weight\" was recorded without its values") != std::string::npos);
}

TEST_CASE("a rule that works again between two failures is not switched off") {
  test::RuleRun run("weight_update_ratio", {});
  int step = 0;
  const auto show = [&](bool values, int times) {
    for (int i = 0; i < times; ++i, ++step)
      run.show({.tensors = {values ? raw("fc1.weight", at::full({4}, 1.0 + step))
                                   : numbers("fc1.weight", at::ones({4}))},
                .step = step});
  };
  show(false, 2);
  show(true, 2);
  show(false, 2);
  const std::size_t before = run.complaints.size();
  CHECK(before >= 4);
  for (const std::string& said : run.complaints) CHECK(said.find("switched off") == std::string::npos);
  show(false, 3);
  CHECK(run.complaints.back().find("3 times in a row and is switched off") != std::string::npos);
}

TEST_CASE("unchanged_tensor is silent to step 1 and fires at step 2") {
  const at::Tensor x = at::tensor({1.0, 2.0});
  const auto run = [](const std::vector<at::Tensor>& values) {
    std::vector<Shown> shown;
    for (std::size_t i = 0; i < values.size(); ++i)
      shown.push_back({.tensors = {raw("fc1.weight", values[i])}, .step = static_cast<std::int64_t>(i)});
    return shown;
  };
  CHECK(steps("unchanged_tensor", {}, run({x, x, x})) == Steps{2});
  CHECK(steps("unchanged_tensor", {}, run({x, x, x.add(1), x, x, x, x})) == Steps{5, 6});
  CHECK(steps("unchanged_tensor", table({{"num_steps", 2}}), run({x, x, x.add(1), x})) == Steps{1});
  CHECK(steps("unchanged_tensor", table({{"num_steps", 5}}), run({x, x, x, x, x})) == Steps{4});
  // Not by neighbours: each of them is close, and the first is not.
  CHECK(steps("unchanged_tensor", table({{"rtol", 0.0}, {"atol", 1.5}}), run({x, x.add(1), x.add(2)})) ==
        Steps{});
  // The tolerance is atol + rtol |earlier|.
  const at::Tensor one = at::ones({1}, at::kDouble);
  CHECK(steps("unchanged_tensor", {}, run({one, one, one.add(1.0e-5)})) == Steps{2});
  CHECK(steps("unchanged_tensor", {}, run({one, one, one.add(1.1e-5)})) == Steps{});
  CHECK(steps("unchanged_tensor", table({{"rtol", 0.0}, {"atol", 0.0}}), run({one, one, one})) == Steps{2});
  const at::Tensor gone = at::full({2}, no_number);
  CHECK(steps("unchanged_tensor", {}, run({gone, gone, gone})) == Steps{});
  CHECK(steps("unchanged_tensor", table({{"equal_nan", true}}), run({gone, gone, gone})) == Steps{2});
  // Every tensor is weighed.
  std::vector<Shown> two = run({x, x, x});
  for (Shown& shown : two) shown.tensors.push_back(raw("fc0.weight", x.add(static_cast<double>(shown.step))));
  const auto fired = watch("unchanged_tensor", {}, two);
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.tensors == std::vector<std::string>{"fc1.weight"});
}

TEST_CASE("dead_relu fires for a layer of zeros, and is silent for one by Xavier") {
  at::manual_seed(3);
  const at::Tensor x = at::randn({64, 30});
  const at::Tensor weight = at::randn({40, 30}) * std::sqrt(2.0 / 70);
  CHECK(watch("dead_relu", {}, once({raw("relu1_output_0", x.matmul(at::zeros({30, 40})).relu())})).size() ==
        1);
  CHECK(watch("dead_relu", {}, once({raw("relu1_output_0", x.matmul(weight.t()).relu())})).empty());
}

TEST_CASE("dead_relu counts by unit over samples, not zeros of a batch") {
  // 90 % zeros, and every unit is active for a tenth of the samples.
  at::Tensor sparse = at::zeros({100, 10});
  for (int i = 0; i < 100; ++i) sparse[i][i % 10] = 1.0;
  CHECK(watch("dead_relu", {}, once({raw("relu1_output_0", sparse)})).empty());
  // 60 % of the units never, the others always: 60 % dead, of two layers the second.
  at::Tensor dead = at::ones({100, 10});
  dead.slice(1, 0, 6).zero_();
  const auto fired =
      watch("dead_relu", {}, once({raw("relu_output_0", sparse), raw("relu2_output_0", dead)}));
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.tensors == std::vector<std::string>{"relu2_output_0"});
  CHECK(test::evidence(fired[0].finding, "relu2_output_0") == Approx(60.0));
  CHECK(watch("dead_relu", table({{"threshold_layer", 60.0}}), once({raw("relu2_output_0", dead)})).empty());
  // Active for one sample of a hundred is 1 %, which is not less.
  dead[0].fill_(1.0);
  CHECK(watch("dead_relu", {}, once({raw("relu2_output_0", dead)})).empty());
  CHECK(watch("dead_relu", table({{"threshold_inactivity", 1.1}}), once({raw("relu2_output_0", dead)}))
            .size() == 1);
  // The same of images, whose units are channels, and of sequences.
  at::Tensor images = at::ones({4, 5, 6, 6});
  images.slice(1, 0, 3).zero_();
  CHECK(test::evidence(watch("dead_relu", {}, once({raw("relu1_output_0", images)})).at(0).finding,
                       "relu1_output_0") == Approx(60.0));
  CHECK(watch("dead_relu", {}, once({raw("relu1_output_0", images.select(3, 0).transpose(1, 2))})).size() ==
        1);
  CHECK(watch("dead_relu", {}, once({raw("relu1_output_0", at::full({4, 4}, no_number))})).empty());
  CHECK(watch("dead_relu", {}, once({raw("fc1_output_0", at::zeros({4, 4}))})).empty());
}

TEST_CASE("saturated_activation has limits for tanh and for sigmoid, by unit over samples") {
  at::manual_seed(5);
  const at::Tensor x = at::randn({64, 10});
  CHECK(
      watch("saturated_activation", {}, once({raw("tanh1_input_0", x), raw("sigmoid1_input_0", x)})).empty());
  at::Tensor most = x.clone();
  most.slice(1, 0, 6).fill_(-10.0);
  const auto fired =
      watch("saturated_activation", {}, once({raw("tanh2_input_0", most), raw("sigmoid1_input_0", most)}));
  REQUIRE(fired.size() == 1);  // -10 is within the limits of sigmoid
  CHECK(fired[0].finding.tensors == std::vector<std::string>{"tanh2_input_0"});
  CHECK(test::evidence(fired[0].finding, "tanh2_input_0") == Approx(60.0));
  CHECK(watch("saturated_activation", {}, once({raw("sigmoid1_input_0", most.mul(3))})).size() == 1);
  for (const double limit : {-9.4999, 9.4999})
    CHECK(
        watch("saturated_activation", {}, once({raw("tanh1_input_0", at::full({8, 4}, limit, at::kDouble))}))
            .empty());
  CHECK(watch("saturated_activation", {}, once({raw("sigmoid_input_0", at::full({8, 4}, 17.0))})).size() ==
        1);
  CHECK(watch("saturated_activation", table({{"sigmoid_max", 17.0}}),
              once({raw("sigmoid_input_0", at::full({8, 4}, 17.0))}))
            .empty());
  CHECK(watch("saturated_activation", {}, once({raw("tanh1_input_0", at::full({8, 4}, no_number))})).empty());
  CHECK(watch("saturated_activation", {}, once({raw("tanh1_input_0", at::full({8, 4}, infinite))})).size() ==
        1);
}

}  // namespace rule_tensors_tests
