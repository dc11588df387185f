// Rules over batches: labels, predictions, images, tokens; and over the first steps of a training.
#include <cmath>

#include <ATen/ATen.h>

#include "tests/support/rule_run.hpp"

namespace rule_data_tests {

using namespace trainyard;
using test::no_number;
using test::numbers;
using test::raw;
using test::Shown;
using test::steps;
using test::table;
using test::watch;

namespace {

using Steps = std::vector<std::int64_t>;

/// Ten labels of ten classes, and what they are predicted as.
std::vector<Shown> predicted(const std::vector<std::int64_t>& classes, std::int64_t step = 0) {
  return {{.tensors = {raw("label", at::arange(10)), raw("output_0", at::tensor(classes))}, .step = step}};
}
const std::pair<const char*, Value> from_the_first{"start", std::string("0ba")};
const std::vector<std::int64_t> identity = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
const std::vector<std::int64_t> four_as_seven = {0, 1, 2, 3, 7, 5, 6, 7, 8, 9};

}  // namespace

TEST_CASE("confusion is silent for the identity, and fires for one 4 as 7") {
  const Table at_once = table({from_the_first, {"samples", 1}});
  CHECK(watch("confusion", at_once, predicted(identity)).empty());
  const auto fired = watch("confusion", at_once, predicted(four_as_seven));
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.message ==
        "output_0: 0 % of class 4 are predicted right, expected at least 90 %; and 1 other");
  const auto off =
      watch("confusion", table({from_the_first, {"samples", 1}, {"min_diag", 0.0}, {"max_off_diag", 0.01}}),
            predicted(four_as_seven));
  REQUIRE(off.size() == 1);
  CHECK(off[0].finding.message ==
        "output_0: 100 % of class 4 are predicted as class 7, expected at most 1 %");
  CHECK(watch("confusion", table({from_the_first, {"samples", 1}, {"min_diag", 0.0}, {"max_off_diag", 1.0}}),
              predicted(four_as_seven))
            .empty());
}

TEST_CASE(
    "confusion takes classes, scores in the last dimension or the second, and the score of one class of "
    "two") {
  const at::Tensor scores = at::one_hot(at::tensor(four_as_seven), 10).to(at::kFloat);
  const auto one = [](const at::Tensor& labels, const at::Tensor& predictions) {
    return watch("confusion", table({from_the_first, {"samples", 1}}),
                 {{.tensors = {raw("label", labels), raw("output_0", predictions)}}})
        .size();
  };
  CHECK(one(at::arange(10), scores) == 1);
  CHECK(one(at::tensor(four_as_seven), scores) == 0);
  // Sequences: (N, T) labels and (N, T, C) scores, or (N * T, C); maps: (N, H, W) and (N, C, H, W).
  CHECK(one(at::tensor(four_as_seven).reshape({2, 5}), scores.reshape({2, 5, 10})) == 0);
  CHECK(one(at::tensor(four_as_seven).reshape({2, 5}), scores) == 0);
  CHECK(one(at::tensor(four_as_seven).reshape({2, 1, 5}),
            scores.reshape({2, 5, 10}).movedim(2, 1).unsqueeze(2)) == 0);
  CHECK(one(at::arange(10).reshape({2, 1, 5}), scores.reshape({2, 5, 10}).movedim(2, 1).unsqueeze(2)) == 1);
  const at::Tensor two = at::tensor({0, 1, 0, 1});
  CHECK(one(two, at::tensor({-1.0, 2.0, -3.0, 0.5})) == 0);
  CHECK(one(two.to(at::kFloat).unsqueeze(1), at::tensor({-1.0, 2.0, -3.0, -0.5}).unsqueeze(1)) == 1);
  // The first micro-batch of two.
  CHECK(one(at::cat({at::tensor(four_as_seven), at::arange(10)}), scores) == 0);
  // Labels below 0 are ignored.
  CHECK(one(at::tensor({-100, 1}), at::tensor({5, 1})) == 0);

  test::RuleRun misfit("confusion", table({from_the_first}));
  CHECK_FALSE(misfit.show({.tensors = {raw("label", at::arange(10)), raw("output_0", at::ones({21}))}}));
  REQUIRE(misfit.complaints.size() == 1);
  CHECK(misfit.complaints[0].find("21 numbers do not fit the 10 labels of \"label\"") != std::string::npos);
}

