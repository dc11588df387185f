#include "reductions.hpp"

#include <algorithm>
#include <utility>

namespace trial {
namespace {

/// Elements. What is in the caches of the loop's core is slower to read, and then to write, from two cores.
constexpr std::int64_t large = 1 << 20;
/// Some 20 us of work, which is what threads may wait for each other at the end.
constexpr std::int64_t part_size = 1 << 17;

}  // namespace

void Reductions::start(Host& host) {
  thread_ = host.thread("reductions", [this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (added_.wait(lock, stop, [&] { return next_ < parts_.size(); })) compute(lock);
  });
}

bool Reductions::add(std::size_t tensor, const at::Tensor& values) {
  if (values.numel() < large || !values.is_cpu() || !values.is_floating_point() || !values.is_contiguous())
    return false;
  const at::Tensor flat = values.detach().view(-1);
  {
    const std::lock_guard lock(mutex_);
    for (std::int64_t first = 0; first < flat.numel(); first += part_size)
      parts_.push_back({tensor, flat.narrow(0, first, std::min(part_size, flat.numel() - first)), {}});
  }
  added_.notify_one();
  return true;
}

std::deque<Reductions::Part> Reductions::finish() {
  std::unique_lock lock(mutex_);
  while (next_ < parts_.size()) compute(lock);
  done_.wait(lock, [&] { return busy_ == 0; });
  next_ = 0;
  return std::exchange(parts_, {});
}

void Reductions::compute(std::unique_lock<std::mutex>& lock) {
  Part& part = parts_[next_++];  // a deque leaves it where it is
  ++busy_;
  lock.unlock();
  part.statistics = statistics(part.values);
  lock.lock();
  if (--busy_ == 0) done_.notify_one();
}

}  // namespace trial
