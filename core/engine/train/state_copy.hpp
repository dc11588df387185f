// A copy of a run's state that is taken beside the run: to copy all of a large model takes longer than to
// swap a part of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include <trainyard/state.hpp>

namespace trainyard::train {

/// What is large and steady, which nobody writes before settle(), is copied in pieces by whoever has time,
/// while others read it. The rest is copied at once. settle() and states() are one thread's, the loop's.
class StateCopy {
 public:
  using Steady = std::function<bool(const State& of, const at::Tensor& tensor)>;
  /// `steady` is asked of large tensors only; not of any that shares memory with one that is not.
  explicit StateCopy(
      std::vector<State> of, const Steady& steady = [](const State&, const at::Tensor&) { return false; });
  StateCopy(const StateCopy&) = delete;
  StateCopy& operator=(const StateCopy&) = delete;

  /// Copies pieces until none is left. Any thread.
  void help();
  bool settled() const { return done_.load(std::memory_order_acquire) == pieces_.size(); }
  /// Helps, and returns once everything is copied.
  void settle();
  /// What was copied, once all of it is.
  const std::vector<State>& states();

 private:
  struct Piece {
    const char* from;
    char* to;
    std::size_t size;
  };

  at::Tensor later(const at::Tensor& tensor);

  std::vector<State> states_;
  std::vector<at::Tensor> sources_;  ///< of the pieces
  std::vector<Piece> pieces_;
  std::atomic<std::size_t> next_{0}, done_{0};
};

}  // namespace trainyard::train
