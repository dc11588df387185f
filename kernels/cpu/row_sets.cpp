#include "kernels/cpu/row_sets.hpp"

#include <bit>
#include <numeric>

namespace trainyard::kernels {
namespace {

constexpr int most_digit_bits = 11;  // the counts of a digit stay in the L1 cache

/// Sorts by bits [32, 32 + bits), and keeps the order of equal ones.
void radix_sort(std::vector<std::uint64_t>& keys, int bits) {
  const int passes = (bits + most_digit_bits - 1) / most_digit_bits;
  const int digit_bits = passes == 0 ? 0 : (bits + passes - 1) / passes;
  std::vector<std::uint64_t> other(keys.size());
  std::vector<std::size_t> begins(std::size_t{1} << digit_bits);
  const std::uint64_t mask = begins.size() - 1;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = 32 + pass * digit_bits;
    begins.assign(begins.size(), 0);
    for (const std::uint64_t key : keys) ++begins[key >> shift & mask];
    std::exclusive_scan(begins.begin(), begins.end(), begins.begin(), std::size_t{0});
    for (const std::uint64_t key : keys) other[begins[key >> shift & mask]++] = key;
    keys.swap(other);
  }
}

}  // namespace

RowUses uses_of(const RowSets& sets, std::int64_t count) {
  std::vector<std::uint64_t> keys(sets.rows.size());
  std::vector<std::uint32_t> samples(keys.size());
  for (std::size_t s = 0; s + 1 < sets.offsets.size(); ++s)
    for (auto e = static_cast<std::size_t>(sets.offsets[s]);
         e < static_cast<std::size_t>(sets.offsets[s + 1]); ++e) {
      keys[e] = static_cast<std::uint64_t>(sets.rows[e]) << 32 | e;
      samples[e] = static_cast<std::uint32_t>(s);
    }
  radix_sort(keys, std::bit_width(static_cast<std::uint64_t>(count > 0 ? count - 1 : 0)));

  RowUses uses;
  uses.sample.resize(keys.size());
  uses.entry.resize(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto row = static_cast<std::int64_t>(keys[i] >> 32);
    if (uses.rows.empty() || uses.rows.back() != row) {
      uses.rows.push_back(row);
      uses.offsets.push_back(static_cast<std::int64_t>(i));
    }
    uses.entry[i] = static_cast<std::uint32_t>(keys[i]);
    uses.sample[i] = samples[uses.entry[i]];
  }
  uses.offsets.push_back(static_cast<std::int64_t>(keys.size()));
  return uses;
}

}  // namespace trainyard::kernels
