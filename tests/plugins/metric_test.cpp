#include <cmath>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/dataset.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/mixins/reads_dataset.hpp>
#include <trainyard/mixins/scales_targets.hpp>
#include <trainyard/new_data.hpp>
#include <trainyard/state.hpp>

#include "golden.hpp"
#include "tests/support/plugin.hpp"

namespace metric_tests {

using namespace trainyard;
using Catch::Contains;
using nlohmann::json;
using Shape = std::vector<std::int64_t>;

namespace {

/// A part of a stream of predictions.
struct Part {
  at::Tensor output, target, loss;

  void add_to(Metric& metric) const {
    Batch batch;
    batch.target = target;
    batch.indices.resize(static_cast<std::size_t>(target.size(0)));
    batch.weight = static_cast<double>(target.numel());
    metric.update(output, loss, batch);
  }
};

std::vector<Part> random_parts(const Shape& target_shape, std::int64_t classes, std::int64_t outputs) {
  std::vector<Part> parts;
  for (const std::int64_t size : {5, 1, 17, 8}) {
    Part part;
    Shape shape = target_shape;
    shape.insert(shape.begin(), size);
    part.target = classes > 0 ? at::randint(classes, shape, at::kLong) : at::randn(shape);
    if (outputs > 0) shape.push_back(outputs);
    part.output = (at::randn(shape) * 4).round() / 4;  // with ties
    part.loss = at::rand({});
    parts.push_back(part);
  }
  return parts;
}

State saved(const Metric& metric) {
  State state{.owner = "metric"};
  StateWriter writer(state);
  metric.save(writer);
  return state;
}

double value(const Metric& metric) {
  const std::vector<double> values = metric.compute();
  REQUIRE(values.size() == metric.names().size());
  REQUIRE(values.size() == 1);
  return values[0];
}

double compute(const std::string& name, const Table& options, const std::vector<Part>& parts) {
  const auto metric = test::make<Metric>(name, options);
  metric->reset();
  for (const Part& part : parts) part.add_to(*metric);
  return value(*metric);
}

/// fn(scores of one target, target) over all targets.
template <class Function>
void each(const std::vector<Part>& parts, const Function& fn) {
  for (const Part& part : parts) {
    const at::Tensor target = part.target.reshape(-1), scores = part.output.reshape({target.numel(), -1});
    for (std::int64_t i = 0; i < target.numel(); ++i) fn(scores[i], target[i]);
  }
}

BatchSchema schema(Shape target, std::int64_t classes) {
  BatchSchema result;
  result.target = {.name = "target", .shape = std::move(target)};
  result.classes = classes;
  return result;
}

/// What every metric is tried with.
struct Case {
  const char* name;
  Table options;
  Shape target;
  std::int64_t classes, outputs;
};
const std::vector<Case> cases = {
    {"accuracy", {}, {}, 4, 4},
    {"accuracy", test::table({{"ignore_index", 3}}), {6}, 4, 4},
    {"accuracy", {}, {}, 2, 0},
    {"accuracy", {}, {}, 2, 1},
    {"top_k", test::table({{"k", 2}}), {}, 5, 5},
    {"top_k", test::table({{"k", 3}, {"ignore_index", 0}}), {6}, 5, 5},
    {"auc", {}, {}, 2, 0},
    {"auc", {}, {}, 2, 1},
    {"auc", {}, {}, 2, 2},
    {"perplexity", {}, {6}, 5, 5},
    {"mae", {}, {3}, 0, 0},
    {"mae", {}, {}, 0, 1},
    {"rmse", {}, {3}, 0, 0},
    {"r2", {}, {3}, 0, 0},
    {"r2", {}, {}, 0, 1},
    {"f1", test::table({{"ignore_index", 3}}), {6}, 4, 4},
    {"f1", test::table({{"average", "positive"}}), {}, 2, 1},
    {"precision", {}, {}, 4, 4},
    {"recall", test::table({{"average", "micro"}}), {}, 2, 0},
    {"balanced_accuracy", {}, {6}, 4, 4},
    {"log_loss", test::table({{"ignore_index", 0}}), {6}, 4, 4},
    {"log_loss", {}, {}, 2, 1},
    {"bits", {}, {6}, 5, 5},
};

}  // namespace

TEST_CASE("accuracy equals a count by hand") {
  at::manual_seed(1);
  for (const std::optional<std::int64_t> ignored :
       {std::optional<std::int64_t>{}, std::optional<std::int64_t>{3}}) {
    const auto parts = random_parts({6}, 4, 4);
    double right = 0, total = 0;
    each(parts, [&](const at::Tensor& scores, const at::Tensor& target) {
      const auto t = target.item<std::int64_t>();
      if (t == ignored) return;
      std::int64_t best = 0;
      for (std::int64_t c = 1; c < 4; ++c)
        if (scores[c].item<float>() > scores[best].item<float>()) best = c;
      right += best == t;
      ++total;
    });
    CHECK(compute("accuracy", ignored ? test::table({{"ignore_index", 3}}) : Table{}, parts) ==
          right / total);
  }
}

TEST_CASE("accuracy of one score a target looks at its sign") {
  at::manual_seed(2);
  const auto parts = random_parts({}, 2, 1);
  double right = 0, total = 0;
  each(parts, [&](const at::Tensor& score, const at::Tensor& target) {
    right += (score.item<float>() > 0) == (target.item<std::int64_t>() == 1);
    ++total;
  });
  CHECK(compute("accuracy", {}, parts) == right / total);
}

TEST_CASE("top_k equals a count by hand, and top_1 is accuracy") {
  at::manual_seed(3);
  auto parts = random_parts({6}, 5, 5);
  for (Part& part : parts)
    part.output = at::randn_like(part.output);  // no ties: which of them counts is open
  for (const std::int64_t k : {1, 2, 4, 5}) {
    double found = 0, total = 0;
    each(parts, [&](const at::Tensor& scores, const at::Tensor& target) {
      found += scores.gt(scores[target.item<std::int64_t>()]).sum().item<std::int64_t>() < k;
      ++total;
    });
    CHECK(compute("top_k", test::table({{"k", k}}), parts) == found / total);
  }
  CHECK(compute("top_k", test::table({{"k", 1}}), parts) == compute("accuracy", {}, parts));
  CHECK(test::make<Metric>("top_k", test::table({{"k", 3}}))->names() == std::vector<std::string>{"top_3"});
}

TEST_CASE("auc equals the share of ordered pairs, ties one half") {
  at::manual_seed(4);
  for (const std::int64_t outputs : {0, 1, 2}) {
    const auto parts = random_parts({}, 2, outputs);
    std::vector<float> positive, negative;
    each(parts, [&](const at::Tensor& scores, const at::Tensor& target) {
      const float score =
          outputs == 2 ? scores[1].item<float>() - scores[0].item<float>() : scores.item<float>();
      (target.item<std::int64_t>() == 1 ? positive : negative).push_back(score);
    });
    double right = 0;
    for (const float p : positive)
      for (const float n : negative) right += p > n ? 1.0 : p == n ? 0.5 : 0.0;
    CHECK(compute("auc", {}, parts) ==
          right / (static_cast<double>(positive.size()) * static_cast<double>(negative.size())));
  }
  const auto single = [](const std::vector<double>& scores, const std::vector<std::int64_t>& targets) {
    return compute("auc", {}, {{at::tensor(scores), at::tensor(targets), at::zeros({})}});
  };
  CHECK(single({0.1, 0.4, 0.35, 0.8}, {0, 0, 1, 1}) == 0.75);
  CHECK(single({1, 1, 1, 1}, {0, 1, 0, 1}) == 0.5);
  CHECK(single({1, 2, 3}, {1, 0, 0}) == 0.0);
  CHECK(std::isnan(single({1, 2, 3}, {1, 1, 1})));
  CHECK(std::isnan(single({1, std::nan(""), 3}, {1, 0, 1})));
}

TEST_CASE("perplexity is exp of the mean loss over tokens") {
  at::manual_seed(5);
  const auto parts = random_parts({6}, 5, 5);
  double loss = 0, tokens = 0;
  for (const Part& part : parts) {
    loss += part.loss.item<double>() * static_cast<double>(part.target.numel());
    tokens += static_cast<double>(part.target.numel());
  }
  CHECK(compute("perplexity", {}, parts) == Approx(std::exp(loss / tokens)).epsilon(1e-12));
  Batch nothing;  // weight 0: its loss says nothing
  const auto metric = test::make<Metric>("perplexity");
  metric->reset();
  metric->update({}, at::full({}, NAN), nothing);
  parts[0].add_to(*metric);
  CHECK(value(*metric) == Approx(std::exp(parts[0].loss.item<double>())).epsilon(1e-12));
}

TEST_CASE("mae equals a sum by hand") {
  at::manual_seed(6);
  const auto parts = random_parts({3}, 0, 0);
  double error = 0, total = 0;
  for (const Part& part : parts) {
    const at::Tensor a = part.output.reshape(-1), b = part.target.reshape(-1);
    for (std::int64_t i = 0; i < a.numel(); ++i, ++total)
      error += std::abs(a[i].item<float>() - b[i].item<float>());
  }
  CHECK(compute("mae", {}, parts) == Approx(error / total).epsilon(1e-6));
}

// tests/golden/metrics.py says what made the numbers.
TEST_CASE("metrics equal scikit-learn's, over batches of which one is empty and over two ranks") {
  std::size_t compared = 0;
  for (const json& data : test::golden("metrics.json")) {
    const at::Tensor output = test::tensor(data["output"], data["shape"].get<Shape>());
    at::Tensor target = test::tensor(data["target"], data["target_shape"].get<Shape>());
    if (data["classes"] > 0) target = target.to(at::kLong);
    std::vector<Part> parts;
    const std::int64_t rows = target.size(0);
    for (const auto& [from, to] :
         {std::pair<std::int64_t, std::int64_t>{0, rows / 3}, {rows / 3, rows / 3}, {rows / 3, rows}})
      parts.push_back({output.slice(0, from, to), target.slice(0, from, to), at::zeros({})});
    for (const json& expected : data["values"]) {
      INFO(expected << " classes " << data["classes"] << ", rows " << rows);
      const auto name = expected["plugin"].get<std::string>();
      const Table options = test::options(expected["options"]);
      const auto merged = test::make<Metric>(name, options), other = test::make<Metric>(name, options);
      for (const auto& each : {merged.get(), other.get()}) each->reset();
      for (std::size_t i = 0; i < parts.size(); ++i) parts[i].add_to(i == 2 ? *other : *merged);
      merged->merge(StateReader(saved(*other)));
      for (const double found : {compute(name, options, parts), value(*merged)})
        if (expected["value"].is_null())
          CHECK(std::isnan(found));
        else
          CHECK(found == Approx(expected["value"].get<double>()).epsilon(1e-9).margin(1e-9));
      ++compared;
    }
  }
  CHECK(compared > 150);
}

TEST_CASE("metrics of numbers are in the units of the files where the dataset scales its targets") {
  class Scaled final : public Dataset, public ScalesTargets {
   public:
    void open(const std::string&) override {}
    std::int64_t size() const override { return 1; }
    BatchSchema schema() const override { return metric_tests::schema({}, 0); }
    Batch read(std::span<const std::int64_t>, const ReadContext&) const override { return {}; }
    std::pair<double, double> target_scale() const override { return {250.0, 4000.0}; }
  } const dataset;
  at::manual_seed(8);
  const auto parts = random_parts({}, 0, 0);
  for (const auto& [name, factor] : {std::pair{"mae", 250.0}, {"rmse", 250.0}, {"r2", 1.0}}) {
    INFO(name);
    const auto metric = test::make<Metric>(name);
    if (auto* const reads = dynamic_cast<ReadsDataset*>(metric.get())) reads->read_dataset(dataset);
    metric->reset();
    for (const Part& part : parts) part.add_to(*metric);
    CHECK(value(*metric) == Approx(factor * compute(name, {}, parts)).epsilon(1e-12));
  }
}

TEST_CASE("bits a byte and a character are those of a text, whatever its tokens are, and not of <unk>") {
  const std::vector<std::string> texts = {"<unk> ", "ab", "\xc3\xa9", "xyz "};
  class Tokens final : public Dataset, public Tokenizer {
   public:
    explicit Tokens(const std::vector<std::string>& texts) : texts_(texts) {}
    void open(const std::string&) override {}
    std::int64_t size() const override { return 1; }
    BatchSchema schema() const override {
      BatchSchema all = metric_tests::schema({5}, 4);
      all.vocabulary = 4;
      return all;
    }
    Batch read(std::span<const std::int64_t>, const ReadContext&) const override { return {}; }
    std::vector<std::int64_t> encode(std::string_view) const override { return {}; }
    std::string decode(const std::vector<std::int64_t>& tokens) const override {
      return texts_[static_cast<std::size_t>(tokens.front())];
    }
    std::optional<std::int64_t> unknown() const override { return 0; }

   private:
    const std::vector<std::string>& texts_;
  } const dataset(texts);
  at::manual_seed(9);
  const auto parts = random_parts({5}, 4, 4);
  for (const std::optional<std::int64_t> ignored :
       {std::optional<std::int64_t>(), std::optional<std::int64_t>(3)}) {
    double bits = 0, bytes = 0, characters = 0;
    each(parts, [&](const at::Tensor& scores, const at::Tensor& target) {
      const auto t = target.item<std::int64_t>();
      if (t == 0 || t == ignored) return;
      const at::Tensor doubles = scores.to(at::kDouble);
      bits -= std::log2(doubles.softmax(0)[t].item<double>());
      bytes += std::vector<double>{0, 2, 2, 4}[static_cast<std::size_t>(t)];
      characters += std::vector<double>{0, 2, 1, 4}[static_cast<std::size_t>(t)];
    });
    for (const auto& [name, length] : {std::pair{"byte", bytes}, {"character", characters}}) {
      Table options = test::table({{"per", name}});
      if (ignored) options.set("ignore_index", 3);
      const auto metric = test::make<Metric>("bits", options);
      metric->check({5, 4}, dataset.schema());
      dynamic_cast<ReadsDataset&>(*metric).read_dataset(dataset);
      metric->reset();
      for (const Part& part : parts) part.add_to(*metric);
      CHECK(value(*metric) == Approx(bits / length).epsilon(1e-6));
    }
  }
  CHECK_THROWS_WITH(test::make<Metric>("bits")->check({4}, schema({}, 4)), Contains("log_loss"));
}

TEST_CASE("confusion gives the recall of each class and merges tables") {
  const auto metric = test::make<Metric>("confusion"), other = test::make<Metric>("confusion");
  metric->check({3}, schema({}, 3));
  metric->reset();
  other->reset();
  const at::Tensor scores = at::eye(3);
  Part{scores.index_select(0, at::tensor({0, 1, 1, 2})), at::tensor({0, 0, 1, 1}), at::zeros({})}.add_to(
      *metric);
  Part{scores.index_select(0, at::tensor({0})), at::tensor({0}), at::zeros({})}.add_to(*other);
  metric->merge(StateReader(saved(*other)));
  CHECK(metric->names() == std::vector<std::string>{"0", "1", "2"});
  const std::vector<double> recalls = metric->compute();
  CHECK(recalls[0] == 2.0 / 3.0);
  CHECK(recalls[1] == 0.5);
  CHECK(std::isnan(recalls[2]));
  CHECK_THROWS_WITH(test::make<Metric>("confusion")->check({1001}, schema({}, 1001)),
                    Contains("take recall"));
}

TEST_CASE("merging parts equals one pass, a load replaces, a reset forgets") {
  at::manual_seed(7);
  for (const Case& c : cases) {
    INFO(c.name << " outputs " << c.outputs);
    const auto parts = random_parts(c.target, c.classes, c.outputs);
    const double whole = compute(c.name, c.options, parts);
    REQUIRE(std::isfinite(whole));
    const auto fresh = [&] {
      auto metric = test::make<Metric>(c.name, c.options);
      metric->reset();
      return metric;
    };
    const auto left = fresh(), right = fresh(), merged = fresh();
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].add_to(i < 2 ? *left : *right);
    merged->merge(StateReader(saved(*fresh())));  // of nothing
    merged->merge(StateReader(saved(*left)));
    merged->merge(StateReader(saved(*right)));
    CHECK(value(*merged) == Approx(whole).epsilon(1e-12));

    const auto resumed = fresh();
    parts[3].add_to(*resumed);
    resumed->load(StateReader(saved(*left)));
    parts[2].add_to(*resumed);
    parts[3].add_to(*resumed);
    CHECK(value(*resumed) == Approx(whole).epsilon(1e-12));

    resumed->reset();
    CHECK(std::isnan(value(*resumed)));
    for (const Part& part : parts) part.add_to(*resumed);
    CHECK(value(*resumed) == whole);
  }
}

