#include "lib/waits.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

namespace trainyard::lib {

double seconds_waited(const std::string& tasks) {
  double nanoseconds = 0.0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0.0, waited = 0.0;
    if (file >> ran >> waited) nanoseconds += waited;  // a thread that has just ended has no file
  }
  return 1e-9 * nanoseconds;
}

Disturbance measure_undisturbed(const std::function<void()>& measure, const std::function<double()>& waited) {
  using Clock = std::chrono::steady_clock;
  constexpr int most_attempts = 3;
  constexpr double notable = 0.1;
  Disturbance made;
  do {
    const double before = waited();
    const auto begin = Clock::now();
    measure();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    // Threads that ended take their waits with them.
    made.share = std::max(0.0, waited() - before) / seconds;
    made.is_quiet = made.share < notable;
    ++made.attempts;
  } while (!made.is_quiet && made.attempts < most_attempts);
  return made;
}

}  // namespace trainyard::lib
