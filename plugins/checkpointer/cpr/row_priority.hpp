// Which rows of an embedding table are written more often than the others: every r Ts a share r of them, those
// of the highest priority, which is as much as all of them every Ts. From CPR (overhead.hpp), sections 4.2 and
// 5; SCAR is that of Qiao et al., "Fault Tolerance in Iterative-Convergent Machine Learning", ICML 2019.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <trainyard/error.hpp>
#include <trainyard/random.hpp>
#include <trainyard/state.hpp>

namespace cpr {

using namespace trainyard;

/// Of one table, [rows, width], float or double, on the CPU. One thread at a time.
class RowPriority {
 public:
  virtual ~RowPriority() = default;

  /// Look-ups from here on are of the next batch.
  virtual void begin_batch() {}
  /// Rows that the batch looked up, as often as it did; they are counted from row `first`.
  virtual void tick(std::span<const std::int64_t> /*rows*/, std::int64_t /*first*/) {}

  /// The rows to write now, in ascending order; from now on they count as saved as `table` has them.
  virtual std::vector<std::int64_t> take(const at::Tensor& table) = 0;
  /// All rows were written as `table` has them.
  virtual void take_all(const at::Tensor& table) = 0;

  /// Of what is kept to decide.
  virtual std::int64_t bytes() const { return 0; }
  virtual void save(StateWriter&) const {}
  virtual void load(const StateReader&) {}
};

/// r R, and at least one.
inline std::int64_t share_of_rows(std::int64_t rows, double share) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rows) * share));
}

/// All rows, each time.
class Vanilla final : public RowPriority {
 public:
  explicit Vanilla(std::int64_t rows) : rows_(rows) {}
  std::vector<std::int64_t> take(const at::Tensor&) override {
    std::vector<std::int64_t> all(static_cast<std::size_t>(rows_));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    return all;
  }
  void take_all(const at::Tensor&) override {}

 private:
  std::int64_t rows_;
};

/// The `count` rows of the highest score, ascending; of equal ones those that come first. Rows of score 0 have
/// nothing to write.
template <class Score>
std::vector<std::int64_t> highest(const std::vector<Score>& scores, std::int64_t count) {
  std::vector<std::int64_t> rows;
  for (std::size_t row = 0; row < scores.size(); ++row)
    if (scores[row] > Score{0}) rows.push_back(static_cast<std::int64_t>(row));
  if (static_cast<std::int64_t>(rows.size()) > count) {
    const auto before = [&](std::int64_t a, std::int64_t b) {
      const Score left = scores[static_cast<std::size_t>(a)], right = scores[static_cast<std::size_t>(b)];
      return left != right ? left > right : a < b;
    };
    std::nth_element(rows.begin(), rows.begin() + count, rows.end(), before);
    rows.resize(static_cast<std::size_t>(count));
    std::sort(rows.begin(), rows.end());
  }
  return rows;
}

/// Those that moved furthest from their saved copy, by the Euclidean distance. Keeps a copy of the table.
class Scar final : public RowPriority {
 public:
  Scar(const at::Tensor& table, double share)
      : saved_(table.detach().clone()), count_(share_of_rows(table.size(0), share)) {}

  std::vector<std::int64_t> take(const at::Tensor& table) override {
    return table.scalar_type() == at::kDouble ? take_of<double>(table) : take_of<float>(table);
  }
  void take_all(const at::Tensor& table) override { saved_.copy_(table.detach()); }

  std::int64_t bytes() const override { return static_cast<std::int64_t>(saved_.nbytes()); }
  void save(StateWriter& state) const override { state.tensor("saved", saved_); }
  void load(const StateReader& state) override { saved_.copy_(state.tensor("saved")); }