TEST_CASE("outputs that a metric cannot judge are refused") {
  for (const Case& c : cases) {
    INFO(c.name);
    Shape output = c.target;
    if (c.outputs > 0) output.push_back(c.outputs);
    BatchSchema data = schema(c.target, c.classes);
    data.vocabulary = c.classes;
    CHECK_NOTHROW(test::make<Metric>(c.name, c.options)->check(output, data));
  }
  const auto refused = [](const char* name, const Shape& output, const BatchSchema& data, const char* text) {
    CHECK_THROWS_AS(test::make<Metric>(name)->check(output, data), ConfigError);
    CHECK_THROWS_WITH(test::make<Metric>(name)->check(output, data), Contains(text));
  };
  refused("accuracy", {3}, schema({}, 10), "10 classes and targets of shape [], the model gives [3]");
  refused("accuracy", {1}, schema({}, 10), "10 classes");
  refused("accuracy", {1}, schema({}, 0), "0 classes");
  refused("accuracy", {32, 10}, schema({64}, 10), "[64]");
  refused("top_k", {4}, schema({}, 4), "k = 5, but the data has only 4 classes");
  refused("top_k", {4}, schema({}, 10), "[4]");
  refused("auc", {3}, schema({}, 3), "2 classes");
  refused("auc", {3}, schema({}, 2), "[3]");
  refused("perplexity", {1}, schema({}, 0), "mae");
  refused("mae", {10}, schema({}, 10), "accuracy");
  refused("mae", {2}, schema({3}, 0), "[2]");
  refused("r2", {4}, schema({}, 4), "accuracy");
  refused("rmse", {2}, schema({3}, 0), "[2]");
  for (const char* name : {"precision", "recall", "f1", "balanced_accuracy", "log_loss", "confusion"})
    refused(name, {1}, schema({}, 0), "take metrics such as r2");
  CHECK_THROWS_WITH(
      test::make<Metric>("f1", test::table({{"average", "positive"}}))->check({3}, schema({}, 3)),
      Contains("2 classes"));
}

}  // namespace metric_tests
