// The text format of the TU sets (Morris et al., "TUDataset: a collection of benchmark datasets for learning
// with graphs", ICML workshop 2020): DS_A.txt has the two nodes of an edge, DS_graph_indicator.txt the graph
// of each node, DS_graph_labels.txt the label of each graph, and DS_node_labels.txt and
// DS_node_attributes.txt, where they are there, what a node is; nodes and graphs count from 1. Where targets are
// numbers, DS_graph_attributes.txt has those of each graph in the place of labels. Each may be packed, with .gz
// at its end.
#include <filesystem>
#include <limits>
#include <set>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "lines.hpp"
#include "node_graph.hpp"

namespace graph {
namespace {

using namespace trainyard;
namespace fs = std::filesystem;

/// path/DS, where DS is the name of the folder or of its one DS_A.txt.
std::string stem_of(const std::string& folder) {
  std::set<std::string> found;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
    const std::string path = each->path().string();
    for (const std::string ending : {"_A.txt", "_A.txt.gz"})
      if (path.ends_with(ending)) found.insert(path.substr(0, path.size() - ending.size()));
  }
  if (error) throw DataError(folder + ": " + error.message());
  if (found.size() != 1)
    throw DataError(folder + ": found " + std::to_string(found.size()) +
                    " files DS_A.txt or DS_A.txt.gz, expected one: path is the folder that holds one set");
  return *found.begin();
}

/// The file, packed or not; empty where it is not there.
std::string file_of(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  return fs::exists(path + ".gz", ignored) ? path + ".gz" : "";
}
std::string required_file(const std::string& path) {
  const std::string file = file_of(path);
  if (file.empty()) throw DataError(path + ": No such file, nor with .gz at its end");
  return file;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

/// A number from 1 to `most`, as one from 0.
std::int64_t counted(Lines& lines, std::string_view text, std::int64_t most, const char* what) {
  const auto value = datasets::parsed<std::int64_t>(trimmed(text));
  if (!value || *value < 1 || *value > most)
    lines.fail(std::string(what) + " is " + datasets::shown(trimmed(text)) + ", expected 1 to " +
               std::to_string(most));
  return *value - 1;
}

std::vector<std::int64_t> read_offsets(const std::string& path) {
  std::vector<std::int64_t> offsets;
  std::int64_t node = 0;
  for (Lines lines(path, ','); lines.next(); ++node) {
    lines.expect_fields(1, "the graph of a node");
    const auto graphs = static_cast<std::int64_t>(offsets.size());
    const std::int64_t graph =
        counted(lines, lines.fields()[0], std::numeric_limits<std::int64_t>::max(), "the graph");
    if (graph != graphs && graph + 1 != graphs)
      lines.fail("found graph " + std::to_string(graph + 1) + ", expected " +
                 (graphs > 0 ? std::to_string(graphs) + " or " : "") + std::to_string(graphs + 1) +
                 ": nodes stand graph by graph, and each graph has one or more");
    if (graph == graphs) offsets.push_back(node);
  }
  if (offsets.empty()) throw DataError(path + ": there is no node");
  offsets.push_back(node);
  return offsets;
}

/// Integers, one a line.
std::vector<std::int64_t> read_labels(const std::string& path, std::int64_t count, const char* of) {
  std::vector<std::int64_t> labels;
  for (Lines lines(path, ','); lines.next();) {
    lines.expect_fields(1, "a label");
    const auto value = datasets::parsed<std::int64_t>(trimmed(lines.fields()[0]));
    if (!value) lines.fail("the label is " + datasets::shown(lines.fields()[0]) + ", expected an integer");
    labels.push_back(*value);
  }
  if (std::ssize(labels) != count)
    throw DataError(path + ": it has " + std::to_string(labels.size()) +
                    " rows, expected one for each of the " + std::to_string(count) + of);
  return labels;
}

/// As many numbers a row as the first one has.
at::Tensor read_attributes(const std::string& path, std::int64_t count, const char* of) {
  std::vector<float> values;
  std::size_t width = 0;
  std::int64_t rows = 0;
  for (Lines lines(path, ','); lines.next(); ++rows) {
    if (rows == 0) width = lines.fields().size();
    lines.expect_fields(width, "as in the first row");
    for (const std::string_view text : lines.fields()) values.push_back(lines.feature(trimmed(text)));
  }
  if (rows != count)
    throw DataError(path + ": it has " + std::to_string(rows) + " rows, expected one for each of the " +
                    std::to_string(count) + of);
  at::Tensor all = at::zeros({count, static_cast<std::int64_t>(width)}, at::kFloat);
  std::copy(values.begin(), values.end(), all.mutable_data_ptr<float>());
  return all;
}

/// What a node is: labels, attributes, or, where there are neither, a one.
void read_nodes(const std::string& stem, NodeGraph& graph) {
  const std::int64_t nodes = graph.offsets.back();
  if (const std::string file = file_of(stem + "_node_labels.txt"); !file.empty())
    graph.node_labels = read_labels(file, nodes, " nodes");
  if (const std::string file = file_of(stem + "_node_attributes.txt"); !file.empty())
    graph.features = read_attributes(file, nodes, " nodes");
  else
    graph.features = at::ones({nodes, graph.node_labels.empty() ? 1 : 0}, at::kFloat);
}

}  // namespace

NodeGraph read_tu(const Source& source) {
  const std::string stem = stem_of(source.path);
  NodeGraph graph;
  graph.offsets = read_offsets(required_file(stem + "_graph_indicator.txt"));
  const std::int64_t graphs = std::ssize(graph.offsets) - 1, nodes = graph.offsets.back();
  graph.splits = split(graphs, source.shares);
  if (source.targets == Targets::numbers)
    graph.numbers = read_attributes(required_file(stem + "_graph_attributes.txt"), graphs, " graphs");
  else
    graph.labels = read_labels(required_file(stem + "_graph_labels.txt"), graphs, " graphs");
  read_nodes(stem, graph);
  std::vector<std::array<std::int64_t, 2>> edges;
  const auto graph_of = [&](std::int64_t node) {
    return std::upper_bound(graph.offsets.begin(), graph.offsets.end(), node) - graph.offsets.begin();
  };
  for (Lines lines(required_file(stem + "_A.txt"), ','); lines.next();) {
    lines.expect_fields(2, "the two nodes of an edge");
    const std::int64_t from = counted(lines, lines.fields()[0], nodes, "a node");
    const std::int64_t to = counted(lines, lines.fields()[1], nodes, "a node");
    if (graph_of(from) != graph_of(to))
      lines.fail("node " + std::to_string(from + 1) + " is of graph " + std::to_string(graph_of(from)) +
                 ", node " + std::to_string(to + 1) + " of graph " + std::to_string(graph_of(to)) +
                 ": an edge is within a graph");
    edges.push_back({from, to});
  }
  graph.csr = make_csr(nodes, source.edges, [&](const auto& visit) {
    for (const auto& [from, to] : edges) visit(from, to);
  });
  return graph;
}

}  // namespace graph