TEST_CASE("confusion and class_imbalance gather labels over steps, then begin afresh") {
  std::vector<Shown> run;
  for (int step = 0; step < 6; ++step)
    run.push_back(predicted(step == 1 ? four_as_seven : identity, step)[0]);
  CHECK(steps("confusion", table({from_the_first, {"samples", 21}}), run) == Steps{2});
  CHECK(steps("confusion", table({from_the_first, {"samples", 20}, {"min_diag", 0.5}, {"max_off_diag", 0.5}}),
              run) == Steps{});
}

TEST_CASE("class_imbalance fires for 990 zeros and 10 ones") {
  const at::Tensor labels = at::cat({at::zeros({990}, at::kLong), at::ones({10}, at::kLong)});
  const auto fired = watch("class_imbalance", {}, {{.tensors = {raw("label", labels)}}});
  REQUIRE(fired.size() == 1);
  CHECK(test::evidence(fired[0].finding, "label") == 99.0);
  CHECK(
      watch("class_imbalance", table({{"threshold_imbalance", 99.0}}), {{.tensors = {raw("label", labels)}}})
          .empty());
  // Not before there are enough labels; from then on they count afresh.
  std::vector<Shown> run;
  for (int step = 0; step < 7; ++step)
    run.push_back(
        {.tensors = {raw("label", step < 4 ? labels.slice(0, 750, 1000) : at::arange(250).remainder(2))},
         .step = step});
  CHECK(steps("class_imbalance", {}, run) == Steps{1, 3});
  CHECK(steps("class_imbalance", table({{"samples", 1001}}), run) == Steps{});
}

TEST_CASE("class_imbalance weighs the errors of every class") {
  const at::Tensor labels = at::arange(500).remainder(5);
  const auto share = [&](double wrong) {
    at::Tensor predictions = labels.clone();
    predictions.masked_fill_(labels.eq(3).logical_and(at::arange(500).lt(500 * wrong)), 4);
    return watch("class_imbalance", {}, {{.tensors = {raw("label", labels), raw("output_0", predictions)}}});
  };
  CHECK(share(0.0).empty());
  CHECK(share(0.7).empty());
  const auto fired = share(0.71);
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.message == "output_0: 71 % of class 3 are predicted wrong, expected at most 70 %");
}

TEST_CASE("check_input_images takes the mean of each channel over enough images") {
  const auto batch = [](double shift, int count = 50) {
    at::manual_seed(11);
    at::Tensor images = at::randn({count, 3, 8, 8});
    images.select(1, 2).add_(shift);
    return images;
  };
  const auto run = [&](double shift) {
    std::vector<Shown> shown;
    for (int step = 0; step < 12; ++step)
      shown.push_back({.tensors = {raw("input_0", batch(shift))}, .step = step});
    return shown;
  };
  CHECK(steps("check_input_images", {}, run(0.0)) == Steps{});
  CHECK(steps("check_input_images", {}, run(0.3)) == Steps{9, 10, 11});
  CHECK(steps("check_input_images", table({{"threshold_samples", 50}}), run(-0.3)).size() == 12);
  CHECK(steps("check_input_images", table({{"threshold_mean", 0.4}}), run(0.3)) == Steps{});
  const auto fired = watch("check_input_images", {}, run(0.3));
  CHECK(fired.at(0).finding.message.find("input_0: the mean of channel 2 is 0.3") == 0);
  // Channels last, rows, tokens, NaN.
  const auto one = [](const at::Tensor& inputs, std::int64_t channel = 1) {
    return !watch("check_input_images", table({{"threshold_samples", 1}, {"channel", channel}}),
                  {{.tensors = {raw("input_0", inputs)}}})
                .empty();
  };
  CHECK(one(batch(0.3, 500).movedim(1, 3), 3));
  CHECK_FALSE(one(batch(0.3, 500).movedim(1, 3), 1));  // a row of pixels has a third of it
  CHECK_FALSE(one(at::tensor({-1.0, 1.0}).repeat({4, 1})));
  CHECK(one(at::full({4, 2}, 0.21)));
  CHECK_FALSE(one(at::full({4, 2}, 7, at::kLong)));
  CHECK_FALSE(one(at::full({4, 2}, no_number)));
}

