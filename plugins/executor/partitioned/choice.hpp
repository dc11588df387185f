// Which way the steps of a run go where ways differ in their bits: the fastest by measured times. These are never the same twice, so
// that a choice is kept, with the run and for the runs on this machine that come later.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <trainyard/graph/graph.hpp>

namespace partitioned {

enum class Way : std::uint8_t {
  clusters,
  alone,    ///< one thread, to the bits of clusters
  threads,  ///< those of the run within operators, as eager does
};
inline constexpr std::size_t ways = 3;

/// Where estimates chose, no way has a time.
struct Choice {
  Way way = Way::threads;
  std::array<double, ways> microseconds = {std::numeric_limits<double>::infinity(),  ///< of a pass, by way;
                                           std::numeric_limits<double>::infinity(),  ///< infinite: not tried
                                           std::numeric_limits<double>::infinity()};

  bool operator==(const Choice&) const = default;
};

/// Returns the fastest of the ways that were tried, the first of several.
Choice fastest(const std::array<double, ways>& microseconds);

/// Returns such as "clusters (a pass took 812 us, on one thread 1400 us, on the run's 2 threads 1013 us)".
std::string described(const Choice& choice, int threads);

/// As a checkpoint and the folder have it; nothing comes of a text that is none.
std::string text_of(const Choice& choice);
std::optional<Choice> read_choice(const std::string& text);

/// Returns a text that tells a graph from others in what its passes take: operators, what they read, shapes. Attributes show in shapes.
std::string outline_of(const trainyard::Graph& graph);

/// Choices of the runs on this machine: $XDG_CACHE_HOME/trainyard/partitioned, or that below ~/.cache, a file for each key.
class ChoiceFolder {
 public:
  ChoiceFolder();

  std::string file_of(const std::string& key) const;
  /// Returns what the first run with a key chose on such a machine.
  std::optional<Choice> find(const std::string& key) const;
  /// Keeps a choice where there is none yet, and returns the one that is there; none where it cannot be kept.
  std::optional<Choice> keep(const std::string& key, const Choice& choice) const;

 private:
  std::string folder_;
};

}  // namespace partitioned
