// Says which rows of a series are unlike those before them: outlier detectors on the window of the last ones, each less
// the trend that it came upon, as training moves on.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <trainyard/state.hpp>

#include "../../tool/screen/pool.hpp"

namespace step_screen {

class Watch {
 public:
  struct Options {
    std::vector<std::string> pool;
    std::size_t window = 256, refit = 64;
    double beyond = 1.0, least = 5.0;
    std::size_t patience = 10;
    std::uint64_t seed = 0;
  };
  struct Verdict {
    bool odd = false;
    bool fitted = false;       ///< there was a window to compare with
    bool begins_anew = false;  ///< so many rows in a row were odd that they are taken for how things are now
    double score = 0.0;        ///< 0: as the median row of the window; 1: as its oddest
    std::size_t column = 0;    ///< of those that are up by `least`, the one that is up by most deviations
    double departure = 0.0;    ///< of that column from its trend
  };

  /// Throws ConfigError for a detector that there is not, or that needs more rows than the window.
  explicit Watch(Options options);

  /// Takes the next row. One that is odd is not learned from. Numbers that are not finite are odd at any time.
  Verdict look(const std::vector<double>& row);

  /// To the bit: what is judged after load() is what would have been. A state of rows with other columns is left alone.
  void save(trainyard::StateWriter& state) const;
  void load(const trainyard::StateReader& state);

 private:
  void learn(const std::vector<double>& row, std::vector<double> residual);
  void fit(screen::Matrix rows);
  /// In deviations of the window.
  std::vector<double> standard(std::span<const double> residual) const;

  Options options_;
  std::vector<double> trend_;
  std::int64_t seen_ = 0, since_fit_ = 0, in_a_row_ = 0;
  std::int64_t accepted_ = 0;               ///< coming rows that are learned from, odd or not
  std::deque<std::vector<double>> window_;  ///< rows less their trend
  screen::Matrix fitted_;                   ///< rows that the pool knows; none: no pool yet
  std::optional<screen::Pool> pool_;
  double middle_ = 0.0,
         far_ = 1.0;  ///< of its scores of these: the median, and what one in a hundred is above
  std::vector<double> mean_, deviation_;  ///< of their columns
};

}  // namespace step_screen
