// A place of a run, as a file names it: "eval_batch_end 3" is the first such event of step 3 or later,
// "batch_end 3 2" the second of step 3. Without the file it is nowhere, so that a run and its resume have the
// same run file.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <trainyard/hook.hpp>

namespace faulty {

/// A file descriptor that none is: whoever stands in for fsync is to kill the process inside the next save. It
/// is not asked by the environment, which no thread can change beside others that read it.
constexpr int die_in_save = -2;

class Place {
 public:
  explicit Place(const std::string& file) { std::ifstream(file) >> event_ >> step_ >> times_; }

  /// Of what comes at no step.
  bool is(const std::string& name) const { return event_ == name; }
  /// Of each event that may be the place: whether it is, or comes after it.
  bool reached(const trainyard::StepContext& context) {
    if (name(context.event()) != event_ || context.step_number() < step_) return false;
    seen_ += context.step_number() == step_;
    return seen_ >= times_;
  }

 private:
  std::string event_;
  std::int64_t step_ = 0, times_ = 0, seen_ = 0;
};

}  // namespace faulty
