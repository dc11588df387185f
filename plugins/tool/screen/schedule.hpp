// Shares tasks of very different lengths out among workers: the longest first, by a forecast, and what the forecast got
// wrong is taken over by whoever has nothing left to do.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace screen {

/// seconds = exp(constant) rows^rows columns^columns.
struct PowerLaw {
  double constant = 0.0, rows = 0.0, columns = 0.0;

  double seconds(double row_count, double column_count) const;
};

struct Timing {
  double rows = 0.0, columns = 0.0, seconds = 0.0;
};

/// Returns the law with the least squared error of the logarithms. Needs three timings of different sizes.
PowerLaw fit_power_law(const std::vector<Timing>& timings);

/// Returns the tasks of each worker, its longest first: each task, from the longest on, goes to the worker with the
/// least to do (LPT; Graham, 1969). Any number of tasks, and of workers from 1 on.
std::vector<std::vector<std::size_t>> longest_first(const std::vector<double>& costs, std::size_t workers);

/// Starts a thread and returns what waits for its end when it is destroyed.
using StartThread = std::function<std::shared_ptr<void>(std::function<void()>)>;
StartThread plain_threads();

/// How a set of tasks is run.
struct Work {
  std::size_t workers = 1;
  StartThread start = plain_threads();
  std::function<void(std::size_t done, std::size_t total)>
      watch;                       ///< called by the caller's thread; may be empty
  std::function<bool()> stopping;  ///< any thread; may be empty: never
};

struct Shift {
  std::vector<double> seconds;  ///< that each task took; -1: it was not begun
  double makespan = 0.0;        ///< from the first one's begin to the last one's end
  std::size_t taken_over = 0;   ///< tasks that another worker did than the forecast gave them to

  /// Returns the time that no order on so many workers could be faster than.
  double bound(std::size_t workers) const;
};

/// Runs all tasks, none of which throws. After a stop no further one is begun. LibTorch has one thread in each.
Shift run_balanced(const std::vector<std::function<void()>>& tasks, const std::vector<double>& costs,
                   const Work& work);

}  // namespace screen
