#include "core/engine/save/sink_thread.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include <pthread.h>
#include <signal.h>

#include "core/engine/events/call_frame.hpp"
#include "core/engine/events/signal_stack.hpp"

namespace trainyard::report {

SinkThread::SinkThread(RunInfo run, std::vector<Entry> sinks, std::function<void(std::string_view)> warn,
                       std::size_t capacity)
    : run_(std::move(run)), sinks_(std::move(sinks)), warn_(std::move(warn)), capacity_(capacity) {
  thread_ = std::thread([this] { work(); });
}

bool SinkThread::takes(const Entry& entry, std::int64_t step) const {
  return step % entry.interval == 0 || step == run_.total_steps;
}

bool SinkThread::due(std::int64_t step) const {
  return std::any_of(sinks_.begin(), sinks_.end(), [&](const Entry& entry) { return takes(entry, step); });
}

void SinkThread::push(Record record) {
  if (sinks_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (record.what == Record::What::train) {
      if (waiting_ >= capacity_) {
        ++dropped_;
        return;
      }
      ++waiting_;
    }
    queue_.push_back(std::move(record));
  }
  wake_.notify_one();
}

void SinkThread::between_records(std::function<void()> task) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  task_ = std::move(task);
  wake_.notify_one();
  settled_.wait(lock, [&] { return !task_; });
}

void SinkThread::reopen(std::size_t index, std::int64_t step) {
  RunInfo run = run_;
  run.resumed_at = step;
  guarded(index, "at its opening", [&](Sink& sink) { sink.open(run); });
}

void SinkThread::exchange(std::vector<Entry> sinks, std::int64_t step) {
  const auto has = [](const std::vector<Entry>& all, const Entry& entry) {
    return std::ranges::count(all, entry.sink, &Entry::sink) > 0;
  };
  if (std::ranges::equal(sinks, sinks_, {}, &Entry::sink, &Entry::sink)) return;
  between_records([&] {
    for (std::size_t i = 0; i < sinks_.size(); ++i)
      if (!has(sinks, sinks_[i])) guarded(i, "at its replacement", [](Sink& sink) { sink.close(); });
    for (Entry& entry : sinks)
      for (const Entry& before : sinks_)
        if (before.id == entry.id) {
          entry.seconds = before.seconds;
          if (before.sink == entry.sink) entry.error = before.error;
        }
    sinks_.swap(sinks);
    for (std::size_t i = 0; i < sinks_.size(); ++i)
      if (!has(sinks, sinks_[i])) reopen(i, step);
  });
}

void SinkThread::go_back(std::int64_t step) {
  between_records([&] {
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      guarded(i, "at its end", [](Sink& sink) { sink.close(); });
      reopen(i, step);
    }
  });
}

void SinkThread::flush() {
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

void SinkThread::close() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::int64_t SinkThread::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

template <class Call>
void SinkThread::guarded(std::size_t index, std::string_view when, Call&& call) {
  if (sinks_[index].sink == nullptr) return;
  Entry& usage = sinks_[index];
  if (!usage.error.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  const events::CallScope scope(sinks_[index].slot.c_str(), sinks_[index].plugin.c_str());
  try {
    call(*sinks_[index].sink);
  } catch (const std::exception& error) {
    usage.error = error.what();
    if (usage.error.empty()) usage.error = "an error without a message";
  } catch (...) {
    usage.error = "an exception that is no std::exception";
  }
  usage.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!usage.error.empty())
    warn_("sink '" + usage.id + "' is switched off " + std::string(when) + ": " + usage.error);
}

void SinkThread::work() {
  pthread_setname_np(pthread_self(), "sinks");
  const SignalStack signal_stack;
  // A reader that went away (`trainyard train run.toml | head`) is an error of that sink and does not end the
  // run.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  for (std::size_t i = 0; i < sinks_.size(); ++i)
    guarded(i, "at its opening", [&](Sink& sink) { sink.open(run_); });
  std::vector<Record> records;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return closing_ || !queue_.empty() || task_; });
    if (queue_.empty() && task_) {  // after everything that was pushed before
      lock.unlock();
      task_();
      lock.lock();
      task_ = nullptr;
      settled_.notify_one();
      continue;
    }
    if (queue_.empty()) break;
    records.swap(queue_);
    waiting_ = 0;
    busy_ = true;
    lock.unlock();
    for (const Record& record : records)
      for (std::size_t i = 0; i < sinks_.size(); ++i) {
        if (record.what == Record::What::train && !takes(sinks_[i], record.step)) continue;
        guarded(i, "at step " + std::to_string(record.step), [&](Sink& sink) { sink.record(record); });
      }
    records.clear();
    lock.lock();
    busy_ = false;
    settled_.notify_one();
  }
  const std::int64_t dropped = dropped_;
  lock.unlock();
  for (std::size_t i = 0; i < sinks_.size(); ++i) guarded(i, "at its end", [](Sink& sink) { sink.close(); });
  if (dropped == 0) return;
  const auto slowest = std::ranges::max_element(sinks_, {}, &Entry::seconds);
  warn_(std::to_string(dropped) +
        " training records were dropped because the sinks were slower than the run; '" + slowest->id +
        "' took longest: give it a longer interval");
}

}  // namespace trainyard::report