TEST_CASE("nlp_sequence_ratio counts tokens against their shares") {
  const auto of = [](double share, at::ScalarType dtype = at::kLong) {
    at::Tensor tokens = at::full({10, 10}, 5, dtype);
    tokens.flatten().slice(0, 0, static_cast<std::int64_t>(100 * share)).zero_();
    return std::vector<Shown>{{.tensors = {raw("input_0", tokens)}}};
  };
  CHECK(watch("nlp_sequence_ratio", {}, of(0.5)).empty());
  const auto fired = watch("nlp_sequence_ratio", {}, of(0.8));
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.message == "input_0: 80 % of the tokens are 0, expected at most 50 %");
  CHECK(watch("nlp_sequence_ratio", {}, of(0.8, at::kFloat)).empty());  // pixels
  const Table two = table({{"token_values", Array{0, 5}}, {"token_thresholds_percent", Array{90.0, 10.0}}});
  CHECK(watch("nlp_sequence_ratio", two, of(0.8)).at(0).finding.message ==
        "input_0: 20 % of the tokens are 5, expected at most 10 %");
  CHECK_THROWS_WITH(test::make<Rule>("nlp_sequence_ratio", table({{"token_values", Array{0, 5}}})),
                    "nlp_sequence_ratio: token_values has 2 values and token_thresholds_percent 1; give one "
                    "threshold for each token");
}

TEST_CASE("poor_weight_initialization looks at variances, gradients and the loss of the first steps") {
  at::manual_seed(2);
  const at::Tensor x = at::randn({64, 30});
  const auto step = [&](int number, double scale, double width, double loss) {
    return Shown{.tensors = {numbers("relu1_input_0", x), numbers("relu2_input_0", x.mul(scale)),
                             raw("gradient/fc1.weight", at::linspace(0, width, 101, at::kDouble)),
                             numbers("loss_output_0", at::full({}, loss))},
                 .step = number};
  };
  const auto run = [&](double scale, double width, double fall) {
    std::vector<Shown> shown;
    for (int i = 0; i < 12; ++i) shown.push_back(step(i, scale, width, 2.0 - fall * i));
    return shown;
  };
  const auto when = [&](const std::vector<Shown>& shown, const Table& options = {}) {
    Table given = options;
    given.erase("every");
    return steps("poor_weight_initialization", given, shown);
  };
  const Steps first_ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  CHECK(when(run(1.0, 1.0, 0.1)) == Steps{});
  CHECK(when(run(3.0, 1.0, 0.1)) == Steps{});    // 9 times
  CHECK(when(run(3.2, 1.0, 0.1)) == first_ten);  // 10.24 times
  CHECK(when(run(0.0, 1.0, 0.1)) == first_ten);  // and infinitely many
  CHECK(when(run(3.2, 1.0, 0.1), table({{"threshold", 10.3}})) == Steps{});
  CHECK(when(run(1.0, 0.00112, 0.1)) == Steps{});  // 90 % of it lie between the percentiles
  CHECK(when(run(1.0, 0.00111, 0.1)) == first_ten);
  CHECK(when(run(1.0, 0.00111, 0.1), table({{"distribution_range", 0.0}})) == Steps{});
  CHECK(when(run(1.0, 1.0, 0.0)) == Steps{5, 6, 7, 8, 9});
  CHECK(when(run(1.0, 1.0, 0.0), table({{"patience", 9}})) == Steps{9});
  CHECK(when(run(1.0, 1.0, no_number)) == Steps{5, 6, 7, 8, 9});
  CHECK(when(run(1.0, no_number, 0.1)) == Steps{});
  const auto fired = watch("poor_weight_initialization", {}, {step(0, 1e-3, 1e-6, 2.0)});
  REQUIRE(fired.size() == 1);
  CHECK(fired[0].finding.tensors ==
        std::vector<std::string>{"relu1_input_0", "relu2_input_0", "gradient/fc1.weight"});
}

}  // namespace rule_data_tests
