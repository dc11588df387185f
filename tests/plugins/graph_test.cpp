// The dataset of graphs: what its files say, and what its batches hold.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/helpers/blocks.hpp>
#include <trainyard/learns.hpp>

#include "plugins/dataset/graph/kept.hpp"
#include "plugins/dataset/npy/arrays.hpp"
#include "support/files.hpp"
#include "support/npz_file.hpp"
#include "support/plugin.hpp"

namespace graph_tests {

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
using Floats = std::vector<float>;

std::unique_ptr<Dataset> open(const Table& options, const std::string& split = "train") {
  auto dataset = make<Dataset>("graph", options);
  dataset->open(split);
  return dataset;
}
std::string data_error(const Table& options, const std::string& split = "train") {
  return message_of<DataError>([&] { open(options, split); });
}
std::string config_error(const Table& options) {
  return message_of<ConfigError>([&] { open(options); });
}

template <class T = std::int64_t>
std::vector<T> values(const at::Tensor& tensor) {
  REQUIRE(tensor.is_contiguous());
  const T* data = tensor.const_data_ptr<T>();
  return {data, data + tensor.numel()};
}

Batch read(const Dataset& dataset, const Numbers& indices, std::uint64_t epoch = 0, std::int64_t position = 0,
           std::uint64_t seed = 1) {
  return dataset.read(indices, {RandomStream(seed, "data/train", epoch), position, position});
}
Numbers all_of(const Dataset& dataset) {
  Numbers indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

bool same(const Batch& a, const Batch& b) {
  if (a.inputs.size() != b.inputs.size() || !a.target.equal(b.target)) return false;
  for (std::size_t i = 0; i < a.inputs.size(); ++i)
    if (!a.inputs[i].equal(b.inputs[i])) return false;
  return true;
}

void check_batch_fits_schema(const Dataset& dataset) {
  const BatchSchema schema = dataset.schema();
  const Batch batch = read(dataset, {0, dataset.size() - 1});
  REQUIRE(batch.inputs.size() == schema.inputs.size());
  for (std::size_t i = 0; i < schema.inputs.size(); ++i) {
    const FieldSchema& field = schema.inputs[i];
    CHECK(field.rows == Rows::free);
    CHECK(batch.inputs[i].scalar_type() == field.dtype);
    CHECK(batch.inputs[i].sizes().slice(1) == at::IntArrayRef(field.shape));
  }
  CHECK(values(batch.target).size() == 2);
  const BlockSchema blocks = find_blocks(schema);
  CHECK(blocks_of(batch, blocks, blocks.hops).back().targets() >= 2);
}

Table made(std::initializer_list<std::pair<const char*, Value>> synthetic,
           std::initializer_list<std::pair<const char*, Value>> more = {}) {
  Table options = table(more);
  options.set("layout", "synthetic");
  options.set("synthetic", table(synthetic));
  return options;
}

/// Five nodes: 0 and 1 for training, 2 and 3 for val and test, 4 for nothing.
const std::string nodes_text =
    "# node label split features\n0\t1\ttrain\t0 2\n1\t0\ttrain\t\n2\t1\tval\t1\n3\t2\ttest\t2 1 "
    "0\n4\t0\tnone\t0\n";
const std::string edges_text = "0\t1\n\n0\t2\n2\t4\n";

Table planetoid(const TempFolder& folder, const std::string& nodes, const std::string& edges,
                std::initializer_list<std::pair<const char*, Value>> more = {}) {
  folder.write("five.nodes.tsv.gz", nodes);
  folder.write("five.edges.tsv", edges);
  Table options = table(more);
  options.set("layout", "planetoid");
  options.set("path", folder.path(""));
  return options;
}

}  // namespace

// planetoid
// --------------------------------------------------------------------------------------------------------

TEST_CASE("graph: planetoid files give features, neighbours, labels and splits") {
  const TempFolder folder;
  const auto data =
      open(planetoid(folder, nodes_text, edges_text, {{"fanouts", Array{-1}}, {"degree", true}}));
  REQUIRE(data->size() == 2);
  CHECK(data->schema().classes == 2);  // those of the nodes for training; that for test has a third
  const auto test = make<Dataset>("graph", planetoid(folder, nodes_text, edges_text));
  dynamic_cast<Learns&>(*test).use(dynamic_cast<const Learns&>(*data).learned());
  test->open("test");
  CHECK(test->schema().classes == 2);
  CHECK(dynamic_cast<const Learns&>(*test).ungraded() == Numbers{0});
  CHECK(open(planetoid(folder, nodes_text, edges_text, {{"classes", 3}}))->schema().classes == 3);
  CHECK(data->labels() == Numbers{1, 0});
  check_batch_fits_schema(*data);
  const Batch batch = read(*data, {1, 0});
  REQUIRE(batch.inputs.size() == 4);
  CHECK(values(batch.target) == Numbers{0, 1});
  CHECK(values(batch.inputs[1]) == Numbers{0, 1, 3});  // node 1 has one neighbour, node 0 two
  CHECK(values(batch.inputs[2]) == Numbers{1, 0, 2});
  CHECK(values<float>(batch.input()) == Floats{0, 0, 0, 1, 0, 1, 0, 1, 0});  // of nodes 1, 0, 2
  CHECK(values(batch.inputs[3]) == Numbers{1, 2, 2});                        // in the whole graph
  CHECK(open(planetoid(folder, nodes_text, edges_text), "val")->labels() == Numbers{1});
  CHECK(open(planetoid(folder, nodes_text, edges_text), "test")->labels() == Numbers{2});

  const auto shares =
      open(planetoid(folder, nodes_text, edges_text, {{"fanouts", Array{-1}}, {"normalise_features", true}}));
  CHECK(values<float>(read(*shares, {1, 0}).input()) == Floats{0, 0, 0, .5f, 0, .5f, 0, 1, 0});
}

TEST_CASE("graph: edges that are given twice, loops, and one way only") {
  const TempFolder folder;
  const std::string edges = "1\t0\n0\t1\n1\t0\n0\t0\n2\t0\n";
  const auto sources = [&](std::initializer_list<std::pair<const char*, Value>> more) {
    Table options = planetoid(folder, nodes_text, edges, more);
    options.set("fanouts", Array{-1});
    options.set("degree", true);
    return values(read(*open(options), {0}).inputs[3])[0];
  };
  CHECK(sources({}) == 3);  // 0, 1, 2
  CHECK(sources({{"self_loops", "drop"}}) == 2);
  CHECK(sources({{"undirected", false}}) == 4);  // 0, 1, 1, 2: messages go from 1 to 0 twice
  CHECK(sources({{"undirected", false}, {"self_loops", "add"}}) == 4);
  const auto lonely = open(planetoid(folder, nodes_text, "", {{"self_loops", "add"}, {"fanouts", Array{2}}}));
  CHECK(values(read(*lonely, {0, 1}).inputs[2]) == Numbers{0, 1});
}

TEST_CASE("graph: nodes without a label are nobody's samples, and a graph may have no edge") {
  const TempFolder folder;
  const std::string nodes = "0\t-1\ttrain\t0\n1\t1\ttrain\t0\n2\tnan\tval\t0\n";
  const auto data = open(planetoid(folder, nodes, ""));
  CHECK(data->labels() == Numbers{1});
  const Batch batch = read(*data, {0, 0});
  CHECK(batch.input().size(0) == 2);
  for (const std::size_t block : {1, 3, 5}) {
    CHECK(values(batch.inputs[block]) == Numbers{0, 0, 0});
    CHECK(batch.inputs[block + 1].numel() == 0);
  }
  CHECK_THAT(data_error(planetoid(folder, nodes, ""), "val"),
             Contains("no node with a label is in the split val"));
  CHECK_THAT(data_error(planetoid(folder, nodes, ""), "test"), Contains("in the split test"));
}

TEST_CASE("graph: errors of planetoid files name file, line and what was expected") {
  const TempFolder folder;
  const auto nodes = [&](const std::string& text,
                         std::initializer_list<std::pair<const char*, Value>> more = {}) {
    return data_error(planetoid(folder, text, edges_text, more));
  };
  CHECK_THAT(nodes(""), Contains("five.nodes.tsv.gz: there is no node with a feature"));
  CHECK_THAT(nodes("1\t0\ttrain\t0\n"), Contains("five.nodes.tsv.gz:1: found node '1', expected 0"));
  CHECK_THAT(nodes("0\t0\ttrain\n"),
             Contains(":1: found 3 fields, expected 4: node, label, split and features"));
  CHECK_THAT(nodes("0\tx\ttrain\t0\n"), Contains("the label is 'x', expected 0 to"));
  CHECK_THAT(nodes("0\t-2\ttrain\t0\n"), Contains("the label is '-2'"));
  CHECK_THAT(nodes("0\t7\ttrain\t0\n", {{"classes", 7}}), Contains(":1: the label is '7', expected 0 to 6"));
  CHECK_THAT(nodes("0\t0\tdev\t0\n"), Contains("the split is 'dev', expected train, val, test or none"));
  CHECK_THAT(nodes("0\t0\ttrain\t-1\n"), Contains("a feature is '-1', expected 0 to"));
  // Of a damaged file that is told, and not what its lines are by then.
  std::string many = "1\t0\ttrain\t0\n";
  for (int i = 0; i < 30'000; ++i) many += std::to_string(i * 7919LL % 1'000'003) + "\t0\ttrain\t0\n";
  const Table damaged = planetoid(folder, many, edges_text);
  const std::string file = folder.path("five.nodes.tsv.gz");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  CHECK_THAT(data_error(damaged), Contains("five.nodes.tsv.gz: the gzip data is truncated"));
  const auto edges = [&](const std::string& text) { return data_error(planetoid(folder, nodes_text, text)); };
  CHECK_THAT(edges("0\t1\n0\t5\n"), Contains("five.edges.tsv:2: a node is '5', expected 0 to 4"));
  CHECK_THAT(edges("-1\t1\n"), Contains("a node is '-1'"));
  CHECK_THAT(edges("0 1\n"), Contains("found 1 fields, expected 2"));
  CHECK_THAT(edges("0\t1\t1\n"), Contains("found 3 fields, expected 2"));
  const TempFolder empty;
  CHECK_THAT(data_error(table({{"layout", "planetoid"}, {"path", empty.path("")}})),
             Contains("found 0 files NAME.nodes.tsv or NAME.nodes.tsv.gz, expected one"));
  CHECK_THAT(data_error(table({{"layout", "planetoid"}, {"path", empty.path("none")}})),
             Contains("No such file"));
  folder.write("six.edges.tsv", "");
  CHECK_THAT(edges(""), Contains("found 2 files NAME.edges.tsv"));
}

TEST_CASE("graph: options that do not go together") {
  CHECK_THAT(config_error(table({{"layout", "npz"}})),
             Contains("layout = \"npz\" reads files: give their path"));
  CHECK_THAT(config_error(made({}, {{"path", "/"}})), Contains("reads no file: leave path out"));
  for (const Array& fanouts : {Array{}, Array{5, 0}})
    CHECK_THAT(config_error(made({}, {{"fanouts", fanouts}})),
               Contains("fanouts takes a number for each hop"));
  CHECK_THAT(config_error(made({{"nodes", 5}, {"classes", 6}})),
             Contains("classes is 6, more than the 5 nodes"));
  CHECK_THAT(config_error(made({}, {{"classes", 9}})),
             Contains("classes is 9, less than synthetic.classes, which is 10"));
}

// npz
// --------------------------------------------------------------------------------------------------------

namespace {

struct Arrays {
  std::string features = npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5, 6});
  std::string labels = npy<std::int64_t>("<i8", "3,", {0, 1, -1});
  std::string edges = npy<std::int64_t>("<i8", "2, 2", {0, 1, 1, 2});
  std::string train = npy<std::uint8_t>("|b1", "2, 3", {1, 0, 0, 0, 1, 1});
  bool packed = false, long_sizes = false;

  std::string file() const {
    ZipFile zip;
    const auto add = [&](const std::string& name, const std::string& content) {
      zip.add(name + ".npy", content, packed, long_sizes);
    };
    add("node_features", features);
    add("node_labels", labels);
    add("edges", edges);
    add("train_masks", train);
    return zip.file("a comment");
  }
};

Table npz(const std::string& path, std::initializer_list<std::pair<const char*, Value>> more = {}) {
  Table options = table(more);
  options.set("layout", "npz");
  options.set("path", path);
  return options;
}

}  // namespace

