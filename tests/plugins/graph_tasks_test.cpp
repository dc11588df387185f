// Samples that are edges or graphs: how they are split, negatives, batches, models of them, and the ranks of
// edges.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/dataset.hpp>
#include <trainyard/helpers/blocks.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/model.hpp>

#include "support/files.hpp"
#include "support/plugin.hpp"

namespace graph_tasks_tests {

using namespace trainyard;
using Catch::Contains;
using test::make;
using test::message_of;
using test::table;
using test::TempFolder;

namespace {

using Numbers = std::vector<std::int64_t>;
using Pair = std::pair<std::int64_t, std::int64_t>;
using Pairs = std::set<Pair>;
using Options = std::initializer_list<std::pair<const char*, Value>>;

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
Batch read(const Dataset& dataset, const Numbers& indices, std::uint64_t epoch = 0,
           std::int64_t position = 0) {
  Batch batch = dataset.read(indices, {RandomStream(1, "data/train", epoch), position, 0});
  batch.indices = indices;
  return batch;
}
Numbers all_of(const Dataset& dataset) {
  Numbers indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

/// A planetoid folder whose nodes have their number in binary as features.
struct Citations {
  static constexpr std::int64_t bits = 6;
  TempFolder folder;

  Citations(std::int64_t nodes, const Pairs& edges) {
    std::string lines, pairs;
    for (std::int64_t node = 0; node < nodes; ++node) {
      std::string words;
      for (std::int64_t bit = 0; bit < bits; ++bit)
        if ((node >> bit & 1) != 0 || bit == bits - 1)
          words += (words.empty() ? "" : " ") + std::to_string(bit);
      lines += std::to_string(node) + "\t0\ttrain\t" + words + "\n";
    }
    for (const auto& [from, to] : edges) pairs += std::to_string(from) + "\t" + std::to_string(to) + "\n";
    folder.write("g.nodes.tsv", lines);
    folder.write("g.edges.tsv", pairs);
  }
  Table options(Options more = {}) const {
    Table options = table(more);
    options.set("layout", "planetoid");
    options.set("path", folder.path(""));
    options.set("task", "edge");
    if (options.find("fanouts") == nullptr) options.set("fanouts", Array{-1});
    return options;
  }
};

/// The nodes of a batch by their numbers in the graph, which their features are.
Numbers nodes_of(const Batch& batch) {
  Numbers nodes;
  for (std::int64_t row = 0; row < batch.input().size(0); ++row) {
    std::int64_t node = 0;
    for (std::int64_t bit = 0; bit + 1 < Citations::bits; ++bit)
      node += static_cast<std::int64_t>(batch.input()[row][bit].item<float>()) << bit;
    nodes.push_back(node);
  }
  return nodes;
}
/// Pairs of the samples: [sample][pair].
std::vector<std::vector<Pair>> pairs_of(const Batch& batch) {
  const Numbers nodes = nodes_of(batch);
  const at::Tensor ends = batch.inputs.back();
  std::vector<std::vector<Pair>> found;
  for (std::int64_t i = 0; i < ends.size(0); ++i) {
    found.emplace_back();
    for (std::int64_t j = 0; j < ends.size(1); ++j)
      found.back().emplace_back(nodes[static_cast<std::size_t>(ends[i][j][0].item<std::int64_t>())],
                                nodes[static_cast<std::size_t>(ends[i][j][1].item<std::int64_t>())]);
  }
  return found;
}
/// (source, target) of the messages to the seeds.
Pairs messages_of(const Batch& batch) {
  const Numbers nodes = nodes_of(batch);
  Pairs found;
  for (std::int64_t t = 0; t + 1 < batch.inputs[1].size(0); ++t)
    for (std::int64_t e = batch.inputs[1][t].item<std::int64_t>();
         e < batch.inputs[1][t + 1].item<std::int64_t>(); ++e)
      found.emplace(nodes[static_cast<std::size_t>(batch.inputs[2][e].item<std::int64_t>())],
                    nodes[static_cast<std::size_t>(t)]);
  return found;
}
Pair ascending(Pair pair) {
  return {std::min(pair.first, pair.second), std::max(pair.first, pair.second)};
}

/// 25 nodes; every third pair or so.
Pairs some_edges() {
  Pairs edges;
  for (std::int64_t u = 0; u < 25; ++u)
    for (std::int64_t v = u + 1; v < 25; ++v)
      if ((u * 7 + v * 5) % 3 == 0) edges.emplace(u, v);
  return edges;
}

Table whole(Options synthetic, Options more = {}) {
  Table options = table(more);
  options.set("layout", "synthetic");
  options.set("task", "graph");
  options.set("synthetic", table(synthetic));
  return options;
}

}  // namespace

TEST_CASE("graph: edges are split into parts that share none, and messages go over those for training",
          "[graph_tasks]") {
  const Pairs edges = some_edges();
  const Citations graph(25, edges);
  const Array shares = {0.6, 0.25, 0.15};
  std::map<std::string, Pairs> parts;
  Pairs messages;
  for (const std::string split : {"train", "val", "test"}) {
    const auto data = open(graph.options({{"shares", shares}}), split);
    const Batch batch = read(*data, all_of(*data));
    for (const auto& sample : pairs_of(batch)) {
      CHECK(edges.count(sample[0]) == 1);
      CHECK(parts[split].insert(sample[0]).second);
    }
    for (const Pair& message : messages_of(batch)) messages.insert(ascending(message));
    CHECK(batch.target.equal(at::tensor({1.f, 0.f}).expand({data->size(), std::int64_t{2}})));
    CHECK(data->labels().empty());
  }
  CHECK(std::ssize(parts["val"]) == std::ssize(edges) / 4);
  CHECK(std::ssize(parts["test"]) == std::ssize(edges) * 15 / 100);
  Pairs together;
  for (const auto& [split, pairs] : parts) together.insert(pairs.begin(), pairs.end());
  CHECK(together == edges);
  CHECK(parts["train"].size() + parts["val"].size() + parts["test"].size() == edges.size());
  CHECK(messages == parts["train"]);

  const auto again = open(graph.options({{"shares", shares}}), "val");
  Pairs same;
  for (const auto& sample : pairs_of(read(*again, all_of(*again)))) same.insert(sample[0]);
  CHECK(same == parts["val"]);
}

TEST_CASE("graph: another seed splits otherwise, and splits of a run that differ are refused",
          "[graph_tasks]") {
  const Citations graph(25, some_edges());
  const auto first = [&](std::int64_t seed) {
    const auto data = open(graph.options({{"split_seed", seed}}), "test");
    return pairs_of(read(*data, all_of(*data)))[0][0];
  };
  std::set<Pair> found;
  for (std::int64_t seed = 0; seed < 5; ++seed) found.insert(first(seed));
  CHECK(found.size() > 1);

  const auto train = open(graph.options());
  CHECK_NOTHROW(open(graph.options({{"fanouts", Array{3}}}), "val"));
  for (const auto& other :
       {graph.options({{"split_seed", 7}}), graph.options({{"shares", Array{0.5, 0.25, 0.25}}}),
        graph.options({{"undirected", false}})})
    CHECK_THAT(config_error(other), Contains("a split of the data has shares") && Contains("give them once"));
  CHECK_THAT(config_error(Citations(25, some_edges()).options({{"shares", Array{0.5, 0.25}}})),
             Contains("expected three shares that add up to 1"));
}

TEST_CASE("graph: negatives are no edges of any split, each equally often", "[graph_tasks]") {
  const Pairs edges = some_edges();
  const Citations graph(25, edges);
  constexpr std::int64_t draws = 400;
  for (const bool undirected : {true, false}) {
    INFO("undirected " << undirected);
    const auto data = open(graph.options({{"negatives", draws}, {"undirected", undirected}}));
    const auto sample = pairs_of(read(*data, {3}))[0];
    const auto [u, v] = sample[0];
    std::map<Pair, double> drawn;
    for (std::size_t j = 1; j < sample.size(); ++j) ++drawn[sample[j]];
    std::map<Pair, double> expected;
    const auto known = [&](std::int64_t a, std::int64_t b) {
      return edges.count({a, b}) == 1 || (undirected && edges.count({b, a}) == 1);
    };
    for (const bool second : {false, true}) {
      if (second && !undirected) break;
      Numbers others;
      for (std::int64_t w = 0; w < 25; ++w)
        if (w != (second ? v : u) && !(second ? known(w, v) : known(u, w))) others.push_back(w);
      for (const std::int64_t w : others)
        expected[second ? Pair{w, v} : Pair{u, w}] =
            static_cast<double>(draws) / (undirected ? 2.0 : 1.0) / static_cast<double>(others.size());
    }
    double chi = 0.0;
    for (const auto& [pair, mean] : expected) chi += std::pow(drawn[pair] - mean, 2) / mean;
    for (const auto& [pair, count] : drawn) {
      INFO(pair.first << " " << pair.second);
      CHECK((count == 0.0 || expected.count(pair) == 1));
    }
    const auto freedom = static_cast<double>(expected.size()) - 1.0;
    CHECK(chi < freedom + 4.0 * std::sqrt(2.0 * freedom));
  }
}

TEST_CASE("graph: negatives of training are a function of place and epoch, others of the edge",
          "[graph_tasks]") {
  const Citations graph(25, some_edges());
  const Table options = graph.options({{"negatives", 3}});
  const auto train = open(options), val = open(options, "val");
  const auto of = [](const Dataset& data, const Numbers& indices, std::uint64_t epoch,
                     std::int64_t position) { return pairs_of(read(data, indices, epoch, position)); };
  const auto together = of(*train, {4, 9, 2}, 5, 10);
  CHECK(of(*train, {9, 2}, 5, 11) == std::vector(together.begin() + 1, together.end()));
  CHECK(of(*train, {4, 9, 2}, 6, 10) != together);
  CHECK(of(*train, {4, 9, 2}, 5, 11) != together);
  CHECK(of(*val, {1, 0}, 5, 10) == of(*val, {1, 0}, 7, 20));
  CHECK(of(*val, {1, 0}, 5, 10)[1] == of(*val, {0}, 5, 10)[0]);
}

TEST_CASE("graph: loops, edges given twice, nodes without edges, and graphs without negatives",
          "[graph_tasks]") {
  const Array all_train = {1.0, 0.0, 0.0};
  {
    const Citations graph(5, {{0, 0}, {0, 1}, {1, 0}, {1, 2}});
    const auto data = open(graph.options({{"shares", all_train}}));
    CHECK(data->size() == 2);  // 0 - 1 once, and no loop
    CHECK(messages_of(read(*data, {0})).count({0, 0}) == 1);
    const auto directed = Citations(5, {{0, 0}, {0, 1}, {1, 0}, {1, 2}});
    CHECK(open(directed.options({{"shares", all_train}, {"undirected", false}}))->size() == 3);
  }
  {
    // 0 has an edge to all: the other end stays.
    const Citations star(4, {{0, 1}, {0, 2}, {0, 3}});
    const auto data = open(star.options({{"shares", all_train}, {"negatives", 20}}));
    for (const auto& sample : pairs_of(read(*data, {0, 1, 2})))
      for (std::size_t j = 1; j < sample.size(); ++j) {
        CHECK(sample[j].second == sample[0].second);
        CHECK((sample[j].first != 0 && sample[j].first != sample[j].second));
      }
  }
  const Citations complete(3, {{0, 1}, {0, 2}, {1, 2}});
  CHECK_THAT(data_error(complete.options({{"shares", all_train}})),
             Contains("there is no negative for the edge 0 - 1"));
  CHECK_THAT(data_error(complete.options({{"shares", all_train}}), "val"),
             Contains("no edge is in the split val"));
  CHECK_THAT(data_error(Citations(3, {}).options()), Contains("no edge is in the split train"));
  {
    // All edges of node 5 may be for testing: it then has no neighbour.
    const Citations graph(6, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {0, 2}});
    const Table options = graph.options({{"shares", Array{0.0, 0.0, 1.0}}});
    const auto data = open(options, "test");
    CHECK(messages_of(read(*data, all_of(*data))).empty());
  }
}

// whole graphs
// --------------------------------------------------------------------------------------------------------

TEST_CASE("graph: made-up graphs stand whole in their batch, whatever else is in it", "[graph_tasks]") {
  const auto data =
      open(whole({{"graphs", 40}, {"nodes", 9}, {"edges", 14}, {"classes", 3}}, {{"degree", true}}));
  REQUIRE(data->size() == 34);
  const BatchSchema schema = data->schema();
  CHECK(schema.classes == 3);
  const BlockSchema blocks = find_blocks(schema);
  REQUIRE(blocks.graphs);
  CHECK(blocks.hops == 1);
  const Batch both = read(*data, {20, 7}), one = read(*data, {7});
  const at::Tensor offsets = both.inputs[*blocks.graphs];
  REQUIRE(offsets.size(0) == 3);
  const auto first = offsets[1].item<std::int64_t>(), nodes = offsets[2].item<std::int64_t>();
  CHECK(both.input().size(0) == nodes);
  CHECK((first >= 5 && first <= 14));
  CHECK(both.input().narrow(0, first, nodes - first).equal(one.input()));
  const at::Tensor rowptr = both.inputs[1], edges = both.inputs[2];
  const auto before = rowptr[first].item<std::int64_t>();
  CHECK(rowptr.narrow(0, first, nodes - first + 1).sub(before).equal(one.inputs[1]));
  CHECK(edges.narrow(0, before, edges.size(0) - before).sub(first).equal(one.inputs[2]));
  CHECK(edges.narrow(0, 0, before).max().item<std::int64_t>() < first);
  CHECK(both.inputs[3].equal(at::diff(rowptr)));
  const Numbers labels = data->labels();
  CHECK(both.target.equal(at::tensor({labels[20], labels[7]})));
  CHECK(blocks_of(both, blocks, 4).size() == 4);
}

TEST_CASE("graph: what does not go with whole graphs is refused", "[graph_tasks]") {
  for (const Options& more :
       {Options{{"fanouts", Array{3, 3}}}, Options{{"mode", "subgraph"}}, Options{{"replace", true}}})
    CHECK_THAT(config_error(whole({}, more)), Contains("takes graphs whole"));
  CHECK_THAT(config_error(table({{"layout", "planetoid"}, {"path", "/"}, {"task", "graph"}})),
             Contains("layout = \"planetoid\" has one"));
  CHECK_THAT(config_error(table({{"layout", "tu"}, {"path", "/"}})), Contains("set task = \"graph\""));
  CHECK_THAT(config_error(whole({{"classes", 3}}, {{"classes", 2}})),
             Contains("classes is 2, less than synthetic"));
}

TEST_CASE("graph: tu files, and what is wrong in them with file and line", "[graph_tasks]") {
  // Two graphs: nodes 1 - 3 and 4 - 5.
  std::map<std::string, std::string> files = {{"A", "1, 2\n2, 1\n4, 5\n5, 4\n"},
                                              {"graph_indicator", "1\n1\n1\n2\n2\n"},
                                              {"graph_labels", "1\n-1\n"},
                                              {"node_labels", "7\n3\n7\n3\n3\n"},
                                              {"node_attributes", "0.5, 1\n1, 1\n2, 1\n3, 1\n4, 1\n"}};
  const auto options = [&](const TempFolder& folder, const std::map<std::string, std::string>& content) {
    for (const auto& [name, text] : content) folder.write("DS_" + name + ".txt", text);
    return table(
        {{"layout", "tu"}, {"path", folder.path("")}, {"task", "graph"}, {"shares", Array{1.0, 0.0, 0.0}}});
  };
  {
    const TempFolder folder;
    const auto data = open(options(folder, files));
    REQUIRE(data->labels() == Numbers{1, 0});
    const Batch batch = read(*data, {1, 0});
    CHECK(batch.input().equal(at::tensor({3.f, 1.f, 1.f, 0.f, 4.f, 1.f, 1.f, 0.f, .5f, 1.f,
                                          0.f, 1.f, 1.f, 1.f, 1.f, 0.f, 2.f, 1.f, 0.f, 1.f})
                                  .view({5, 4})));
    CHECK(batch.inputs[1].equal(at::tensor(Numbers{0, 1, 2, 3, 4, 4})));
    CHECK(batch.inputs[2].equal(at::tensor(Numbers{1, 0, 3, 2})));
    CHECK(batch.inputs[3].equal(at::tensor(Numbers{0, 2, 5})));
  }
  const auto with = [&](const std::string& name, const std::string& text) {
    auto changed = files;
    changed[name] = text;
    const TempFolder folder;
    return data_error(options(folder, changed));
  };
  CHECK_THAT(with("A", "1, 2\n2, 6\n"), Contains("DS_A.txt:2: a node is '6', expected 1 to 5"));
  CHECK_THAT(with("A", "0, 2\n"), Contains("a node is '0', expected 1 to 5"));
  CHECK_THAT(with("A", "1, 2\n3, 4\n"), Contains("DS_A.txt:2: node 3 is of graph 1, node 4 of graph 2"));
  CHECK_THAT(with("A", "1\n"), Contains("DS_A.txt:1: found 1 fields, expected 2"));
  CHECK_THAT(with("graph_indicator", "1\n1\n3\n3\n3\n"),
             Contains("graph_indicator.txt:3: found graph 3, expected 1 or 2"));
  CHECK_THAT(with("graph_indicator", "2\n"),
             Contains("found graph 2, expected 1: nodes stand graph by graph"));
  CHECK_THAT(with("graph_indicator", ""), Contains("there is no node"));
  CHECK_THAT(with("graph_labels", "1\n"), Contains("it has 1 rows, expected one for each of the 2 graphs"));
  CHECK_THAT(with("graph_labels", "1\nx\n"),
             Contains("graph_labels.txt:2: the label is 'x', expected an integer"));
  CHECK_THAT(with("node_labels", "1\n"), Contains("each of the 5 nodes"));
  CHECK_THAT(with("node_attributes", "1, 2\n3\n"),
             Contains("node_attributes.txt:2: found 1 fields, expected 2"));
  CHECK_THAT(with("node_attributes", "1\nnan\n"),
             Contains("node_attributes.txt:2: 'nan' is no finite number"));
  files.erase("graph_labels");
  const TempFolder folder;
  CHECK_THAT(data_error(options(folder, files)), Contains("DS_graph_labels.txt: No such file"));
}

TEST_CASE("graph: classes and columns of tu files are those of the graphs that training takes",
          "[graph_tasks]") {
  const TempFolder folder, shelf;
  folder.write("DS_A.txt", "1, 2\n3, 4\n5, 6\n");
  folder.write("DS_graph_indicator.txt", "1\n1\n2\n2\n3\n3\n");
  folder.write("DS_node_labels.txt", "7\n7\n9\n9\n-3\n7\n");
  std::string written;
  const auto open_with = [&](const std::string& labels, const Table* learned, Options more = {}) {
    if (labels != written)
      folder.write("DS_graph_labels.txt", labels);  // a kept copy is of files with their times
    written = labels;
    Table options = table(
        {{"layout", "tu"}, {"path", folder.path("")}, {"task", "graph"}, {"shares", Array{1.0, 0.0, 0.0}}});
    for (const auto& [name, value] : more) options.set(name, value);
    auto dataset = make<Dataset>("graph", options);
    auto& learns = dynamic_cast<Learns&>(*dataset);
    if (learned != nullptr) learns.use(*learned);
    learns.set_taken([](std::int64_t) { return Numbers{0, 2}; });
    dataset->open("train");
    return dataset;
  };
  Table learned;
  for (const char* keep_in : {"", "makes the copy", "maps it"}) {
    INFO(keep_in);
    const auto data = open_with("4\n-5\n1\n", nullptr, {{"keep_in", *keep_in == '\0' ? "" : shelf.path("")}});
    CHECK(data->schema().classes == 2);
    CHECK(data->labels() == Numbers{1, -1, 0});
    CHECK(dynamic_cast<Learns&>(*data).ungraded() == Numbers{1});
    const Batch batch = read(*data, {0, 2});
    CHECK(batch.input().equal(at::tensor({0.f, 1.f, 0.f, 1.f, 1.f, 0.f, 0.f, 1.f}).view({4, 2})));
    CHECK(batch.target.equal(at::tensor(Numbers{1, 0})));
    learned = dynamic_cast<Learns&>(*data).learned();
  }
  // Files that have changed since: what a label stands for does not.
  CHECK(open_with("4\n9\n4\n", &learned)->labels() == Numbers{1, -1, 1});
  CHECK_THAT(message_of<DataError>([&] { open_with("4\n4\n9\n", &learned); }),
             Contains("sample 2 is of class 9, and the run was trained with 2 classes that are others"));
  CHECK_THAT(message_of<ConfigError>([&] {
               open_with("4\n-5\n1\n", nullptr, {{"classes", 1}});
             }),
             Contains("classes is 1, and the training samples of " + folder.path("") + " have 2"));
  learned.erase("node_labels");
  CHECK_THAT(message_of<DataError>([&] { open_with("4\n-5\n1\n", &learned); }),
             Contains("its nodes have labels, and the run was trained without"));
  learned.set("format", 1);
  CHECK_THAT(message_of<DataError>([&] { open_with("4\n-5\n1\n", &learned); }),
             Contains("train the run anew"));
}

// models
// --------------------------------------------------------------------------------------------------------

namespace {

BatchSchema schema_of(GraphTask task, std::int64_t pairs = 1) {
  BatchSchema schema;
  schema.inputs = block_fields(5, at::kFloat, 1, true, task, pairs);
  schema.target = task == GraphTask::edge ? FieldSchema{"link", {pairs}, at::kFloat}
                                          : FieldSchema{"class", {}, at::kLong};
  schema.classes = task == GraphTask::edge ? 2 : 3;
  return schema;
}
/// Seven nodes in a ring.
Batch ring(std::int64_t samples, const at::Tensor& last) {
  Batch batch;
  Numbers rowptr = {0}, col;
  for (std::int64_t v = 0; v < 7; ++v) {
    col.insert(col.end(), {(v + 6) % 7, (v + 1) % 7});
    rowptr.push_back(std::ssize(col));
  }
  batch.inputs = {at::randn({7, 5}), at::tensor(rowptr), at::tensor(col), at::full({7}, 2, at::kLong), last};
  for (std::int64_t i = 0; i < samples; ++i) batch.indices.push_back(i);
  return batch;
}
std::map<std::string, at::Tensor> tensors_of(const Network& network) {
  std::map<std::string, at::Tensor> found;
  for (const NamedTensor& each : network.parameters()) found.emplace(each.name, each.tensor);
  return found;
}
/// What the layers give each node: the same network for nodes, of the same tensors.
at::Tensor of_nodes(const char* name, const Network& network, Batch batch, std::int64_t hidden) {
  BatchSchema schema = schema_of(GraphTask::node);
  schema.classes = hidden;
  const auto nodes = make<Model>(name, table({{"hidden", hidden}}))->build({schema, 1});
  const auto given = tensors_of(network);
  const at::NoGradGuard no_grad;
  for (const NamedTensor& each : nodes->parameters()) at::Tensor(each.tensor).copy_(given.at(each.name));
  batch.indices = {0, 1, 2, 3, 4, 5, 6};
  batch.inputs.pop_back();
  return nodes->forward(batch, {});
}

}  // namespace

TEST_CASE("the score of a pair is the dot product of what its nodes get", "[graph_tasks]") {
  at::manual_seed(3);
  const at::Tensor ends = at::tensor(Numbers{0, 1, 2, 2, 5, 6, 6, 0}).view({2, 2, 2});
  const Batch batch = ring(2, ends);
  for (const char* name : {"sage", "gcn", "gat", "gin"}) {
    INFO(name);
    const auto network = make<Model>(name, table({{"hidden", 4}}))->build({schema_of(GraphTask::edge, 2), 1});
    CHECK(network->output_shape() == Numbers{2});
    const at::Tensor scores = network->forward(batch, {});
    REQUIRE(scores.sizes() == at::IntArrayRef({2, 2}));
    const at::Tensor x = of_nodes(name, *network, batch, 4);
    REQUIRE(x.sizes() == at::IntArrayRef({7, 4}));
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 2; ++j) {
        double dot = 0.0;
        for (std::int64_t k = 0; k < 4; ++k)
          dot += x[ends[i][j][0].item<std::int64_t>()][k].item<double>() *
                 x[ends[i][j][1].item<std::int64_t>()][k].item<double>();
        CHECK(scores[i][j].item<double>() == Approx(dot).margin(1e-5));
      }
    scores.sum().backward();
    for (const NamedTensor& each : network->parameters()) CHECK(each.tensor.grad().defined());
    Batch wrong = batch;
    wrong.inputs.back() = ends.add(5);
    CHECK_THROWS_WITH(network->forward(wrong, {}), Contains("outside of the 7 targets"));
  }
}

