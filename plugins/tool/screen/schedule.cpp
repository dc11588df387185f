#include "schedule.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>

namespace screen {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The tasks that are left, by worker.
class Queues {
 public:
  Queues(const std::vector<double>& costs, std::size_t workers) : costs_(costs), left_(workers, 0.0) {
    for (const std::vector<std::size_t>& tasks : longest_first(costs, workers)) {
      for (const std::size_t task : tasks) left_[queues_.size()] += costs[task];
      queues_.emplace_back(tasks.begin(), tasks.end());
    }
  }

  /// Returns the worker's next task, or the longest of the worker that has most left; nothing where none is left.
  std::optional<std::size_t> next(std::size_t worker) {
    const std::lock_guard lock(mutex_);
    std::size_t owner = worker;
    if (queues_[worker].empty())
      for (std::size_t other = 0; other < queues_.size(); ++other)
        if (!queues_[other].empty() && (queues_[owner].empty() || left_[other] > left_[owner])) owner = other;
    if (queues_[owner].empty()) return std::nullopt;
    const std::size_t task = queues_[owner].front();
    queues_[owner].pop_front();
    left_[owner] -= costs_[task];
    taken_over_ += owner == worker ? 0U : 1U;
    return task;
  }
  std::size_t taken_over() const { return taken_over_; }

 private:
  const std::vector<double>& costs_;
  std::mutex mutex_;
  std::vector<std::deque<std::size_t>> queues_;
  std::vector<double> left_;  ///< forecast of what is in each
  std::size_t taken_over_ = 0;
};

/// Solves three linear equations by elimination with the largest pivot.
std::array<double, 3> solved(std::array<std::array<double, 4>, 3> rows) {
  for (std::size_t i = 0; i < 3; ++i) {
    const auto pivot =
        std::max_element(rows.begin() + static_cast<std::ptrdiff_t>(i), rows.end(),
                         [i](const auto& a, const auto& b) { return std::abs(a[i]) < std::abs(b[i]); });
    std::swap(rows[i], *pivot);
    for (std::size_t k = 0; k < 3; ++k) {
      if (k == i || rows[i][i] == 0.0) continue;
      const double factor = rows[k][i] / rows[i][i];
      for (std::size_t j = i; j < 4; ++j) rows[k][j] -= factor * rows[i][j];
    }
  }
  std::array<double, 3> result{};
  for (std::size_t i = 0; i < 3; ++i) result[i] = rows[i][i] == 0.0 ? 0.0 : rows[i][3] / rows[i][i];
  return result;
}

}  // namespace

double PowerLaw::seconds(double row_count, double column_count) const {
  return std::exp(constant + rows * std::log(row_count) + columns * std::log(column_count));
}

PowerLaw fit_power_law(const std::vector<Timing>& timings) {
  std::array<std::array<double, 4>, 3> normal{};
  for (const Timing& each : timings) {
    const std::array<double, 4> terms = {1.0, std::log(each.rows), std::log(each.columns),
                                         std::log(each.seconds)};
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 4; ++j) normal[i][j] += terms[i] * terms[j];
  }
  const auto [constant, rows, columns] = solved(normal);
  return {constant, rows, columns};
}

std::vector<std::vector<std::size_t>> longest_first(const std::vector<double>& costs, std::size_t workers) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<std::vector<std::size_t>> tasks(workers);
  std::vector<double> loads(workers, 0.0);
  for (const std::size_t task : order) {
    const auto least = static_cast<std::size_t>(std::min_element(loads.begin(), loads.end()) - loads.begin());
    tasks[least].push_back(task);
    loads[least] += costs[task];
  }
  return tasks;
}

StartThread plain_threads() {
  return [](std::function<void()> run) -> std::shared_ptr<void> {
    return std::make_shared<std::jthread>(std::move(run));
  };
}

double Shift::bound(std::size_t workers) const {
  double sum = 0.0, longest = 0.0;
  for (const double each : seconds) {
    sum += std::max(each, 0.0);
    longest = std::max(longest, each);
  }
  return std::max(longest, sum / static_cast<double>(workers));
}

Shift run_balanced(const std::vector<std::function<void()>>& tasks, const std::vector<double>& costs,
                   const Work& work) {
  const std::size_t workers = std::max<std::size_t>(1, std::min(work.workers, tasks.size()));
  Queues queues(costs, workers);
  Shift shift;
  shift.seconds.assign(tasks.size(), -1.0);
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t done = 0, at_work = workers;
  const auto run = [&](std::size_t worker) {
    at::set_num_threads(1);
    while (!work.stopping || !work.stopping()) {
      const std::optional<std::size_t> task = queues.next(worker);
      if (!task) break;
      const Clock::time_point begin = Clock::now();
      tasks[*task]();
      const std::lock_guard lock(mutex);
      shift.seconds[*task] = seconds_since(begin);
      ++done;
      changed.notify_one();
    }
    const std::lock_guard lock(mutex);
    --at_work;
    changed.notify_one();
  };
  const int threads_before = at::get_num_threads();
  const Clock::time_point begin = Clock::now();
  {
    std::vector<std::shared_ptr<void>> threads;
    for (std::size_t worker = 0; worker < workers; ++worker)
      threads.push_back(work.start([&run, worker] { run(worker); }));
    std::unique_lock lock(mutex);
    while (at_work > 0) {
      changed.wait_for(lock, std::chrono::milliseconds(200));
      const std::size_t so_far = done;
      lock.unlock();
      if (work.watch) work.watch(so_far, tasks.size());
      lock.lock();
    }
  }
  shift.makespan = seconds_since(begin);
  shift.taken_over = queues.taken_over();
  at::set_num_threads(threads_before);
  return shift;
}

}  // namespace screen