 private:
  template <class T>
  std::vector<std::int64_t> take_of(const at::Tensor& table) {
    const auto width = static_cast<std::size_t>(table.size(1));
    const T* now = table.const_data_ptr<T>();
    auto* then = saved_.mutable_data_ptr<T>();
    std::vector<double> distances(static_cast<std::size_t>(table.size(0)));
    for (std::size_t i = 0; i < distances.size() * width; ++i) {
      const double moved = static_cast<double>(now[i]) - static_cast<double>(then[i]);
      distances[i / width] += moved * moved;
    }
    std::vector<std::int64_t> rows = highest(distances, count_);
    for (const std::int64_t row : rows)
      std::copy_n(now + static_cast<std::size_t>(row) * width, width,
                  then + static_cast<std::size_t>(row) * width);
    return rows;
  }

  at::Tensor saved_;
  std::int64_t count_;
};

/// Most frequently used: those that were looked up most often since they were last written.
class Mfu final : public RowPriority {
 public:
  Mfu(std::int64_t rows, double share)
      : counts_(static_cast<std::size_t>(rows)), count_(share_of_rows(rows, share)) {}

  void tick(std::span<const std::int64_t> rows, std::int64_t first) override {
    std::uint32_t* const counts = counts_.data() + first;
    for (const std::int64_t row : rows) ++counts[row];
  }
  std::vector<std::int64_t> take(const at::Tensor&) override {
    std::vector<std::int64_t> rows = highest(counts_, count_);
    for (const std::int64_t row : rows) counts_[static_cast<std::size_t>(row)] = 0;
    return rows;
  }
  void take_all(const at::Tensor&) override { std::fill(counts_.begin(), counts_.end(), 0); }

  std::int64_t bytes() const override {
    return static_cast<std::int64_t>(counts_.size() * sizeof(counts_.front()));
  }
  void save(StateWriter& state) const override {
    const at::Tensor counts = at::empty({static_cast<std::int64_t>(counts_.size())}, at::kInt);
    std::memcpy(counts.mutable_data_ptr(), counts_.data(), counts.nbytes());
    state.tensor("counts", counts);
  }
  void load(const StateReader& state) override {
    const at::Tensor& counts = state.tensor("counts");
    if (counts.numel() != static_cast<std::int64_t>(counts_.size()) || counts.scalar_type() != at::kInt)
      throw PluginError("state \"counts\" has " + std::to_string(counts.numel()) + " rows, the table has " +
                        std::to_string(counts_.size()));
    std::memcpy(counts_.data(), counts.const_data_ptr(), counts.nbytes());
  }

 private:
  std::vector<std::uint32_t> counts_;  ///< look-ups since the last write; wraps after 2^32
  std::int64_t count_;
};

/// Sub-sampled used: a set of r R rows that every `period`-th batch fills; where it is full, a new row takes
/// the place of any other, each as likely. What is taken empties it.
class Ssu final : public RowPriority {
 public:
  Ssu(std::int64_t rows, double share, std::uint64_t seed, std::int64_t period = 2)
      : rows_(rows),
        count_(static_cast<std::size_t>(share_of_rows(rows, share))),
        period_(period),
        draws_(seed, "cpr/ssu") {
    members_.reserve(count_);
    known_.resize(static_cast<std::size_t>(rows));
  }

  void begin_batch() override { looks_ = batches_++ % period_ == 0; }
  void tick(std::span<const std::int64_t> rows, std::int64_t first) override {
    if (!looks_) return;
    for (const std::int64_t each : rows) {
      const auto row = static_cast<std::size_t>(first + each);
      if (known_[row]) continue;
      known_[row] = true;
      if (members_.size() < count_) {
        members_.push_back(static_cast<std::int32_t>(row));
        continue;
      }
      std::int32_t& place = members_[draws_.below(static_cast<std::uint64_t>(evictions_++), count_)];
      known_[static_cast<std::size_t>(place)] = false;
      place = static_cast<std::int32_t>(row);
    }
  }
  std::vector<std::int64_t> take(const at::Tensor&) override {
    std::vector<std::int64_t> rows(members_.begin(), members_.end());
    std::sort(rows.begin(), rows.end());
    clear();
    return rows;
  }
  void take_all(const at::Tensor&) override { clear(); }

