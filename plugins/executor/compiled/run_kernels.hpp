// The kernels of a run: decided where its first pass of training is compiled, and the same from then on, also where it is gone on with
// elsewhere.
#pragma once

#include <memory>
#include <string>

#include <trainyard/graph/graph.hpp>
#include <trainyard/host.hpp>
#include <trainyard/state.hpp>

#include "compiler.hpp"

namespace compiled {

class RunKernels {
 public:
  bool is_decided() const { return times_ != nullptr; }
  /// For passes on another number of threads nothing is decided.
  bool is_for(int threads) const { return threads == threads_; }
  /// Of passes like that of `key`: reads what is known on this machine, measures the rest, and keeps it. Says what it found and why.
  void decide(const trainyard::Graph& graph, const PlanKey& key, bool winograd, trainyard::Host& host);
  /// What a first pass of so many samples would find, for `trainyard plan`.
  static std::string foreseen(const trainyard::Graph& graph, std::int64_t samples, int threads, bool halves,
                              bool winograd);

  /// Null: by counts.
  std::shared_ptr<const KernelTable> times() const { return times_; }
  /// Whether bfloat16 is faster, or as fast as measured, where the run allows it.
  bool has_halves() const { return has_halves_; }

  void save(trainyard::StateWriter& state) const;
  void load(const trainyard::StateReader& state);

 private:
  std::shared_ptr<const KernelTable> times_;
  bool has_halves_ = true;
  int threads_ = 0;
};

}  // namespace compiled
