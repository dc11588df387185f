// Nodes of a graph, each with a neighbourhood that is sampled on the loader's threads: a batch holds the
// blocks of trainyard/helpers/blocks.hpp and the features of the nodes in them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <trainyard/dataset.hpp>
#include <trainyard/helpers/blocks.hpp>

#include "neighbours.hpp"
#include "node_graph.hpp"

namespace {

using namespace trainyard;

std::int64_t* data(at::Tensor& tensor) {
  return tensor.mutable_data_ptr<std::int64_t>();
}

/// Hops straight into the tensors of a batch.
class TensorHops final : public graph::HopWriter {
 public:
  std::int64_t* rowptr(std::size_t size) override {
    rowptrs.push_back(at::empty({static_cast<std::int64_t>(size)}, at::kLong));
    return data(rowptrs.back());
  }
  std::int64_t* col(std::size_t size) override {
    cols.push_back(at::empty({static_cast<std::int64_t>(size)}, at::kLong));
    return data(cols.back());
  }

  std::vector<at::Tensor> rowptrs, cols;  ///< from the seeds on
};

/// One block whose targets are all nodes, from hops that each have some; the last nodes have no edge.
Block joined(const TensorHops& hops, std::int64_t nodes) {
  Block block{at::empty({nodes + 1}, at::kLong), at::cat(hops.cols), nodes};
  std::int64_t* out = data(block.rowptr);
  std::int64_t edges = 0;
  for (const at::Tensor& rowptr : hops.rowptrs) {
    const auto* rows = rowptr.const_data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row + 1 < rowptr.size(0); ++row) *out++ = edges + rows[row];
    edges += rows[rowptr.size(0) - 1];
  }
  std::fill(out, data(block.rowptr) + nodes + 1, edges);
  return block;
}

class GraphNodes final : public Dataset {
 public:
  struct Options {
    std::string layout;
    std::string path;
    std::vector<std::int64_t> fanouts = {15, 10, 5};
    std::string mode = "mfg";
    bool replace = false;
    bool undirected = true;
    std::string self_loops = "keep";
    std::int64_t classes = 0;
    std::int64_t split_index = 0;
    bool degree = false;
    bool normalise_features = false;
    std::string feature_dtype = "float32";
    std::string id_map = "auto";
    std::int64_t map_budget = 256;
    graph::Synthetic synthetic;
    std::string keep_in;
  };
  static void describe(Manifest<Options>& m);
  explicit GraphNodes(const Options& options) : options_(options) {}

  void open(const std::string& split) override;
  std::int64_t size() const override { return static_cast<std::int64_t>(seeds().size()); }
  BatchSchema schema() const override;
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override;
  std::vector<std::int64_t> labels() const override;

 private:
  /// A sampler that no other thread has.
  class Borrowed {
   public:
    explicit Borrowed(const GraphNodes& owner) : owner_(owner), sampler_(owner.take()) {}
    ~Borrowed() { owner_.give_back(std::move(sampler_)); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    graph::NeighbourSampler* operator->() const { return sampler_.get(); }

   private:
    const GraphNodes& owner_;
    std::unique_ptr<graph::NeighbourSampler> sampler_;
  };

  const std::vector<std::int64_t>& seeds() const { return *seeds_; }
  std::unique_ptr<graph::NeighbourSampler> take() const;
  void give_back(std::unique_ptr<graph::NeighbourSampler> sampler) const;
  at::Tensor features_of(std::span<const std::int64_t> nodes) const;
  at::Tensor degrees_of(std::span<const std::int64_t> nodes) const;

