// Nodes or edges of a graph, each with a neighbourhood that is sampled on the loader's threads, or small
// graphs that are whole: a batch holds the blocks of trainyard/helpers/blocks.hpp and the features of the
// nodes in them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <trainyard/dataset.hpp>
#include <trainyard/helpers/blocks.hpp>
#include <trainyard/keeps_data.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/linked_samples.hpp>

#include "../kept_file.hpp"
#include "../learned_classes.hpp"
#include "links.hpp"
#include "neighbours.hpp"
#include "node_graph.hpp"

namespace {

using namespace trainyard;

std::int64_t* data(at::Tensor& tensor) {
  return tensor.mutable_data_ptr<std::int64_t>();
}

at::Tensor list(const std::vector<std::int64_t>& numbers) {
  at::Tensor tensor = at::empty({std::ssize(numbers)}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), data(tensor));
  return tensor;
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

class GraphData final : public Dataset,
                        public LinkedSamples,
                        public KeepsData,
                        public KeepsFolders,
                        public Learns {
 public:
  struct Options {
    std::string task = "node";
    std::string targets = "auto";
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
    std::vector<double> shares = graph::Shares{}.of;
    std::int64_t split_seed = 0;
    std::int64_t negatives = 1;
  };
  static void describe(Manifest<Options>& m);
  explicit GraphData(const Options& options)
      : options_(options), learned_(options.layout == "tu" ? Labels::values : Labels::numbers) {}

  void open(const std::string& split) override;
  std::int64_t size() const override {
    return static_cast<std::int64_t>(links_ ? positives_->size() : seeds_->size());
  }
  BatchSchema schema() const override;
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override;
  std::vector<std::int64_t> labels() const override;
  KeptFacts keep(const std::string& split, const KeptProgress& progress) override;
  std::vector<std::string> kept_folders() const override { return {"keep_in"}; }
  void set_taken(TakenSamples taken) override { taken_ = std::move(taken); }
  /// Classes, where samples have any, and node labels of tu files.
  Table learned() const override;
  void use(const Table& learned) override;
  std::vector<std::int64_t> ungraded() const override { return ungraded_; }
  /// Messages go over all edges for training.
  std::string parted_by() const override { return links_ ? "data.shares" : ""; }

 private:
  using Labels = datasets::NumberedClasses::Labels;

  /// A sampler that no other thread has.
  class Borrowed {
   public:
    explicit Borrowed(const GraphData& owner) : owner_(owner), sampler_(owner.take()) {}
    ~Borrowed() { owner_.give_back(std::move(sampler_)); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    graph::NeighbourSampler* operator->() const { return sampler_.get(); }

   private:
    const GraphData& owner_;
    std::unique_ptr<graph::NeighbourSampler> sampler_;
  };

  graph::Targets targets() const;
  bool told_edges() const { return options_.task == "edge" && targets() != graph::Targets::links; }
  graph::Source source() const;
  void check_options() const;
  void open_nodes(const std::string& split);
  void open_links(const std::string& split);
  std::vector<std::int64_t> labels_of_files() const;
  void learn_classes(const std::string& split);
  void make_features();
  /// Features, blocks and degrees of the neighbourhoods of `seeds`, in the order of the schema.
  std::vector<at::Tensor> around(std::span<const std::int64_t> seeds, const ReadContext& context) const;
  Batch read_nodes(std::span<const std::int64_t> indices, const ReadContext& context) const;
  Batch read_links(std::span<const std::int64_t> indices, const ReadContext& context) const;
  Batch read_edges(std::span<const std::int64_t> indices, const ReadContext& context) const;
  Batch read_graphs(std::span<const std::int64_t> indices) const;
  at::Tensor targets_of(std::span<const std::int64_t> indices) const;
  std::int64_t class_of(std::int64_t label) const { return learned_.class_of(label, classes_).value_or(-1); }
  const graph::Csr& csr() const { return links_ ? links_->messages : graph_->csr; }
  std::unique_ptr<graph::NeighbourSampler> take() const;
  void give_back(std::unique_ptr<graph::NeighbourSampler> sampler) const;
  at::Tensor features_of(std::span<const std::int64_t> nodes) const;
  at::Tensor degrees_of(std::span<const std::int64_t> nodes) const;

  Options options_;
  TakenSamples taken_;
  bool given_ = false;  ///< what was learned before
  datasets::NumberedClasses learned_, node_labels_{Labels::values};
  std::vector<std::int64_t> ungraded_;
  std::int64_t classes_ = 0;
  graph::Plan plan_;
  graph::IdMap ids_ = graph::IdMap::direct;
  std::shared_ptr<const graph::NodeGraph> graph_;
  at::Tensor features_;                                  ///< of all nodes
  const std::vector<std::int64_t>* seeds_ = nullptr;     ///< nodes or graphs of the split, in graph_
  std::shared_ptr<const graph::Links> links_;            ///< where samples are edges
  const std::vector<graph::Edge>* positives_ = nullptr;  ///< of the split, in links_
  std::optional<RandomStream> fixed_;  ///< of the negatives of an evaluation, which are the same each time
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<graph::NeighbourSampler>>
      idle_;  ///< with the memory of earlier batches
};

void GraphData::describe(Manifest<Options>& m) {
  m.name("graph").version("1.0.0").summary(
      "Nodes or edges of a graph, or whole graphs, to classify or to regress; edges to tell from pairs "
      "without "
      "one.");
  m.provides("free_rows");
  m.option("task", &Options::task,
           "what a sample is. node: a node of a graph; edge: an edge of it; graph: one of many graphs")
      .one_of({"node", "edge", "graph"});
  m.option(
       "targets", &Options::targets,
       "links: an edge is told from its negatives, a score each; classes: the label of a node, an edge or a "
       "graph; numbers: one or more of each, for regression; auto: links of edges, classes of others")
      .one_of({"auto", "links", "classes", "numbers"});
  m.option(
       "layout", &Options::layout,
       "planetoid: text files of nodes and edges; npz: one file of arrays; ogb: a folder of the Open Graph "
       "Benchmark; tu: a folder of many graphs; synthetic: made up")
      .one_of({"planetoid", "npz", "ogb", "tu", "synthetic"})
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
  m.option("classes", &Options::classes,
           "of the nodes; 0: as many as the highest label of the training split says")
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
  m.option("shares", &Options::shares,
           "of the edges, or of the graphs, that are for train, val and test; with targets = \"links\" "
           "messages go "
           "over edges for training alone")
      .range(0.0, 1.0);
  m.option("split_seed", &Options::split_seed,
           "which edges or graphs those are, and the negatives of evaluations, whatever the seed of the run")
      .min(0);
  m.option("negatives", &Options::negatives,
           "pairs without an edge that are drawn for each edge: for training anew each epoch, else always "
           "the same")
      .range(1, 1 << 16);
}

graph::Targets GraphData::targets() const {
  using graph::Targets;
  if (options_.targets == "numbers") return Targets::numbers;
  const bool links = options_.targets == "links" || (options_.targets == "auto" && options_.task == "edge");
  return links ? Targets::links : Targets::classes;
}

void GraphData::check_options() const {
  if (options_.fanouts.empty() || std::count(options_.fanouts.begin(), options_.fanouts.end(), 0) > 0)
    throw ConfigError(
        "fanouts takes a number for each hop, 1 or more, or -1 for all neighbours, as in [15, 10, 5]");
  const Options standard;
  if (options_.task == "graph" && (options_.fanouts != standard.fanouts || options_.mode != standard.mode ||
                                   options_.replace || options_.split_index != 0))
    throw ConfigError(
        "task = \"graph\" takes graphs whole, and splits them by shares: leave fanouts, mode, replace and "
        "split_index out");
  if (options_.targets == "links" && options_.task != "edge")
    throw ConfigError("targets = \"links\" is of task = \"edge\": take that, or \"classes\" or \"numbers\"");
  if (targets() != graph::Targets::links && options_.negatives != standard.negatives)
    throw ConfigError(
        "negatives are pairs without an edge, of task = \"edge\" with targets = \"links\": leave "
        "them out");
  if (targets() == graph::Targets::numbers && options_.classes != 0)
    throw ConfigError("targets = \"numbers\" has no classes: leave classes out");
  datasets::check_keep_in(options_.keep_in);
}

void GraphData::open(const std::string& split) {
  check_options();
  plan_ = {options_.fanouts, options_.mode == "mfg" ? graph::Mode::mfg : graph::Mode::subgraph,
           options_.replace};
  graph_ = graph::open_graph(source());
  targets() == graph::Targets::links ? open_links(split) : open_nodes(split);
  if (targets() == graph::Targets::classes) learn_classes(split);
  make_features();
  const bool fits = csr().nodes() * 4 <= options_.map_budget << 20;
  ids_ = options_.id_map == "direct" || (options_.id_map == "auto" && fits) ? graph::IdMap::direct
                                                                            : graph::IdMap::flat;
}

KeptFacts GraphData::keep(const std::string& split, const KeptProgress& progress) {
  return datasets::kept_by(options_.keep_in, options_.path, progress, [&] {
    const std::string file = graph::kept_path(source());
    const bool there = std::filesystem::exists(file);
    open(split);
    return KeptFacts{file, !there};
  });
}

graph::Source GraphData::source() const {
  using graph::SelfLoops;
  return {.layout = options_.layout,
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
          .keep_in = options_.keep_in,
          .many = options_.task == "graph",
          .edges_told = told_edges(),
          .targets = targets(),
          .shares = {options_.shares, options_.split_seed}};
}

void GraphData::open_nodes(const std::string& split) {
  if (options_.task != "node")
    graph::agree(options_.layout + " " + options_.path, source().shares.text(), graph_);
  const auto found = graph_->splits.find(split);
  if (found == graph_->splits.end() || found->second.empty())
    throw DataError((options_.path.empty() ? "the graph" : options_.path) + ": no " + options_.task +
                    " with a label is in the split " + split + ": it can have no [data." + split + "]");
  seeds_ = &found->second;
}

Table GraphData::learned() const {
  Table table = learned_.known() ? learned_.to_table() : Table();
  if (node_labels_.known()) table.set("node_labels", node_labels_.to_table());
  return table;
}

void GraphData::use(const Table& learned) {
  given_ = true;
  if (targets() == graph::Targets::classes) learned_.use(learned);
  const Value* const labels = learned.find("node_labels");
  if (labels != nullptr && labels->get_if<Table>() != nullptr) node_labels_.use(labels->as<Table>());
}

/// As many classes as the options say, or else as the highest label among the training samples does. Made-up graphs
/// have as many as they were made with.
void GraphData::learn_classes(const std::string& split) {
  const std::vector<std::int64_t> all = labels_of_files();
  const std::vector<bool> taken = datasets::mask_of(taken_, size());
  if (!learned_.known()) learned_.learn(all, taken);  // nothing was given: this is the training split
  const bool fixed = options_.classes > 0 || options_.layout == "synthetic";
  classes_ = fixed ? graph_->classes : learned_.count();
  if (learned_.count() > classes_)
    throw ConfigError("classes is " + std::to_string(classes_) + ", and the training samples of " +
                      options_.path + " have " + std::to_string(learned_.count()) + ": leave it out");
  ungraded_ = learned_.find_unseen(split, all, taken, classes_, "sample", host());
}

/// Of nodes with labels each label that the training samples have becomes a feature, 1 or 0, behind the attributes.
void GraphData::make_features() {
  const std::vector<std::int64_t>& labels = graph_->node_labels;
  if (given_ && node_labels_.known() == labels.empty())
    throw DataError(options_.path + ": its nodes have " + (labels.empty() ? "no labels" : "labels") +
                    ", and the run was trained " + (labels.empty() ? "with" : "without") +
                    ": are these the files that it was trained with?");
  features_ = graph_->features;
  if (labels.empty()) return;
  if (!given_) {
    const std::vector<bool> taken = datasets::mask_of(taken_, size());
    std::vector<bool> nodes(labels.size());
    for (std::size_t sample = 0; sample < taken.size(); ++sample) {
      const auto number = static_cast<std::size_t>((*seeds_)[sample]);
      if (taken[sample])
        std::fill(nodes.begin() + graph_->offsets[number], nodes.begin() + graph_->offsets[number + 1], true);
    }
    node_labels_.learn(labels, nodes);
  }
  const std::int64_t columns = node_labels_.count();
  at::Tensor made = at::zeros({std::ssize(labels), columns}, at::kFloat);
  float* row = made.mutable_data_ptr<float>();
  for (const std::int64_t label : labels) {
    if (const std::optional<std::int64_t> column = node_labels_.class_of(label, columns)) row[*column] = 1.0f;
    row += columns;
  }
  features_ = graph::finished(at::cat({features_, made}, 1), source());
}

void GraphData::open_links(const std::string& split) {
  const graph::Shares shares = source().shares;
  links_ = graph::open_links(graph_, options_.undirected, shares);
  graph::agree(options_.layout + " " + options_.path,
               shares.text() + ", undirected = " + (options_.undirected ? "true" : "false"), links_);
  const auto found = links_->splits.find(split);
  const std::string name = options_.path.empty() ? "the graph" : options_.path;
  if (found == links_->splits.end() || found->second.empty())
    throw DataError(name + ": no edge is in the split " + split + ": it can have no [data." + split +
                    "], or needs a larger share");
  positives_ = &found->second;
  for (const graph::Edge& edge : *positives_)
    if (links_->full(edge[0]) && (!options_.undirected || links_->full(edge[1])))
      throw DataError(name + ": there is no negative for the edge " + std::to_string(edge[0]) + " - " +
                      std::to_string(edge[1]) + ", as " +
                      (options_.undirected ? "both ends have" : "the first has") +
                      " an edge to every other node: leave such nodes out");
  if (split != "train")
    fixed_.emplace(static_cast<std::uint64_t>(options_.split_seed), "graph/negatives/" + split);
}

BatchSchema GraphData::schema() const {
  const GraphTask task = options_.task == "node"    ? GraphTask::node
                         : options_.task == "graph" ? GraphTask::graph
                         : links_                   ? GraphTask::edge
                                                    : GraphTask::told_edge;
  const bool one_block = plan_.mode == graph::Mode::subgraph || task == GraphTask::graph;
  const std::int64_t pairs = 1 + options_.negatives;
  BatchSchema schema;
  schema.inputs = block_fields(features_.size(1), features_.scalar_type(),
                               one_block ? 1 : plan_.fanouts.size(), options_.degree, task, pairs);
  schema.target = {"class", {}, at::kLong};
  if (links_) schema.target = {"link", {pairs}, at::kFloat};
  if (graph_->numbers.defined()) schema.target = {"numbers", {graph_->numbers.size(1)}, at::kFloat};
  schema.classes = links_ ? 2 : classes_;
  return schema;
}

Batch GraphData::read(std::span<const std::int64_t> indices, const ReadContext& context) const {
  if (links_) return read_links(indices, context);
  if (told_edges()) return read_edges(indices, context);
  return options_.task == "graph" ? read_graphs(indices) : read_nodes(indices, context);
}

std::vector<at::Tensor> GraphData::around(std::span<const std::int64_t> seeds,
                                          const ReadContext& context) const {
  // Micro-batches and ranks of a step draw the same for the same node, so that it does not matter how it is cut.
  const std::uint64_t key = context.random.bits(static_cast<std::uint64_t>(context.step));
  const Borrowed sampler(*this);
  TensorHops hops;
  const std::span<const std::int64_t> nodes = sampler->sample(
      seeds, plan_, {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)}, hops);
  std::vector<at::Tensor> inputs = {features_of(nodes)};
  if (plan_.mode == graph::Mode::subgraph) {
    Block block = joined(hops, static_cast<std::int64_t>(nodes.size()));
    inputs.insert(inputs.end(), {std::move(block.rowptr), std::move(block.col)});
  } else
    for (std::size_t hop = plan_.fanouts.size(); hop-- > 0;)
      inputs.insert(inputs.end(), {hops.rowptrs[hop], hops.cols[hop]});
  if (options_.degree) inputs.push_back(degrees_of(nodes));
  return inputs;
}

Batch GraphData::read_nodes(std::span<const std::int64_t> indices, const ReadContext& context) const {
  std::vector<std::int64_t> nodes;
  for (const std::int64_t index : indices) nodes.push_back((*seeds_)[static_cast<std::size_t>(index)]);
  Batch batch;
  batch.inputs = around(nodes, context);
  batch.target = targets_of(indices);
  return batch;
}

/// The nodes of pairs, and numbers in their place: one that stands in several pairs is one seed.
class Ends {
 public:
  /// `numbers` has room for all.
  explicit Ends(at::Tensor& numbers) : out_(data(numbers)) {}

