// Graphs as one .npz file. Arrays by the names that are in use:
//   node_features | features | x       [nodes, width]
//   node_labels | labels | y           [nodes], integers; -1: none; numbers of any kind, [nodes] or
//                                      [nodes, targets], where targets are numbers
//   edge_labels | edge_y               of edges that have targets of their own, in their order; likewise
//   edges [edges, 2], edge_index [2, edges], or row and col [edges]: from where, to where
//   rowptr | indptr [nodes + 1], col | indices [edges]: of each node those that it takes messages from
//   train_masks | train_mask, also val, test    truth values, [nodes], [splits, nodes] or [nodes, splits]
#include <ATen/ops/empty.h>

#include <cmath>

#include "../npy/arrays.hpp"
#include "node_graph.hpp"

namespace graph {
namespace {

using namespace trainyard;
using datasets::NpyArray;
using datasets::Npz;

/// The first of several names of an array; throws where there is none.
NpyArray read_one(Npz& file, const std::vector<std::string>& names) {
  const std::string name = file.find(names);
  return file.read(name.empty() ? names.front() : name);
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t length : shape) text += (text.empty() ? "" : ", ") + std::to_string(length);
  return "[" + text + "]";
}

void expect(const NpyArray& array, bool good, const std::string& shape) {
  if (!good) array.fail("its shape is " + text_of(array.shape()) + ", expected " + shape);
}

at::Tensor read_features(Npz& file) {
  const NpyArray array = read_one(file, {"node_features", "features", "x"});
  expect(array, array.shape().size() == 2 && array.size() > 0, "[nodes, width]");
  at::Tensor features = at::empty(array.shape(), at::kFloat);
  float* out = features.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < array.size(); ++i) {
    out[i] = static_cast<float>(array.number(i));
    if (!std::isfinite(out[i]))
      array.fail("feature " + std::to_string(i % array.shape()[1]) + " of node " +
                 std::to_string(i / array.shape()[1]) + " is no finite number");
  }
  return features;
}

/// Of `count` nodes or edges; `one` is the word for one of them.
std::vector<std::int64_t> read_labels(const NpyArray& array, std::int64_t count, std::int64_t classes,
                                      const std::string& one) {
  expect(array, array.size() == count, "[" + std::to_string(count) + "], one label " + one);
  const std::int64_t bound = classes > 0 ? classes : std::int64_t{1} << 24;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    labels.push_back(array.integer(i));
    if (labels.back() < -1 || labels.back() >= bound)
      array.fail("the label of " + one.substr(one.find(' ') + 1) + " " + std::to_string(i) + " is " +
                 std::to_string(labels.back()) + ", expected 0 to " + std::to_string(bound - 1) +
                 ", or -1 for none");
  }
  return labels;
}

at::Tensor read_numbers(const NpyArray& array, std::int64_t count, const std::string& one) {
  const std::vector<std::int64_t>& shape = array.shape();
  expect(array,
         (shape.size() == 1 || shape.size() == 2) && shape[0] == count && (count == 0 || array.size() > 0),
         "[" + std::to_string(count) + "] or [" + std::to_string(count) + ", targets], a row " + one);
  at::Tensor numbers = at::empty({count, shape.size() == 2 ? shape[1] : 1}, at::kFloat);
  float* out = numbers.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < array.size(); ++i) {
    out[i] = static_cast<float>(array.number(i));
    if (!std::isfinite(out[i]))
      array.fail("target " + std::to_string(i % numbers.size(1)) + " of " + one.substr(one.find(' ') + 1) +
                 " " + std::to_string(i / numbers.size(1)) + " is no finite number");
  }
  return numbers;
}

void read_targets(const NpyArray& array, const Source& source, std::int64_t count, const std::string& one,
                  NodeGraph& graph) {
  if (source.targets == Targets::numbers)
    graph.numbers = read_numbers(array, count, one);
  else
    graph.labels = read_labels(array, count, source.classes, one);
}

std::int64_t node_at(const NpyArray& array, std::int64_t i, std::int64_t nodes, std::int64_t edge) {
  const std::int64_t node = array.integer(i);
  if (node < 0 || node >= nodes)
    array.fail("edge " + std::to_string(edge) + " is at node " + std::to_string(node) + ", and there are " +
               std::to_string(nodes) + ", from 0");
  return node;
}