  std::int64_t bytes() const override {
    return static_cast<std::int64_t>(count_ * sizeof(std::int32_t) + known_.size() / 8);
  }
  void save(StateWriter& state) const override {
    state.scalar("batches", batches_);
    state.scalar("evictions", evictions_);
    const at::Tensor members = at::empty({static_cast<std::int64_t>(members_.size())}, at::kInt);
    std::memcpy(members.mutable_data_ptr(), members_.data(), members.nbytes());
    state.tensor("members", members);
  }
  void load(const StateReader& state) override {
    const at::Tensor& members = state.tensor("members");
    const auto* row = members.const_data_ptr<std::int32_t>();
    const std::int64_t found = members.numel();
    if (found > static_cast<std::int64_t>(count_) ||
        std::any_of(row, row + found, [&](std::int32_t each) { return each < 0 || each >= rows_; }))
      throw PluginError("state \"members\" holds " + std::to_string(found) + " rows for a set of " +
                        std::to_string(count_) + " from a table of " + std::to_string(rows_) +
                        ": it is of another table, or of another share of the rows");
    clear();
    batches_ = state.integer("batches");
    evictions_ = state.integer("evictions");
    members_.assign(row, row + found);
    for (const std::int32_t member : members_) known_[static_cast<std::size_t>(member)] = true;
  }

 private:
  void clear() {
    for (const std::int32_t member : members_) known_[static_cast<std::size_t>(member)] = false;
    members_.clear();
  }

  std::int64_t rows_;
  std::size_t count_;
  std::int64_t period_;
  RandomStream draws_;
  std::int64_t batches_ = 0, evictions_ = 0;
  bool looks_ = false;  ///< at this batch
  std::vector<std::int32_t> members_;
  std::vector<bool> known_;  ///< of each row: whether it is a member
};

/// Of all tables of a shard: their rows compete for the same share, one table behind the other. Rows of small
/// tables are used most and always among those written; had each table a share of its own, most of what small
/// ones learn would be left out, while large ones have fewer rows to write than they may.
class Priorities {
 public:
  /// `policy`: "vanilla", "scar", "mfu" or "ssu". `tables` [rows, width], of the same width.
  Priorities(const std::string& policy, const std::vector<at::Tensor>& tables, double share)
      : by_values_(policy == "scar") {
    for (const at::Tensor& table : tables) first_.push_back(first_.back() + table.size(0));
    if (policy == "vanilla")
      all_ = std::make_unique<Vanilla>(first_.back());
    else if (policy == "scar")
      all_ = std::make_unique<Scar>(whole(tables), share);
    else if (policy == "mfu")
      all_ = std::make_unique<Mfu>(first_.back(), share);
    else
      all_ = std::make_unique<Ssu>(first_.back(), share, 1);
  }

  /// Rows of a table that a batch looked up; of each batch every table in turn.
  void tick(std::size_t table, std::span<const std::int64_t> rows) {
    if (table == 0) all_->begin_batch();
    all_->tick(rows, first_[table]);
  }
  /// The rows of each table to write now, in ascending order.
  std::vector<std::vector<std::int64_t>> take(const std::vector<at::Tensor>& tables) {
    std::vector<std::vector<std::int64_t>> rows(tables.size());
    std::size_t table = 0;
    for (const std::int64_t row : all_->take(whole(tables))) {
      while (row >= first_[table + 1]) ++table;
      rows[table].push_back(row - first_[table]);
    }
    return rows;
  }
  /// All rows were written.
  void take_all(const std::vector<at::Tensor>& tables) { all_->take_all(whole(tables)); }

 private:
  /// A copy of all of them, where rows are chosen by what is in them; else nothing.
  at::Tensor whole(const std::vector<at::Tensor>& tables) const {
    return by_values_ ? at::cat(tables) : at::Tensor();
  }

  const bool by_values_;
  std::vector<std::int64_t> first_ = {0};  ///< row of each table, and behind the last one
  std::unique_ptr<RowPriority> all_;
};

}  // namespace cpr