  void add(std::int64_t node) {
    const auto next = static_cast<std::int32_t>(nodes.size());
    *out_ = known_.insert(node, next);
    if (*out_++ == next) nodes.push_back(node);
  }

  std::vector<std::int64_t> nodes;

 private:
  graph::FlatMap known_;
  std::int64_t* out_;
};

Batch GraphData::read_edges(std::span<const std::int64_t> indices, const ReadContext& context) const {
  at::Tensor numbers = at::empty({std::ssize(indices), 2}, at::kLong);
  Ends ends(numbers);
  for (const std::int64_t index : indices) {
    const auto edge = 2 * static_cast<std::size_t>((*seeds_)[static_cast<std::size_t>(index)]);
    ends.add(graph_->ends[edge]);
    ends.add(graph_->ends[edge + 1]);
  }
  Batch batch;
  batch.inputs = around(ends.nodes, context);
  batch.inputs.push_back(std::move(numbers));
  batch.target = targets_of(indices);
  return batch;
}

/// Each edge, then its negatives.
Batch GraphData::read_links(std::span<const std::int64_t> indices, const ReadContext& context) const {
  const auto size = static_cast<std::int64_t>(indices.size()), pairs = 1 + options_.negatives;
  at::Tensor numbers = at::empty({size, pairs, 2}, at::kLong);
  Ends ends(numbers);
  const auto add = [&](const graph::Edge& edge) {
    for (const std::int64_t node : edge) ends.add(node);
  };
  // Those of training are drawn apart from the neighbours, which take the first elements of the same stream.
  constexpr std::uint64_t apart = std::uint64_t{1} << 46;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const graph::Edge& edge = (*positives_)[static_cast<std::size_t>(indices[i])];
    add(edge);
    const std::int64_t place = fixed_ ? indices[i] : context.position + static_cast<std::int64_t>(i);
    for (std::int64_t j = 0; j < options_.negatives; ++j)
      add(links_->negative(
          edge, fixed_ ? *fixed_ : context.random,
          (fixed_ ? 0 : apart) + static_cast<std::uint64_t>(place * options_.negatives + j)));
  }
  Batch batch;
  batch.inputs = around(ends.nodes, context);
  batch.inputs.push_back(std::move(numbers));
  batch.target = at::zeros({size, pairs}, at::kFloat);
  batch.target.select(1, 0).fill_(1.0);
  return batch;
}

