// The citation graphs with the split of Yang et al., "Revisiting Semi-Supervised Learning with Graph
// Embeddings", ICML 2016, as text: NAME.nodes.tsv with node, label, split and the features that a node has,
// NAME.edges.tsv with the two ends of an edge; each plain or .gz.
#include <filesystem>

#include <ATen/ops/zeros.h>

#include "lines.hpp"
#include "node_graph.hpp"

namespace graph {
namespace {

using namespace trainyard;

/// The one file of a folder whose name ends in `ending`, or in that and .gz.
std::string find_file(const std::string& folder, const std::string& ending) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const std::string path = each->path().string();
    if (path.ends_with(ending) || path.ends_with(ending + ".gz")) found.push_back(path);
  }
  if (error) throw DataError(folder + ": " + error.message());
  if (found.size() != 1)
    throw DataError(folder + ": found " + std::to_string(found.size()) + " files NAME" + ending + " or NAME" +
                    ending + ".gz, expected one: path is the folder that holds one graph");
  return found.front();
}

/// Which features each node has.
using Bags = std::vector<std::vector<std::int64_t>>;

void read_nodes(const std::string& path, const Source& source, NodeGraph& graph, Bags& bags) {
  constexpr std::int64_t most_features = 1 << 24;
  Lines lines(path, '\t');
  std::vector<std::string_view> words;
  while (lines.next()) {
    lines.expect_fields(4, "node, label, split and features, with tabs between them");
    const auto& fields = lines.fields();
    const auto node = static_cast<std::int64_t>(bags.size());
    if (fields[0] != std::to_string(node))
      lines.fail("found node " + datasets::shown(fields[0]) + ", expected " + std::to_string(node) +
                 ": nodes count from 0, one a line");
    graph.labels.push_back(lines.label(fields[1], source.classes));
    if (fields[2] == "train" || fields[2] == "val" || fields[2] == "test")
      graph.splits[std::string(fields[2])].push_back(node);
    else if (fields[2] != "none")
      lines.fail("the split is " + datasets::shown(fields[2]) + ", expected train, val, test or none");
    auto& bag = bags.emplace_back();
    datasets::split(fields[3], ' ', words);
    for (const std::string_view word : words)
      if (!word.empty()) bag.push_back(lines.index(word, most_features, "a feature"));
  }
}

at::Tensor dense(const Bags& bags) {
  std::int64_t width = 0;
  for (const auto& bag : bags)
    for (const std::int64_t word : bag) width = std::max(width, word + 1);
  at::Tensor features = at::zeros({static_cast<std::int64_t>(bags.size()), width}, at::kFloat);
  float* row = features.mutable_data_ptr<float>();
  for (const auto& bag : bags) {
    for (const std::int64_t word : bag) row[word] = 1.0f;
    row += width;
  }
  return features;
}

}  // namespace

NodeGraph read_planetoid(const Source& source) {
  NodeGraph graph;
  Bags bags;
  const std::string nodes_path = find_file(source.path, ".nodes.tsv");
  read_nodes(nodes_path, source, graph, bags);
  graph.features = dense(bags);
  if (graph.features.numel() == 0) throw DataError(nodes_path + ": there is no node with a feature");

  const auto nodes = static_cast<std::int64_t>(bags.size());
  std::vector<std::array<std::int64_t, 2>> edges;
  Lines lines(find_file(source.path, ".edges.tsv"), '\t');
  while (lines.next()) {
    lines.expect_fields(2, "the two nodes of an edge, with a tab between them");
    const auto& ends = lines.fields();
    edges.push_back({lines.index(ends[0], nodes, "a node"), lines.index(ends[1], nodes, "a node")});
  }
  graph.csr = make_csr(nodes, source.edges, [&](const auto& visit) {
    for (const auto& [from, to] : edges) visit(from, to);
  });
  return graph;
}

}  // namespace graph
