// The layout of the Open Graph Benchmark's node sets (Hu et al., "Open Graph Benchmark", NeurIPS 2020): raw/
// has edge.csv.gz, node-feat.csv.gz, node-label.csv.gz and num-node-list.csv.gz, split/NAME/ has
// train.csv.gz, valid.csv.gz and test.csv.gz; each may be plain, too.
#include <filesystem>
#include <limits>

#include <ATen/ops/empty.h>

#include "lines.hpp"
#include "node_graph.hpp"

namespace graph {
namespace {

using namespace trainyard;
namespace fs = std::filesystem;

std::string csv(const std::string& folder, const std::string& name) {
  const std::string packed = folder + "/" + name + ".csv.gz", plain = folder + "/" + name + ".csv";
  std::error_code ignored;
  return !fs::exists(packed, ignored) && fs::exists(plain, ignored) ? plain : packed;
}

std::int64_t read_count(const std::string& path) {
  Lines lines(path, ',');
  if (!lines.next()) throw DataError(path + ": it is empty, expected the number of nodes");
  const std::int64_t nodes =
      lines.index(lines.fields()[0], std::numeric_limits<std::int64_t>::max() / 8, "the number of nodes");
  if (lines.fields().size() != 1 || lines.next()) lines.fail("there are several graphs, expected one");
  return nodes;
}

/// Calls row(lines, node) for each node.
template <class Row>
void each_node(const std::string& path, std::int64_t nodes, const Row& row) {
  Lines lines(path, ',');
  std::int64_t node = 0;
  for (; lines.next(); ++node) {
    if (node == nodes) lines.fail("there are more rows than the " + std::to_string(nodes) + " nodes");
    row(lines, node);
  }
  if (node != nodes)
    throw DataError(path + ": it has " + std::to_string(node) + " rows, expected one for each of the " +
                    std::to_string(nodes) + " nodes");
}

at::Tensor read_features(const std::string& path, std::int64_t nodes) {
  std::vector<float> values;
  std::size_t width = 0;
  each_node(path, nodes, [&](Lines& lines, std::int64_t node) {
    if (node == 0) width = lines.fields().size();
    lines.expect_fields(width, "as in the first row");
    for (const std::string_view text : lines.fields()) values.push_back(lines.feature(text));
  });
  if (values.empty()) throw DataError(path + ": there is no node with a feature");
  at::Tensor features = at::empty({nodes, static_cast<std::int64_t>(width)}, at::kFloat);
  std::copy(values.begin(), values.end(), features.mutable_data_ptr<float>());
  return features;
}

template <class Node>
Csr read_edges(const std::string& path, std::int64_t nodes, const CsrOptions& options) {
  std::vector<std::array<Node, 2>> edges;
  Lines lines(path, ',');
  while (lines.next()) {
    lines.expect_fields(2, "the two nodes of an edge");
    const auto end = [&](std::size_t i) {
      return static_cast<Node>(lines.index(lines.fields()[i], nodes, "a node"));
    };
    edges.push_back({end(0), end(1)});
  }
  return make_csr(nodes, options, [&](const auto& visit) {
    for (const auto& [from, to] : edges) visit(from, to);
  });
}

/// The folder of the split, of which there is one in each of the sets.
std::string split_folder(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    if (each->is_directory()) found.push_back(each->path().string());
  if (error) throw DataError(folder + ": " + error.message());
  if (found.size() != 1)
    throw DataError(folder + ": found " + std::to_string(found.size()) +
                    " folders, expected one, with train.csv.gz");
  return found.front();
}

}  // namespace

NodeGraph read_ogb(const Source& source) {
  const std::string raw = source.path + "/raw";
  const std::int64_t nodes = read_count(csv(raw, "num-node-list"));
  NodeGraph graph;
  graph.features = read_features(csv(raw, "node-feat"), nodes);
  each_node(csv(raw, "node-label"), nodes, [&](Lines& lines, std::int64_t) {
    lines.expect_fields(1, "the label of a node");
    graph.labels.push_back(lines.label(lines.fields()[0], source.classes));
  });
  graph.csr = nodes <= std::numeric_limits<std::int32_t>::max()
                  ? read_edges<std::int32_t>(csv(raw, "edge"), nodes, source.edges)
                  : read_edges<std::int64_t>(csv(raw, "edge"), nodes, source.edges);
  const std::string folder = split_folder(source.path + "/split");
  for (const auto& [split, name] :
       {std::pair{"train", "train"}, std::pair{"val", "valid"}, std::pair{"test", "test"}}) {
    Lines lines(csv(folder, name), ',');
    std::vector<std::int64_t>& seeds = graph.splits[split];
    while (lines.next()) {
      lines.expect_fields(1, "a node");
      seeds.push_back(lines.index(lines.fields()[0], nodes, "a node"));
    }
  }
  return graph;
}

}  // namespace graph
