#include "sparse_rows.hpp"

#include <map>
#include <set>

namespace {

constexpr std::size_t together = 8;  ///< rows, as in runtime::add_sparse

std::uint16_t place(std::size_t number) {
  return static_cast<std::uint16_t>(number);
}

}  // namespace

SparseRows sparse_rows(const at::Tensor& matrix) {
  const at::Tensor single = matrix.to(at::kFloat).contiguous();
  const auto rows = static_cast<std::size_t>(single.size(0)), in = static_cast<std::size_t>(single.size(1));
  const float* const from = single.const_data_ptr<float>();
  std::vector<std::vector<std::uint16_t>> columns(rows);
  std::map<std::size_t, std::vector<std::size_t>> with;  // rows by how many numbers they have
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < in; ++column)
      if (from[row * in + column] != 0.0f) columns[row].push_back(place(column));
    if (!columns[row].empty()) with[columns[row].size()].push_back(row);
  }
  SparseRows packed;
  packed.places.push_back(place(with.size()));
  for (const auto& [count, which] : with) {
    packed.places.push_back(place(count));
    packed.places.push_back(place(which.size()));
    for (const std::size_t row : which) packed.places.push_back(place(row));
    const auto add = [&](std::size_t row, std::size_t k) {
      packed.places.push_back(columns[row][k]);
      packed.numbers.push_back(from[row * in + columns[row][k]]);
    };
    std::size_t i = 0;
    for (; i + together <= which.size(); i += together)
      for (std::size_t k = 0; k < count; ++k)
        for (std::size_t l = 0; l < together; ++l) add(which[i + l], k);
    for (; i < which.size(); ++i)
      for (std::size_t k = 0; k < count; ++k) add(which[i], k);
  }
  return packed;
}

std::int64_t sparse_bytes(const at::Tensor& matrix) {
  const at::Tensor counts = matrix.ne(0).sum(1);
  std::set<std::int64_t> different;
  std::int64_t places = 1, numbers = 0;
  for (std::int64_t row = 0; row < counts.numel(); ++row) {
    const std::int64_t count = counts.const_data_ptr<std::int64_t>()[row];
    if (count == 0) continue;
    different.insert(count);
    numbers += count;
    places += 1 + count;
  }
  return 4 * numbers + 2 * (places + 2 * std::ssize(different));
}
