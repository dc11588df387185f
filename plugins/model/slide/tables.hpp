// The L hash tables over the rows of a weight matrix: a bucket holds the numbers of the rows that have its
// key. They lie one behind the other, so that a table takes 4 bytes a row and 4 a bucket.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "hash_functions.hpp"

namespace slide {

/// Which rows a full bucket holds: those that came last, or each with the same probability (Vitter,
/// "Random sampling with a reservoir", ACM TOMS 1985, algorithm R).
enum class Policy : std::uint8_t { reservoir, fifo };

struct TableShape {
  std::int64_t tables = 0, buckets = 0, rows = 0;
  std::int64_t bucket_size = 128;  ///< the most that a bucket holds
  Policy policy = Policy::reservoir;
};

class Tables {
 public:
  explicit Tables(const TableShape& shape);

  /// Anew, of all rows of `weight`, [rows, width], in their order; `random` decides what full buckets hold,
  /// and `build` tells one time from another.
  void build(const HashFunctions& functions, const at::Tensor& weight, const trainyard::RandomStream& random,
             std::uint64_t build);

  std::span<const std::int32_t> bucket(std::int64_t table, std::uint32_t key) const {
    const std::int32_t* const begin = starts_data_ + table * (shape_.buckets + 1) + key;
    return {ids_data_ + table * shape_.rows + begin[0], static_cast<std::size_t>(begin[1] - begin[0])};
  }

  // All that there is of them: int32, [tables, buckets + 1] and [tables, rows].
  const at::Tensor& starts() const { return starts_; }
  const at::Tensor& ids() const { return ids_; }

  /// Takes tables of the same shape in place of its own; says whether they are.
  bool adopt(const at::Tensor& starts, const at::Tensor& ids);

 private:
  void fill(std::int64_t table, const trainyard::RandomStream& random);

  TableShape shape_;
  at::Tensor starts_, ids_;
  std::int32_t *starts_data_, *ids_data_;
};

}  // namespace slide

template <>
struct trainyard::Words<slide::Policy> {
  static constexpr std::string_view words[] = {"reservoir", "fifo"};
};
