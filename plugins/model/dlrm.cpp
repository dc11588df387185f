#include <cmath>
#include <optional>

#include <ATen/ops/empty.h>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/host.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"
#include "sharded_tables.hpp"

namespace {

using namespace trainyard;

/// The inputs of the data by what they are.
struct Clicks {
  std::optional<std::size_t> features;  ///< [features], floating point
  std::size_t ids = 0;                  ///< [tables], int64
};

Clicks find_clicks(const BatchSchema& schema) {
  models::require_rows(schema);
  std::optional<std::size_t> features, ids;
  for (std::size_t i = 0; i < schema.inputs.size(); ++i) {
    std::optional<std::size_t>& place = c10::isFloatingType(schema.inputs[i].dtype) ? features : ids;
    if (place || schema.inputs[i].shape.size() != 1)
      throw ConfigError(
          "the model takes rows of ids and of features, at most one of each; the data's input \"" +
          schema.inputs[i].name + "\", " + shape_text(schema.inputs[i].shape) + " of " +
          c10::toString(schema.inputs[i].dtype) + ", is one too many: use a dataset of clicks");
    place = i;
  }
  if (!ids || schema.inputs[*ids].shape.front() < 1 || schema.vocabulary <= 0)
    throw ConfigError(
        "the data has no ids of categories, the model takes one for each table: use a dataset of "
        "clicks, such as criteo or ctr");
  return {features, *ids};
}

/// Tables on all ranks, and behind them the rest of the model, which each rank has.
class ShardedDlrm final : public Network, public ShardsTables, public ReadsRows {
 public:
  ShardedDlrm(const Clicks& clicks, models::ShardedTables tables, Graph rest)
      : clicks_(clicks), tables_(std::move(tables)), rest_(std::move(rest)) {}

  at::Tensor forward(const Batch& batch, const ForwardContext& context) override {
    const at::Tensor& ids = batch.inputs[clicks_.ids];
    const at::Tensor vectors = context.training ? tables_.look_up(ids) : tables_.look_up_apart(ids);
    std::vector<at::Tensor> inputs;
    if (clicks_.features) inputs.push_back(batch.inputs[*clicks_.features]);
    inputs.push_back(vectors);
    return rest_.forward_all(inputs, context).front();
  }
  std::vector<NamedTensor> parameters() const override {
    std::vector<NamedTensor> all = rest_.parameters();
    for (NamedTensor& each : tables_.parameters()) all.push_back(std::move(each));
    return all;
  }
  std::vector<NamedTensor> buffers() const override { return rest_.buffers(); }
  std::vector<std::int64_t> output_shape() const override { return rest_.output_shape(); }
  void to(at::Device device) override {
    if (!device.is_cpu())
      throw ConfigError("run.device is " + device.str() + ", and model.sharded = true is for the CPU");
  }

  std::vector<ShardedTable> sharded() const override { return tables_.sharded(); }
  void begin_evaluation() override { tables_.begin_evaluation(); }
  void end_evaluation() override { tables_.end_evaluation(); }
  void on_lookup(models::ShardedTables::Listener listener) override {
    tables_.on_lookup(std::move(listener));
  }
  void on_read(ReadsRows::Listener listener) override { tables_.on_read(std::move(listener)); }

 private:
  const Clicks clicks_;
  models::ShardedTables tables_;
  GraphNetwork rest_;
};

/// DLRM (Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems",
/// arXiv 1906.00091, section 2): features through an MLP to one more vector beside those of the categories,
/// the dot products of all pairs of vectors, and an MLP over these and that vector. Weights start as in the
/// authors' code, biases at 0.
class Dlrm final : public Model {
 public:
  struct Options {
    std::int64_t dim = 16;
    std::vector<std::int64_t> bottom = {512, 256, 64};
    std::vector<std::int64_t> top = {512, 256};
    std::vector<std::int64_t> tables;
    bool sharded = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("dlrm").version("1.0.0").summary(
        "Clicks from features and categories: embedding tables, dot products of all pairs, two MLPs.");
    m.provides("graph").provides("sharded_rows where sharded = true and distributed.ranks != 1");
    for (const char* const need :
         {"data.train.drop_last = true", "no trainer.grad_clip", "no distributed.compressor",
          "distributed.shares = none", "trainer.precision = fp32 | bf16-mixed", "run.device = cpu",
          "no divides_network", "sparse_rows"})
      m.needs(std::string(need) + " where sharded = true and distributed.ranks != 1");
    m.option("dim", &Options::dim, "width of an embedding").range(1, 1 << 16);
    m.option("bottom", &Options::bottom,
             "widths between the data's features and dim; of no use where the data has ids alone")
        .min(1);
    m.option("top", &Options::top, "widths between the dot products and the logit").min(1);
    m.option("tables", &Options::tables,
             "rows of each table; empty: as many in all as the largest of the data has")
        .min(1);
    m.option("sharded", &Options::sharded,
             "of several ranks: each has its own rows of every table, and looks up the others' through them");
  }
  explicit Dlrm(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    const Clicks clicks = find_clicks(context.schema);
    if (context.schema.classes != 2)
      throw ConfigError("the model gives the logit of a click, but the data has " +
                        std::to_string(context.schema.classes) + " classes: two are needed");
    const std::vector<std::int64_t> rows =
        rows_of_tables(context.schema.inputs[clicks.ids].shape.front(), context.schema.vocabulary);

    if (rows.size() + (clicks.features ? 1 : 0) < 2)
      throw ConfigError("the data has one table and no features: there is no pair to take the product of");
    Ranks* const ranks = options_.sharded ? host().run().ranks : nullptr;
    if (ranks == nullptr)
      return std::make_unique<GraphNetwork>(graph(context.schema, context.seed, clicks, rows, true));
    BatchSchema schema = context.schema;
    schema.inputs.clear();
    if (clicks.features) schema.inputs.push_back(context.schema.inputs[*clicks.features]);
    schema.inputs.push_back({"vectors", {static_cast<std::int64_t>(rows.size()), options_.dim}, at::kFloat});
    Clicks inputs{.ids = schema.inputs.size() - 1};
    if (clicks.features) inputs.features = 0;
    return std::make_unique<ShardedDlrm>(
        clicks, models::ShardedTables(*ranks, rows, options_.dim, context.seed, bound),
        graph(schema, context.seed, inputs, rows, false));
  }

