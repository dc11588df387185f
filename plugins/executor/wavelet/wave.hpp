// A wave: a twin of the network on a thread of its own, with gradients of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include <trainyard/executor.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>

#include "pace.hpp"

namespace wavelet {

using namespace trainyard;

/// A micro-batch that a wave takes, and the number of the pass.
struct MicroPass {
  std::size_t micro;
  std::int64_t pass;
};

/// Loop thread. What is given outlives it.
///
/// Kernels of convolutions are copies with channels last, which each start() brings up to date: oneDNN copies activations
/// of another layout to its own and back, which makes the peak of a backward half as high again.
class Wave {
 public:
  /// `threads`: for the work within an operator.
  Wave(int number, Host& host, Workbench& bench, Pace& pace, int threads);
  ~Wave();

  Network& network() { return *network_; }
  /// Weights of its own, a copy, in place of those that it shares with the network of the run.
  void own_weights();
  /// What the passes of the next start() read, by handles to be written to.
  std::vector<at::Tensor> weights() const;
  /// Running statistics, the same.
  const std::vector<at::Tensor>& statistics() const { return statistics_; }

  /// Told of a parameter, by its number, once the passes add no more to its gradient. The wave's thread.
  using Whole = std::function<void(std::size_t)>;
  /// Begins passes of micro-batches. The work lives until finish().
  void start(const StepWork& work, std::vector<MicroPass> places, double loss_scale, Whole whole = {});
  /// Waits for them; what one threw is given.
  std::exception_ptr finish();

  /// Of the passes that are done.
  struct Done {
    std::size_t micro;
    Graded graded;  ///< without a graph
  };
  const std::vector<Done>& done() const { return done_; }
  /// The sum over them; undefined where a parameter has none. The next passes begin anew.
  at::Tensor take_gradient(std::size_t parameter);
  std::vector<at::Tensor> take_gradients();

 private:
  struct Job {
    const StepWork* work = nullptr;
    std::vector<MicroPass> places;
    double loss_scale = 1.0;
    Whole whole;
  };
  class Hook;
  void run(const std::stop_token& stop);
  void pass(const Job& job, const MicroPass& place);
  void watch(const NodeActivity& activity);
  void lay_out_kernels();

  const int number_;
  Workbench& bench_;
  Pace& pace_;
  const int threads_;
  std::unique_ptr<Network> network_;
  std::vector<at::Tensor> parameters_, statistics_;
  std::vector<at::Tensor>
      originals_;  ///< of the parameters that are copies with another layout; else undefined
  std::vector<Done> done_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Job job_;
  bool busy_ = false;
  Whole whole_;  ///< in the last pass of a job, else empty; of the wave's thread
  std::exception_ptr thrown_;
  std::shared_ptr<void> thread_;  ///< goes first
};

}  // namespace wavelet
