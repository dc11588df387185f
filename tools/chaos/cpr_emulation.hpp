// A training whose embedding tables lie in shards, as on so many nodes, in one process: what the programs of
// partial recovery share. Model, data, optimizer and images are the real ones; a failure is emulated: the
// rows of a shard become those that its image has, and no process ends.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <trainyard/dataset.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/model.hpp>
#include <trainyard/optimizer.hpp>

#include "plugins/checkpointer/cpr/row_priority.hpp"
#include "plugins/checkpointer/cpr/shard_image.hpp"
#include "support/folder.hpp"
#include "support/plugin.hpp"

namespace trainyard::chaos {

inline constexpr std::size_t shards = 8;
inline constexpr std::int64_t batch_size = 256;

struct Setting {
  std::vector<std::int64_t> rows;  ///< of the tables
  std::int64_t train = 600000, test = 250000;
  double lr = 0.05, signal = 2.0;
};

/// Of 16 tables, log-spaced: the three largest hold 86 % of the rows.
inline std::vector<std::int64_t> criteo_like() {
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 16; ++i) rows.push_back(std::llround(10.0 * std::pow(20000.0, i / 15.0)));
  return rows;
}

inline Array array_of(const std::vector<std::int64_t>& values) {
  Array array;
  for (const std::int64_t value : values) array.emplace_back(value);
  return array;
}

/// What all runs see: batches in their order.
struct Clicks {
  BatchSchema schema;
  std::vector<Batch> train, test;
};

inline std::vector<Batch> read(const Setting& setting, const std::string& split, std::int64_t size,
                               BatchSchema& schema) {
  const auto data = test::make<Dataset>(
      "ctr", test::table({{"size", size}, {"rows", array_of(setting.rows)}, {"signal", setting.signal}}));
  data->open(split);
  schema = data->schema();
  std::vector<Batch> batches;
  for (std::int64_t first = 0; first < size; first += batch_size) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(first + batch_size, size); ++i) indices.push_back(i);
    batches.push_back(data->read(indices, {RandomStream(0, "data"), first}));
    batches.back().indices = std::move(indices);
  }
  return batches;
}

/// A model in training.
class Training {
 public:
  Training(const Setting& setting, const Clicks& clicks) : clicks_(clicks) {
    const auto model = test::make<Model>(
        "dlrm", test::table({{"dim", 8}, {"top", Array{64}}, {"tables", array_of(setting.rows)}}));
    network_ = model->build({clicks.schema, 1});
    optimizer_ = test::make<Optimizer>("rowwise_adagrad",
                                       test::table({{"lr", setting.lr}, {"tables", Array{"tables.*"}}}));
    optimizer_->open(make_groups(network_->parameters(), optimizer_->common));
    for (ParamGroup& group : optimizer_->groups()) group.lr = group.base_lr;
    loss_ = test::make<Loss>("bce_with_logits");
  }

  void step(std::size_t batch) {
    for (const NamedTensor& each : network_->parameters()) each.tensor.mutable_grad() = at::Tensor();
    const Batch& data = clicks_.train[batch];
    loss_->forward(network_->forward(data, {.training = true, .step = batch}), data).backward();
    optimizer_->step();
  }

  double auc() {
    const c10::NoGradGuard untracked;
    const auto metric = test::make<Metric>("auc");
    metric->reset();
    for (const Batch& batch : clicks_.test) metric->update(network_->forward(batch, {}), {}, batch);
    return metric->compute().front();
  }

  /// Weight and sum of squares of each table, by handle: what is written to them is what trains on.
  std::vector<cpr::ShardTable> tables() const { return parameters(true); }
  /// The same of all else, which every node has.
  std::vector<cpr::ShardTable> dense() const { return parameters(false); }

 private:
  std::vector<cpr::ShardTable> parameters(bool of_tables) const {
    State state;
    StateWriter writer(state);
    optimizer_->save(writer);
    std::vector<cpr::ShardTable> found;
    for (const NamedTensor& each : network_->parameters())
      if (each.name.starts_with("tables.") == of_tables)
        found.push_back({each.name,
                         {{"weight", each.tensor.detach()}, {"sum", state.tensors.at("sum/" + each.name)}},
                         {}});
    return found;
  }

  const Clicks& clicks_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Loss> loss_;
};

/// Which shard has a row, and where: rows are dealt out by a hash.
class Layout {
 public:
  explicit Layout(const std::vector<std::int64_t>& rows) {
    const RandomStream hash(1, "layout");
    std::uint64_t place = 0;
    for (const std::int64_t count : rows) {
      auto& table = tables_.emplace_back();
      auto& places = places_.emplace_back();
      for (std::int64_t row = 0; row < count; ++row) {
        std::vector<std::int64_t>& shard = table[hash.below(place++, shards)];
        places.push_back(static_cast<std::int64_t>(shard.size()));
        shard.push_back(row);
      }
    }
  }
  /// The rows of a table that a shard has, in its order.
  const std::vector<std::int64_t>& rows(std::size_t table, std::size_t shard) const {
    return tables_[table][shard];
  }
  /// Of some rows of a table, ascending, those of a shard, and their places there.
  std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> pick(
      std::size_t table, std::size_t shard, const std::vector<std::int64_t>& rows) const {
    std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> picked;
    for (const std::int64_t row : rows) {
      const std::int64_t place = places_[table][static_cast<std::size_t>(row)];
      const auto& own = tables_[table][shard];
      if (place >= static_cast<std::int64_t>(own.size()) || own[static_cast<std::size_t>(place)] != row)
        continue;
      picked.first.push_back(row);
      picked.second.push_back(place);
    }
    return picked;
  }
  std::vector<std::int64_t> rows_of_shards() const {
    std::vector<std::int64_t> sums(shards);
    for (const auto& table : tables_)
      for (std::size_t s = 0; s < shards; ++s) sums[s] += static_cast<std::int64_t>(table[s].size());
    return sums;
  }

