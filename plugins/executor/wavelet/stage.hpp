// The stage of this rank: a part of the network on a thread of its own, through which waves go forward and backward. Ranks
// hand on activations to the next one and their gradients to the one before (wire.hpp), in the order of order.hpp.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include <trainyard/executor.hpp>
#include <trainyard/host.hpp>
#include <trainyard/ranks.hpp>

#include "order.hpp"
#include "part.hpp"
#include "wire.hpp"

namespace wavelet {

using namespace trainyard;

/// The stage of each node: runs of layers that cost about the same, of which rank r has the r-th. Throws ConfigError where
/// there are fewer layers.
std::vector<int> stage_of_nodes(const Graph& graph, int stages);

/// A micro-batch on its way, as far as this rank has to do with it.
struct Pass {
  Part* part = nullptr;  ///< outlives it
  Batch batch;
  ForwardContext context;
  double share = 1.0;  ///< of its loss in that of the step

  // Written by the stage's thread:
  Tensors inputs{}, outputs{};
  Tensors statistics{};  ///< running statistics of the part, as they are behind its forward
  Graded graded{};       ///< of the last stage, without a graph
};

/// Loop thread, where nothing else is said. All ranks make it at the same point, and launch the same passes.
class Stage {
 public:
  /// `graph`: of this rank's part; `waves`: that are on their way at once; `threads`: for the work within an operator.
  Stage(Host& host, Ranks& ranks, const Loss& loss, const Graph& graph, std::int64_t waves, int threads);
  ~Stage();

  /// Behind those that are there.
  void launch(const std::vector<std::shared_ptr<Pass>>& passes);
  /// Of all so far.
  std::int64_t launched() const { return launched_; }
  /// Waits until the first `count` of all are through here. Throws what a pass threw; the stage is of no more use then.
  void finish(std::int64_t count);

 private:
  void run(const std::stop_token& stop);
  void expect_inputs(std::int64_t launched);
  void forward(Pass& pass);
  void backward(Pass& pass);
  void turn(Pass& pass);
  Pass& of(std::int64_t number);

  const int number_, stages_, threads_;
  const Loss& loss_;
  const Graph& graph_;
  Tensors statistics_;
  // The stage's thread:
  std::unique_ptr<Wire> activations_in_, activations_out_, gradients_in_,
      gradients_out_;          ///< null at the ends
  std::int64_t expected_ = 0;  ///< passes whose inputs are

  std::mutex mutex_;
  std::condition_variable_any changed_;
  Order order_;
  std::deque<std::shared_ptr<Pass>> passes_;  ///< not through yet, the oldest first
  std::int64_t launched_ = 0, wanted_ = 0;
  std::exception_ptr thrown_;
  std::shared_ptr<void> thread_;  ///< goes first
};

}  // namespace wavelet
