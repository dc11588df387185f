// How long the parts of the steps take: written by the loop, read by the thread that samples.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace trial {

using namespace trainyard;

enum class Part : std::uint8_t { data, forward, loss, backward, optimizer };
inline constexpr std::array<const char*, 5> part_names = {"data", "forward", "loss", "backward", "optimizer"};

class Phases {
 public:
  using Clock = std::chrono::steady_clock;
  struct Sample {
    std::vector<double> steps;
    std::array<double, part_names.size()> parts{};
  };

  void begin() { began_ = Clock::now(); }
  void end(Part part) { current_[static_cast<std::size_t>(part)] += since(began_); }

  /// A step begins; the one before ends.
  void step() {
    const Clock::time_point now = Clock::now();
    if (stepped_ != Clock::time_point()) {
      const std::lock_guard lock(mutex_);
      done_.steps.push_back(std::chrono::duration<double>(now - stepped_).count());
      for (std::size_t i = 0; i < current_.size(); ++i) done_.parts[i] += current_[i];
    }
    current_ = {};
    stepped_ = now;
  }
  /// What comes next, an evaluation or a checkpoint, is no part of a step.
  void pause() {
    if (stepped_ == Clock::time_point()) return;
    step();
    stepped_ = {};
  }

  Sample take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }

 private:
  static double since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }
  Clock::time_point began_, stepped_;
  std::array<double, part_names.size()> current_{};
  std::mutex mutex_;
  Sample done_;
};

}  // namespace trial
