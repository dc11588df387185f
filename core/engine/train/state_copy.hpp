// A copy of a run's state that is made beside the run: copying all of a large model takes longer than
// swapping a part of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include <trainyard/state.hpp>

namespace trainyard::train {

/// Large steady tensors, which nobody writes before settle(), are copied in pieces by any thread with time,
/// while others read. The rest is copied at once. Only the loop thread calls settle() and states().
class StateCopy {
 public:
  using Steady = std::function<bool(const State& of, const at::Tensor& tensor)>;
  /// `steady` is called for large tensors; one that shares memory with a tensor that is not steady is not.
  explicit StateCopy(
      std::vector<State> of, const Steady& steady = [](const State&, const at::Tensor&) { return false; });
  StateCopy(const StateCopy&) = delete;
  StateCopy& operator=(const StateCopy&) = delete;

  /// Copies pieces until none is left. Any thread.
  void help();
  bool settled() const { return done_.load(std::memory_order_acquire) == pieces_.size(); }
  /// Helps, and returns once everything is copied.
  void settle();
  /// Returns the copy, once it is complete.
  const std::vector<State>& states();

 private:
  struct Piece {
    const char* from;
    char* to;
    std::size_t size;
  };

  at::Tensor later(const at::Tensor& tensor);

  std::vector<State> states_;
  std::vector<at::Tensor> sources_;  ///< tensors that the pieces belong to
  std::vector<Piece> pieces_;
  std::atomic<std::size_t> next_{0}, done_{0};
};

}  // namespace trainyard::train
