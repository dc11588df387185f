#include "node_graph.hpp"

#include "kept.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>

#include <c10/util/Half.h>

#include <trainyard/error.hpp>

namespace graph {
namespace {

using namespace trainyard;

std::string name_of(const Source& source) {
  const Synthetic& made = source.synthetic;
  std::ostringstream out;
  out.precision(17);
  for (const auto number :
       {std::int64_t{source.edges.undirected}, static_cast<std::int64_t>(source.edges.self_loops),
        source.classes, source.split_index, std::int64_t{source.normalise_features},
        std::int64_t{source.half}, made.nodes, made.edges, made.features, made.classes, made.seed})
    out << number << ' ';
  out << made.homophily << ' ' << made.noise << ' ';
  if (source.many) out << made.graphs << ' ';
  if (source.many || source.edges_told) out << source.shares.text() << ' ';
  if (source.edges_told) out << "edges ";
  if (source.targets == Targets::numbers) out << "numbers ";
  out << source.layout << '\n';
  if (!source.path.empty()) datasets::add_files(source.path, out);
  return out.str();
}

void check(const Source& source) {
  const bool made = source.layout == "synthetic";
  if (made && !source.path.empty()) throw ConfigError("layout = \"synthetic\" reads no file: leave path out");
  if (!made && source.path.empty())
    throw ConfigError("layout = \"" + source.layout + "\" reads files: give their path");
  if (source.many && !made && source.layout != "tu")
    throw ConfigError("task = \"graph\" takes many graphs, and layout = \"" + source.layout +
                      "\" has one: take layout = \"tu\" or \"synthetic\"");
  if (!source.many && source.layout == "tu")
    throw ConfigError("layout = \"tu\" has many graphs with a label each: set task = \"graph\"");
  const bool npz = source.layout == "npz";
  if (source.edges_told && !npz && !made)
    throw ConfigError("edges have targets of their own in layout = \"npz\" and \"synthetic\", and in \"" +
                      source.layout + "\" they have none: set targets = \"links\"");
  if (source.targets == Targets::numbers && !npz && !source.many && !source.edges_told)
    throw ConfigError("nodes have numbers as targets in layout = \"npz\", and in \"" + source.layout +
                      "\" they have classes: set targets = \"classes\"");
}

NodeGraph read(const Source& source) {
  if (source.layout == "synthetic") return source.many ? make_graphs(source) : make_synthetic(source);
  if (source.layout == "tu") return read_tu(source);
  if (source.layout == "planetoid") return read_planetoid(source);
  return source.layout == "npz" ? read_npz(source) : read_ogb(source);
}

/// Each row divided by its sum, as is done with bags of words; a row that sums to 0 stays.
void normalise(at::Tensor& features) {
  float* row = features.mutable_data_ptr<float>();
  const std::int64_t width = features.size(1);
  for (std::int64_t node = 0; node < features.size(0); ++node, row += width) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < width; ++i) sum += row[i];
    for (std::int64_t i = 0; i < width && sum != 0.0; ++i) row[i] = static_cast<float>(row[i] / sum);
  }
}

/// Throws where a number does not fit 16 bits, the largest being 65504.
void check_half(const at::Tensor& features, const Source& source) {
  constexpr float beyond = 65520.0f;  // what is smaller is rounded down
  const float* begin = features.const_data_ptr<float>();
  const float* end = begin + features.numel();
  const float* found = std::find_if(begin, end, [](float value) { return std::abs(value) >= beyond; });
  if (found == end) return;
  const std::int64_t place = found - begin;
  throw DataError(source.path + ": feature " + std::to_string(place % features.size(1)) + " of node " +
                  std::to_string(place / features.size(1)) + " is " + std::to_string(*found) +
                  ", too large for 16 bits: set feature_dtype = \"float32\", or normalise_features = true");
}

NodeGraph prepared(const Source& source) {
  NodeGraph graph = read(source);
  if (graph.node_labels.empty()) graph.features = finished(std::move(graph.features), source);
  graph.classes = source.classes;
  if (graph.numbers.defined() || source.layout == "tu") return graph;  // where -1 is a label as others are
  if (graph.classes == 0 && !graph.labels.empty())
    graph.classes = *std::max_element(graph.labels.begin(), graph.labels.end()) + 1;
  for (auto& [split, nodes] : graph.splits)
    std::erase_if(nodes, [&](std::int64_t node) { return graph.labels[static_cast<std::size_t>(node)] < 0; });
  return graph;
}

/// From the folder that keeps it, where it is there.
NodeGraph find(const Source& source, const std::string& name) {
  if (source.keep_in.empty()) return prepared(source);
  const datasets::KeptFile file = kept_graph(source.keep_in, name);
  if (std::optional<NodeGraph> kept = map_kept(file)) return std::move(*kept);
  NodeGraph graph = prepared(source);
  keep(file, graph);
  return graph;
}

}  // namespace

at::Tensor finished(at::Tensor features, const Source& source) {
  if (source.normalise_features) normalise(features);
  if (!source.half) return features;
  check_half(features, source);
  return features.to(at::kHalf);
}

std::string kept_path(const Source& source) {
  return kept_graph(source.keep_in, name_of(source)).path();
}

std::shared_ptr<const NodeGraph> open_graph(const Source& source) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const NodeGraph>> open;
  check(source);
  const std::string name = name_of(source);
  const std::lock_guard lock(mutex);
  std::erase_if(open, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const NodeGraph>& known = open[name];
  if (std::shared_ptr<const NodeGraph> graph = known.lock()) return graph;
  const auto graph = std::make_shared<const NodeGraph>(find(source, name));
  known = graph;
  return graph;
}

}  // namespace graph
