// Copies the state into memory of its own and lets the run go on while one thread writes that copy: snapshot
// and persist, as in Mohan, Phanishayee, Chidambaram, "CheckFreq: Frequent, Fine-Grained DNN Checkpointing",
// FAST 2021. The run stands still only for the copy, and for the disk where every arena still waits for it,
// or where the state fits no arena.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <unordered_set>
#include <utility>
#include <vector>

#include <trainyard/checkpointer.hpp>
#include <trainyard/error.hpp>
#include <trainyard/host.hpp>

namespace {

using namespace trainyard;

constexpr std::int64_t mebibyte = 1 << 20;
/// More copies than these would not help a disk that lags behind, and a run would end late.
constexpr int most_arenas = 4;

/// The bytes that a tensor takes in an arena: every one begins at a cache line.
std::int64_t place(const at::Tensor& tensor) {
  return (static_cast<std::int64_t>(tensor.nbytes()) + 63) / 64 * 64;
}

/// One block of memory that is filled again and again, so that its pages are touched once. Pinned where the
/// state lies on another device.
class Arena {
 public:
  Arena(std::int64_t size, bool pinned)
      : bytes_(at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned))),
        pinned_(pinned) {}

  std::int64_t size() const { return bytes_.numel(); }
  bool serves(std::int64_t size, bool pinned) const { return bytes_.numel() >= size && pinned_ == pinned; }

  /// Puts copies in the place of all tensors; they are complete when this returns.
  void fill(Snapshot& snapshot) {
    std::int64_t offset = 0;
    std::unordered_set<at::Device> devices;
    for (State& state : snapshot.states)
      for (auto& [name, tensor] : state.tensors) {
        const std::int64_t size = place(tensor);
        if (!tensor.is_cpu()) devices.insert(tensor.device());
        tensor = copy(tensor.detach(), offset);
        offset += size;
      }
    for (const at::Device& device : devices)
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
  }

 private:
  at::Tensor copy(const at::Tensor& source, std::int64_t offset) {
    if (source.numel() == 0) return at::empty(source.sizes(), source.scalar_type());
    at::Tensor target = bytes_.narrow(0, offset, static_cast<std::int64_t>(source.nbytes()))
                            .view(source.scalar_type())
                            .view(source.sizes());
    // One thread is fastest with memcpy, which does not read what it overwrites; LibTorch's copy uses all.
    if (source.is_cpu() && source.is_contiguous() && at::get_num_threads() == 1)
      std::memcpy(target.data_ptr(), source.const_data_ptr(), source.nbytes());
    else
      target.copy_(source, /*non_blocking=*/true);
    return target;
  }

  at::Tensor bytes_;
  bool pinned_;
};

class Async final : public Checkpointer {
 public:
  struct Options {
    std::int64_t memory_budget = 4096;
  };
  static void describe(Manifest<Options>& m) {
    m.name("async").version("1.0.0").summary("Writes checkpoints beside the run, from a copy in memory.");
    m.option(
         "memory_budget", &Options::memory_budget,
         "MiB for copies of the state that wait to be written, up to four; the run waits for the disk where "
         "not one fits")
        .range(1, 1 << 30);
  }
  explicit Async(const Options& options) : budget_(options.memory_budget * mebibyte) {}

  void open(CheckpointStore& store) override {
    store_ = &store;
    writer_ = host().thread("writer", [this](std::stop_token stop) { write(std::move(stop)); });
  }

  void take(Snapshot snapshot) override {
    rethrow();
    std::int64_t size = 0;
    bool pinned = false;
    for (const State& state : snapshot.states)
      for (const auto& [name, tensor] : state.tensors) {
        size += place(tensor);
        pinned = pinned || tensor.is_cuda();
      }
    if (size > budget_) return commit_now(snapshot, size);
    Arena arena = acquire(size, pinned);
    try {
      arena.fill(snapshot);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(arena));
      throw;
    }
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(snapshot), std::move(arena)});
    changed_.notify_all();
  }

  void drain() override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return waiting_.empty() && !writing_; });
    }
    rethrow();
  }

 private:
  struct Job {
    Snapshot snapshot;  ///< its tensors lie in the arena
    Arena arena;
  };

  /// A swap may have made the state larger: that ends no run.
  void commit_now(const Snapshot& snapshot, std::int64_t size) {
    if (!std::exchange(told_, true))
      host().log(LogLevel::warning,
                 "the state takes " + std::to_string(size / mebibyte + 1) + " MiB, memory_budget allows " +
                     std::to_string(budget_ / mebibyte) +
                     ": it is written while the run waits, as by type = \"full\"; raise memory_budget");
    drain();
    store_->commit(snapshot);
  }

  /// An arena that is free; waits for one where the budget allows no other.
  Arena acquire(std::int64_t size, bool pinned) {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto fits = std::find_if(free_.begin(), free_.end(),
                                     [&](const Arena& each) { return each.serves(size, pinned); });
      if (fits != free_.end()) {
        Arena arena = std::move(*fits);
        free_.erase(fits);
        return arena;
      }
      if (total_ + size <= budget_ && arenas_ < most_arenas) {
        Arena arena(size, pinned);
        total_ += size;
        ++arenas_;
        return arena;
      }
      if (free_.empty()) {
        changed_.wait(lock, [&] { return !free_.empty(); });
      } else {  // made for a smaller state
        total_ -= free_.back().size();
        --arenas_;
        free_.pop_back();
      }
    }
  }

  /// The writer's thread. Asked to stop it still writes what was taken.
  void write(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
      Job job = std::move(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
      lock.unlock();
      const std::exception_ptr error = commit(job.snapshot);
      job.snapshot = {};
      lock.lock();
      writing_ = false;
      if (!error_) error_ = error;
      free_.push_back(std::move(job.arena));
      changed_.notify_all();
    }
  }

  /// Tells of an error at once; the next call of the run throws it.
  std::exception_ptr commit(const Snapshot& snapshot) {
    try {
      store_->commit(snapshot);
      return nullptr;
    } catch (const std::exception& error) {
      host().log(LogLevel::error, "the checkpoint of step " + std::to_string(snapshot.step) +
                                      " was not written: " + error.what());
      return std::current_exception();
    }
  }

  void rethrow() {
    const std::lock_guard lock(mutex_);
    if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  }

  std::int64_t budget_;
  CheckpointStore* store_ = nullptr;
  bool told_ = false;  ///< that no copy fits
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> waiting_;
  bool writing_ = false;
  std::vector<Arena> free_;
  std::int64_t total_ = 0;  ///< bytes of all arenas
  int arenas_ = 0;
  std::exception_ptr error_;
  std::shared_ptr<void> writer_;  ///< goes first
};

}  // namespace

TRAINYARD_PLUGIN(Async)