TEST_CASE("graph: npz files, stored and deflated, of all versions and types") {
  const TempFolder folder;
  int number = 0;
  const auto check = [&](const std::string& file) {
    const std::string path = folder.write("g" + std::to_string(++number) + ".npz", file);
    const auto data = open(npz(path, {{"fanouts", Array{-1}}}));
    CHECK(data->labels() == Numbers{0});
    const Batch batch = read(*data, {0});
    CHECK(values<float>(batch.input()) == Floats{1, 2, 3, 4});
    CHECK(values(batch.inputs[2]) == Numbers{1});
    // Of the second split nodes 1 and 2, and 2 has no label.
    CHECK(open(npz(path, {{"split_index", 1}}))->labels() == Numbers{1});
    CHECK_THAT(config_error(npz(path, {{"split_index", 2}})),
               Contains("split_index is 2, and the file has 2 splits"));
    CHECK_THAT(data_error(npz(path), "test"), Contains("in the split test"));
  };
  for (const bool packed : {false, true})
    for (const bool long_sizes : {false, true})
      check(Arrays{.packed = packed, .long_sizes = long_sizes}.file());
  for (const int version : {1, 2, 3})
    check(Arrays{.features = npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5, 6}, version)}.file());
  check(Arrays{.features = npy<double>("<f8", "3, 2", {1, 2, 3, 4, 5, 6})}.file());
  check(
      Arrays{.features = npy<std::uint16_t>("<f2", "3, 2", {0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600})}
          .file());
  check(Arrays{.features = npy<std::int8_t>("|i1", "3, 2", {1, 2, 3, 4, 5, 6})}.file());
  check(Arrays{.features = npy<std::uint16_t>(">u2", "3, 2", {256, 512, 768, 1024, 1280, 1536})}.file());
  check(Arrays{.labels = npy<std::int8_t>("|i1", "3,", {0, 1, -1})}.file());
  check(Arrays{.labels = npy<std::int32_t>("<i4", "3, 1", {0, 1, -1})}.file());
  check(Arrays{.edges = npy<std::uint16_t>("<u2", "2, 2", {0, 1, 1, 2})}.file());
  check(Arrays{.edges = npy<std::uint64_t>("<u8", "2, 2", {0, 1, 1, 2})}.file());
  check(Arrays{.train = npy<std::int32_t>("<i4", "3, 2", {1, 0, 0, 1, 0, 1})}.file());  // [nodes, splits]
  // Fortran order, as the published files of the heterophilous benchmarks have it.
  check(Arrays{.features = npy<float>("<f4", "3, 2", {1, 3, 5, 2, 4, 6}, 1, true),
               .labels = npy<std::int64_t>("<i8", "3,", {0, 1, -1}, 1, true),
               .train = npy<std::uint8_t>("|b1", "2, 3", {1, 0, 0, 1, 0, 1}, 1, true),
               .packed = true}
            .file());
  check(Arrays{.features = npy<double>("<f8", "3, 2", {1, 3, 5, 2, 4, 6}, 2, true),
               .train = npy<std::int32_t>("<i4", "3, 2", {1, 0, 0, 0, 1, 1}, 1, true)}
            .file());
}

