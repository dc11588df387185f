// Threads that share out jobs which depend on each other: each has a core, one thread within operators, and jobs of its own.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <utility>
#include <vector>

#include <trainyard/host.hpp>

namespace partitioned {

/// Jobs that wait for others, and who runs each.
class Schedule {
 public:
  /// `worker_of_job` says who runs each job; of those that are ready a worker takes the one with the highest rank, the lower
  /// number where they are equal. `edges` lead to jobs that wait. Edges within one job, or twice, count once or not.
  Schedule(const std::vector<std::uint16_t>& worker_of_job, const std::vector<double>& ranks,
           const std::vector<std::pair<std::size_t, std::size_t>>& edges, std::size_t workers);

  std::size_t jobs() const { return worker_of_job_.size(); }

 private:
  friend class Crew;

  std::vector<std::uint16_t> worker_of_job_;
  std::vector<std::vector<std::uint32_t>> of_worker_;  ///< jobs by their ranks
  std::vector<std::vector<std::uint32_t>> successors_;
  std::vector<std::uint32_t> waits_;                    ///< number of jobs that each waits for
  std::unique_ptr<std::atomic<std::uint32_t>[]> left_;  ///< of these, in the run under way
};

/// Worker 0 is the thread that calls run(). It has no core of its own, as what it starts elsewhere would have that, too: the others make way
/// for it. It has to have one thread within operators by itself (at::set_num_threads) as the crew is made: the workers take that over.
class Crew {
 public:
  /// `cores` are as many as there are workers, each of which has one; or none, and nobody has.
  Crew(trainyard::Host& host, std::size_t workers, std::vector<int> cores);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::size_t size() const { return members_.size(); }

  using Work = std::function<void(std::size_t job, std::size_t worker)>;
  /// Runs all jobs. Where some throw, those behind them are left out, and the error of the lowest comes out.
  void run(Schedule& schedule, const Work& work);

 private:
  /// What a worker waits at. Each has cache lines of its own.
  struct alignas(128) Member {
    std::atomic<std::uint32_t> bell = 0;
    std::atomic<bool> has_run = false;  ///< jobs of a run are for it, until it has done all of them
    std::shared_ptr<void> thread;
    pthread_t id = {};
  };

  void make_way();
  void serve(std::size_t worker, const std::stop_token& stop);
  void work(std::size_t worker);
  void run_job(std::size_t worker, std::uint32_t job);
  void ring(std::size_t worker);
  /// Waits until the bell of a worker has another number than that: a little awake, then asleep.
  void wait(std::size_t worker, std::uint32_t heard);

  std::vector<Member> members_;
  const std::vector<int> cores_;
  int here_ = -1;  ///< the core of worker 0 when the others last made way
  Schedule* schedule_ = nullptr;
  const Work* work_ = nullptr;
  std::atomic<std::size_t> busy_ = 0;  ///< workers but the first
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::size_t failed_job_ = 0;
  std::exception_ptr error_;
};

/// Returns the cores that the process may use.
std::vector<int> own_cores();

/// Returns the cores of one rank of several on a machine, as many as it has workers; none where there are too few for all.
std::vector<int> cores_of_rank(const std::vector<int>& cores, std::size_t workers, std::size_t rank,
                               std::size_t ranks);

/// Returns the microseconds from the end of a job to the beginning of one that waits for it on another worker, or 0 of a single one.
double latency_of(Crew& crew);

}  // namespace partitioned
