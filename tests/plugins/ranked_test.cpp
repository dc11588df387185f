// precision_at_k, ndcg_at_k and what they are with propensities.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/state.hpp>

#include "support/files.hpp"
#include "tests/support/plugin.hpp"

namespace ranked_tests {

using namespace trainyard;
using Catch::Contains;
using test::message_of;
using test::table;
using Labels = std::vector<std::int64_t>;

namespace {

struct Sample {
  std::vector<double> scores;
  Labels labels;
};

BatchSchema several(std::int64_t most, std::int64_t classes) {
  BatchSchema schema;
  schema.target = labels_field(most);
  schema.classes = classes;
  return schema;
}

std::unique_ptr<Metric> made(const std::string& name, const Table& options, std::int64_t classes) {
  auto metric = test::make<Metric>(name, options);
  metric->check({classes}, several(4, classes));
  metric->reset();
  return metric;
}

void add(Metric& metric, std::span<const Sample> samples) {
  std::size_t most = 1;
  for (const Sample& each : samples) most = std::max(most, each.labels.size());
  const auto size = static_cast<std::int64_t>(samples.size());
  const at::Tensor target = at::full({size, static_cast<std::int64_t>(most)}, no_label, at::kLong);
  std::vector<at::Tensor> scores;
  for (std::int64_t i = 0; i < size; ++i) {
    const Sample& sample = samples[static_cast<std::size_t>(i)];
    scores.push_back(at::tensor(sample.scores, at::kFloat));
    for (std::size_t j = 0; j < sample.labels.size(); ++j)
      target[i][static_cast<std::int64_t>(j)] = sample.labels[j];
  }
  Batch batch;
  batch.target = target;
  batch.indices.resize(samples.size());
  metric.update(at::stack(scores), at::zeros({}), batch);
}

/// Of 0 to 4 labels, no two scores alike.
std::vector<Sample> random_samples(std::size_t size, std::int64_t classes) {
  std::vector<Sample> samples(size);
  for (std::size_t i = 0; i < size; ++i) {
    const at::Tensor scores = at::randperm(classes, at::kDouble), order = at::randperm(classes, at::kLong);
    samples[i].scores.assign(scores.const_data_ptr<double>(), scores.const_data_ptr<double>() + classes);
    const auto* first = order.const_data_ptr<std::int64_t>();
    samples[i].labels.assign(first, first + i % 5);
    std::sort(samples[i].labels.begin(), samples[i].labels.end());
  }
  return samples;
}

/// The classes with the largest of `worth` in front.
Labels ranking(const std::vector<double>& worth) {
  Labels order(worth.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return worth[static_cast<std::size_t>(a)] > worth[static_cast<std::size_t>(b)];
  });
  return order;
}

/// What the first k of a ranking are worth.
double gain(const Labels& order, std::int64_t k, const Sample& sample, const std::vector<double>& weight,
            bool discounted) {
  double sum = 0.0;
  for (std::int64_t rank = 1; rank <= k; ++rank) {
    const std::int64_t label = order[static_cast<std::size_t>(rank - 1)];
    if (std::ranges::count(sample.labels, label) > 0)
      sum += weight[static_cast<std::size_t>(label)] /
             (discounted ? std::log2(static_cast<double>(rank) + 1) : 1.0);
  }
  return sum;
}
/// The largest that any ranking gets.
double best_gain(std::int64_t k, const Sample& sample, const std::vector<double>& weight, bool discounted) {
  std::vector<double> worth(weight.size());
  for (const std::int64_t label : sample.labels)
    worth[static_cast<std::size_t>(label)] = weight[static_cast<std::size_t>(label)];
  return gain(ranking(worth), k, sample, weight, discounted);
}

/// A file in which label l was seen `counts[l]` times, of `samples` in all.
std::string training_file(std::int64_t samples, const std::vector<int>& counts) {
  std::string text = std::to_string(samples) + " 2 " + std::to_string(counts.size()) + "\n";
  for (std::int64_t i = 0; i < samples; ++i) {
    std::string labels;
    for (std::size_t l = 0; l < counts.size(); ++l)
      if (i < counts[l]) labels += (labels.empty() ? "" : ",") + std::to_string(l);
    text += labels + " 0:1\n";
  }
  return text;
}

const std::vector<int> counts = {40, 30, 20, 10, 5, 2, 1, 0};

}  // namespace

