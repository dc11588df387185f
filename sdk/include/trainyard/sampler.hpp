// sampler/1: gives the order of samples as a pure function of (seed, epoch, position), so that any number of
// workers gives the same order and a resume replays nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/random.hpp>

TRAINYARD_CONTRACT("sampler.hpp");

namespace trainyard {

class Sampler : public Plugin {
 public:
  static constexpr Kind kind{"sampler", 1};

  struct Source {
    std::int64_t size = 0;                   ///< samples to draw from, > 0
    RandomStream random;                     ///< keyed by the run's seed; its step is the epoch
    std::vector<std::int64_t> labels;        ///< Dataset::labels
    std::vector<std::int64_t> samples = {};  ///< number of each in the dataset; empty: all, in its order
    std::int64_t all = 0;                    ///< samples in the dataset with those that `take` leaves aside
  };

  /// Called once before anything else.
  virtual void open(const Source& source) = 0;

  /// Returns how many samples are drawn an epoch.
  virtual std::int64_t size() const = 0;

  /// Writes the indices below Source::size at the positions first, first + 1, ... below size() of `epoch` (from 0).
  /// Each depends on (seed, epoch, its position) alone, not on the range; called from several threads at once.
  virtual void order(std::int64_t epoch, std::int64_t first, std::span<std::int64_t> out) const = 0;
};

}  // namespace trainyard
