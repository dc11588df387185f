// Statistics of large tensors, computed by two threads: one beside the loop's, and the loop's own where it
// has to wait for them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <stop_token>

#include <trainyard/host.hpp>
#include <trainyard/statistics.hpp>

namespace trial {

using namespace trainyard;

class Reductions {
 public:
  /// A part of a tensor; parts of one stand together, in order.
  struct Part {
    std::size_t tensor;  ///< the caller's number of it
    at::Tensor values;
    Statistics statistics;
  };

  /// The thread beside; without it the loop's does everything.
  void start(Host& host);
  void stop() { thread_.reset(); }

  /// Begins. The tensor must not change until `finish`. False for one that is not worth it, or cannot be cut:
  /// nothing was done.
  bool add(std::size_t tensor, const at::Tensor& values);
  /// All parts that were added, in order.
  std::deque<Part> finish();

 private:
  void compute(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable_any added_;
  std::condition_variable done_;
  std::deque<Part> parts_;
  std::size_t next_ = 0;  ///< of parts_, which nobody has taken yet
  int busy_ = 0;          ///< threads that compute one
  std::shared_ptr<void> thread_;
};

}  // namespace trial
