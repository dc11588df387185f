#include "tables.hpp"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace slide {

Tables::Tables(const TableShape& shape)
    : shape_(shape),
      starts_(at::zeros({shape.tables, shape.buckets + 1}, at::kInt)),
      ids_(at::full({shape.tables, shape.rows}, -1, at::kInt)),
      starts_data_(starts_.mutable_data_ptr<std::int32_t>()),
      ids_data_(ids_.mutable_data_ptr<std::int32_t>()) {}

bool Tables::adopt(const at::Tensor& starts, const at::Tensor& ids) {
  if (starts.sizes() != starts_.sizes() || ids.sizes() != ids_.sizes()) return false;
  starts_ = starts;
  ids_ = ids;
  starts_data_ = starts_.mutable_data_ptr<std::int32_t>();
  ids_data_ = ids_.mutable_data_ptr<std::int32_t>();
  return true;
}

void Tables::build(const HashFunctions& functions, const at::Tensor& weight,
                   const trainyard::RandomStream& random, std::uint64_t build) {
  const std::int64_t width = weight.size(1);
  const auto* const rows = weight.const_data_ptr<float>();
  // Where the numbers of the rows come to stand, their keys stand first.
  at::parallel_for(0, shape_.rows, 64, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint32_t> keys(static_cast<std::size_t>(shape_.tables));
    for (std::int64_t row = begin; row < end; ++row) {
      functions.keys({rows + row * width, static_cast<std::size_t>(width)}, keys);
      for (std::int64_t table = 0; table < shape_.tables; ++table)
        ids_data_[table * shape_.rows + row] =
            static_cast<std::int32_t>(keys[static_cast<std::size_t>(table)]);
    }
  });
  at::parallel_for(0, shape_.tables, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t table = begin; table < end; ++table)
      fill(table, random.at(build, static_cast<std::uint32_t>(table)));
  });
}

void Tables::fill(std::int64_t table, const trainyard::RandomStream& random) {
  std::int32_t* const starts = starts_data_ + table * (shape_.buckets + 1);
  std::int32_t* const ids = ids_data_ + table * shape_.rows;
  const std::vector<std::int32_t> keys(ids, ids + shape_.rows);
  std::vector<std::int32_t> arrived(static_cast<std::size_t>(shape_.buckets), 0);
  for (const std::int32_t key : keys) ++arrived[static_cast<std::size_t>(key)];
  starts[0] = 0;
  for (std::int64_t b = 0; b < shape_.buckets; ++b)
    starts[b + 1] = starts[b] + static_cast<std::int32_t>(std::min<std::int64_t>(
                                    arrived[static_cast<std::size_t>(b)], shape_.bucket_size));
  std::fill(arrived.begin(), arrived.end(), 0);
  std::fill(ids + starts[shape_.buckets], ids + shape_.rows, -1);
  for (std::int64_t row = 0; row < shape_.rows; ++row) {
    const std::int32_t key = keys[static_cast<std::size_t>(row)];
    std::int64_t place = arrived[static_cast<std::size_t>(key)]++;
    if (place >= shape_.bucket_size && shape_.policy == Policy::fifo) place %= shape_.bucket_size;
    if (place >= shape_.bucket_size)
      place = static_cast<std::int64_t>(
          random.below(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(place) + 1));
    if (place < shape_.bucket_size) ids[starts[key] + place] = static_cast<std::int32_t>(row);
  }
}

}  // namespace slide