/// use(each_edge), as make_csr takes it.
template <class Use>
void from_rows(Npz& file, std::int64_t nodes, const Use& use) {
  const NpyArray rowptr = read_one(file, {"rowptr", "indptr"}), col = read_one(file, {"col", "indices"});
  expect(rowptr, rowptr.size() == nodes + 1, "[" + std::to_string(nodes + 1) + "], one more than the nodes");
  for (std::int64_t row = 0, last = 0; row <= nodes; ++row) {
    const std::int64_t at = rowptr.integer(row);
    if (at < last || (row == 0 && at != 0))
      rowptr.fail("element " + std::to_string(row) + " is " + std::to_string(at) + ", expected " +
                  (row == 0 ? "0" : std::to_string(last) + ", that ahead of it, or more"));
    last = at;
  }
  if (rowptr.integer(nodes) != col.size())
    rowptr.fail("it ends with " + std::to_string(rowptr.integer(nodes)) + ", and there are " +
                std::to_string(col.size()) + " edges");
  use([&](const auto& visit) {
    for (std::int64_t row = 0; row < nodes; ++row)
      for (std::int64_t i = rowptr.integer(row); i < rowptr.integer(row + 1); ++i)
        visit(node_at(col, i, nodes, i), row);
  });
}

template <class Use>
void read_edges(Npz& file, std::int64_t nodes, const Use& use) {
  if (!file.find({"rowptr", "indptr"}).empty()) return from_rows(file, nodes, use);
  if (!file.find({"row"}).empty()) {
    const NpyArray from = file.read("row"), to = file.read("col");
    expect(to, to.size() == from.size(), "that of row, [" + std::to_string(from.size()) + "]");
    return use([&](const auto& visit) {
      for (std::int64_t i = 0; i < from.size(); ++i)
        visit(node_at(from, i, nodes, i), node_at(to, i, nodes, i));
    });
  }
  const bool pairs = file.find({"edge_index"}).empty();
  const NpyArray ends = file.read(pairs ? "edges" : "edge_index");
  const std::size_t two = pairs ? 1 : 0;
  expect(ends, ends.shape().size() == 2 && ends.shape()[two] == 2, pairs ? "[edges, 2]" : "[2, edges]");
  const std::int64_t edges = ends.shape()[1 - two];
  const std::int64_t step = pairs ? 2 : 1, second = pairs ? 1 : edges;
  use([&](const auto& visit) {
    for (std::int64_t i = 0; i < edges; ++i)
      visit(node_at(ends, i * step, nodes, i), node_at(ends, i * step + second, nodes, i));
  });
}

std::vector<std::int64_t> read_split(const NpyArray& mask, std::int64_t nodes, std::int64_t index) {
  const std::vector<std::int64_t>& shape = mask.shape();
  const bool one = shape.size() == 1 && shape[0] == nodes;
  const bool rows = shape.size() == 2 && shape[1] == nodes;
  expect(mask, one || rows || (shape.size() == 2 && shape[0] == nodes),
         "[nodes], [splits, nodes] or [nodes, splits]");
  const std::int64_t splits = one ? 1 : shape[rows ? 0 : 1];
  if (index >= splits)
    throw ConfigError("split_index is " + std::to_string(index) + ", and the file has " +
                      std::to_string(splits) + " splits, from 0");
  std::vector<std::int64_t> seeds;
  for (std::int64_t node = 0; node < nodes; ++node)
    if (mask.integer(rows ? index * nodes + node : node * splits + index) != 0) seeds.push_back(node);
  return seeds;
}

}  // namespace

NodeGraph read_npz(const Source& source) {
  Npz file(source.path);
  NodeGraph graph;
  graph.features = read_features(file);
  const std::int64_t nodes = graph.features.size(0);
  read_edges(file, nodes, [&](const auto& each_edge) {
    graph.csr = make_csr(nodes, source.edges, each_edge);
    if (source.edges_told)
      each_edge([&](std::int64_t from, std::int64_t to) { graph.ends.insert(graph.ends.end(), {from, to}); });
  });
  if (source.edges_told) {
    const std::int64_t edges = std::ssize(graph.ends) / 2;
    read_targets(read_one(file, {"edge_labels", "edge_y"}), source, edges, "an edge", graph);
    graph.splits = split(edges, source.shares);
    return graph;
  }
  read_targets(read_one(file, {"node_labels", "labels", "y"}), source, nodes, "a node", graph);
  for (const std::string split : {"train", "val", "test"}) {
    const std::string name = file.find({split + "_masks", split + "_mask"});
    if (!name.empty()) graph.splits[split] = read_split(file.read(name), nodes, source.split_index);
  }
  return graph;
}

}  // namespace graph
