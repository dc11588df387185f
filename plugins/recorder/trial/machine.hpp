// What the machine does, read from /proc and asked of its GPUs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/trial.hpp>

#include "gpu.hpp"

namespace trial {

using namespace trainyard;

class Machine {
 public:
  /// `root`: the folder where proc and sys lie.
  explicit Machine(std::string root = "") : root_(std::move(root)) {}

  /// Since the call before, the tensors system/... (recorder.hpp); what the machine does not tell is left
  /// out. The first call gives no shares of time.
  std::vector<TensorRecord> sample();

 private:
  struct Core {
    std::int64_t total = 0, idle = 0, waiting = 0;
  };
  std::string root_;
  std::vector<Core> cores_;
  std::int64_t bytes_read_ = -1, bytes_written_ = -1;
  std::chrono::steady_clock::time_point last_;
  Gpus gpus_;
};

/// A record of numbers, with their statistics.
TensorRecord numbers(std::string name, const std::vector<double>& values);
TensorRecord number(std::string name, double value);

}  // namespace trial
