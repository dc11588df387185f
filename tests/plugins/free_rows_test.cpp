// Every model, loss and metric that is shipped, on data of free rows and several labels: it takes them, or
// says why not.
#include <filesystem>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/dataset.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/model.hpp>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/sparse_rows.hpp>

#include "support/plugin.hpp"

namespace free_rows_tests {

using namespace trainyard;
using test::table;

namespace {

constexpr std::int64_t features = 40, classes = 12;

std::vector<std::string> shipped(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(TRAINYARD_PLUGIN_DIR) + "/" + kind))
    if (file.path().extension() == ".so") names.push_back(file.path().stem().string().substr(3));
  std::sort(names.begin(), names.end());
  return names;
}

/// Some value of an option that has to be given.
Value some(const OptionSpec& option) {
  Value value(std::int64_t{4});
  if (option.type == OptionType::string) value = Value(option.choices.empty() ? "x" : option.choices.front());
  if (option.type == OptionType::number) value = Value(option.minimum.value_or(0.0) + 0.5);
  if (option.type == OptionType::boolean) value = Value(true);
  if (option.type == OptionType::table) {
    Table fields;
    for (const OptionSpec& field : option.fields)
      if (field.required) fields.set(field.name, some(field));
    value = Value(std::move(fields));
  }
  return option.list ? Value(Array{value, value}) : value;
}

Table needed(const std::string& kind, const std::string& name) {
  const ManifestData manifest = manifest_of(test::entry(kind, name));
  Table options;
  for (const OptionSpec& option : manifest.options)
    if (option.required) options.set(option.name, some(option));
  return options;
}

std::unique_ptr<Dataset> data() {
  auto made = test::make<Dataset>("xc", table({{"layout", "synthetic"},
                                               {"size", 16},
                                               {"features", features},
                                               {"classes", classes},
                                               {"prototype", 6},
                                               {"own", 4},
                                               {"noise", 3},
                                               {"most_labels", 3}}));
  made->open("train");
  return made;
}

Batch read(const Dataset& dataset) {
  std::vector<std::int64_t> indices = {3, 0, 7, 7, 15};
  Batch batch = dataset.read(indices, {RandomStream(1, "data"), 0});
  batch.indices = std::move(indices);
  batch.weight = 5.0;
  return batch;
}

/// What a refusal says; empty where there is none. Whatever else is thrown fails the test.
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    REQUIRE(std::string(error.what()).size() > 20);
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("models take rows of few features, or say that these are the data's") {
  const auto dataset = data();
  const Batch batch = read(*dataset);
  const BatchSchema schema = dataset->schema();
  int refusing = 0;
  for (const std::string& name : shipped("model")) {
    INFO(name);
    const auto model = test::make<Model>(name, needed("model", name));
    std::unique_ptr<Network> network;
    const std::string said = refusal([&] { network = model->build({schema, 1}); });
    if (network == nullptr) {
      CHECK_THAT(said, Catch::Contains("the data"));
      ++refusing;
      continue;
    }
    CHECK(network->output_shape() == std::vector<std::int64_t>{classes});
    const at::Tensor output = network->forward(batch, {});
    CHECK(output.sizes() == at::IntArrayRef{5, classes});
    CHECK(output.isfinite().all().item<bool>());
  }
  CHECK(refusing >= 7);  // mlp, lenet, resnet, sequential, gpt, lstm, dlrm
}

TEST_CASE("losses take several labels a sample, or say that these are the data's") {
  const auto dataset = data();
  const Batch batch = read(*dataset);
  int taking = 0;
  for (const std::string& name : shipped("loss"))
    for (const bool told : {false, true}) {
      INFO(name);
      Table options = needed("loss", name);
      if (told) options.set("multi_label", true);
      const auto loss = test::make<Loss>(name, options);
      const std::string said = refusal([&] { loss->check({classes}, dataset->schema()); });
      if (!said.empty()) {
        CHECK_THAT(said, Catch::Contains("labels a sample") && Catch::Contains("multi_label"));
        continue;
      }
      ++taking;
      CHECK(loss->weight(batch) == 5.0);
      CHECK(std::isfinite(loss->forward(at::randn({5, classes}), batch).item<double>()));
    }
  CHECK(taking == 1);
}

TEST_CASE("metrics take several labels a sample, or say that these are the data's") {
  const auto dataset = data();
  const Batch batch = read(*dataset);
  int taking = 0;
  for (const std::string& name : shipped("metric")) {
    INFO(name);
    const auto metric = test::make<Metric>(name, needed("metric", name));
    const std::string said = refusal([&] { metric->check({classes}, dataset->schema()); });
    if (!said.empty()) {
      CHECK_THAT(said, (Catch::Contains("labels a sample") && Catch::Contains("precision_at_k")) ||
                           Catch::Contains("needs a score for an edge"));
      continue;
    }
    ++taking;
    metric->reset();
    metric->update(at::randn({5, classes}), at::rand({}), batch);
    for (const double value : metric->compute()) CHECK(std::isfinite(value));
  }
  CHECK(taking == 3);  // precision_at_k, ndcg_at_k, and perplexity, which looks at the loss alone
}

}  // namespace free_rows_tests
