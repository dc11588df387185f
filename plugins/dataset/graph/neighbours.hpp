// Neighbourhoods of seeds, sampled hop by hop (Hamilton et al., "Inductive Representation Learning on Large
// Graphs", NeurIPS 2017; Kaler et al., "Accelerating Training and Inference of Graph Neural Networks with
// Fast Sampling and Pipelining", MLSys 2022). What is sampled is a pure function of graph, seeds, plan and
// key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <trainyard/error.hpp>

#include "csr.hpp"
#include "picks.hpp"

namespace graph {

enum class Mode : std::uint8_t {
  mfg,      ///< each hop draws for all nodes so far: blocks of a message-flow graph
  subgraph  ///< each hop draws for the nodes that the hop before has added: one set of edges for all layers
};

struct Plan {
  std::vector<std::int64_t>
      fanouts;  ///< neighbours a node, in the order of the hops from the seeds on; -1: all
  Mode mode = Mode::mfg;
  bool replace =
      false;  ///< a neighbour may be drawn several times; then as many as asked for, if there is one
};

/// Gives the memory that a hop is written to, borrowed until the hop is done.
class HopWriter {
 public:
  virtual ~HopWriter() = default;
  /// A new hop, whose rows are targets in the order of the nodes: all of them (mfg), or the newest
  /// (subgraph).
  virtual std::int64_t* rowptr(std::size_t size) = 0;
  /// For the numbers of the sources in the batch.
  virtual std::int64_t* col(std::size_t size) = 0;
  /// The hop is done; these are the places of its edges in the graph's col.
  virtual void edges(std::span<const std::int64_t> /*places*/) {}
};

/// Keeps its memory from batch to batch; one thread at a time.
class NeighbourSampler {
 public:
  NeighbourSampler() = default;
  NeighbourSampler(const NeighbourSampler&) = delete;
  NeighbourSampler& operator=(const NeighbourSampler&) = delete;
  virtual ~NeighbourSampler() = default;

  /// The nodes of the batch in the order of their numbers, the seeds first (each as often as it is given),
  /// valid until the next call. Throws DataError where their numbers would not fit 32 bits.
  virtual std::span<const std::int64_t> sample(std::span<const std::int64_t> seeds, const Plan& plan, Key key,
                                               HopWriter& out) = 0;
};

enum class IdMap : std::uint8_t { direct, flat };

/// The graph outlives the sampler.
std::unique_ptr<NeighbourSampler> make_sampler(const Csr& csr, IdMap ids);

// Parts of a sampler, from which `bench graph_sampling` makes others.

/// Nodes of a batch, added without a look at the memory left.
class NodeList {
 public:
  void clear() { size_ = 0; }
  /// For so many more.
  void make_room(std::size_t more) {
    if (nodes_.size() < size_ + more) nodes_.resize(size_ + more);
  }
  void add(std::int64_t node) { nodes_[size_++] = node; }
  std::size_t size() const { return size_; }
  std::span<const std::int64_t> span() const { return {nodes_.data(), size_}; }

 private:
  std::vector<std::int64_t> nodes_;
  std::size_t size_ = 0;
};

/// What the hop has to draw, and where that goes.
template <class Col>
struct Hop {
  struct Row {
    std::int64_t begin, degree;
  };
  std::span<const std::int64_t> targets;
  std::span<const Row> rows;  ///< of the targets in the graph
  const Col* sources;         ///< of all edges of the graph
  const std::int64_t* rowptr;
  std::int64_t* edge;  ///< where to write the places of the edges
  std::int64_t* col;   ///< where to write the numbers of their sources
  Key key;
  std::uint32_t number;
  bool replace;

  /// Writes the edges that are drawn for a target.
  template <class Set>
  void pick(std::size_t target, Set& set, std::int64_t* out) const {
    const Row row = rows[target];
    const std::int64_t picks = rowptr[target + 1] - rowptr[target];
    if (picks == row.degree && !replace) {
      for (std::int64_t i = 0; i < picks; ++i) out[i] = row.begin + i;
      return;
    }
    Draws draws(key, targets[target], number);
    if (!replace)
      pick_distinct(row.degree, picks, draws, set,
                    [&](std::int64_t position) { *out++ = row.begin + position; });
    else
      for (std::int64_t i = 0; i < picks; ++i)
        out[i] = row.begin + static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(row.degree)));
  }
};

/// Gives a node its number in the batch; a new one is added.
template <class Ids>
std::int64_t number_of(std::int64_t node, Ids& ids, NodeList& nodes) {
  const auto next = static_cast<std::int32_t>(nodes.size());
  const std::int32_t id = ids.insert(node, next);
  if (id == next) nodes.add(node);
  return id;
}

