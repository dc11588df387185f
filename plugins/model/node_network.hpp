// What models of nodes share: a stack of layers, each from the sources of a block to its targets, with an
// activation and dropout between them. Tensors have the names and shapes of PyTorch Geometric's modules
// ("convs.0.lin_l.weight").
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <trainyard/doubles.hpp>
#include <trainyard/model.hpp>
#include <trainyard/random.hpp>

#include "checks.hpp"
#include "segments.hpp"

namespace models {

/// Number of a tensor of a network.
using TensorId = std::size_t;

class NodeNetwork;

/// What a layer is given in a pass.
class NodePass {
 public:
  const Tensor& operator[](TensorId id) const { return tensors_[id]; }
  const Batch& batch() const { return *batch_; }
  const ForwardContext& context() const { return context_; }
  /// x with dropout at a site, as far as it acts there.
  Tensor dropped(const Tensor& x, std::size_t site) const;
  /// The degrees of the first `nodes` nodes in the whole graph, [nodes, 1], of the type of `like`.
  Tensor degrees(std::int64_t nodes, const Tensor& like) const {
    return batch_->inputs[*degree_].narrow(0, 0, nodes).unsqueeze(1).to(like.scalar_type());
  }

 private:
  friend class NodeNetwork;

  std::vector<Tensor> tensors_;  ///< with weights masked that dropout masks
  const Batch* batch_ = nullptr;
  ForwardContext context_;
  std::optional<std::size_t> degree_;
  const NodeNetwork* network_ = nullptr;
};

/// A layer without its tensors, which it knows by number.
class NodeLayer {
 public:
  /// `op` is shown to those who look on; `width`: numbers that it gives a node.
  NodeLayer(std::string_view op, std::int64_t width) : op_(op), width_(width) {}
  virtual ~NodeLayer() = default;
  /// The values of the block's targets from those of its sources, [sources, in] to [targets, width].
  virtual Tensor forward(const NodePass& pass, const Tensor& x, const EdgesPtr& edges) const = 0;

  std::string_view op() const { return op_; }
  std::int64_t width() const { return width_; }

 private:
  std::string_view op_;
  std::int64_t width_;
};

/// What comes between layers.
struct NodeActivation {
  const char* op;  ///< ONNX operator
  Tensor (*call)(const Tensor& x);
};

/// What becomes of the nodes of a graph (Xu et al., "How powerful are graph neural networks?", ICLR 2019,
/// section 4.2): their values [nodes, width] to [graphs, width], each graph being a target whose sources are
/// its nodes.
using ReadOut = Tensor (*)(const Tensor& x, const EdgesPtr& nodes_of_graphs);

/// The option "read_out" of a model. `what`: "sum", "mean" or "max".
inline ReadOut read_out_of(const std::string& what) {
  return what == "mean" ? mean_neighbours : what == "max" ? max_neighbours : sum_neighbours;
}
template <class Options>
void describe_read_out(Manifest<Options>& m) {
  m.option("read_out", &Options::read_out,
           "where samples are graphs: what is taken of the nodes, ahead of a linear layer")
      .one_of({"sum", "mean", "max"});
}

/// A network of nodes as it is built.
struct NodeModel {
  struct Entry {
    NamedTensor named;
    bool trainable;
  };

  /// Throws ConfigError where the data is no graph, or has another number of hops.
  NodeModel(const ModelContext& context, std::int64_t layer_count, NodeActivation between, ReadOut pool)
      : blocks(find_blocks(context.schema)),
        outputs(models::outputs(context.schema)),
        target(context.schema.target.shape),
        seed(context.seed),
        activation(between),
        read_out(pool) {
    if (blocks.hops != 1 && blocks.hops != static_cast<std::size_t>(layer_count))
      throw ConfigError("model.layers is " + std::to_string(layer_count) + ", but the data has " +
                        std::to_string(blocks.hops) + " hops: set model.layers = " +
                        std::to_string(blocks.hops) + ", or give the data as many fanouts as layers");
  }