TEST_CASE("graph: an npz array of three dimensions in Fortran order") {
  const std::string file =
      npy<std::int16_t>("<i2", "2, 3, 2", {0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}, 1, true);
  const datasets::NpyArray array("here", {file.begin(), file.end()});
  for (std::int64_t i = 0; i < 12; ++i) CHECK(array.integer(i) == i);
}

TEST_CASE("graph: npz edges as pairs, index, row and col, and compressed rows") {
  const TempFolder folder;
  int number = 0;
  const auto neighbours = [&](const std::vector<std::pair<std::string, std::string>>& arrays,
                              bool undirected) {
    ZipFile zip;
    zip.add("x.npy", npy<float>("<f4", "4, 1", {10, 11, 12, 13}));
    zip.add("y.npy", npy<std::int64_t>("<i8", "4,", {0, 1, 1, 0}));
    zip.add("train_mask.npy", npy<std::uint8_t>("|b1", "4,", {1, 1, 1, 1}));
    for (const auto& [name, content] : arrays) zip.add(name + ".npy", content);
    const auto data = open(npz(folder.write("e" + std::to_string(++number) + ".npz", zip.file()),
                               {{"fanouts", Array{-1}}, {"undirected", undirected}}));
    std::string text;
    for (std::int64_t node = 0; node < 4; ++node) {
      const Floats found = values<float>(read(*data, {node}).input());
      for (const float each : Floats(found.begin() + 1, found.end()))
        text += std::to_string(static_cast<int>(each)) + " ";
      text += "|";
    }
    return text;
  };
  const auto list = [](const char* shape, const Numbers& numbers) {
    return npy<std::int64_t>("<i8", shape, numbers);
  };
  // From 1 to 0, from 3 to 0, from 2 to 1, from 3 to 2.
  const std::vector<std::vector<std::pair<std::string, std::string>>> forms = {
      {{"edges", list("4, 2", {1, 0, 3, 0, 2, 1, 3, 2})}},
      {{"edge_index", list("2, 4", {1, 3, 2, 3, 0, 0, 1, 2})}},
      {{"row", list("4,", {1, 3, 2, 3})}, {"col", list("4,", {0, 0, 1, 2})}},
      {{"rowptr", list("5,", {0, 2, 3, 4, 4})}, {"col", list("4,", {3, 1, 2, 3})}},
      {{"indptr", list("5,", {0, 2, 3, 4, 4})}, {"indices", list("4,", {1, 3, 2, 3})}}};
  for (const auto& form : forms) {
    CHECK(neighbours(form, false) == "11 13 |12 |13 ||");
    CHECK(neighbours(form, true) == "11 13 |10 12 |11 13 |10 12 |");
  }
  const auto bad = [&](const std::vector<std::pair<std::string, std::string>>& arrays) {
    return message_of<DataError>([&] { neighbours(arrays, false); });
  };
  CHECK_THAT(bad({{"indptr", list("5,", {0, 2, 1, 4, 4})}, forms[4][1]}),
             Contains("element 2 is 1, expected 2, that ahead"));
  CHECK_THAT(bad({{"indptr", list("5,", {1, 2, 3, 4, 4})}, forms[4][1]}),
             Contains("element 0 is 1, expected 0"));
  CHECK_THAT(bad({{"indptr", list("5,", {0, 2, 3, 4, 5})}, forms[4][1]}),
             Contains("ends with 5, and there are 4 edges"));
  CHECK_THAT(bad({{"indptr", list("4,", {0, 2, 3, 4})}, forms[4][1]}),
             Contains("its shape is [4], expected [5]"));
  CHECK_THAT(bad({forms[4][0], {"indices", list("4,", {1, 4, 2, 3})}}),
             Contains("edge 1 is at node 4, and there are 4"));
  CHECK_THAT(bad({{"edges", list("2, 2", {0, 1, -1, 2})}}), Contains("edge 1 is at node -1"));
  CHECK_THAT(bad({{"edges", list("2, 3", {0, 1, 1, 2, 0, 0})}}),
             Contains("its shape is [2, 3], expected [edges, 2]"));
  CHECK_THAT(bad({{"row", list("2,", {0, 1})}, {"col", list("1,", {0})}}),
             Contains("expected that of row, [2]"));
  CHECK_THAT(bad({}), Contains("there is no array edges; it has x, y, train_mask"));
}