/// Draws the edges of a few targets, then fetches their sources, then numbers these: each loop asks ahead for
/// the memory that the next one reads, which is what takes the time.
template <class Set>
class Tiles {
 public:
  template <class Col, class Ids>
  void operator()(const Hop<Col>& hop, Ids& ids, NodeList& nodes) {
    constexpr std::size_t tile = 64;
    for (std::size_t first = 0; first < hop.targets.size(); first += tile) {
      const std::size_t last = std::min(first + tile, hop.targets.size());
      for (std::size_t target = first; target < last; ++target)
        hop.pick(target, set_, hop.edge + hop.rowptr[target]);
      const std::int64_t begin = hop.rowptr[first], end = hop.rowptr[last];
      for (std::int64_t e = begin; e < end; ++e) __builtin_prefetch(hop.sources + hop.edge[e]);
      for (std::int64_t e = begin; e < end; ++e) {
        const std::int64_t source = hop.sources[hop.edge[e]];
        ids.prefetch(source);
        hop.col[e] = source;
      }
      for (std::int64_t e = begin; e < end; ++e) hop.col[e] = number_of(hop.col[e], ids, nodes);
    }
  }

 private:
  Set set_;
};

template <class Col, class Ids, class Expand>
class HopwiseSampler final : public NeighbourSampler {
 public:
  explicit HopwiseSampler(const Csr& csr)
      : rowptr_(csr.rowptr), col_(std::get<std::span<const Col>>(csr.col)), ids_(csr.nodes()) {}

  std::span<const std::int64_t> sample(std::span<const std::int64_t> seeds, const Plan& plan, Key key,
                                       HopWriter& out) override {
    ids_.clear(nodes_.span());
    nodes_.clear();
    nodes_.make_room(seeds.size());
    for (const std::int64_t seed : seeds) {
      ids_.insert(seed, static_cast<std::int32_t>(nodes_.size()));
      nodes_.add(seed);
    }
    std::size_t first = 0;
    for (std::size_t hop = 0; hop < plan.fanouts.size(); ++hop) {
      const std::size_t targets = nodes_.size();
      expand(first, plan.fanouts[hop], plan.replace, key, static_cast<std::uint32_t>(hop), out);
      if (plan.mode == Mode::subgraph) first = targets;
    }
    return nodes_.span();
  }

 private:
  void expand(std::size_t first, std::int64_t fanout, bool replace, Key key, std::uint32_t number,
              HopWriter& out) {
    const std::size_t count = nodes_.size() - first;
    std::int64_t* rowptr = out.rowptr(count + 1);
    find_rows(nodes_.span().subspan(first), fanout, replace, rowptr);
    const auto edges = static_cast<std::size_t>(rowptr[count]);
    const std::size_t new_nodes = std::min(edges, rowptr_.size() - 1);
    if (nodes_.size() + new_nodes > std::numeric_limits<std::int32_t>::max())
      throw trainyard::DataError(
          "a batch has more than 2^31 nodes: set a smaller batch_size, or smaller fanouts");
    nodes_.make_room(new_nodes);
    if (edge_.size() < edges) edge_.resize(edges);
    const Hop<Col> hop{.targets = nodes_.span().subspan(first),
                       .rows = rows_,
                       .sources = col_.data(),
                       .rowptr = rowptr,
                       .edge = edge_.data(),
                       .col = out.col(edges),
                       .key = key,
                       .number = number,
                       .replace = replace && fanout >= 0};
    expand_(hop, ids_, nodes_);
    out.edges({edge_.data(), edges});
  }

  /// Where the rows of the targets lie, and how many edges are drawn from each.
  void find_rows(std::span<const std::int64_t> targets, std::int64_t fanout, bool replace,
                 std::int64_t* rowptr) {
    constexpr std::size_t ahead = 16;
    rows_.resize(targets.size());
    *rowptr = 0;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (i + ahead < targets.size())
        __builtin_prefetch(&rowptr_[static_cast<std::size_t>(targets[i + ahead])]);
      const auto row = static_cast<std::size_t>(targets[i]);
      const std::int64_t degree = rowptr_[row + 1] - rowptr_[row];
      rows_[i] = {rowptr_[row], degree};
      const bool all = fanout < 0 || degree == 0 || (degree <= fanout && !replace);
      rowptr[i + 1] = rowptr[i] + (all ? degree : fanout);
    }
  }

  std::span<const std::int64_t> rowptr_;
  std::span<const Col> col_;
  Ids ids_;
  Expand expand_;
  NodeList nodes_;
  std::vector<typename Hop<Col>::Row> rows_;  ///< of the targets of a hop
  std::vector<std::int64_t> edge_;
};

}  // namespace graph
