#include "kernels/cpu/top_k.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/bisection.hpp"
#include "kernels/cpu/top_k_micro.hpp"

namespace trainyard::kernels {
namespace {

constexpr int block = 4096;  // elements compacted at a time: they and their indices stay in the cache

/// If k is small among many elements, a sample gives an almost certain lower bound of the k-th.
constexpr std::int64_t sample_size = 1 << 15, least_sampled = 16 * sample_size;

const TopKMicro& micro_of(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("top-k: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return top_k_micro_avx512;
  if (isa == Isa::avx2) return top_k_micro_avx2;
#endif
  return top_k_micro_portable;
}

[[noreturn]] void refuse(const std::string& message) {
  throw std::invalid_argument("top-k: " + message);
}

void check_indices(std::span<const std::int32_t> indices, std::size_t count) {
  for (const std::int32_t index : indices)
    if (index < 0 || static_cast<std::size_t>(index) >= count)
      refuse("index " + std::to_string(index) + " is not of " + std::to_string(count) + " elements");
}

}  // namespace

struct TopK::State {
  const TopKMicro& micro;
  /// Four copies of each bin, used in turn: adding to the same one again would wait for the addition before.
  std::array<std::array<std::uint32_t, 4>, most_bins> bins;
  std::array<std::int32_t, block + compact_slack> found;
  std::vector<std::int32_t> keys;  ///< for Method::exact, or of a sample
  /// If `narrowed`: all elements whose keys are not below `floor`, and their indices, ascending.
  std::vector<float> candidates;
  std::vector<std::int32_t> places;
  std::int32_t floor = 0;
  bool narrowed = false;

  /// The number of passes, and what they found.
  struct Search {
    Bounds bounds;
    std::int64_t non_finite = 0;
    int passes = 0;
  };

  Search summarized(std::span<const float> x, std::int64_t k) const {
    Search search{.non_finite = micro.summarize(x.data(), std::ssize(x)).non_finite, .passes = 1};
    open_bounds(search.bounds, k, std::ssize(x), search.non_finite);
    return search;
  }

  Search bisect(std::span<const float> x, const Selection& how, std::int64_t k) const {
    const Summary summary = micro.summarize(x.data(), std::ssize(x));
    Bisection bisection(how, k, std::ssize(x), summary);
    int passes = 1;
    for (; !bisection.finished(); ++passes) {
      const int levels = std::min(how.levels, bisection.steps), nodes = (1 << levels) - 1;
      std::int32_t above[most_thresholds];
      std::int64_t counts[1 + most_thresholds] = {};
      for (int node = 1; node <= nodes; ++node) above[node - 1] = bisection.above(node);
      micro.count(x.data(), std::ssize(x), above, nodes, counts + 1);
      bisection.advance(counts, levels);
    }
    return {bisection.bounds, summary.non_finite, passes};
  }

  /// Calls `use` with the indices, block by block, of the elements that have low <= key < low + width.
  template <class Use>
  void each_within(std::span<const float> x, std::int32_t low, std::uint32_t width, const Use& use) {
    const auto count = static_cast<std::int32_t>(x.size());
    for (std::int32_t first = 0; first < count;) {
      const std::int32_t length = std::min(block, count - first);
      const int there = micro.compact(x.data() + first, length, low, width, first, found.data());
      use(std::span<const std::int32_t>(found.data(), static_cast<std::size_t>(there)));
      first += length;
    }
  }

  /// Returns a key that the k-th is likely not below, by a sample: the margin is four standard deviations of
  /// the number of the k largest in it.
  std::int32_t likely_floor(std::span<const float> x, std::int64_t k) {
    const double step = static_cast<double>(x.size()) / static_cast<double>(sample_size);
    keys.resize(std::max<std::size_t>(keys.size(), sample_size));
    for (std::int64_t i = 0; i < sample_size; ++i) {
      // Takes one of each stretch, at varying places in it, since gradients have periods.
      const double part = static_cast<double>(static_cast<std::uint32_t>(i) * 0x9e3779b9u) * 0x1p-32;
      const auto place = static_cast<std::size_t>((static_cast<double>(i) + part) * step);
      keys[static_cast<std::size_t>(i)] = key_of(x[std::min(place, x.size() - 1)]);
    }
    const double expected = static_cast<double>(k) / step;
    const auto rank = static_cast<std::ptrdiff_t>(expected + 4 * std::sqrt(expected) + 8);
    std::nth_element(keys.begin(), keys.begin() + rank, keys.begin() + sample_size, std::greater<>());
    return std::min(keys[static_cast<std::size_t>(rank)], infinite);
  }

  /// Passes over the data once and keeps few candidates, the k largest among them, unless they would be many
  /// or the sample was wrong. Returns whether there was a pass.
  bool narrow(std::span<const float> x, std::int64_t k) {
    if (std::ssize(x) < least_sampled || k > std::ssize(x) / 8) return false;
    floor = likely_floor(x, k);
    candidates.clear();
    places.clear();
    const std::size_t most = x.size() / 4;
    each_within(x, floor, 0x80000000u - static_cast<std::uint32_t>(floor),
                [&](std::span<const std::int32_t> indices) {
                  if (places.size() > most) return;
                  places.insert(places.end(), indices.begin(), indices.end());
                  for (const std::int32_t index : indices)
                    candidates.push_back(x[static_cast<std::size_t>(index)]);
                });
    narrowed = std::ssize(places) >= k && places.size() <= most;
    if (!narrowed) floor = 0;
    return true;
  }