  TensorId parameter(std::string name, Tensor tensor) {
    tensors.push_back({{std::move(name), std::move(tensor)}, true});
    return tensors.size() - 1;
  }
  TensorId buffer(std::string name, Tensor tensor) {
    tensors.push_back({{std::move(name), std::move(tensor)}, false});
    return tensors.size() - 1;
  }
  /// Uniform in [-bound, bound], from the stream of that name.
  TensorId uniform(const std::string& name, const std::vector<std::int64_t>& shape, double bound) {
    Tensor tensor = at::empty(shape);
    fill_uniform(tensor, RandomStream(seed, "model/" + name), -bound, bound);
    return parameter(name, tensor);
  }
  /// A matrix that dropout may mask.
  TensorId weight(const std::string& name, std::int64_t out, std::int64_t in, double bound) {
    places.weights.push_back({.id = name, .shape = {out, in}});
    return uniform(name, {out, in}, bound);
  }
  /// As torch.nn.Linear draws it: uniform up to 1 / sqrt(in); bias too.
  std::pair<TensorId, TensorId> linear(const std::string& name, std::int64_t out, std::int64_t in) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    const TensorId matrix = weight(name + ".weight", out, in, bound);
    return {matrix, uniform(name + ".bias", {out}, bound)};
  }

  /// A site of [nodes, width]; gives its number.
  std::size_t site(const std::string& name, std::int64_t width, bool by_name = false) {
    places.sites.push_back({.id = name, .width = width, .by_name = by_name});
    return places.sites.size() - 1;
  }
  BlockSchema blocks;
  std::int64_t outputs;              ///< of a sample, but one that is pairs to be told apart
  std::vector<std::int64_t> target;  ///< shape
  std::uint64_t seed;
  NodeActivation activation;
  ReadOut read_out;
  std::vector<Entry> tensors;
  std::vector<std::shared_ptr<const NodeLayer>> layers;
  std::vector<std::size_t> sites;  ///< of the input, and behind each layer but the last
  /// To the outputs: of graphs from the read-out, of edges from both nodes, one behind the other.
  std::optional<std::pair<TensorId, TensorId>> head;
  DropoutPlaces places;
};

inline std::string layer_name(std::size_t layer) {
  return "convs." + std::to_string(layer);
}

/// The bound of Glorot and Bengio (AISTATS 2010, equation 16).
inline double glorot(std::int64_t in, std::int64_t out) {
  return std::sqrt(6.0 / static_cast<double>(in + out));
}

/// Runs such a model. Its network has no graph: rows are nodes, not samples.
class NodeNetwork final : public Network, public ComputesInDoubles {
 public:
  explicit NodeNetwork(NodeModel model) : model_(std::move(model)) {
    for (NodeModel::Entry& each : model_.tensors)
      if (each.trainable) each.named.tensor.set_requires_grad(true);
  }