TEST_CASE("graph: npz files that are no good are refused by name") {
  const TempFolder folder;
  const auto message = [&](const std::string& file,
                           std::initializer_list<std::pair<const char*, Value>> more = {}) {
    return data_error(npz(folder.write("bad.npz", file), more));
  };
  const Arrays good;
  CHECK_THAT(data_error(npz(folder.path("none.npz"))), Contains("none.npz: No such file"));
  CHECK_THAT(data_error(npz(folder.path(""))), Contains("cannot be read") || Contains("no file"));
  CHECK_THAT(message(""), Contains("bad.npz: it is truncated, or no .npz file"));
  CHECK_THAT(message("a,b\n1,2\n"), Contains("no .npz file"));
  std::string no_order = npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5, 6});
  no_order.replace(no_order.find("False"), 5, "Maybe");
  CHECK_THAT(message(Arrays{.features = no_order}.file()),
             Contains("array node_features: its header says no order of its elements"));
  CHECK_THAT(message(Arrays{.features = npy<double>("<c8", "3, 2", {1, 2, 3, 4, 5, 6})}.file()),
             Contains("its type is '<c8'"));
  CHECK_THAT(message(Arrays{.features = npy<float>("|O", "3, 2", {})}.file()), Contains("its type is '|O'"));
  CHECK_THAT(message(Arrays{.features = npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5})}.file()),
             Contains("it has 20 bytes, expected 24 for its shape"));
  CHECK_THAT(message(Arrays{.features = npy<float>("<f4", "281474976710656, 2", {})}.file()),
             Contains("its header says no shape"));
  CHECK_THAT(message(Arrays{.features = npy<float>("<f4", "6,", {1, 2, 3, 4, 5, 6})}.file()),
             Contains("its shape is [6], expected [nodes, width]"));
  CHECK_THAT(message(Arrays{.features = npy<float>("<f4", "3, 2", {1, 2, 3, NAN, 5, 6})}.file()),
             Contains("feature 1 of node 1 is no finite number"));
  CHECK_THAT(message(Arrays{.features = npy<float>("<f4", "3, 2", {}, 9)}.file()),
             Contains(".npy version 9"));
  CHECK_THAT(message(Arrays{.features = "no array"}.file()), Contains("it is no .npy array"));
  CHECK_THAT(message(Arrays{.labels = npy<std::int64_t>("<i8", "2,", {0, 1})}.file()),
             Contains("array node_labels: its shape is [2], expected [3]"));
  CHECK_THAT(message(Arrays{.labels = npy<float>("<f4", "3,", {0, 1, 2})}.file()),
             Contains("floating point, expected integers"));
  CHECK_THAT(message(Arrays{.labels = npy<std::int64_t>("<i8", "3,", {0, 1, -2})}.file()),
             Contains("the label of node 2 is -2"));
  CHECK_THAT(message(good.file(), {{"classes", 1}}), Contains("the label of node 1 is 1, expected 0 to 0"));
  CHECK_THAT(message(Arrays{.edges = npy<std::uint64_t>("<u8", "1, 2", {0, ~std::uint64_t{0}})}.file()),
             Contains("2^63 or more"));
  CHECK_THAT(message(Arrays{.train = npy<std::uint8_t>("|b1", "4,", {1, 1, 1, 1})}.file()),
             Contains("its shape is [4], expected [nodes], [splits, nodes]"));
  CHECK_THAT(message(Arrays{.features = npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5, 70000})}.file(),
                     {{"feature_dtype", "float16"}}),
             Contains("feature 1 of node 2 is 70000") && Contains("set feature_dtype = \"float32\""));
}

