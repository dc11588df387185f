#include "kept.hpp"

#include <array>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace graph {
namespace {

using datasets::Kept;
using datasets::KeptFile;

constexpr std::array split_names = {"train", "val", "test"};

/// The arrays of the file, in its order; those of the splits follow, from `seeds` on.
enum Part : std::uint8_t { rowptr, col, features, labels, node_labels, numbers, ends, offsets, seeds };
/// Likewise the numbers that describe them.
enum Number : std::uint8_t { nodes, col_bytes, width, feature_bytes, classes, targets, described };
constexpr std::size_t parts = seeds + split_names.size();

template <class T>
std::vector<T> copy(std::span<const T> from) {
  return {from.begin(), from.end()};
}

/// Nobody writes to it.
at::Tensor tensor(const Kept& kept, Part part, std::int64_t columns, at::ScalarType type) {
  const auto bytes = kept.parts[part];
  const std::int64_t rows = std::ssize(bytes) / (columns * static_cast<std::int64_t>(c10::elementSize(type)));
  return at::from_blob(
      const_cast<std::byte*>(bytes.data()), {rows, columns}, [owner = kept.owner](void*) {}, type);
}

template <class T>
std::span<const T> numbers_of(const at::Tensor& tensor) {
  return {static_cast<const T*>(tensor.const_data_ptr()),
          static_cast<std::size_t>(tensor.nbytes()) / sizeof(T)};
}

}  // namespace

KeptFile kept_graph(const std::string& folder, const std::string& name) {
  return {folder, name, "tygraph3", "graph"};
}

std::optional<NodeGraph> map_kept(const KeptFile& file) {
  const std::optional<Kept> kept = file.map();
  if (!kept) return std::nullopt;
  const std::vector<std::int64_t>& said = kept->numbers;
  if (said.size() != described || kept->parts.size() != parts ||
      std::ssize(kept->part<std::int64_t>(rowptr)) != said[nodes] + 1)
    file.fail_damaged();
  NodeGraph graph;
  graph.csr.rowptr = kept->part<std::int64_t>(rowptr);
  if (said[col_bytes] == 4)
    graph.csr.col = kept->part<std::int32_t>(col);
  else
    graph.csr.col = kept->part<std::int64_t>(col);
  graph.csr.owner = kept->owner;
  if (said[width] > 0)
    graph.features = tensor(*kept, features, said[width], said[feature_bytes] == 2 ? at::kHalf : at::kFloat);
  else
    graph.features = at::empty({said[nodes], 0}, at::kFloat);
  graph.labels = copy(kept->part<std::int64_t>(labels));
  graph.node_labels = copy(kept->part<std::int64_t>(node_labels));
  if (said[targets] > 0) graph.numbers = tensor(*kept, numbers, said[targets], at::kFloat);
  graph.ends = copy(kept->part<std::int64_t>(ends));
  graph.offsets = copy(kept->part<std::int64_t>(offsets));
  graph.classes = said[classes];
  for (std::size_t i = 0; i < split_names.size(); ++i)
    graph.splits[split_names[i]] = copy(kept->part<std::int64_t>(seeds + i));
  return graph;
}

void keep(const KeptFile& file, const NodeGraph& graph) {
  Kept kept;
  kept.numbers.resize(described);
  kept.numbers[nodes] = graph.csr.nodes();
  kept.numbers[width] = graph.features.size(1);
  kept.numbers[feature_bytes] = static_cast<std::int64_t>(graph.features.element_size());
  kept.numbers[classes] = graph.classes;
  kept.numbers[targets] = graph.numbers.defined() ? graph.numbers.size(1) : 0;
  kept.add(graph.csr.rowptr);
  std::visit(
      [&](const auto& span) {
        kept.numbers[col_bytes] = std::int64_t{sizeof(span[0])};
        kept.add(span);
      },
      graph.csr.col);
  kept.add(numbers_of<char>(graph.features));
  kept.add(std::span<const std::int64_t>(graph.labels));
  kept.add(std::span<const std::int64_t>(graph.node_labels));
  kept.add(graph.numbers.defined() ? numbers_of<char>(graph.numbers) : std::span<const char>());
  kept.add(std::span<const std::int64_t>(graph.ends));
  kept.add(std::span<const std::int64_t>(graph.offsets));
  for (const char* name : split_names) {
    const auto split = graph.splits.find(name);
    kept.add(split == graph.splits.end() ? std::span<const std::int64_t>()
                                         : std::span<const std::int64_t>(split->second));
  }
  file.write(kept);
}

}  // namespace graph
