// Commands that tell somebody of a verdict, run beside the training.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "firing.hpp"

namespace trial {

using namespace trainyard;

/// One thread at a time.
class Notices {
 public:
  /// `complain` is told of commands that cannot be started or fail.
  Notices(std::string run, std::function<void(const std::string&)> complain)
      : run_(std::move(run)), complain_(std::move(complain)) {}

  /// Starts firing.notify with /bin/sh, with RULE, MESSAGE, STEP and RUN in its environment.
  void send(const Firing& firing);
  /// Sees to those that have ended; true where none is left.
  bool settle();

 private:
  struct Running {
    pid_t process;
    std::string command;
  };
  std::string run_;
  std::function<void(const std::string&)> complain_;
  std::vector<Running> running_;
};

}  // namespace trial
