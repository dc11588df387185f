#include "active_set.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

namespace slide {
namespace {

constexpr std::int64_t word_bits = 64;
constexpr std::uint64_t first_block = 1 << 16;  // of random numbers, behind those for the order of the tables

std::size_t words_for(std::int64_t bits) {
  return static_cast<std::size_t>((bits + word_bits - 1) / word_bits);
}

template <class Use>
void each_bit(std::uint64_t word, const Use& use) {
  for (; word != 0; word &= word - 1) use(std::countr_zero(word));
}

}  // namespace

ActiveSet::ActiveSet(const ActiveOptions& options, std::int64_t classes)
    : options_(options),
      classes_(classes),
      words_(words_for(classes)),
      summary_(words_for(static_cast<std::int64_t>(words_.size()))) {
  options_.active = std::min(options_.active, classes);
  options_.min_active = std::min({options_.min_active, options_.active, classes});
  if (options_.query != Query::vanilla) frequency_.resize(static_cast<std::size_t>(classes));
}

bool ActiveSet::add(std::int64_t id) {
  const auto word = static_cast<std::size_t>(id / word_bits);
  const std::uint64_t bit = std::uint64_t{1} << id % word_bits;
  if ((words_[word] & bit) != 0) return false;
  words_[word] |= bit;
  summary_[word / word_bits] |= std::uint64_t{1} << word % word_bits;
  ++size_;
  return true;
}

void ActiveSet::select(std::span<const std::int64_t> labels, const Tables* tables,
                       std::span<const std::uint32_t> keys, const trainyard::RandomStream& random) {
  size_ = retrieved_ = 0;
  for (const std::int64_t label : labels)
    if (label >= 0) add(label);
  if (size_ >= options_.active) return;
  const std::int64_t before = size_;
  if (tables != nullptr && options_.query == Query::vanilla) add_in_order(*tables, keys, random);
  if (tables != nullptr && options_.query != Query::vanilla) add_frequent(*tables, keys);
  retrieved_ = size_ - before;
  fill(random);
}

void ActiveSet::add_in_order(const Tables& tables, std::span<const std::uint32_t> keys,
                             const trainyard::RandomStream& random) {
  ordered_.resize(keys.size());
  std::iota(ordered_.begin(), ordered_.end(), 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::swap(ordered_[i], ordered_[i + random.below(i, keys.size() - i)]);
    const auto table = static_cast<std::size_t>(ordered_[i]);
    for (const std::int32_t id : tables.bucket(ordered_[i], keys[table])) {
      add(id);
      if (size_ == options_.active) return;
    }
  }
}

void ActiveSet::add_frequent(const Tables& tables, std::span<const std::uint32_t> keys) {
  seen_.clear();
  for (std::size_t table = 0; table < keys.size(); ++table)
    for (const std::int32_t id : tables.bucket(static_cast<std::int64_t>(table), keys[table]))
      if (frequency_[static_cast<std::size_t>(id)]++ == 0) seen_.push_back(id);
  // The most frequent first, of equal ones the first seen: by counting.
  std::vector<std::size_t> begins(keys.size() + 2, 0);
  const auto rank = [&](std::int32_t id) { return keys.size() - frequency_[static_cast<std::size_t>(id)]; };
  for (const std::int32_t id : seen_) ++begins[rank(id) + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  ordered_.resize(seen_.size());
  for (const std::int32_t id : seen_) ordered_[begins[rank(id)]++] = id;
  const std::int64_t least = options_.query == Query::threshold ? options_.threshold : 1;
  for (const std::int32_t id : ordered_) {
    if (frequency_[static_cast<std::size_t>(id)] < least || size_ == options_.active) break;
    add(id);
  }
  for (const std::int32_t id : seen_) frequency_[static_cast<std::size_t>(id)] = 0;
}

/// Draws until there are enough; where nearly all classes are wanted, takes the first ones that are left.
void ActiveSet::fill(const trainyard::RandomStream& random) {
  std::uint32_t words[256];
  constexpr std::int64_t blocks = std::ssize(words) / 4;
  const auto classes = static_cast<std::uint64_t>(classes_);
  const std::int64_t most_draws = 8 * options_.min_active;
  for (std::int64_t draw = 0; size_ < options_.min_active && draw < most_draws; ++draw) {
    const std::int64_t word = draw % std::ssize(words);
    if (word == 0)
      random.fill_words(words, first_block + static_cast<std::uint64_t>(draw / std::ssize(words) * blocks));
    add(static_cast<std::int64_t>(words[word] * classes >> 32));
  }
  for (std::int64_t id = 0; size_ < options_.min_active; ++id) add(id);
}

void ActiveSet::take(std::vector<std::int64_t>& classes) {
  classes.reserve(classes.size() + static_cast<std::size_t>(size_));
  for (std::size_t s = 0; s < summary_.size(); ++s) {
    each_bit(summary_[s], [&](int of_summary) {
      const std::size_t word = s * word_bits + static_cast<std::size_t>(of_summary);
      each_bit(words_[word],
               [&](int bit) { classes.push_back(static_cast<std::int64_t>(word) * word_bits + bit); });
      words_[word] = 0;
    });
    summary_[s] = 0;
  }
}

}  // namespace slide