TEST_CASE("graph: an npz file that ends early, or with a bit changed, is refused or says the same") {
  const TempFolder folder;
  const graph::Source source{.layout = "npz", .path = folder.path("damaged.npz")};
  for (const bool packed : {false, true}) {
    const std::string file = Arrays{.packed = packed}.file();
    folder.write("damaged.npz", file);
    const graph::NodeGraph expected = graph::read_npz(source);
    // The comment is no part of the data.
    for (std::size_t kept = 0; kept + 10 < file.size(); ++kept) {
      folder.write("damaged.npz", file.substr(0, kept));
      REQUIRE_THAT(message_of<DataError>([&] { graph::read_npz(source); }), Contains("damaged.npz"));
    }
    std::size_t refused = 0;
    for (std::size_t at = 0; at < file.size(); ++at) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
      folder.write("damaged.npz", changed);
      try {
        const graph::NodeGraph found = graph::read_npz(source);
        // A date or a flag may be another, or a split's name; numbers may not.
        REQUIRE(found.features.equal(expected.features));
        REQUIRE(found.labels == expected.labels);
        REQUIRE(found.csr.edges() == expected.csr.edges());
        REQUIRE((found.splits == expected.splits || found.splits.empty()));
      } catch (const DataError& error) {
        ++refused;
        REQUIRE_THAT(error.what(), Contains("damaged.npz"));
      }
    }
    CHECK(refused > file.size() / 2);
  }
}

// ogb
// --------------------------------------------------------------------------------------------------------

namespace {

/// A folder of four nodes.
struct OgbFolder {
  TempFolder folder;
  OgbFolder() {
    for (const char* name : {"raw", "split/time"}) std::filesystem::create_directories(folder.path(name));
    folder.write("raw/num-node-list.csv.gz", "4\n");
    folder.write("raw/edge.csv.gz", "0,1\n1,2\n2,0\n");
    folder.write("raw/node-feat.csv.gz", "0.5,-1\n1e-2,2\n3,4\n5,6\n");
    folder.write("raw/node-label.csv.gz", "0\n2\n-1\n1.0\n");
    folder.write("split/time/train.csv.gz", "1\n0\n");
    folder.write("split/time/valid.csv.gz", "2\n3\n");
    folder.write("split/time/test.csv", "3\n");  // plain
  }
  Table options() const {
    return table({{"layout", "ogb"}, {"path", folder.path("")}, {"fanouts", Array{-1}}});
  }
  std::string with(const std::string& name, const std::string& text, std::int64_t classes = 0) const {
    folder.write(name, text);
    Table given = options();
    given.set("classes", classes);
    return data_error(given);
  }
};

}  // namespace

TEST_CASE("graph: the layout of the Open Graph Benchmark") {
  const OgbFolder ogb;
  const auto data = open(ogb.options());
  CHECK(data->labels() == Numbers{2, 0});  // in the order of the file
  CHECK(data->schema().classes == 3);
  CHECK(values<float>(read(*data, {1}).input()) == Floats{0.5f, -1, 0.01f, 2, 3, 4});
  CHECK(open(ogb.options(), "val")->labels() == Numbers{1});
  CHECK(open(ogb.options(), "test")->labels() == Numbers{1});
}

