// A thread beside the loop, which has what it is to do handed over once per safe point.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace trainyard::control {

class TaskThread {
 public:
  TaskThread();
  ~TaskThread();  ///< does first what was added
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // All are called on the loop thread. A task does not throw, and is destroyed on the thread that did it.
  void add(std::function<void()> task) { added_.push_back(std::move(task)); }
  /// Hands over what was added. `expecting` says that more comes soon: waking a thread takes as long as
  /// committing a swap, so it polls meanwhile.
  void hand_on(bool expecting);
  /// Hands on, and waits until a task has set `done`.
  void wait_for(const std::atomic<bool>& done, bool expecting);

 private:
  void work();

  std::vector<std::function<void()>> added_;  ///< moved to tasks_ by hand_on()
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::deque<std::function<void()>> tasks_;
  bool expecting_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace trainyard::control