 private:
  std::vector<std::array<std::vector<std::int64_t>, shards>> tables_;
  std::vector<std::vector<std::int64_t>> places_;
};

inline at::Tensor index_of(const std::vector<std::int64_t>& rows) {
  return at::tensor(rows, at::kLong);
}

inline cpr::RowValues values_of(const cpr::ShardTable& table, const std::vector<std::int64_t>& rows) {
  cpr::RowValues values;
  for (const auto& [name, tensor] : table.values) values[name] = tensor.index_select(0, index_of(rows));
  return values;
}

/// The images of all shards in a folder of their own. Each is written by a thread of its own, as by its node.
class Images {
 public:
  explicit Images(const Layout& layout) : layout_(layout) {
    for (std::size_t s = 0; s < shards; ++s) images_.emplace_back(folder_ / ("shard-" + std::to_string(s)));
  }

  std::string folder() const { return folder_.path(); }

  void write_all(std::int64_t step, const std::vector<cpr::ShardTable>& tables) {
    each_shard([&](std::size_t s) {
      std::vector<cpr::ShardTable> own;
      for (std::size_t t = 0; t < tables.size(); ++t)
        own.push_back({tables[t].name, values_of(tables[t], layout_.rows(t, s)), {}});
      images_[s].write_base(step, own);
    });
  }
  /// `rows`: of each table.
  void write(std::int64_t step, const std::vector<cpr::ShardTable>& tables,
             const std::vector<std::vector<std::int64_t>>& rows) {
    each_shard([&](std::size_t s) {
      std::vector<cpr::RowRecords> records;
      for (std::size_t t = 0; t < tables.size(); ++t) {
        const auto [own, places] = layout_.pick(t, s, rows[t]);
        if (!own.empty()) records.push_back({tables[t].name, places, values_of(tables[t], own)});
      }
      images_[s].write_records(step, records);
    });
  }
  void compact() {
    each_shard([&](std::size_t s) { images_[s].compact(); });
  }
  /// Makes the rows of a shard what its image has.
  void restore(std::size_t shard, const std::vector<cpr::ShardTable>& tables) const {
    std::map<std::string, cpr::ShardTable> saved;
    for (cpr::ShardTable& table : images_[shard].load()) saved[table.name] = std::move(table);
    for (std::size_t t = 0; t < tables.size(); ++t)
      for (const auto& [name, tensor] : tables[t].values)
        tensor.index_copy_(0, index_of(layout_.rows(t, shard)), saved.at(tables[t].name).values.at(name));
  }

 private:
  template <class Work>
  static void each_shard(Work&& work) {
    std::vector<std::future<void>> nodes;
    for (std::size_t s = 0; s < shards; ++s)
      nodes.push_back(std::async(std::launch::async, [&work, s] {
        const c10::NoGradGuard untracked;
        work(s);
      }));
    for (std::future<void>& node : nodes) node.get();
  }

  const Layout& layout_;
  const test::Folder folder_;
  std::vector<cpr::ShardImage> images_;
};

inline constexpr double share = 0.125;  ///< r: of the rows of a table, written every r Ts

/// The writes of a policy: all rows every Ts ("vanilla"), or a share of them every r Ts.
class Saves {
 public:
  Saves(const std::string& policy, const std::vector<cpr::ShardTable>& tables, Images& images)
      : an_interval_(policy == "vanilla" ? 1 : static_cast<int>(std::lround(1.0 / share))),
        tables_(tables),
        images_(images),
        priorities_(policy, weights(), share) {
    images_.write_all(0, tables_);
  }

  /// `columns` [tables, samples]: the rows that a batch looks up.
  void tick(const at::Tensor& columns) {
    const auto size = static_cast<std::size_t>(columns.size(1));
    for (std::size_t t = 0; t < tables_.size(); ++t)
      priorities_.tick(t, {columns.const_data_ptr<std::int64_t>() + t * size, size});
  }
  /// Whether a write is due behind so many steps, where Ts is `interval` steps.
  bool due(std::size_t steps, double interval) const {
    return steps >= static_cast<std::size_t>(std::lround(interval / an_interval_ * (writes_ + 1)));
  }
  /// True where an interval is complete: the images are folded, and count as saved.
  bool write(std::size_t step) {
    const std::vector<std::vector<std::int64_t>> rows = priorities_.take(weights());
    for (const auto& each : rows) rows_ += static_cast<std::int64_t>(each.size());
    images_.write(static_cast<std::int64_t>(step), tables_, rows);
    if (++writes_ % an_interval_ != 0) return false;
    images_.compact();
    return true;
  }
  /// Written so far; save 0 does not count.
  std::int64_t rows() const { return rows_; }

 private:
  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> weights;
    for (const cpr::ShardTable& table : tables_) weights.push_back(table.values.at("weight"));
    return weights;
  }

  const int an_interval_;
  const std::vector<cpr::ShardTable>& tables_;
  Images& images_;
  cpr::Priorities priorities_;
  int writes_ = 0;
  std::int64_t rows_ = 0;
};

/// The rows that a batch looks up in each table, [tables, samples].
inline at::Tensor columns_of(const Batch& batch) {
  return batch.inputs.back().t().contiguous();
}

/// Of a program: an error is one line, and 2.
inline int run_program(const char* name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 2;
  }
}

}  // namespace trainyard::chaos