TEST_CASE("graph: errors of the Open Graph Benchmark's layout") {
  CHECK_THAT(OgbFolder().with("raw/num-node-list.csv.gz", ""), Contains("num-node-list.csv.gz: it is empty"));
  CHECK_THAT(OgbFolder().with("raw/num-node-list.csv.gz", "4\n5\n"), Contains("there are several graphs"));
  CHECK_THAT(OgbFolder().with("raw/num-node-list.csv.gz", "5\n"),
             Contains("it has 4 rows, expected one for each of the 5 nodes"));
  CHECK_THAT(OgbFolder().with("raw/num-node-list.csv.gz", "3\n"),
             Contains("node-feat.csv.gz:4: there are more rows than the 3 nodes"));
  CHECK_THAT(OgbFolder().with("raw/edge.csv.gz", "0,1\n1,4\n"),
             Contains("edge.csv.gz:2: a node is '4', expected 0 to 3"));
  CHECK_THAT(OgbFolder().with("raw/node-feat.csv.gz", "1,2\n1\n1,2\n1,2\n"),
             Contains(":2: found 1 fields, expected 2: as in the first row"));
  CHECK_THAT(OgbFolder().with("raw/node-feat.csv.gz", "1,2\n1,x\n1,2\n1,2\n"),
             Contains(":2: 'x' is no finite number"));
  CHECK_THAT(OgbFolder().with("raw/node-feat.csv.gz", "1,2\n1,inf\n1,2\n1,2\n"),
             Contains("'inf' is no finite number"));
  CHECK_THAT(OgbFolder().with("raw/node-label.csv.gz", "0\n1\n0\n"),
             Contains("node-label.csv.gz: it has 3 rows"));
  CHECK_THAT(OgbFolder().with("raw/node-label.csv.gz", "0\n1\n0\n2\n", 2),
             Contains(":4: the label is '2', expected 0 to 1"));
  CHECK_THAT(OgbFolder().with("split/time/train.csv.gz", "4\n"), Contains("train.csv.gz:1: a node is '4'"));
  CHECK_THAT(OgbFolder().with("split/time/train.csv.gz", ""), Contains("in the split train"));
  const OgbFolder two;
  std::filesystem::create_directories(two.folder.path("split/other"));
  CHECK_THAT(data_error(two.options()), Contains("found 2 folders, expected one"));
  const OgbFolder none;
  std::filesystem::remove(none.folder.path("raw/edge.csv.gz"));
  CHECK_THAT(data_error(none.options()), Contains("edge.csv.gz: No such file"));
}

// made up
// --------------------------------------------------------------------------------------------------------

TEST_CASE(
    "graph: a made-up graph has hubs, classes that keep together, and the same bits for the same seed") {
  const graph::Source source{.layout = "synthetic",
                             .synthetic = {.nodes = 20000, .edges = 200000, .classes = 7, .homophily = 0.7}};
  const auto made_graph = graph::open_graph(source);
  const graph::Csr& csr = made_graph->csr;
  CHECK(csr.nodes() == 20000);
  CHECK(csr.edges() > 380000);  // both ways, less those drawn twice
  CHECK(csr.edges() <= 400000);
  std::int64_t within = 0;
  Numbers degrees;
  for (std::int64_t node = 0; node < csr.nodes(); ++node) {
    degrees.push_back(csr.degree(node));
    const auto& col = std::get<std::span<const std::int32_t>>(csr.col);
    for (std::int64_t e = csr.rowptr[static_cast<std::size_t>(node)];
         e < csr.rowptr[static_cast<std::size_t>(node) + 1]; ++e)
      within += made_graph->labels[static_cast<std::size_t>(col[static_cast<std::size_t>(e)])] ==
                made_graph->labels[static_cast<std::size_t>(node)];
  }
  CHECK(static_cast<double>(within) / static_cast<double>(csr.edges()) == Approx(0.7 + 0.3 / 7).margin(0.01));
  // Expected degree of rank r: both ends, 10 + 200000 * 0.4 / (20010^0.4 - 10^0.4) * (r + 10)^-0.6.
  std::sort(degrees.rbegin(), degrees.rend());
  const auto expected = [](double rank) {
    return 10.0 + 200000 * 0.4 / (std::pow(20010.0, 0.4) - std::pow(10.0, 0.4)) * std::pow(rank + 10.5, -0.6);
  };
  CHECK(static_cast<double>(degrees[0]) == Approx(expected(0)).epsilon(0.15));
  CHECK(static_cast<double>(degrees[1000]) == Approx(expected(1000)).epsilon(0.3));
  const std::size_t train = made_graph->splits.at("train").size(), val = made_graph->splits.at("val").size();
  CHECK(train == Approx(12000).epsilon(0.03));
  CHECK(val == Approx(4000).epsilon(0.05));
  CHECK(train + val + made_graph->splits.at("test").size() == 20000);

  const auto first = read(*open(made({{"nodes", 300}})), {0, 1}),
             again = read(*open(made({{"nodes", 300}})), {0, 1});
  CHECK(same(first, again));
  CHECK_FALSE(same(first, read(*open(made({{"nodes", 300}, {"seed", 1}})), {0, 1})));
}

// batches
// --------------------------------------------------------------------------------------------------------

TEST_CASE("graph: splits share one graph, until its options or its files are others") {
  const graph::Source source{.layout = "synthetic", .synthetic = {.nodes = 50}};
  auto first = graph::open_graph(source);
  CHECK(graph::open_graph(source) == first);
  graph::Source other = source;
  other.half = true;
  CHECK(graph::open_graph(other) != first);
  other = source;
  other.synthetic.noise = 0.25;
  CHECK(graph::open_graph(other) != first);
  const std::weak_ptr<const graph::NodeGraph> gone = first;
  first.reset();
  CHECK(gone.expired());

  const TempFolder folder;
  const std::string path = folder.write("g.npz", Arrays().file());
  const auto before = graph::open_graph({.layout = "npz", .path = path});
  CHECK(graph::open_graph({.layout = "npz", .path = path}) == before);
  folder.write("g.npz", Arrays{.packed = true}.file());
  CHECK(graph::open_graph({.layout = "npz", .path = path}) != before);
}

TEST_CASE("graph: a folder that is not there is refused, though the graph is in memory") {
  const TempFolder folder;
  planetoid(folder, nodes_text, edges_text);  // writes the files
  const auto options = [&](const std::string& keep_in) {
    return table({{"layout", "planetoid"}, {"path", folder.path("")}, {"keep_in", keep_in}});
  };
  const auto held = open(options(folder.path("")));
  for (const std::string& keep_in : {folder.path("five.edges.tsv"), folder.path("nowhere")})
    CHECK_THROWS_WITH(open(options(keep_in)), Contains("keep_in = \"" + keep_in + "\" is no folder"));
}