  Options options_;
  graph::Plan plan_;
  graph::IdMap ids_ = graph::IdMap::direct;
  std::shared_ptr<const graph::NodeGraph> graph_;
  const std::vector<std::int64_t>* seeds_ = nullptr;  ///< of the split, in graph_
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<graph::NeighbourSampler>>
      idle_;  ///< with the memory of earlier batches
};

void GraphNodes::describe(Manifest<Options>& m) {
  m.name("graph").version("1.0.0").summary(
      "Nodes of a graph to classify, each batch with sampled neighbourhoods; the splits share one graph.");
  m.provides("free_rows");
  m.option(
       "layout", &Options::layout,
       "planetoid: text files of nodes and edges; npz: one file of arrays; ogb: a folder of the Open Graph "
       "Benchmark; synthetic: made up")
      .one_of({"planetoid", "npz", "ogb", "synthetic"})
      .required();
  m.option("path", &Options::path, "file or folder of the layout; none for synthetic").file();
  m.option("fanouts", &Options::fanouts,
           "neighbours drawn for a node at each hop, from the samples outwards; -1: all. As many as the "
           "model has "
           "layers where mode = \"mfg\"")
      .range(-1, std::numeric_limits<std::int32_t>::max());
  m.option("mode", &Options::mode,
           "mfg: each hop draws anew for all nodes so far, and each layer has its own edges; subgraph: each "
           "hop draws "
           "for the nodes that the one before has added, and all layers have the same edges")
      .one_of({"mfg", "subgraph"});
  m.option("replace", &Options::replace, "a neighbour may be drawn several times for a node");
  m.option("undirected", &Options::undirected,
           "messages go both ways, and edges that are given twice count once");
  m.option("self_loops", &Options::self_loops, "keep: those of the files; add: one for each node; drop: none")
      .one_of({"keep", "add", "drop"});
  m.option("classes", &Options::classes, "of the nodes; 0: as many as the highest label says")
      .range(0, 1 << 24);
  m.option("split_index", &Options::split_index, "which split, where a file has several").min(0);
  m.option("degree", &Options::degree, "gives the degrees of the nodes in the whole graph, which gcn needs");
  m.option("normalise_features", &Options::normalise_features, "divides the features of a node by their sum");
  m.option("feature_dtype", &Options::feature_dtype,
           "float16: half the memory and transfer; the model computes in its own precision")
      .one_of({"float32", "float16"});
  m.option("id_map", &Options::id_map,
           "how nodes get their numbers in a batch, which says nothing about the numbers: direct: 4 bytes a "
           "node of "
           "the graph and thread; flat: a hash table; auto: direct where it fits map_budget")
      .one_of({"auto", "direct", "flat"});
  m.option("map_budget", &Options::map_budget, "MiB that the direct map of a thread may have")
      .range(0, 1 << 30);
  m.option("synthetic", &Options::synthetic, "of layout = \"synthetic\"");
  m.option("keep_in", &Options::keep_in,
           "folder to keep the graph in as it lies in memory, for runs to come: they map it, and those of a "
           "machine share it")
      .file();
}

void GraphNodes::open(const std::string& split) {
  if (options_.fanouts.empty() || std::count(options_.fanouts.begin(), options_.fanouts.end(), 0) > 0)
    throw ConfigError(
        "fanouts takes a number for each hop, 1 or more, or -1 for all neighbours, as in [15, 10, 5]");
  plan_ = {options_.fanouts, options_.mode == "mfg" ? graph::Mode::mfg : graph::Mode::subgraph,
           options_.replace};
  using graph::SelfLoops;
  graph_ = graph::open_graph({.layout = options_.layout,
                              .path = options_.path,
                              .edges = {.undirected = options_.undirected,
                                        .self_loops = options_.self_loops == "keep"  ? SelfLoops::keep
                                                      : options_.self_loops == "add" ? SelfLoops::add
                                                                                     : SelfLoops::drop},
                              .classes = options_.classes,
                              .split_index = options_.split_index,
                              .normalise_features = options_.normalise_features,
                              .half = options_.feature_dtype == "float16",
                              .synthetic = options_.synthetic,
                              .keep_in = options_.keep_in});
  const auto found = graph_->splits.find(split);
  if (found == graph_->splits.end() || found->second.empty())
    throw DataError((options_.path.empty() ? "the graph" : options_.path) +
                    ": no node with a label is in the split " + split + ": it can have no [data." + split +
                    "]");
  seeds_ = &found->second;
  const bool fits = graph_->csr.nodes() * 4 <= options_.map_budget << 20;
  ids_ = options_.id_map == "direct" || (options_.id_map == "auto" && fits) ? graph::IdMap::direct
                                                                            : graph::IdMap::flat;
}

BatchSchema GraphNodes::schema() const {
  BatchSchema schema;
  schema.inputs = block_fields(graph_->features.size(1), graph_->features.scalar_type(),
                               plan_.mode == graph::Mode::mfg ? plan_.fanouts.size() : 1, options_.degree);
  schema.target = {"class", {}, at::kLong};
  schema.classes = graph_->classes;
  return schema;
}

Batch GraphNodes::read(std::span<const std::int64_t> indices, const ReadContext& context) const {
  std::vector<std::int64_t> nodes_of_samples;
  Batch batch;
  batch.target = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
  std::int64_t* label = data(batch.target);
  for (const std::int64_t index : indices) {
    nodes_of_samples.push_back(seeds()[static_cast<std::size_t>(index)]);
    *label++ = graph_->labels[static_cast<std::size_t>(nodes_of_samples.back())];
  }
  // Micro-batches and ranks of a step draw the same for the same node, so that it does not matter how it is cut.
  const std::uint64_t key = context.random.bits(static_cast<std::uint64_t>(context.step));
  const Borrowed sampler(*this);
  TensorHops hops;
  const std::span<const std::int64_t> nodes =
      sampler->sample(nodes_of_samples, plan_,
                      {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)}, hops);
  batch.inputs.push_back(features_of(nodes));
  if (plan_.mode == graph::Mode::subgraph) {
    Block block = joined(hops, static_cast<std::int64_t>(nodes.size()));
    batch.inputs.insert(batch.inputs.end(), {std::move(block.rowptr), std::move(block.col)});
  } else
    for (std::size_t hop = plan_.fanouts.size(); hop-- > 0;)
      batch.inputs.insert(batch.inputs.end(), {hops.rowptrs[hop], hops.cols[hop]});
  if (options_.degree) batch.inputs.push_back(degrees_of(nodes));
  return batch;
}

