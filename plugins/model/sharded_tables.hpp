// Embedding tables whose rows lie on different ranks. In training the ids of all ranks go to all of them,
// each adds the rows that it owns to vectors of zeros, and the sum over the ranks gives each rank those of
// its own samples; the gradients go back the same way. As "row-wise" sharding in Ivchenko et al., "TorchRec",
// RecSys 2022, section 3.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <trainyard/named_tensor.hpp>
#include <trainyard/random.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/sharded.hpp>

namespace models {

using namespace trainyard;

class ShardedTables {
 public:
  using Listener = std::function<void(std::size_t table, std::span<const std::int64_t> rows)>;

  /// Each rank draws whole tables and keeps its rows: the initial values are those of one rank. `bound` gives
  /// that of a table of so many rows. `ranks` outlives it.
  ShardedTables(Ranks& ranks, const std::vector<std::int64_t>& rows, std::int64_t dim, std::uint64_t seed,
                const std::function<double(std::int64_t)>& bound)
      : ranks_(ranks), dim_(dim) {
    for (std::size_t t = 0; t < rows.size(); ++t) {
      const auto [first, last] = rows_of_rank(rows[t], ranks.rank(), ranks.size());
      const std::string name = "tables." + std::to_string(t) + ".weight";
      at::Tensor whole = at::empty({rows[t], dim});
      fill_uniform(whole, RandomStream(seed, "model/" + name), -bound(rows[t]), bound(rows[t]));
      tables_.push_back(
          {name, rows[t], first, whole.narrow(0, first, last - first).clone().set_requires_grad(true)});
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
  void lend(std::vector<at::Tensor> whole) { whole_ = std::move(whole); }
  void on_lookup(Listener listener) { listener_ = std::move(listener); }

  /// ids [batch, tables] -> [batch, tables, dim], from what was lent.
  at::Tensor look_up_whole(const at::Tensor& ids) const {
    if (whole_.empty())
      throw PluginError(
          "a pass that does not train comes where no rank has whole tables: it is for evaluations");
    const at::Tensor vectors = at::empty({ids.size(0), ids.size(1), dim_});
    for (std::size_t t = 0; t < tables_.size(); ++t)
      at::Tensor(vectors.select(1, index(t))).copy_(whole_[t].index_select(0, ids.select(1, index(t))));
    return vectors;
  }

  /// The same together with the other ranks, whose batches have the same size. Backward adds to the gradients
  /// of own rows what all ranks have for them.
  at::Tensor look_up(const at::Tensor& ids) {
    const at::Tensor all = at::empty({ids.size(0) * ranks_.size(), ids.size(1)}, at::kLong);
    at::Tensor vectors = at::empty({ids.size(0), ids.size(1), dim_});
    {
      const at::NoGradGuard no_grad;
      ranks_.all_gather(all, ids.contiguous())->wait();
      const at::Tensor parts = at::zeros({all.size(0), all.size(1), dim_});
      for (std::size_t t = 0; t < tables_.size(); ++t) {
        const auto [places, rows] = own(t, all);
        at::Tensor(parts.select(1, index(t))).index_copy_(0, places, tables_[t].own.index_select(0, rows));
        if (listener_)
          listener_(t, {rows.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(rows.numel())});
      }
      ranks_.reduce_scatter(vectors, parts)->wait();
    }
    if (!at::GradMode::is_enabled()) return vectors;
    vectors.set_requires_grad(true);
    vectors.register_hook([this, all](const at::Tensor& gradient) { add_gradients(all, gradient); });
    return vectors;
  }

 private:
  struct Table {
    std::string name;
    std::int64_t rows = 0, first = 0;
    at::Tensor own;
  };

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
      at::Tensor& gradient = tables_[t].own.mutable_grad();
      if (!gradient.defined()) gradient = at::zeros_like(tables_[t].own);
      gradient.index_add_(0, rows, gradients.select(1, index(t)).index_select(0, places));
    }
  }

  Ranks& ranks_;
  const std::int64_t dim_;
  std::vector<Table> tables_;
  std::vector<at::Tensor> whole_;
  Listener listener_;
};

}  // namespace models