TEST_CASE("precision and ndcg at k by hand") {
  // In front: 2, 0, 3, 1.
  const std::vector<Sample> samples = {{{0.5, -1.0, 2.0, 0.0}, {0, 1}}, {{0.5, -1.0, 2.0, 0.0}, {}}};
  const auto precision = made("precision_at_k", table({{"k", Array{1, 2, 3}}}), 4);
  add(*precision, samples);
  CHECK(precision->names() == std::vector<std::string>{"p_1", "p_2", "p_3"});
  const std::vector<double> p = precision->compute();
  CHECK(p[0] == 0.0);
  CHECK(p[1] == 0.5);
  CHECK(p[2] == Approx(1.0 / 3));
  const auto ndcg = made("ndcg_at_k", table({{"k", Array{1, 2, 4}}}), 4);
  add(*ndcg, samples);
  CHECK(ndcg->names() == std::vector<std::string>{"ndcg_1", "ndcg_2", "ndcg_4"});
  const std::vector<double> n = ndcg->compute();
  // Found at ranks 2 and 4: 1 / log2(3) = 0.63093, 1 / log2(5) = 0.43068; the best is 1 + 0.63093.
  CHECK(n[0] == 0.0);
  CHECK(n[1] == Approx(0.38685).epsilon(1e-4));
  CHECK(n[2] == Approx(0.65092).epsilon(1e-4));
  CHECK(made("ndcg_at_k", table({{"k", Array{3}}}), 4)->names() == std::vector<std::string>{"ndcg_3"});
}

TEST_CASE("precision and ndcg at k equal a search over rankings") {
  at::manual_seed(1);
  const std::int64_t classes = 8;
  const std::vector<Sample> samples = random_samples(60, classes);
  const test::TempFolder folder;
  const std::string file = folder.write("train.txt.gz", training_file(50, counts));
  for (const bool weighted : {false, true})
    for (const bool discounted : {false, true}) {
      std::vector<double> weight(8, 1.0);
      if (weighted)  // 1 / p, p = 1 / (1 + C exp(-A log(N_l + B)))
        for (std::size_t l = 0; l < 8; ++l)
          weight[l] = 1.0 + (std::log(50.0) - 1.0) * std::pow(2.5, 0.55) *
                                std::exp(-0.55 * std::log(counts[l] + 1.5));
      Table options = table({{"k", Array{1, 3, 5, 8}}});
      if (weighted) options.set("propensity_file", file);
      const auto metric = made(discounted ? "ndcg_at_k" : "precision_at_k", options, classes);
      add(*metric, std::span(samples).first(11));
      add(*metric, std::span(samples).subspan(11));
      const std::vector<double> found = metric->compute();
      const std::vector<std::int64_t> all_k = {1, 3, 5, 8};
      REQUIRE(found.size() == 4);
      for (std::size_t i = 0; i < 4; ++i) {
        const std::int64_t k = all_k[i];
        double sum = 0.0, best = 0.0, shares = 0.0, labelled = 0.0;
        for (const Sample& sample : samples) {
          if (sample.labels.empty()) continue;
          const double own = gain(ranking(sample.scores), k, sample, weight, discounted);
          const double most = best_gain(k, sample, weight, discounted);
          sum += own;
          best += most;
          shares += discounted ? own / most : own / static_cast<double>(k);
          ++labelled;
        }
        INFO(metric->names()[i]);
        CHECK(found[i] == Approx(weighted ? sum / best : shares / labelled).epsilon(1e-12));
      }
      CHECK(metric->names()[1] == (weighted ? std::string("ps") : "") + (discounted ? "ndcg_3" : "p_3"));
    }
}

TEST_CASE("propensities are those of the paper") {
  // 1 / p with A = 0.55, B = 1.5, by hand: C = (log 1000 - 1) 2.5^0.55 = 9.778889; N_l = 0: 8.824189, 10:
  // 3.552147.
  const test::TempFolder folder;
  const std::string file = folder.write("train.txt", training_file(1000, {0, 10, 1}));
  const auto metric = made("precision_at_k", table({{"k", Array{1}}, {"propensity_file", file}}), 3);
  // One sample finds its label, the other does not: the value is the share of the first in both weights.
  add(*metric, std::vector<Sample>{{{2, 1, 0}, {0}}, {{2, 1, 0}, {1}}});
  CHECK(metric->compute()[0] ==
        Approx(8.824188577703566 / (8.824188577703566 + 3.5521470235083683)).epsilon(1e-12));
  const auto other = made(
      "precision_at_k",
      table({{"k", Array{1}}, {"propensity_file", file}, {"propensity_a", 0.5}, {"propensity_b", 0.4}}), 3);
  add(*other, std::vector<Sample>{{{2, 1, 0}, {0}}, {{2, 1, 0}, {1}}});
  // C = 5.907755 sqrt(1.4) = 6.990150; 1 + C / sqrt(0.4) = 12.052398; 1 + C / sqrt(10.4) = 3.167554.
  CHECK(other->compute()[0] == Approx(12.052398 / (12.052398 + 3.167554)).epsilon(1e-6));
}