  Tensor forward(const Batch& batch, const ForwardContext& context) override {
    const std::vector<Block> blocks = blocks_of(batch, model_.blocks, model_.layers.size());
    const NodePass pass = begin(batch, context);
    Tensor x = segments::wide(batch.inputs[0], blocks[0].sources);
    x = drop(pass, x, model_.sites[0]);
    EdgesPtr edges;
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      if (!edges || !edges->is_of(blocks[i])) edges = std::make_shared<Edges>(blocks[i]);
      const Tensor y = model_.layers[i]->forward(pass, x, edges);
      show(layer_name(i), model_.layers[i]->op(), x, y);
      x = y;
      if (i + 1 == model_.layers.size()) break;
      x = model_.activation.call(y);
      show(layer_name(i) + ".act", model_.activation.op, y, x);
      x = drop(pass, x, model_.sites[i + 1]);
    }
    if (model_.blocks.ends) return pair_scores(x, batch.inputs[*model_.blocks.ends]);
    if (model_.blocks.edge) return of_edges(pass, x, batch.inputs[*model_.blocks.edge]);
    if (model_.head) return of_graphs(pass, x, batch.inputs[*model_.blocks.graphs]);
    if (batch.size() > x.size(0))
      throw DataError("the batch has " + std::to_string(batch.size()) + " samples, and the last block " +
                      std::to_string(x.size(0)) + " targets, the first of which they are");
    return x.narrow(0, 0, batch.size());
  }

  std::vector<NamedTensor> parameters() const override { return of(true); }
  std::vector<NamedTensor> buffers() const override { return of(false); }
  std::vector<std::int64_t> output_shape() const override {
    return model_.blocks.ends ? model_.target : std::vector{model_.outputs};
  }

  void to(at::Device device) override {
    const at::NoGradGuard no_grad;
    for (NodeModel::Entry& each : model_.tensors) each.named.tensor.set_data(each.named.tensor.to(device));
  }

  void to_doubles() override {
    const at::NoGradGuard no_grad;
    for (NodeModel::Entry& each : model_.tensors)
      each.named.tensor.set_data(each.named.tensor.to(at::kDouble));
  }

  void adopt(const std::vector<NamedTensor>& tensors) override {
    std::map<std::string_view, const Tensor*> given;
    for (const NamedTensor& each : tensors) given.emplace(each.name, &each.tensor);
    for (const NodeModel::Entry& each : model_.tensors) {
      const auto found = given.find(each.named.name);
      if (found == given.end())
        throw ConfigError("the model that is replaced has no tensor \"" + each.named.name + "\"");
      if (found->second->sizes() != each.named.tensor.sizes() ||
          found->second->scalar_type() != each.named.tensor.scalar_type())
        throw ConfigError("\"" + each.named.name + "\" is " + told(each.named.tensor) +
                          ", in the model that is replaced it is " + told(*found->second));
    }
    if (given.size() != model_.tensors.size())
      throw ConfigError("the model that is replaced has " + std::to_string(given.size()) +
                        " tensors, this one " + std::to_string(model_.tensors.size()));
    for (NodeModel::Entry& each : model_.tensors) each.named.tensor = *given.at(each.named.name);
  }

  DropoutPlaces dropout_places() const override { return model_.places; }

  void set_dropout(const DropoutPlan* plan, std::uint64_t seed) override {
    if (plan != nullptr && !same_places(plan->places()))
      throw PluginError("the dropout was opened for the places of another network");
    plan_ = plan;
    seed_ = seed;
  }

  bool add_tap(const void* owner, NetworkTap tap) override {
    const auto own = std::ranges::find(taps_, owner, &Tap::first);
    if (own != taps_.end())
      own->second = std::move(tap);
    else
      taps_.emplace_back(owner, std::move(tap));
    return true;
  }
  void remove_tap(const void* owner) override {
    std::erase_if(taps_, [&](const Tap& each) { return each.first == owner; });
  }

  std::unique_ptr<Network> twin() const override {
    NodeModel model = model_;
    for (NodeModel::Entry& each : model.tensors) each.named.tensor = each.named.tensor.variable_data();
    return std::make_unique<NodeNetwork>(std::move(model));
  }

 private:
  friend class NodePass;
  using Tap = std::pair<const void*, NetworkTap>;

  std::vector<NamedTensor> of(bool trainable) const {
    std::vector<NamedTensor> result;
    for (const NodeModel::Entry& each : model_.tensors)
      if (each.trainable == trainable) result.push_back(each.named);
    return result;
  }

  static std::string told(const Tensor& tensor) {
    return tensor.toString() + " of " + shape_text(tensor.sizes().vec());
  }

  bool same_places(const DropoutPlaces& places) const {
    const auto same = [](const auto& these, const auto& those) {
      return std::ranges::equal(
          these, those, {}, [](const auto& each) { return each.id; },
          [](const auto& each) { return each.id; });
    };
    return same(places.sites, model_.places.sites) && same(places.weights, model_.places.weights);
  }

  double rate(const ForwardContext& context) const {
    return plan_ == nullptr || !context.drops() ? 0.0 : plan_->rate(static_cast<std::int64_t>(context.step));
  }

  /// Samples of an evaluation draw other numbers than micro-batches do.
  DropoutCall call(const std::string& place, const ForwardContext& context) const {
    const std::uint32_t lane = context.micro | (context.sampling ? 1u << 31 : 0u);
    return {rate(context), RandomStream(seed_, "dropout/" + place, context.step, lane), context};
  }

  NodePass begin(const Batch& batch, const ForwardContext& context) const {
    NodePass pass;
    pass.batch_ = &batch;
    pass.context_ = context;
    pass.degree_ = model_.blocks.degree;
    pass.network_ = this;
    MasksWeights* const masks = rate(context) > 0.0 ? plan_->dropout().masks_weights() : nullptr;
    std::size_t matrix = 0;
    for (const NodeModel::Entry& each : model_.tensors) {
      Tensor tensor = each.named.tensor;
      if (matrix < model_.places.weights.size() && model_.places.weights[matrix].id == each.named.name) {
        if (masks != nullptr && plan_->places().weights[matrix].active)
          tensor = masks->mask_weight(tensor, matrix, call(each.named.name, context));
        ++matrix;
      }
      pass.tensors_.push_back(std::move(tensor));
    }
    return pass;
  }

  static void check_ends(const Tensor& x, const Tensor& ends) {
    if (ends.is_cpu() && ends.numel() > 0 &&
        (ends.min().item<std::int64_t>() < 0 || ends.max().item<std::int64_t>() >= x.size(0)))
      throw DataError("a pair of the batch has a node outside of the " + std::to_string(x.size(0)) +
                      " targets of the last block: the dataset makes wrong blocks");
  }

  /// The dot products of the two nodes of each pair, a logit each: ends [size, pairs, 2] to [size, pairs].
  Tensor pair_scores(const Tensor& x, const Tensor& ends) const {
    check_ends(x, ends);
    const auto end = [&](std::int64_t which) { return x.index_select(0, ends.select(2, which).reshape(-1)); };
    const Tensor first = end(0), second = end(1);
    const Tensor scores = first.mul(second).sum(1).view({ends.size(0), ends.size(1)});
    for (const auto& [owner, tap] : taps_) tap({"pairs", "Dot", {&x, 1}, {&scores, 1}});
    return scores;
  }

  /// Of the two nodes of each edge, the first from which it goes: ends [size, 2] to [size, outputs].
  Tensor of_edges(const NodePass& pass, const Tensor& x, const Tensor& ends) const {
    check_ends(x, ends);
    const Tensor both = x.index_select(0, ends.reshape(-1)).view({ends.size(0), 2 * x.size(1)});
    const Tensor y = at::linear(both, pass[model_.head->first], pass[model_.head->second]);
    show("lin", "Linear", both, y);
    return y;
  }

  Tensor of_graphs(const NodePass& pass, const Tensor& x, const Tensor& graphs) const {
    const Block block{graphs, at::arange(x.size(0), graphs.options()), x.size(0)};
    const Tensor whole = model_.read_out(x, std::make_shared<Edges>(block));
    const Tensor y = at::linear(whole, pass[model_.head->first], pass[model_.head->second]);
    show("lin", "Linear", whole, y);
    return y;
  }

  Tensor drop(const NodePass& pass, const Tensor& x, std::size_t site) const {
    const Tensor y = pass.dropped(x, site);
    show(model_.places.sites[site].id, "Dropout", x, y);
    return y;
  }

  void show(const std::string& node, std::string_view op, const Tensor& in, const Tensor& out) const {
    for (const auto& [owner, tap] : taps_) tap({node, op, {&in, 1}, {&out, 1}});
  }

  NodeModel model_;
  const DropoutPlan* plan_ = nullptr;
  std::uint64_t seed_ = 0;
  std::vector<Tap> taps_;
};

