#include "crew.hpp"

#include <ATen/Parallel.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <set>

namespace partitioned {

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

std::vector<int> cores_of_rank(const std::vector<int>& cores, std::size_t workers, std::size_t rank,
                               std::size_t ranks) {
  if (ranks * workers > cores.size()) return {};
  const auto first = cores.begin() + static_cast<std::ptrdiff_t>(rank * workers);
  return {first, first + static_cast<std::ptrdiff_t>(workers)};
}

Schedule::Schedule(const std::vector<std::uint16_t>& worker_of_job, const std::vector<double>& ranks,
                   const std::vector<std::pair<std::size_t, std::size_t>>& edges, std::size_t workers)
    : worker_of_job_(worker_of_job),
      of_worker_(workers),
      successors_(worker_of_job.size()),
      waits_(worker_of_job.size(), 0),
      left_(std::make_unique<std::atomic<std::uint32_t>[]>(worker_of_job.size())) {
  std::set<std::pair<std::size_t, std::size_t>> known;
  for (const auto& edge : edges) {
    if (edge.first == edge.second || !known.insert(edge).second) continue;
    successors_[edge.first].push_back(static_cast<std::uint32_t>(edge.second));
    ++waits_[edge.second];
  }
  std::vector<std::uint32_t> jobs(worker_of_job.size());
  std::iota(jobs.begin(), jobs.end(), 0U);
  std::ranges::stable_sort(jobs, [&](std::uint32_t a, std::uint32_t b) { return ranks[a] > ranks[b]; });
  for (const std::uint32_t job : jobs) of_worker_[worker_of_job[job]].push_back(job);
}

Crew::Crew(trainyard::Host& host, std::size_t workers, std::vector<int> cores)
    : members_(workers), cores_(std::move(cores)) {
  std::atomic<std::size_t> begun = 0;
  for (std::size_t worker = 1; worker < workers; ++worker)
    members_[worker].thread = host.thread("partitioned", [this, worker, &begun](const std::stop_token& stop) {
      members_[worker].id = ::pthread_self();
      // OpenMP's, MKL's and oneDNN's number is each thread's own. LibTorch sets it once, at the first question.
      at::get_num_threads();
      at::init_num_threads();
      ++begun;
      begun.notify_one();
      serve(worker, stop);
    });
  for (std::size_t seen = begun; seen + 1 < workers; seen = begun) begun.wait(seen);
}

Crew::~Crew() {
  for (std::size_t worker = 1; worker < members_.size(); ++worker) members_[worker].thread.reset();
}

/// Two threads on one core take turns, and it may be many steps until the system moves one of them.
void Crew::make_way() {
  const int here = ::sched_getcpu();
  if (cores_.empty() || here == here_) return;
  here_ = here;
  std::size_t next = 0;
  for (std::size_t worker = 1; worker < members_.size(); ++worker, ++next) {
    if (cores_[next] == here) ++next;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores_[next], &set);
    ::pthread_setaffinity_np(members_[worker].id, sizeof set, &set);  // where it fails, any core will do
  }
}

void Crew::ring(std::size_t worker) {
  members_[worker].bell.fetch_add(1, std::memory_order_acq_rel);
  members_[worker].bell.notify_one();
}

void Crew::wait(std::size_t worker, std::uint32_t heard) {
  static const bool alone = own_cores().size() < 2;
  // What another worker does is mostly some microseconds away, and to be woken takes some fifty.
  constexpr int turns = 4000;
  for (int i = 0; i < turns && !alone; ++i) {
    if (members_[worker].bell.load(std::memory_order_acquire) != heard) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  members_[worker].bell.wait(heard, std::memory_order_acquire);
}

void Crew::serve(std::size_t worker, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this, worker] { ring(worker); });
  Member& member = members_[worker];
  while (!stop.stop_requested()) {
    const std::uint32_t heard = member.bell.load(std::memory_order_acquire);
    if (!member.has_run.load(std::memory_order_acquire)) {
      if (stop.stop_requested()) return;
      wait(worker, heard);
      continue;
    }
    work(worker);
    member.has_run.store(false, std::memory_order_relaxed);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) ring(0);
  }
}

void Crew::run(Schedule& schedule, const Work& work) {
  make_way();
  for (std::size_t job = 0; job < schedule.jobs(); ++job)
    schedule.left_[job].store(schedule.waits_[job], std::memory_order_relaxed);
  schedule_ = &schedule;
  work_ = &work;
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  failed_job_ = std::numeric_limits<std::size_t>::max();
  std::size_t called = 0;
  for (std::size_t worker = 1; worker < members_.size(); ++worker)
    if (!schedule.of_worker_[worker].empty()) ++called;
  busy_.store(called, std::memory_order_relaxed);
  for (std::size_t worker = 1; worker < members_.size(); ++worker)
    if (!schedule.of_worker_[worker].empty()) {
      members_[worker].has_run.store(true, std::memory_order_release);
      ring(worker);
    }
  this->work(0);
  for (;;) {
    const std::uint32_t heard = members_[0].bell.load(std::memory_order_acquire);
    if (busy_.load(std::memory_order_acquire) == 0) break;
    wait(0, heard);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

/// All jobs of one worker: the first in its list that is ready, again and again.
void Crew::work(std::size_t worker) {
  const std::vector<std::uint32_t>& own = schedule_->of_worker_[worker];
  std::vector<bool> done(own.size(), false);
  std::size_t first = 0;  // all ahead of it are done
  while (first < own.size()) {
    const std::uint32_t heard = members_[worker].bell.load(std::memory_order_acquire);
    std::size_t place = first;
    while (place < own.size() &&
           (done[place] || schedule_->left_[own[place]].load(std::memory_order_acquire) > 0))
      ++place;
    if (place == own.size()) {
      wait(worker, heard);
      continue;
    }
    run_job(worker, own[place]);
    done[place] = true;
    while (first < own.size() && done[first]) ++first;
  }
}

void Crew::run_job(std::size_t worker, std::uint32_t job) {
  if (!failed_.load(std::memory_order_acquire)) {
    try {
      (*work_)(job, worker);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (job < failed_job_) {
        failed_job_ = job;
        error_ = std::current_exception();
      }
      failed_.store(true, std::memory_order_release);
    }
  }
  for (const std::uint32_t next : schedule_->successors_[job]) {
    // What the job has written is there for whoever sees that nothing is left to wait for.
    if (schedule_->left_[next].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    const std::size_t other = schedule_->worker_of_job_[next];
    if (other != worker) ring(other);
  }
}

double latency_of(Crew& crew) {
  if (crew.size() < 2) return 0.0;
  constexpr std::size_t hops = 16, times = 30;
  constexpr double enough = 5000.0;  // microseconds, where others have the cores
  std::vector<std::uint16_t> worker(hops);
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  for (std::size_t i = 0; i < hops; ++i) {
    worker[i] = static_cast<std::uint16_t>(i % 2);
    if (i > 0) edges.emplace_back(i - 1, i);
  }
  Schedule schedule(worker, std::vector<double>(hops, 0.0), edges, crew.size());
  double least = std::numeric_limits<double>::infinity(), all = 0.0;
  for (std::size_t i = 0; i < times && all < enough; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    crew.run(schedule, [](std::size_t, std::size_t) {});
    least = std::min(
        least, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  return least / static_cast<double>(hops);
}

}  // namespace partitioned