 private:
  /// `whole`: with the tables; else the vectors of the ids are an input.
  Graph graph(const BatchSchema& schema, std::uint64_t seed, const Clicks& inputs,
              const std::vector<std::int64_t>& rows, bool whole) const {
    GraphBuilder b(schema, seed);
    std::vector<ValueId> vectors;
    ValueId features = no_value;
    if (inputs.features) {
      features = layers(b, b.input(*inputs.features), "bottom", options_.bottom);
      features = b.relu(linear(b, features, "bottom", options_.bottom.size(), options_.dim));
      vectors.push_back(b.reshape(features, {0, 1, options_.dim}));
    }
    if (!whole) vectors.push_back(b.input(inputs.ids));
    for (std::size_t t = 0; whole && t < rows.size(); ++t)
      vectors.push_back(embedding(b, b.input(inputs.ids), t, rows[t]));
    const ValueId all = vectors.size() > 1 ? b.concat(vectors, 1) : vectors.front();
    ValueId x = pairs(b, all, static_cast<std::int64_t>(rows.size() + (inputs.features ? 1 : 0)));
    if (features != no_value) x = b.concat({features, x}, 1);
    x = layers(b, x, "top", options_.top);
    return b.finish(linear(b, x, "top", options_.top.size(), 1));
  }

  static double bound(std::int64_t rows) { return 1.0 / std::sqrt(static_cast<double>(rows)); }

  std::vector<std::int64_t> rows_of_tables(std::int64_t tables, std::int64_t largest) const {
    if (options_.tables.empty()) return std::vector<std::int64_t>(static_cast<std::size_t>(tables), largest);
    models::require_equal("the length of model.tables", static_cast<std::int64_t>(options_.tables.size()),
                          "the tables of the data", tables);
    const std::int64_t found = *std::max_element(options_.tables.begin(), options_.tables.end());
    if (found < largest)
      throw ConfigError("the largest of model.tables has " + std::to_string(found) +
                        " rows, but the ids of the data run to " + std::to_string(largest - 1) +
                        ": give model.tables the rows that the dataset has");
    return options_.tables;
  }

  static ValueId linear(GraphBuilder& b, ValueId x, const std::string& mlp, std::size_t layer,
                        std::int64_t out) {
    const auto sum = static_cast<double>(b.shape(x)[1] + out);
    return b.linear(x, mlp + "." + std::to_string(layer), out, true, std::sqrt(2.0 / sum));
  }
  static ValueId layers(GraphBuilder& b, ValueId x, const std::string& mlp,
                        const std::vector<std::int64_t>& widths) {
    for (std::size_t i = 0; i < widths.size(); ++i) x = b.relu(linear(b, x, mlp, i, widths[i]));
    return x;
  }

  /// [batch, 1, dim]
  ValueId embedding(GraphBuilder& b, ValueId ids, std::size_t table, std::int64_t rows) const {
    const std::string name = "tables." + std::to_string(table);
    const auto column = static_cast<std::int64_t>(table);
    const ValueId weight = b.uniform_parameter(name + ".weight", {rows, options_.dim}, bound(rows));
    return b.node("Gather", name, {weight, b.slice(ids, 1, column, column + 1)}, {{"axis", std::int64_t{0}}});
  }

  /// x [batch, vectors, dim] -> [batch, pairs]: (1, 0), (2, 0), (2, 1), (3, 0), ...
  static ValueId pairs(GraphBuilder& b, ValueId x, std::int64_t vectors) {
    const ValueId products = b.node("MatMul", "interaction", {x, b.transpose(x, {0, 2, 1})});
    const at::Tensor places = at::empty({vectors * (vectors - 1) / 2}, at::kLong);
    auto* place = places.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < vectors; ++i)
      for (std::int64_t j = 0; j < i; ++j) *place++ = i * vectors + j;
    return b.node("Gather", "pairs", {b.flatten(products), b.constant("pairs.places", places)},
                  {{"axis", std::int64_t{1}}});
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Dlrm)