inline Tensor NodePass::dropped(const Tensor& x, std::size_t site) const {
  if (network_->rate(context_) == 0.0) return x;
  const DropoutPlan& plan = *network_->plan_;
  const DropoutSite& place = plan.places().sites[site];
  return place.active ? plan.dropout().apply(x, site, network_->call(place.id, context_)) : x;
}

/// What a layer of a model is to be.
struct LayerPlan {
  std::string name;  ///< "convs.0"
  std::int64_t in, out;
  bool last;
};

/// The network of a model, whose layers are made one after another by make(plan): all but the last are to
/// give `hidden` numbers a node, the last one those of the target, or `hidden` where samples are edges or
/// graphs. A dropout site lies behind each but the last, and one, which acts where it is named, on the input.
template <class Make>
std::unique_ptr<Network> node_network(NodeModel model, std::int64_t layers, std::int64_t hidden,
                                      const Make& make) {
  std::int64_t width = model.blocks.width;
  const bool nodes = !model.blocks.ends && !model.blocks.edge && !model.blocks.graphs;
  const std::int64_t own = nodes ? model.outputs : hidden;
  model.sites.push_back(model.site("input.dropout", width, true));
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool last = i + 1 == layers;
    const std::string name = layer_name(static_cast<std::size_t>(i));
    model.layers.push_back(make(model, LayerPlan{name, width, last ? own : hidden, last}));
    width = model.layers.back()->width();
    if (!last) model.sites.push_back(model.site(name + ".dropout", width));
  }
  if (model.blocks.graphs) model.head = model.linear("lin", model.outputs, width);
  if (model.blocks.edge) model.head = model.linear("lin", model.outputs, 2 * width);
  return std::make_unique<NodeNetwork>(std::move(model));
}

}  // namespace models