TEST_CASE("graph: a kept graph is the same, is made once, and is refused when a byte of it is another") {
  const TempFolder folder, shelf;
  planetoid(folder, nodes_text, edges_text);  // writes the files
  const auto options = [&](bool keep, bool half) {
    return table({{"layout", "planetoid"},
                  {"path", folder.path("")},
                  {"keep_in", keep ? shelf.path("") : ""},
                  {"feature_dtype", half ? "float16" : "float32"},
                  {"degree", true}});
  };
  const auto kept_files = [&] {
    std::vector<std::string> files;
    for (const auto& each : std::filesystem::directory_iterator(shelf.path(""))) files.push_back(each.path());
    return files;
  };
  for (const bool half : {false, true}) {
    const Batch expected = read(*open(options(false, half)), {0, 1});
    const auto files = kept_files();
    CHECK(same(read(*open(options(true, half)), {0, 1}), expected));  // writes it
    REQUIRE(kept_files().size() == files.size() + 1);
    const auto mapped = open(options(true, half));
    CHECK(same(read(*mapped, {0, 1}), expected));
    CHECK(mapped->labels() == Numbers{1, 0});
    CHECK(open(options(true, half), "val")->labels() == Numbers{1});
    CHECK(kept_files().size() == files.size() + 1);
  }
  const std::string file = kept_files().front();
  const std::string content = test::read_file(file);
  {
    // Of another name, in the place of that file.
    const datasets::KeptFile other = graph::kept_graph(shelf.path(""), "another graph");
    std::filesystem::copy_file(file, other.path());
    CHECK_FALSE(graph::map_kept(other).has_value());
    std::filesystem::remove(other.path());
  }
  std::ofstream(file, std::ios::binary) << content.substr(0, content.size() / 2);
  const auto open_both = [&] {
    open(options(true, false));
    open(options(true, true));
  };
  CHECK_THAT(message_of<DataError>(open_both), Contains("the kept graph is damaged: remove the file"));
  std::filesystem::remove(file);
  CHECK_NOTHROW(open(options(true, false)));
  CHECK_THAT(message_of<DataError>([&] {
               graph::keep(graph::kept_graph(shelf.path("none"), "n"),
                           *graph::open_graph({.layout = "synthetic"}));
             }),
             Contains("the graph cannot be kept"));
}

TEST_CASE("graph: a kept graph that is cut, or changed at any byte, is refused by name") {
  const TempFolder shelf;
  const datasets::KeptFile file = graph::kept_graph(shelf.path(""), "small");
  graph::keep(file, *graph::open_graph({.layout = "synthetic",
                                        .synthetic = {.nodes = 7, .edges = 9, .features = 2, .classes = 2}}));
  const std::string content = test::read_file(file.path());
  REQUIRE(graph::map_kept(file).has_value());
  for (std::size_t at = 0; at < content.size(); ++at) {
    std::string changed = content;
    changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
    std::ofstream(file.path(), std::ios::binary) << changed;
    REQUIRE_THAT(message_of<DataError>([&] { graph::map_kept(file); }),
                 Contains("the kept graph is damaged"));
    std::ofstream(file.path(), std::ios::binary) << content.substr(0, at);
    REQUIRE_THAT(message_of<DataError>([&] { graph::map_kept(file); }),
                 Contains(file.path()) && Contains("the kept graph is damaged"));
  }
}

TEST_CASE("graph: many graphs, edges with targets and numbers are kept as well") {
  const TempFolder shelf;
  const Table synthetic =
      table({{"graphs", 9}, {"nodes", 12}, {"edges", 30}, {"classes", 2}, {"features", 3}});
  for (const char* task : {"graph", "edge"})
    for (const char* targets : {"classes", "numbers"}) {
      Table options =
          table({{"layout", "synthetic"}, {"synthetic", synthetic}, {"task", task}, {"targets", targets}});
      if (std::string(task) == "edge") options.set("fanouts", Array{-1});
      const Batch expected = read(*open(options), {0, 1, 2});
      options.set("keep_in", shelf.path(""));
      CHECK(same(read(*open(options), {0, 1, 2}), expected));  // writes it
      const auto mapped = open(options);
      CHECK(same(read(*mapped, {0, 1, 2}), expected));
      CHECK(mapped->schema().classes == (std::string(targets) == "numbers" ? 0 : 2));
    }
  std::ptrdiff_t files = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(shelf.path(""))) ++files;
  CHECK(files == 4);
}

TEST_CASE("graph: a batch is a function of seed, epoch and step, on any thread and with any map") {
  const Table options =
      made({{"nodes", 400}, {"edges", 8000}}, {{"fanouts", Array{4, 3}}, {"feature_dtype", "float16"}});
  const auto data = open(options);
  check_batch_fits_schema(*data);
  const Batch reference = read(*data, {5, 9, 5}, 1, 64);
  CHECK(same(reference, read(*data, {5, 9, 5}, 1, 64)));
  CHECK_FALSE(same(reference, read(*data, {5, 9, 5}, 2, 64)));
  CHECK_FALSE(same(reference, read(*data, {5, 9, 5}, 1, 65)));
  CHECK_FALSE(same(reference, read(*data, {5, 9, 5}, 1, 64, 2)));
  Table flat = options;
  flat.set("id_map", "flat");
  CHECK(same(reference, read(*open(flat), {5, 9, 5}, 1, 64)));
  Table tight = options;
  tight.set("map_budget", 0);
  CHECK(same(reference, read(*open(tight), {5, 9, 5}, 1, 64)));

  std::vector<Batch> expected;
  const auto batch = [&](const Dataset& from, std::int64_t i) {
    return read(from, {i, i + 1, 2 * i}, static_cast<std::uint64_t>(i) / 10, i * 3);
  };
  for (std::int64_t i = 0; i < 40; ++i) expected.push_back(batch(*data, i));
  for (const std::int64_t threads : {1, 2, 4}) {
    std::vector<Batch> found(expected.size());
    std::vector<std::thread> running;
    for (std::int64_t t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        for (std::int64_t i = t; i < 40; i += threads) found[static_cast<std::size_t>(i)] = batch(*data, i);
      });
    for (std::thread& thread : running) thread.join();
    for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(same(found[i], expected[i]));
  }
}

