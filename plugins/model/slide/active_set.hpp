// The few classes of a sample that a training pass computes: its labels, what the hash tables have beside its
// hidden vector, and others at random where those are too few (Chen et al., "SLIDE: In Defense of Smart
// Algorithms over Hardware Acceleration for Large-Scale Deep Learning Systems", MLSys 2020, section 3.2).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tables.hpp"

namespace slide {

/// vanilla: table after table in random order until there are enough. topk: those that most tables have.
/// threshold: those that at least so many tables have.
enum class Query : std::uint8_t { vanilla, topk, threshold };

struct ActiveOptions {
  Query query = Query::vanilla;
  std::int64_t active = 1000;      ///< the most, labels included, but for more labels than that
  std::int64_t threshold = 2;      ///< of Query::threshold
  std::int64_t min_active = 1000;  ///< filled up to so many at random
};

/// What is kept from sample to sample; for one thread.
class ActiveSet {
 public:
  ActiveSet(const ActiveOptions& options, std::int64_t classes);

  /// Labels below 0 are none. `keys` of the tables, empty where there are none. The order of the tables and
  /// what is filled in come from `random`, which is the sample's own.
  void select(std::span<const std::int64_t> labels, const Tables* tables, std::span<const std::uint32_t> keys,
              const trainyard::RandomStream& random);

  /// Writes the classes, ascending, each once, and forgets them; says how many they are.
  void take(std::vector<std::int64_t>& classes);

  std::int64_t retrieved() const { return retrieved_; }  ///< of the last sample, from the tables
  std::int64_t size() const { return size_; }

 private:
  bool add(std::int64_t id);
  void add_in_order(const Tables& tables, std::span<const std::uint32_t> keys,
                    const trainyard::RandomStream& random);
  void add_frequent(const Tables& tables, std::span<const std::uint32_t> keys);
  void fill(const trainyard::RandomStream& random);

  ActiveOptions options_;
  std::int64_t classes_;
  std::vector<std::uint64_t> words_, summary_;  ///< a bit a class; a bit a word of those that is not 0
  std::vector<std::uint16_t> frequency_;        ///< by class, in how many tables; zeros between samples
  std::vector<std::int32_t> seen_, ordered_;
  std::int64_t size_ = 0, retrieved_ = 0;
};

}  // namespace slide

template <>
struct trainyard::Words<slide::Query> {
  static constexpr std::string_view words[] = {"vanilla", "topk", "threshold"};
};