TEST_CASE("the nodes of a graph are added up, averaged, or their largest taken", "[graph_tasks]") {
  at::manual_seed(4);
  const Numbers offsets = {0, 1, 5, 7};
  const Batch batch = ring(3, at::tensor(offsets));
  for (const char* name : {"sage", "gcn", "gat", "gin"})
    for (const std::string read_out : {"sum", "mean", "max"}) {
      INFO(name << " " << read_out);
      const auto network = make<Model>(name, table({{"hidden", 4}, {"read_out", read_out}}))
                               ->build({schema_of(GraphTask::graph), 1});
      CHECK(network->output_shape() == Numbers{3});
      const at::Tensor y = network->forward(batch, {});
      REQUIRE(y.sizes() == at::IntArrayRef({3, 3}));
      const at::Tensor x = of_nodes(name, *network, batch, 4);
      const auto tensors = tensors_of(*network);
      for (std::int64_t g = 0; g < 3; ++g) {
        const auto i = static_cast<std::size_t>(g);
        const at::Tensor rows = x.narrow(0, offsets[i], offsets[i + 1] - offsets[i]);
        const at::Tensor pooled = read_out == "sum"    ? rows.sum(0)
                                  : read_out == "mean" ? rows.mean(0)
                                                       : rows.amax(0);
        const at::Tensor expected = tensors.at("lin.weight").mv(pooled).add(tensors.at("lin.bias"));
        CHECK(y[g].allclose(expected, 1e-4, 1e-5));
      }
      y.sum().backward();
      for (const NamedTensor& each : network->parameters()) CHECK(each.tensor.grad().defined());
    }
}