Batch GraphData::read_graphs(std::span<const std::int64_t> indices) const {
  const graph::Csr& all = graph_->csr;
  std::vector<std::int64_t> nodes, rowptr = {0}, col, offsets = {0};
  for (const std::int64_t index : indices) {
    const auto number = static_cast<std::size_t>((*seeds_)[static_cast<std::size_t>(index)]);
    const std::int64_t first = graph_->offsets[number], last = graph_->offsets[number + 1];
    // Nodes of a graph lie side by side, in the whole as in the batch.
    const std::int64_t shift = offsets.back() - first;
    for (std::int64_t node = first; node < last; ++node) {
      nodes.push_back(node);
      rowptr.push_back(rowptr.back() + all.degree(node));
    }
    std::visit(
        [&](const auto& sources) {
          for (std::int64_t edge = all.rowptr[static_cast<std::size_t>(first)];
               edge < all.rowptr[static_cast<std::size_t>(last)]; ++edge)
            col.push_back(std::int64_t{sources[static_cast<std::size_t>(edge)]} + shift);
        },
        all.col);
    offsets.push_back(std::ssize(nodes));
  }
  Batch batch;
  batch.inputs = {features_of(nodes), list(rowptr), list(col)};
  if (options_.degree) batch.inputs.push_back(degrees_of(nodes));
  batch.inputs.push_back(list(offsets));
  batch.target = targets_of(indices);
  return batch;
}