namespace {

/// The mean over the sources of a block, by loops.
at::Tensor mean_of_sources(const at::Tensor& x, const Block& block) {
  at::Tensor out = at::zeros({block.targets(), x.size(1)}, at::kFloat);
  const Numbers rowptr = values(block.rowptr), col = values(block.col);
  for (std::int64_t t = 0; t < block.targets(); ++t) {
    const std::int64_t begin = rowptr[static_cast<std::size_t>(t)],
                       end = rowptr[static_cast<std::size_t>(t) + 1];
    for (std::int64_t e = begin; e < end; ++e)
      out[t].add_(x[col[static_cast<std::size_t>(e)]], 1.0 / static_cast<double>(end - begin));
  }
  return out;
}

}  // namespace

TEST_CASE("graph: with all neighbours, means over two hops are those of the whole graph's adjacency matrix") {
  for (const bool undirected : {true, false}) {
    const graph::Synthetic small{.nodes = 60, .edges = 90, .features = 5, .classes = 3};
    const auto whole =
        graph::open_graph({.layout = "synthetic", .edges = {.undirected = undirected}, .synthetic = small});
    const graph::Csr& csr = whole->csr;
    at::Tensor adjacency = at::zeros({60, 60}, at::kFloat);
    for (std::int64_t v = 0; v < 60; ++v)
      for (std::int64_t e = csr.rowptr[static_cast<std::size_t>(v)];
           e < csr.rowptr[static_cast<std::size_t>(v) + 1]; ++e)
        adjacency[v][std::get<std::span<const std::int32_t>>(csr.col)[static_cast<std::size_t>(e)]].add_(
            1.0 / static_cast<double>(csr.degree(v)));
    const at::Tensor expected = at::matmul(adjacency, at::matmul(adjacency, whole->features));
    for (const char* mode : {"mfg", "subgraph"}) {
      const auto data = open(
          made({{"nodes", 60}, {"edges", 90}, {"features", 5}, {"classes", 3}},
               {{"fanouts", Array{-1, -1}}, {"mode", mode}, {"undirected", undirected}, {"degree", true}}));
      const Numbers indices = all_of(*data);
      const Batch batch = read(*data, indices);
      const BlockSchema schema = find_blocks(data->schema());
      at::Tensor x = batch.input();
      for (const Block& block : blocks_of(batch, schema, 2)) x = mean_of_sources(x, block);
      for (const std::int64_t i : indices) {
        const std::int64_t node = whole->splits.at("train")[static_cast<std::size_t>(i)];
        REQUIRE(x[i].allclose(expected[node], 1e-5, 1e-5));
        REQUIRE(values(batch.inputs[schema.degree.value()])[static_cast<std::size_t>(i)] == csr.degree(node));
      }
    }
  }
}

// real data
// --------------------------------------------------------------------------------------------------------

TEST_CASE("graph: Cora has the sizes that its description says") {
  const std::string path = test::real_data("graph/cora_planetoid");
  if (path.empty()) return;
  const auto cora = graph::open_graph({.layout = "planetoid", .path = path});
  CHECK(cora->csr.nodes() == 2708);
  CHECK(cora->csr.edges() == 2 * 5278);
  CHECK(cora->features.sizes() == at::IntArrayRef({2708, 1433}));
  CHECK(cora->features.sum().item<float>() == 49216);
  Numbers classes(7);
  for (const std::int64_t label : cora->labels) ++classes[static_cast<std::size_t>(label)];
  CHECK(classes == Numbers{351, 217, 418, 818, 426, 298, 180});
  CHECK(cora->splits.at("train").size() == 140);
  CHECK(cora->splits.at("val").size() == 500);
  CHECK(cora->splits.at("test").size() == 1000);
}

TEST_CASE("graph: Tolokers and Minesweeper, as NumPy has packed them") {
  struct Known {
    const char* name;
    std::int64_t nodes, edges, width, positive;
  };
  for (const Known& known :
       {Known{"tolokers", 11758, 519000, 10, 2566}, Known{"minesweeper", 10000, 39402, 7, 2000}}) {
    const std::string path = test::real_data(std::string("graph/heterophilous/") + known.name + ".npz");
    if (path.empty()) return;
    std::set<Numbers> splits;
    for (std::int64_t split = 0; split < 10; split += 3) {
      const auto found = graph::open_graph({.layout = "npz", .path = path, .split_index = split});
      CHECK(found->csr.nodes() == known.nodes);
      CHECK(found->csr.edges() == 2 * known.edges);
      CHECK(found->features.size(1) == known.width);
      CHECK(std::accumulate(found->labels.begin(), found->labels.end(), std::int64_t{0}) == known.positive);
      const std::size_t train = found->splits.at("train").size();
      CHECK(static_cast<std::int64_t>(train + found->splits.at("val").size() +
                                      found->splits.at("test").size()) == known.nodes);
      CHECK(static_cast<std::int64_t>(train) == known.nodes / 2);
      splits.insert(found->splits.at("train"));
    }
    CHECK(splits.size() == 4);
  }
}

}  // namespace graph_tests
