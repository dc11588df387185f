// The ways to share nodes out among clusters.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace partition {

/// Rules of a stream first, whose names say what they are: `w_` measures load by weight, and not by the count of edges; `wb_`
/// bounds it as well. `metis` sees the whole graph; `heft`, list scheduling, places nodes and leaves no assignment of edges.
enum class Algorithm : std::uint8_t {
  wb_libra,
  w_libra,
  libra,
  wb_powergraph,
  w_powergraph,
  powergraph,
  hdrf,
  ebv,
  dbh,
  random,
  metis,
  heft
};

inline constexpr std::string_view algorithm_words[] = {"wb_libra",     "w_libra",    "libra", "wb_powergraph",
                                                       "w_powergraph", "powergraph", "hdrf",  "ebv",
                                                       "dbh",          "random",     "metis", "heft"};

/// Returns the words of those ahead of one, for trainyard::Words.
template <Algorithm end>
constexpr auto words_of_algorithms() {
  std::array<std::string_view, static_cast<std::size_t>(end)> words{};
  std::copy_n(algorithm_words, words.size(), words.begin());
  return words;
}

constexpr std::string_view word_of(Algorithm algorithm) {
  return algorithm_words[static_cast<std::size_t>(algorithm)];
}

}  // namespace partition
