// Embedding tables whose rows lie on different ranks; a rank never has those of another. The ids of all ranks go
// to all of them, each adds the rows that it owns to vectors of zeros, and the sum over the ranks gives each rank
// those of its own samples; the gradients go back the same way, and are sparse. As "row-wise" sharding in Ivchenko
// et al., "TorchRec", RecSys 2022, section 3.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <trainyard/error.hpp>
#include <trainyard/mixins/reads_rows.hpp>
#include <trainyard/named_tensor.hpp>
#include <trainyard/random.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/sharded.hpp>

namespace models {

using namespace trainyard;

class ShardedTables {
 public:
  using Listener = std::function<void(std::size_t table, std::span<const std::int64_t> rows)>;

  /// Each rank draws its own rows: the initial values are those of one rank. `bound` gives that of a table of so
  /// many rows. `ranks` outlives it.
  ShardedTables(Ranks& ranks, const std::vector<std::int64_t>& rows, std::int64_t dim, std::uint64_t seed,
                const std::function<double(std::int64_t)>& bound)
      : ranks_(ranks), dim_(dim) {
    for (std::size_t t = 0; t < rows.size(); ++t) {
      const auto [first, last] = rows_of_rank(rows[t], ranks.rank(), ranks.size());
      const std::string name = "tables." + std::to_string(t) + ".weight";
      const at::Tensor own = at::empty({last - first, dim});
      draw(own, first * dim, RandomStream(seed, "model/" + name), bound(rows[t]));
      tables_.push_back({name, rows[t], first, own.set_requires_grad(true)});
    }
  }

  std::vector<ShardedTable> sharded() const {
    std::vector<ShardedTable> all;
    for (const Table& table : tables_) all.push_back({table.name, table.rows});
    return all;
  }
  std::vector<NamedTensor> parameters() const {
    std::vector<NamedTensor> all;
    for (const Table& table : tables_) all.push_back({table.name, table.own});
    return all;
  }
  void on_lookup(Listener listener) { listener_ = std::move(listener); }
  void on_read(ReadsRows::Listener listener) { reader_ = std::move(listener); }

  /// ids [batch, tables] -> [batch, tables, dim], together with the other ranks, whose batches have the same size.
  /// Backward adds to the gradients of own rows what all ranks have for them.
  at::Tensor look_up(const at::Tensor& ids) {
    evaluates_ = false;
    check(ids);
    const at::Tensor all = at::empty({ids.size(0) * ranks_.size(), ids.size(1)}, at::kLong);
    at::Tensor vectors = at::empty({ids.size(0), ids.size(1), dim_});
    {
      const at::NoGradGuard no_grad;
      ranks_.all_gather(all, ids.contiguous())->wait();
      ranks_.reduce_scatter(vectors, own_vectors(all, true))->wait();
    }
    if (!at::GradMode::is_enabled()) return vectors;
    vectors.set_requires_grad(true);
    vectors.register_hook([this, all](const at::Tensor& gradient) { add_gradients(all, gradient); });
    return vectors;
  }

  // Passes that do not train. Ranks may make as many as they like, each of as many samples as it likes: in every
  // round a rank looks up what it has, or says that it is through, and all give their rows.
  void begin_evaluation() { evaluates_ = true; }
  at::Tensor look_up_apart(const at::Tensor& ids) {
    if (!evaluates_)
      throw PluginError(
          "a pass that does not train comes outside of evaluations, where no other rank gives its rows for "
          "it");
    const at::NoGradGuard no_grad;
    check(ids);
    return round(ids, most(ids.size(0)));
  }
  /// Gives the other ranks own rows until all are through.
  void end_evaluation() {
    const at::NoGradGuard no_grad;
    const at::Tensor none = at::empty({0, index(tables_.size())}, at::kLong);
    for (std::int64_t size = most(through); size != through; size = most(through)) round(none, size);
    evaluates_ = false;
  }

 private:
  struct Table {
    std::string name;
    std::int64_t rows = 0, first = 0;
    at::Tensor own;
  };

  static constexpr std::int64_t through = -1;  ///< in place of a number of samples

