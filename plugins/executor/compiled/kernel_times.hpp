// Which kernel computes a convolution or a linear layer, where several can: by the times that each took here, else by counts of
// operations. Kernels round differently, so that times are kept, with the run and for later runs on this machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include <trainyard/graph/graph.hpp>

namespace compiled {

/// The data direction is of convolutions and linear layers; for other nodes `weights` is all of the way back.
enum class Direction : std::uint8_t { forward, weights, data };
inline constexpr std::size_t directions = 3;

enum class Way : std::uint8_t {
  winograd,  ///< fewer products, of floats
  direct,    ///< oneDNN, of floats
  halves,    ///< oneDNN, of bfloat16
};
inline constexpr std::size_t ways = 3;

/// Seconds of one node at one shape. Infinite: not measured, or not possible.
struct KernelTimes {
  static constexpr double unknown = std::numeric_limits<double>::infinity();
  std::array<std::array<double, directions>, ways> seconds = {
      {{unknown, unknown, unknown}, {unknown, unknown, unknown}, {unknown, unknown, unknown}}};
  bool is_rough = false;  ///< other programs had the cores while it was timed

  /// Times closer than this share of them are equal.
  double margin() const { return is_rough ? 0.25 : 0.03; }
  double& of(Way way, Direction direction) {
    return seconds[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)];
  }
  double of(Way way, Direction direction) const {
    return seconds[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)];
  }
  bool operator==(const KernelTimes&) const = default;
};
/// By shape_key, or by what else tells measurements apart.
using KernelTable = std::map<std::string, KernelTimes>;

/// Returns whether fewer products are taken; where times are equal or not there, `counted` says so.
bool takes_winograd(const KernelTimes& times, Direction direction, bool counted);

/// Returns what tells a node from those that take other times: its operator, shapes for any batch, and whole attributes.
std::string shape_key(const trainyard::Graph& graph, const trainyard::Node& node);

/// A text for files and checkpoints. Nothing comes of one that is none.
std::string text_of(const KernelTable& table);
std::optional<KernelTable> read_table(const std::string& text);

/// What runs on this machine have measured: $XDG_CACHE_HOME/trainyard/compiled, or that below ~/.cache.
class KernelFile {
 public:
  /// Of passes on so many threads.
  explicit KernelFile(int threads);

  const std::string& path() const { return path_; }
  /// Returns nothing where there is no file, or one that is spoilt or of another machine.
  std::optional<KernelTable> read() const;
  /// Adds what is not there yet, one writer at a time, so that the first one's times stay. Returns all that is there then; nothing
  /// where they cannot be kept.
  std::optional<KernelTable> keep(const KernelTable& table) const;

 private:
  std::string folder_, path_, machine_;
};

}  // namespace compiled