  void count_first_digit(std::span<const float> x) {
    const int shift = digit_of(0).shift;
    const std::size_t fours = x.size() / 4 * 4;
    for (std::size_t i = 0; i < fours; i += 4)
      for (std::size_t j = 0; j < 4; ++j) ++bins[static_cast<std::size_t>(key_of(x[i + j]) >> shift)][j];
    for (std::size_t i = fours; i < x.size(); ++i) ++bins[static_cast<std::size_t>(key_of(x[i]) >> shift)][0];
  }

  /// Counts a digit of the keys that begin with `prefix`.
  void count_digit(std::span<const float> x, Digit digit, std::int32_t prefix) {
    const std::uint32_t mask = (1u << digit.bits) - 1;
    each_within(x, prefix, 1u << (digit.shift + digit.bits), [&](std::span<const std::int32_t> indices) {
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const auto key = static_cast<std::uint32_t>(key_of(x[static_cast<std::size_t>(indices[i])]));
        ++bins[key >> digit.shift & mask][i % 4];
      }
    });
  }

  std::int64_t in_bin(int bin) const {
    std::int64_t sum = 0;
    for (const std::uint32_t part : bins[static_cast<std::size_t>(bin)]) sum += part;
    return sum;
  }

  /// Counts the keys of each bin of a digit.
  void count_bins(std::span<const float> x, const RadixSearch& radix) {
    bins = {};
    if (radix.digit == 0)
      count_first_digit(x);
    else
      count_digit(x, digit_of(radix.digit), radix.prefix);
  }

  Search by_radix(std::span<const float> x, std::int64_t k) {
    Search search{.passes = narrow(x, k)};
    const std::span<const float> source = narrowed ? candidates : x;
    for (RadixSearch radix; !radix.finished(); search.bounds = radix.bounds) {
      count_bins(source, radix);
      search.passes += !narrowed;
      if (radix.digit == 0) {
        for (int bin = infinite >> digit_of(0).shift; bin < most_bins; ++bin)
          search.non_finite += in_bin(bin);
        if (!open_bounds(search.bounds, k, std::ssize(x), search.non_finite)) return search;
      }
      int bin = (1 << digit_of(radix.digit).bits) - 1;
      std::int64_t above = 0;
      for (; radix.beyond + above + in_bin(bin) < k; --bin) above += in_bin(bin);
      radix.enter(bin, above, in_bin(bin), k, floor);
    }
    return search;
  }

  Search by_sort(std::span<const float> x, std::int64_t k) {
    Search search = summarized(x, k);
    if (k == std::ssize(x) || search.non_finite >= k) return search;
    keys.resize(std::max(keys.size(), x.size()));
    const auto end = std::ranges::transform(x, keys.begin(), key_of).out, place = keys.begin() + (k - 1);
    std::nth_element(keys.begin(), place, end, std::greater<>());
    const std::int32_t key = *place;
    const auto larger = std::count_if(keys.begin(), place, [&](std::int32_t each) { return each > key; });
    search.bounds = {larger, larger + std::count(keys.begin(), end, key), key, key - 1};
    ++search.passes;
    return search;
  }

  Search search(std::span<const float> x, const Selection& how, std::int64_t k) {
    narrowed = false;
    floor = 0;
    switch (how.method) {
      case Method::radix: return by_radix(x, k);
      case Method::exact: return by_sort(x, k);
      default: return bisect(x, how, k);
    }
  }

  void gather(std::span<const float> all, Cut cut, std::span<std::int32_t> indices, std::span<float> values) {
    const std::span<const float> x = narrowed ? candidates : all;
    const std::int32_t low = cut.band + 1;
    std::size_t taken = 0;
    std::int64_t of_band = -cut.skip;  // place in the stretch taken
    each_within(x, low, 0x80000000u - static_cast<std::uint32_t>(low),
                [&](std::span<const std::int32_t> candidates) {
                  for (const std::int32_t index : candidates) {
                    const float value = x[static_cast<std::size_t>(index)];
                    if (key_of(value) <= cut.sure) {
                      const std::int64_t place = of_band++;
                      if (place < 0 || place >= cut.take) continue;
                    }
                    indices[taken] = index;
                    values[taken++] = value;
                  }
                });
    if (!narrowed) return;
    for (std::int32_t& index : indices) index = places[static_cast<std::size_t>(index)];
  }
};

TopK::TopK(Isa isa) : state_(new State{micro_of(isa)}) {}
TopK::~TopK() = default;
TopK::TopK(TopK&&) noexcept = default;
TopK& TopK::operator=(TopK&&) noexcept = default;

Selected TopK::select(std::span<const float> x, const Selection& how, std::uint64_t random,
                      std::span<std::int32_t> indices, std::span<float> values) {
  const std::int64_t k = std::ssize(indices);
  check_selection(std::ssize(x), how, k);
  if (values.size() != indices.size())
    refuse("room for " + std::to_string(values.size()) + " values, expected for as many as indices, " +
           std::to_string(k));
  State::Search search = state_->search(x, how, k);
  if (k > 0) {
    state_->gather(x, Cut(search.bounds, k, how.method, random), indices, values);
    search.passes += !state_->narrowed;
  }
  return search.bounds.selected(search.passes, search.non_finite);
}

void scatter_add(std::span<const float> values, std::span<const std::int32_t> indices,
                 std::span<float> into) {
  if (values.size() != indices.size())
    refuse(std::to_string(values.size()) + " values, expected as many as indices, " +
           std::to_string(indices.size()));
  check_indices(indices, into.size());
  for (std::size_t j = 0; j < indices.size(); ++j) into[static_cast<std::size_t>(indices[j])] += values[j];
}

void zero_at(std::span<const std::int32_t> indices, std::span<float> in) {
  check_indices(indices, in.size());
  for (const std::int32_t index : indices) in[static_cast<std::size_t>(index)] = 0;
}

}  // namespace trainyard::kernels
