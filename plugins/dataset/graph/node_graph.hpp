// A graph, or many small ones side by side, read from files or made up, and kept once for all who have it
// open.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/manifest.hpp>

#include "csr.hpp"
#include "shares.hpp"

namespace graph {

/// A made-up graph: one end of an edge is drawn with weights (rank + 10)^-0.6, which makes hubs, the other
/// end uniformly. Nodes belong to classes; features are the centre of the class and noise.
struct Synthetic {
  std::int64_t graphs = 300;  ///< where samples are graphs
  std::int64_t nodes = 500;
  std::int64_t edges = 2000;
  std::int64_t features = 16;
  std::int64_t classes = 10;
  double homophily = 0.8;
  double noise = 1.0;
  std::int64_t seed = 0;

  static void describe(trainyard::Fields<Synthetic>& m);
};

/// What is to be told of a sample: whether an edge is one, a class, or numbers.
enum class Targets : std::uint8_t { links, classes, numbers };

/// Which graph: equal sources give one object.
struct Source {
  std::string layout;
  std::string path;
  CsrOptions edges;
  std::int64_t classes = 0;      ///< 0: one more than the highest label
  std::int64_t split_index = 0;  ///< of files with several splits
  bool normalise_features = false;
  bool half = false;
  Synthetic synthetic;
  std::string keep_in;      ///< folder that keeps the graph as it is in memory; empty: none
  bool many = false;        ///< samples are graphs
  bool edges_told = false;  ///< samples are edges with a target of their own
  Targets targets = Targets::classes;
  Shares shares;  ///< of graphs, and of edges with a target
};

struct NodeGraph {
  Csr csr;
  at::Tensor
      features;  ///< [nodes, width]; finished() unless there are node labels, for which columns are to come
  /// [nodes], [graphs] or [edges with a target]; -1: none. Of tu files any integers, which are as in the files.
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t>
      node_labels;     ///< [nodes], as in the files: they become features; empty: there are none
  at::Tensor numbers;  ///< float [as many, width], in the place of labels; undefined: there are none
  std::int64_t classes = 0;
  std::vector<std::int64_t> ends;     ///< of edges with a target [2 * edges]: from where, to where, of each
  Splits splits;                      ///< labelled nodes, graphs or edges of "train", ...
  std::vector<std::int64_t> offsets;  ///< of many graphs [graphs + 1]: their nodes, one or more each
};

/// Any thread. Throws DataError that names file and record; ConfigError for options that do not go together.
std::shared_ptr<const NodeGraph> open_graph(const Source& source);

/// The features of nodes as the source wants them: normalised, in its precision. Throws DataError.
at::Tensor finished(at::Tensor features, const Source& source);

/// Where Source::keep_in keeps it: the path of the file.
std::string kept_path(const Source& source);

// The layouts, each in a file of its own. Features are float, labels below Source::classes where that is
// given; nodes of a split may be without a label.
NodeGraph read_planetoid(const Source& source);
NodeGraph read_npz(const Source& source);
NodeGraph read_ogb(const Source& source);
NodeGraph make_synthetic(const Source& source);
// Of many graphs, split by Source::shares.
NodeGraph read_tu(const Source& source);
NodeGraph make_graphs(const Source& source);

}  // namespace graph