at::Tensor GraphData::targets_of(std::span<const std::int64_t> indices) const {
  std::vector<std::int64_t> samples, found;
  for (const std::int64_t index : indices) samples.push_back((*seeds_)[static_cast<std::size_t>(index)]);
  if (graph_->numbers.defined()) return graph_->numbers.index_select(0, list(samples));
  for (const std::int64_t sample : samples)
    found.push_back(class_of(graph_->labels[static_cast<std::size_t>(sample)]));
  return list(found);
}

/// Of no class: -1.
std::vector<std::int64_t> GraphData::labels() const {
  std::vector<std::int64_t> found = labels_of_files();
  for (std::int64_t& label : found) label = class_of(label);
  return found;
}

std::vector<std::int64_t> GraphData::labels_of_files() const {
  std::vector<std::int64_t> found;
  if (links_ || graph_->numbers.defined()) return found;
  for (const std::int64_t seed : *seeds_) found.push_back(graph_->labels[static_cast<std::size_t>(seed)]);
  return found;
}

std::unique_ptr<graph::NeighbourSampler> GraphData::take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto sampler = std::move(idle_.back());
      idle_.pop_back();
      return sampler;
    }
  }
  return graph::make_sampler(csr(), ids_);
}

void GraphData::give_back(std::unique_ptr<graph::NeighbourSampler> sampler) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(sampler));
}

at::Tensor GraphData::features_of(std::span<const std::int64_t> nodes) const {
  const at::Tensor& all = features_;
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

at::Tensor GraphData::degrees_of(std::span<const std::int64_t> nodes) const {
  at::Tensor degrees = at::empty({static_cast<std::int64_t>(nodes.size())}, at::kLong);
  std::int64_t* out = data(degrees);
  for (const std::int64_t node : nodes) *out++ = csr().degree(node);
  return degrees;
}

}  // namespace

TRAINYARD_PLUGIN(GraphData)