// ranks of edges
// --------------------------------------------------------------------------------------------------------

TEST_CASE("ranks of edges are those of the Open Graph Benchmark's evaluator", "[graph_tasks]") {
  const BatchSchema schema = schema_of(GraphTask::edge, 6);
  const auto mrr = make<Metric>("mrr", {});
  const auto hits = make<Metric>("hits_at_k", table({{"k", 2}}));
  CHECK(hits->names() == std::vector<std::string>{"hits_2"});
  mrr->check({6}, schema);
  hits->check({6}, schema);
  at::manual_seed(5);
  Batch batch;
  batch.target = at::zeros({200, 6});
  batch.target.select(1, 0).fill_(1.0);
  const at::Tensor scores = at::randint(5, {200, 6}).to(at::kFloat);  // many ties
  double sum = 0.0, found = 0.0;
  for (std::int64_t i = 0; i < 200; ++i) {
    int ahead = 0, ahead_or_tied = 0;
    for (std::int64_t j = 1; j < 6; ++j) {
      ahead += scores[i][j].item<float>() > scores[i][0].item<float>() ? 1 : 0;
      ahead_or_tied += scores[i][j].item<float>() >= scores[i][0].item<float>() ? 1 : 0;
    }
    const double rank =
        0.5 * (ahead + ahead_or_tied) + 1.0;  // y_pred_pos of its evaluator, optimistic and pessimistic
    sum += 1.0 / rank;
    found += rank <= 2.0 ? 1.0 : 0.0;
  }
  for (const auto& metric : {mrr.get(), hits.get()}) {
    metric->reset();
    CHECK(std::isnan(metric->compute()[0]));
    metric->update(scores.narrow(0, 0, 150), {}, {{}, batch.target.narrow(0, 0, 150)});
    metric->update(scores.narrow(0, 150, 50), {}, {{}, batch.target.narrow(0, 150, 50)});
  }
  CHECK(mrr->compute()[0] == Approx(sum / 200));
  CHECK(hits->compute()[0] == Approx(found / 200));

  mrr->reset();
  mrr->update(at::full({2, 6}, std::nan("")), {}, {{}, batch.target.narrow(0, 0, 2)});
  CHECK(mrr->compute()[0] == Approx(1.0 / 6));
  CHECK_THROWS_WITH(make<Metric>("hits_at_k", table({{"k", 6}}))->check({6}, schema),
                    Contains("k = 6") && Contains("5 negatives"));
  BatchSchema other = schema;
  other.target.name = "class";
  CHECK_THROWS_WITH(mrr->check({6}, other), Contains("task = \"edge\""));
  CHECK_THROWS_WITH(mrr->check({5}, schema), Contains("needs a score for an edge"));
}

}  // namespace graph_tasks_tests
