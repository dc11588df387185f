#include "core/engine/swap/task_thread.hpp"

#include <pthread.h>

#include <chrono>

#include "core/engine/events/signal_stack.hpp"

namespace trainyard::control {

TaskThread::TaskThread() : thread_([this] { work(); }) {}

TaskThread::~TaskThread() {
  hand_on(false);
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void TaskThread::work() {
  pthread_setname_np(pthread_self(), "swap");
  const report::SignalStack signal_stack;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto ready = [&] { return closing_ || !tasks_.empty(); };
    if (!expecting_)
      wake_.wait(lock, ready);
    else if (!wake_.wait_for(lock, std::chrono::milliseconds(1), ready))
      continue;
    if (tasks_.empty()) return;
    {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }  // what the task held is destroyed before the lock is taken again
    lock.lock();
    finished_.notify_all();
  }
}

void TaskThread::hand_on(bool expecting) {
  if (added_.empty()) return;
  bool awake = false;
  {
    const std::lock_guard lock(mutex_);
    for (std::function<void()>& task : added_) tasks_.push_back(std::move(task));
    awake = std::exchange(expecting_, expecting);
  }
  added_.clear();
  if (!awake) wake_.notify_one();
}

void TaskThread::wait_for(const std::atomic<bool>& done, bool expecting) {
  hand_on(expecting);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return done.load(); });
}

}  // namespace trainyard::control
