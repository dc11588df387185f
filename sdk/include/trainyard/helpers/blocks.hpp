// Neighbourhoods sampled from a graph, as a dataset gives them and a model of nodes takes them: message-flow
// blocks (Kaler et al., "Accelerating Training and Inference of Graph Neural Networks with Fast Sampling and
// Pipelining", MLSys 2022).
//
// The nodes of a batch are numbered, the samples (seeds) first, then those that each hop added. A block takes
// a layer's values of its sources, which are the first nodes, to the values of its targets, which are the first
// of its sources. The inputs of a batch with `hops` hops are, in this order:
//   features          free  [nodes, width]   of all nodes, floating point
//   rowptr1, col1     free  int64            of the outermost block: the sources of all nodes
//   ...
//   rowptrN, colN     free  int64            of the innermost block, whose targets are the samples
// and perhaps more, found by name:
//   degree            free  int64 [nodes]    in the whole graph, where a model asks for it
//   ends              rows  int64 [pairs, 2] nodes of the pairs of a sample, where samples are edges to be told
//                           from pairs without one: a pair has a number of the target
//   edge              rows  int64 [2]        nodes of a sample, where samples are edges with a target of their own
//   graphs         offsets  int64            the nodes of each sample, where samples are graphs: one block
// The sources of target t are col[rowptr[t] .. rowptr[t + 1]), which is empty for a node without neighbours.
// Where every layer uses the same edges (a sampled subgraph), there is one block whose targets are all nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("helpers/blocks.hpp");

namespace trainyard {

/// The block of one layer. CPU or device; int64, contiguous.
struct Block {
  at::Tensor rowptr;  ///< [targets + 1], from 0
  at::Tensor col;     ///< [edges], each in [0, sources)
  std::int64_t sources = 0;

  std::int64_t targets() const { return rowptr.size(0) - 1; }
};

/// Says where the parts of such a batch lie among its inputs.
struct BlockSchema {
  std::int64_t width = 0;             ///< width of the features
  std::size_t hops = 0;               ///< blocks in a batch, at least 1
  std::optional<std::size_t> degree;  ///< number of that input, if there is one
  std::optional<std::size_t> ends;    ///< likewise: samples are edges, to be told from pairs without one
  std::optional<std::size_t> edge;    ///< likewise: samples are edges with a target of their own
  std::optional<std::size_t> graphs;  ///< likewise: samples are graphs
};

/// Throws ConfigError, with what was found, where the data is no graph: other fields, or of other rows.
BlockSchema find_blocks(const BatchSchema& schema);

/// Returns the blocks of a batch for a model of `layers` layers, outermost first: as many as layers. A single
/// block of all nodes serves each of them. Throws ConfigError where the data has another number of hops.
std::vector<Block> blocks_of(const Batch& batch, const BlockSchema& schema, std::size_t layers);

/// The kind of thing that a sample of such data is.
enum class GraphTask : std::uint8_t { node, edge, told_edge, graph };

/// Returns the inputs of such a batch, for a dataset's schema; `degree` says whether that input is among
/// them, `pairs` how many a sample has that is an edge to be told from pairs without one.
std::vector<FieldSchema> block_fields(std::int64_t width, at::ScalarType dtype, std::size_t hops, bool degree,
                                      GraphTask task = GraphTask::node, std::int64_t pairs = 1);

}  // namespace trainyard
