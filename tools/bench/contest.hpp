// Contenders that run in turn, in many short chunks, so that whatever else the machine does hits all of them
// alike.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace trainyard::bench {

struct Contender {
  std::string name;
  std::function<void()> chunk;
};

/// Seconds of each chunk; chunk i of all contenders belongs to the same round.
struct Times {
  std::vector<double> wall;
  std::vector<double> cpu;
};

inline double percentile(std::vector<double> values, double share) {
  const auto place = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

/// CPU time of the calling thread: time in which others had the core is not in it.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// CPU time of all processes that were waited for.
inline double children_seconds() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// In every round each contender runs one chunk; who begins is drawn.
inline std::vector<Times> contest(const std::vector<Contender>& contenders, int rounds,
                                  double (*cpu_seconds)() = thread_seconds) {
  std::vector<Times> times(contenders.size());
  std::vector<std::size_t> turns(contenders.size());
  for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = i;
  std::mt19937 random(17);
  for (const Contender& contender : contenders) contender.chunk();  // caches, allocator, lazy set-up
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(turns.begin(), turns.end(), random);
    for (const std::size_t i : turns) {
      const double cpu = cpu_seconds();
      const auto start = std::chrono::steady_clock::now();
      contenders[i].chunk();
      times[i].wall.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      times[i].cpu.push_back(cpu_seconds() - cpu);
    }
  }
  return times;
}

/// Ratio of two contenders: of their 20th percentiles of CPU time.
inline double ratio(const Times& times, const Times& baseline) {
  return percentile(times.cpu, 0.2) / percentile(baseline.cpu, 0.2);
}

/// A line a contender: time of one of the `units` of a chunk, in units of `scale` seconds, and ratios against
/// the first.
inline void print(const char* title, const char* unit, double scale, int units,
                  const std::vector<Contender>& contenders, const std::vector<Times>& times) {
  std::printf("%s\n  %-44s %27s   %s\n  %-44s %9s %9s %9s   %7s %7s %7s\n", title, "", unit,
              "ratio to the first line", "", "min", "p20", "p20 cpu", "min", "p20", "p20 cpu");
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const auto value = [&](std::size_t j, int column) {
      const double seconds = column == 0   ? percentile(times[j].wall, 0.0)
                             : column == 1 ? percentile(times[j].wall, 0.2)
                                           : percentile(times[j].cpu, 0.2);
      return seconds / scale / units;
    };
    std::printf("  %-44s %9.2f %9.2f %9.2f   %7.3f %7.3f %7.3f\n", contenders[i].name.c_str(), value(i, 0),
                value(i, 1), value(i, 2), value(i, 0) / value(0, 0), value(i, 1) / value(0, 1),
                value(i, 2) / value(0, 2));
  }
  std::fflush(stdout);
}

}  // namespace trainyard::bench