std::vector<std::int64_t> GraphNodes::labels() const {
  std::vector<std::int64_t> found;
  for (const std::int64_t node : seeds()) found.push_back(graph_->labels[static_cast<std::size_t>(node)]);
  return found;
}

std::unique_ptr<graph::NeighbourSampler> GraphNodes::take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto sampler = std::move(idle_.back());
      idle_.pop_back();
      return sampler;
    }
  }
  return graph::make_sampler(graph_->csr, ids_);
}

void GraphNodes::give_back(std::unique_ptr<graph::NeighbourSampler> sampler) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(sampler));
}

at::Tensor GraphNodes::features_of(std::span<const std::int64_t> nodes) const {
  const at::Tensor& all = graph_->features;
  at::Tensor features = at::empty({static_cast<std::int64_t>(nodes.size()), all.size(1)}, all.scalar_type());
  const auto row = static_cast<std::size_t>(all.size(1)) * all.element_size();
  const auto* from = static_cast<const char*>(all.const_data_ptr());
  auto* to = static_cast<char*>(features.mutable_data_ptr());
  constexpr std::size_t ahead = 8, line = 64;
  for (std::size_t i = 0; i < nodes.size(); ++i, to += row) {
    if (i + ahead < nodes.size())
      for (std::size_t byte = 0; byte < row; byte += line)
        __builtin_prefetch(from + static_cast<std::size_t>(nodes[i + ahead]) * row + byte);
    std::memcpy(to, from + static_cast<std::size_t>(nodes[i]) * row, row);
  }
  return features;
}

at::Tensor GraphNodes::degrees_of(std::span<const std::int64_t> nodes) const {
  at::Tensor degrees = at::empty({static_cast<std::int64_t>(nodes.size())}, at::kLong);
  std::int64_t* out = data(degrees);
  for (const std::int64_t node : nodes) *out++ = graph_->csr.degree(node);
  return degrees;
}

}  // namespace

TRAINYARD_PLUGIN(GraphNodes)
