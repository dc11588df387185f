// The shipped executors in each of their modes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard::contract {

/// An executor with options that make another algorithm of it, or another way to compute the same.
struct Mode {
  std::string executor;
  std::string name;     ///< "round"; of one without a choice "plain"
  std::string options;  ///< as lines of TOML
  bool late = false;    ///< by design, some of its gradients are of older weights than with `eager`
  bool own_statistics =
      false;               ///< its waves have running statistics of their own, whose mean is taken at a pause
  bool fires_all = false;  ///< events of a micro-batch: any hook goes with it
  bool whole = false;      ///< a step is one micro-batch: it would make an update of each
  bool pauses = false;     ///< its bits depend on where evaluations, checkpoints and swaps are

  /// The table of the run file.
  std::string table() const { return "[executor]\ntype = \"" + executor + "\"\n" + options; }
};

/// A run file without a table of its executor, as those of some surroundings have one.
std::string without_executor(std::string text);

/// By the first choice of words that each manifest has, and a few that no word makes.
const std::vector<Mode>& modes();

inline constexpr std::string_view precisions[] = {"fp32", "bf16-mixed", "fp64"};

}  // namespace trainyard::contract
