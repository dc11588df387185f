// A plugin that takes its time somewhere, once, and tells when it begins by a file: whoever wants to disturb
// a run in exactly this place waits for the file.
#pragma once

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace faulty {

/// The first call sleeps.
class Nap {
 public:
  void take(double seconds, const std::string& sign) const {
    if (taken_.exchange(true)) return;
    std::ofstream(sign) << "asleep\n";
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

 private:
  mutable std::atomic<bool> taken_{false};
};

}  // namespace faulty
