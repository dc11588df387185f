// Edges with targets of their own, and numbers as targets of nodes, edges and graphs.
#include <cmath>
#include <map>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch.hpp>

#include <trainyard/dataset.hpp>
#include <trainyard/helpers/blocks.hpp>
#include <trainyard/linked_samples.hpp>
#include <trainyard/model.hpp>

#include "support/files.hpp"
#include "support/npz_file.hpp"
#include "support/plugin.hpp"

namespace graph_targets_tests {

using namespace trainyard;
using Catch::Contains;
using test::make;
using test::message_of;
using test::npy;
using test::table;
using test::TempFolder;
using test::ZipFile;

namespace {

using Numbers = std::vector<std::int64_t>;
using Options = std::initializer_list<std::pair<const char*, Value>>;

std::unique_ptr<Dataset> open(const Table& options, const std::string& split = "train") {
  auto dataset = make<Dataset>("graph", options);
  dataset->open(split);
  return dataset;
}
std::string data_error(const Table& options) {
  return message_of<DataError>([&] { open(options); });
}
std::string config_error(const Table& options) {
  return message_of<ConfigError>([&] { open(options); });
}
Batch read(const Dataset& dataset, const Numbers& indices) {
  Batch batch = dataset.read(indices, {RandomStream(1, "data/train"), 0, 0});
  batch.indices = indices;
  return batch;
}
Numbers all_of(const Dataset& dataset) {
  Numbers indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

/// Four nodes, whose feature is their number, and five edges; the third is there twice, with two labels.
struct Archive {
  TempFolder folder;
  std::map<std::string, std::string> arrays = {
      {"x", npy<float>("<f4", "4, 1", {0, 1, 2, 3})},
      {"edges", npy<std::int64_t>("<i8", "5, 2", {0, 1, 1, 2, 2, 3, 2, 3, 3, 0})},
      {"y", npy<float>("<f4", "4,", {0.5F, 1, 1.5F, 2})},
      {"train_mask", npy<std::uint8_t>("|b1", "4,", {1, 1, 0, 1})},
      {"edge_labels", npy<std::int64_t>("<i8", "5,", {0, 2, 1, 0, -1})}};

  Table options(Options more) const {
    ZipFile zip;
    for (const auto& [name, content] : arrays) zip.add(name + ".npy", content, false, false);
    folder.write("g.npz", zip.file(""));
    Table options = table(more);
    options.set("layout", "npz");
    options.set("path", folder.path("g.npz"));
    options.set("fanouts", Array{-1});
    options.set("shares", Array{1.0, 0.0, 0.0});
    return options;
  }
};

const Value edge("edge"), classes("classes"), numbers("numbers");

}  // namespace

TEST_CASE("graph: edges have their own classes, and messages go over all of them", "[graph_targets]") {
  const Archive archive;
  const auto data = open(archive.options({{"task", edge}, {"targets", classes}}));
  CHECK(data->labels() == Numbers{0, 2, 1, 0});  // the one of -1 is nobody's sample
  CHECK(data->schema().classes == 3);
  const Batch batch = read(*data, {3, 0});
  CHECK(batch.target.equal(at::tensor(Numbers{0, 0})));
  const at::Tensor ends = batch.inputs[*find_blocks(data->schema()).edge];
  REQUIRE(ends.sizes() == at::IntArrayRef({2, 2}));
  CHECK(batch.input().flatten().index_select(0, ends.flatten()).equal(at::tensor({2.f, 3.f, 0.f, 1.f})));
  // All four nodes are ends, and each has its neighbours on both sides, 3 - 0 with them.
  CHECK(batch.inputs[2].size(0) == 8);
  CHECK(dynamic_cast<const LinkedSamples&>(*data).parted_by().empty());
  Archive links;
  links.arrays["y"] = npy<std::int64_t>("<i8", "4,", {0, 1, 1, 0});
  CHECK(dynamic_cast<const LinkedSamples&>(*open(links.options({{"task", edge}}))).parted_by() ==
        "data.shares");
}

TEST_CASE("graph: numbers are targets of nodes and edges", "[graph_targets]") {
  Archive archive;
  const auto nodes = open(archive.options({{"targets", numbers}}));
  CHECK(nodes->schema().classes == 0);
  CHECK(nodes->schema().target.shape == Numbers{1});
  CHECK(nodes->labels().empty());
  CHECK(read(*nodes, {2, 0}).target.equal(at::tensor({2.f, 0.5f}).view({2, 1})));

  archive.arrays["edge_y"] = npy<float>("<f4", "5, 2", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  archive.arrays.erase("edge_labels");
  const auto edges = open(archive.options({{"task", edge}, {"targets", numbers}}));
  CHECK(edges->size() == 5);
  CHECK(read(*edges, {4, 1}).target.equal(at::tensor({8.f, 9.f, 2.f, 3.f}).view({2, 2})));
}

TEST_CASE("graph: targets that are not there, or no good, are refused by name", "[graph_targets]") {
  const auto with = [](const char* name, const std::string& content, Options options) {
    Archive archive;
    archive.arrays[name] = content;
    return data_error(archive.options(options));
  };
  const Options edges = {{"task", edge}, {"targets", classes}};
  CHECK_THAT(with("edge_labels", npy<std::int64_t>("<i8", "4,", {0, 1, 1, 0}), edges),
             Contains("edge_labels: its shape is [4], expected [5], one label an edge"));
  CHECK_THAT(with("edge_labels", npy<std::int64_t>("<i8", "5,", {0, 1, 1, 0, -2}), edges),
             Contains("the label of edge 4 is -2"));
  CHECK_THAT(with("y", npy<float>("<f4", "4,", {0, 1, NAN, 2}), {{"targets", numbers}}),
             Contains("target 0 of node 2 is no finite number"));
  CHECK_THAT(with("y", npy<float>("<f4", "3,", {0, 1, 2}), {{"targets", numbers}}),
             Contains("expected [4] or [4, targets], a row a node"));
  CHECK_THAT(with("edges", npy<std::int64_t>("<i8", "5, 2", {0, 1, 1, 2, 2, 3, 2, 4, 3, 0}), edges),
             Contains("edge 3 is at node 4"));
  Archive none;
  none.arrays.erase("edge_labels");
  CHECK_THAT(data_error(none.options(edges)), Contains("edge_labels"));

  const Archive archive;
  CHECK_THAT(config_error(archive.options({{"targets", Value("links")}})),
             Contains("targets = \"links\" is of task = \"edge\""));
  CHECK_THAT(config_error(archive.options({{"task", edge}, {"targets", classes}, {"negatives", 2}})),
             Contains("leave them out"));
  CHECK_THAT(config_error(archive.options({{"targets", numbers}, {"classes", 2}})),
             Contains("leave classes out"));
  CHECK_THAT(
      config_error(table({{"layout", "planetoid"}, {"path", "/"}, {"task", edge}, {"targets", classes}})),
      Contains("set targets = \"links\""));
  CHECK_THAT(config_error(table({{"layout", "synthetic"}, {"targets", numbers}})),
             Contains("set targets = \"classes\""));
}

TEST_CASE("graph: numbers are targets of graphs", "[graph_targets]") {
  std::map<std::string, std::string> files = {{"A", "1, 2\n2, 1\n4, 5\n5, 4\n"},
                                              {"graph_indicator", "1\n1\n1\n2\n2\n"},
                                              {"graph_attributes", "0.5, -1\n2, 3e1\n"}};
  const auto options = [&](const TempFolder& folder) {
    for (const auto& [name, text] : files) folder.write("DS_" + name + ".txt", text);
    return table({{"layout", "tu"},
                  {"path", folder.path("")},
                  {"task", "graph"},
                  {"targets", numbers},
                  {"shares", Array{1.0, 0.0, 0.0}}});
  };
  {
    const TempFolder folder;
    const auto data = open(options(folder));
    CHECK(data->schema().target.shape == Numbers{2});
    CHECK(data->schema().classes == 0);
    CHECK(read(*data, {1, 0}).target.equal(at::tensor({2.f, 30.f, 0.5f, -1.f}).view({2, 2})));
  }
  const auto with = [&](const std::string& name, const std::string& text) {
    const auto before = files;
    files[name] = text;
    const TempFolder folder;
    const std::string message = data_error(options(folder));
    files = before;
    return message;
  };
  CHECK_THAT(with("graph_attributes", "1\nnan\n"),
             Contains("graph_attributes.txt:2: 'nan' is no finite number"));
  CHECK_THAT(with("graph_attributes", "1\n"),
             Contains("it has 1 rows, expected one for each of the 2 graphs"));
  CHECK_THAT(with("graph_attributes", "1\n2, 3\n"),
             Contains("graph_attributes.txt:2: found 2 fields, expected 1"));
  files.erase("graph_attributes");
  const TempFolder folder;
  CHECK_THAT(data_error(options(folder)), Contains("DS_graph_attributes.txt: No such file"));
}

TEST_CASE("graph: made-up targets of edges and graphs are what their recipe says", "[graph_targets]") {
  const auto made = [](Options more) {
    Table options = table(more);
    options.set("layout", "synthetic");
    options.set("fanouts", Array{-1});
    options.set("synthetic", table({{"nodes", 40}, {"edges", 200}, {"classes", 4}, {"noise", 0.0}}));
    return options;
  };
  const auto edges = open(made({{"task", edge}, {"targets", classes}}));
  CHECK(edges->size() == 170);
  const Batch batch = read(*edges, all_of(*edges));
  const at::Tensor ends = batch.inputs[*find_blocks(edges->schema()).edge];
  const at::Tensor features = batch.input();  // without noise: that of the class
  for (std::int64_t i = 0; i < ends.size(0); ++i) {
    const bool same =
        features[ends[i][0].item<std::int64_t>()].equal(features[ends[i][1].item<std::int64_t>()]);
    REQUIRE(batch.target[i].item<std::int64_t>() == (same ? 1 : 0));
  }
  const auto graphs = open([] {
    return table({{"layout", "synthetic"},
                  {"task", "graph"},
                  {"targets", numbers},
                  {"synthetic", table({{"graphs", 200}, {"nodes", 20}, {"edges", 40}, {"classes", 3}})}});
  }());
  const at::Tensor powers = read(*graphs, all_of(*graphs)).target;
  CHECK(powers.min().item<double>() >= 1.0);
  CHECK(powers.max().item<double>() < 3.0);
  CHECK(powers.mean().item<double>() == Approx(2.0).margin(0.15));
}

TEST_CASE("an edge gets what a linear layer makes of both its nodes, the first ahead", "[graph_targets]") {
  at::manual_seed(3);
  for (const char* name : {"sage", "gcn", "gat", "gin"})
    for (const std::int64_t outputs : {3, 1}) {
      BatchSchema schema;
      schema.inputs = block_fields(5, at::kFloat, 1, true, GraphTask::told_edge);
      if (outputs == 1)
        schema.target = {"numbers", {1}, at::kFloat};
      else
        schema.target = {"class", {}, at::kLong};
      schema.classes = outputs == 1 ? 0 : 3;
      const auto network = make<Model>(name, table({{"hidden", 4}}))->build({schema, 1});
      CHECK(network->output_shape() == Numbers{outputs});
      Batch batch;
      batch.inputs = {at::randn({3, 5}), at::tensor(Numbers{0, 1, 3, 4}), at::tensor(Numbers{1, 0, 2, 1}),
                      at::tensor(Numbers{1, 2, 1}), at::tensor(Numbers{0, 1, 1, 0, 2, 2}).view({3, 2})};
      batch.indices = {0, 1, 2};
      const at::Tensor y = network->forward(batch, {});
      REQUIRE(y.sizes() == at::IntArrayRef({3, outputs}));
      // The difference of an edge and the one the other way is that of the halves of the matrix.
      std::map<std::string, at::Tensor> tensors;
      for (const NamedTensor& each : network->parameters()) tensors.emplace(each.name, each.tensor);
      y.sum().backward();
      CHECK(tensors.at("lin.weight").grad().defined());
      REQUIRE(tensors.at("lin.weight").size(0) == outputs);
      const std::int64_t width = tensors.at("lin.weight").size(1) / 2;
      {
        const at::NoGradGuard no_grad;
        tensors.at("lin.weight").narrow(1, width, width).copy_(tensors.at("lin.weight").narrow(1, 0, width));
        const at::Tensor symmetric = network->forward(batch, {});
        CHECK(symmetric[0].allclose(symmetric[1], 1e-5, 1e-6));
      }
      CHECK_FALSE(y[0].allclose(y[1], 1e-3, 1e-4));
    }
}

}  // namespace graph_targets_tests
