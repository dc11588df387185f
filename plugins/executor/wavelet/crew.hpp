// The two waves with their pace, and what the ways of updating have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include <trainyard/executor.hpp>
#include <trainyard/host.hpp>

#include "pace.hpp"
#include "wave.hpp"

namespace wavelet {

using namespace trainyard;

/// Loop thread.
class Crew {
 public:
  Crew(Host& host, Workbench& bench, const Pace::Options& pace, int threads);
  ~Crew();

  Wave& wave(int number) { return *waves_[static_cast<std::size_t>(number)]; }
  Pace& pace() { return pace_; }
  Workbench& bench() { return bench_; }
  /// Those of the run's network, in its order.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  /// The micro-batches of a step that count; the others weigh nothing.
  static std::vector<std::size_t> counted(const StepWork& work);
  /// Says of each pass of the waves, in the order of the micro-batches, what came of it.
  void report(const StepWork& work, std::initializer_list<const Wave*> waves);
  /// Waits for all waves, and throws what the first of them threw.
  void finish(std::initializer_list<Wave*> waves);

  /// Running statistics: both waves and the network get the mean of the waves', by the passes that each made
  /// since the last call.
  void join_statistics();

 private:
  Workbench& bench_;
  Pace pace_;
  std::vector<at::Tensor> parameters_;
  std::array<std::int64_t, most_waves> made_{};          ///< passes since join_statistics()
  std::array<std::unique_ptr<Wave>, most_waves> waves_;  ///< their threads go first
};

}  // namespace wavelet