TEST_CASE("ranked metrics merge, resume and take one class a sample, too") {
  at::manual_seed(2);
  const std::vector<Sample> samples = random_samples(40, 8);
  const test::TempFolder folder;
  const std::string file = folder.write("train.txt", training_file(50, counts));
  for (const char* name : {"precision_at_k", "ndcg_at_k"})
    for (const bool weighted : {false, true}) {
      Table options = table({{"k", Array{1, 4}}});
      if (weighted) options.set("propensity_file", file);
      const auto fresh = [&] { return made(name, options, 8); };
      const auto whole = fresh(), left = fresh(), right = fresh(), merged = fresh();
      add(*whole, samples);
      add(*left, std::span(samples).first(13));
      add(*right, std::span(samples).subspan(13));
      const auto saved = [](const Metric& metric) {
        State state{.owner = "metric", .version = {}, .scalars = {}, .tensors = {}};
        StateWriter writer(state);
        metric.save(writer);
        return state;
      };
      const State nothing = saved(*fresh()), of_left = saved(*left), of_right = saved(*right);
      for (const State* each : {&nothing, &of_left, &of_right}) merged->merge(StateReader(*each));
      for (std::size_t i = 0; i < 2; ++i) {
        REQUIRE(std::isfinite(whole->compute()[i]));
        CHECK(merged->compute()[i] == Approx(whole->compute()[i]).epsilon(1e-12));
      }
      const auto resumed = fresh();
      add(*resumed, std::span(samples).first(5));
      resumed->load(StateReader(of_left));
      add(*resumed, std::span(samples).subspan(13));
      CHECK(resumed->compute()[0] == Approx(whole->compute()[0]).epsilon(1e-12));
      resumed->reset();
      CHECK(std::isnan(resumed->compute()[1]));
      add(*resumed, std::vector<Sample>{{samples[0].scores, {}}});  // no label: nothing to count
      CHECK(std::isnan(resumed->compute()[0]));
    }
  const at::Tensor scores = at::randn({30, 8}), target = at::randint(8, {30}, at::kLong);
  Batch batch;
  batch.target = target;
  batch.indices.resize(30);
  const auto precision = made("precision_at_k", table({{"k", Array{1, 3}}}), 8);
  const auto top_3 = test::make<Metric>("top_k", table({{"k", 3}}));
  top_3->reset();
  for (Metric* each : {precision.get(), top_3.get()}) each->update(scores, at::zeros({}), batch);
  CHECK(3.0 * precision->compute()[1] == Approx(top_3->compute()[0]));
}

TEST_CASE("ranked metrics refuse what they cannot judge") {
  const auto refused = [](const Table& options, const std::vector<std::int64_t>& output,
                          const BatchSchema& schema) {
    return message_of<ConfigError>(
        [&] { test::make<Metric>("precision_at_k", options)->check(output, schema); });
  };
  CHECK_THAT(refused({}, {5}, several(3, 8)),
             Contains("8 classes and targets of shape [3], the model gives [5]"));
  CHECK_THAT(refused({}, {3, 8}, several(3, 8)), Contains("[3, 8]"));
  CHECK_THAT(refused({}, {4}, several(3, 4)), Contains("k = 5, but the data has only 4 classes"));
  CHECK_THAT(refused(table({{"k", Array{}}}), {8}, several(3, 8)), Contains("one number or more, ascending"));
  CHECK_THAT(refused(table({{"k", Array{3, 3}}}), {8}, several(3, 8)), Contains("ascending"));
  BatchSchema numbers = several(3, 0);
  CHECK_THAT(refused({}, {3}, numbers), Contains("0 classes"));
  const test::TempFolder folder;
  const Table other = table({{"propensity_file", folder.write("train.txt", training_file(50, counts))}});
  CHECK_THAT(refused(other, {9}, several(3, 9)),
             Contains("train.txt is a file of 8 labels, and the data has 9"));
  const Table tiny = table({{"propensity_file", folder.write("tiny.txt", training_file(2, counts))}});
  CHECK_THAT(refused(tiny, {8}, several(3, 8)), Contains("has 2 samples") && Contains("three or more"));
  const Table broken = table({{"propensity_file", folder.write("broken.txt", "3 2 8\n9 0:1\n")}});
  CHECK_THAT(
      message_of<DataError>([&] { test::make<Metric>("ndcg_at_k", broken)->check({8}, several(3, 8)); }),
      Contains("broken.txt:2:1: label 9"));
  for (const char* name : {"accuracy", "top_k", "auc", "mae"}) {
    INFO(name);
    for (const std::int64_t classes : {2, 9})
      CHECK_THAT(
          message_of<ConfigError>([&] { test::make<Metric>(name)->check({classes}, several(2, classes)); }),
          Contains("up to 2 labels a sample") && Contains("precision_at_k"));
  }
}

}  // namespace ranked_tests