  /// A row that no rank has would pass for one of zeros.
  void check(const at::Tensor& ids) const {
    for (std::size_t t = 0; t < tables_.size() && ids.size(0) > 0; ++t) {
      const at::Tensor column = ids.select(1, index(t));
      const auto least = column.min().item<std::int64_t>(), most = column.max().item<std::int64_t>();
      if (least < 0 || most >= tables_[t].rows)
        throw DataError("the data looks up row " + std::to_string(least < 0 ? least : most) + " of " +
                        tables_[t].name + ", which has " + std::to_string(tables_[t].rows) +
                        ": give model.tables the rows that the dataset has");
    }
  }

  /// The elements of a stream from number `first` on, as fill_uniform has them in a whole table.
  static void draw(const at::Tensor& own, std::int64_t first, const RandomStream& stream, double bound) {
    constexpr std::int64_t a_block = 4, chunk = 4096;
    float numbers[chunk];
    auto* const data = own.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < own.numel();) {
      const std::int64_t block = (first + i) / a_block, skipped = (first + i) % a_block;
      const std::int64_t count = std::min(chunk - skipped, own.numel() - i);
      stream.fill_uniform({numbers, static_cast<std::size_t>(skipped + count)},
                          static_cast<std::uint64_t>(block));
      for (std::int64_t k = 0; k < count; ++k)
        data[i + k] =
            static_cast<float>(-bound + (bound - -bound) * static_cast<double>(numbers[skipped + k]));
      i += count;
    }
  }

  /// The largest of what the ranks give.
  std::int64_t most(std::int64_t own) {
    const at::Tensor all = at::empty({ranks_.size()}, at::kLong);
    ranks_.all_gather(all, at::full({1}, own, at::kLong))->wait();
    return all.max().item<std::int64_t>();
  }

  /// Vectors of own ids, in an exchange of `size` samples a rank.
  at::Tensor round(const at::Tensor& ids, std::int64_t size) {
    const at::Tensor padded = at::zeros({size, ids.size(1)}, at::kLong);
    padded.narrow(0, 0, ids.size(0)).copy_(ids);
    const at::Tensor all = at::empty({size * ranks_.size(), ids.size(1)}, at::kLong);
    const at::Tensor vectors = at::empty({size, ids.size(1), dim_});
    ranks_.all_gather(all, padded)->wait();
    ranks_.reduce_scatter(vectors, own_vectors(all, false))->wait();
    return vectors.narrow(0, 0, ids.size(0));
  }

  /// Those of own rows; zeros where another rank has the row.
  at::Tensor own_vectors(const at::Tensor& ids, bool training) const {
    const at::Tensor vectors = at::zeros({ids.size(0), ids.size(1), dim_});
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const auto [places, rows] = own(t, ids);
      const std::span read(rows.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(rows.numel()));
      if (training && reader_) reader_(tables_[t].own, read);
      at::Tensor(vectors.select(1, index(t))).index_copy_(0, places, tables_[t].own.index_select(0, rows));
      if (training && listener_) listener_(t, read);
    }
    return vectors;
  }

  static std::int64_t index(std::size_t table) { return static_cast<std::int64_t>(table); }

  /// Which of the samples of all ranks look up own rows of a table, and which.
  std::pair<at::Tensor, at::Tensor> own(std::size_t t, const at::Tensor& all) const {
    const Table& table = tables_[t];
    const at::Tensor ids = all.select(1, index(t));
    const at::Tensor places =
        ids.ge(table.first).logical_and_(ids.lt(table.first + table.own.size(0))).nonzero().flatten();
    return {places, ids.index_select(0, places).sub_(table.first)};
  }

  void add_gradients(const at::Tensor& ids, const at::Tensor& own_gradient) {
    const at::NoGradGuard no_grad;
    const at::Tensor gradients = at::empty({ids.size(0), ids.size(1), dim_});
    ranks_.all_gather(gradients, own_gradient.contiguous())->wait();
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const auto [places, rows] = own(t, ids);
      const at::Tensor found = gradients.select(1, index(t)).index_select(0, places);
      const at::Tensor more =
          at::_sparse_coo_tensor_unsafe(rows.unsqueeze(0), found, tables_[t].own.sizes()).coalesce();
      at::Tensor& gradient = tables_[t].own.mutable_grad();
      gradient = gradient.defined() ? gradient.add(more).coalesce() : more;
    }
  }

  Ranks& ranks_;
  const std::int64_t dim_;
  std::vector<Table> tables_;
  Listener listener_;
  ReadsRows::Listener reader_;
  bool evaluates_ = false;
};

}  // namespace models
