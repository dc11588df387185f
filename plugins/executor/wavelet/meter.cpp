#include "meter.hpp"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <trainyard/error.hpp>

namespace wavelet {

using namespace trainyard;
namespace {

constexpr int nobody = -1;
thread_local int own_wave = nobody;

void raise(std::atomic<std::int64_t>& most, std::int64_t bytes) {
  std::int64_t before = most.load();
  while (before < bytes && !most.compare_exchange_weak(before, bytes)) {}
}

/// For the life of the process: blocks may be freed at its end.
struct Counts {
  std::array<std::atomic<std::int64_t>, most_waves> bytes{}, high{};
  std::atomic<std::int64_t> all{0}, peak{0};
  std::atomic<bool> recording{false};
  std::mutex mutex;
  std::vector<Meter::Change> changes;

  void change(int wave, std::int64_t by) {
    if (wave == nobody) return;
    const auto w = static_cast<std::size_t>(wave);
    const std::int64_t own = bytes[w] += by;
    const std::int64_t now = all += by;
    if (by > 0) {
      raise(high[w], own);
      raise(peak, now);
    }
    if (!recording.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex);
    changes.push_back({std::chrono::steady_clock::now().time_since_epoch().count(), by, wave});
  }
};

Counts& counts() {
  static auto* const made = new Counts;
  return *made;
}

/// Whose the blocks are that are counted. They are the allocator's own blocks, with nothing ahead of them: oneDNN
/// takes and frees by whatever allocator there is at the time, so that blocks from before the meter end in it, and
/// such as it has counted end elsewhere. What is left of those goes once their address is given out again.
class Owners {
 public:
  void take(void* block, std::int64_t bytes, int wave) {
    let_go(block);
    if (wave == nobody) return;
    {
      Part& part = of(block);
      const std::lock_guard lock(part.mutex);
      part.blocks[block] = {bytes, wave};
    }
    counts().change(wave, bytes);
  }

  void let_go(void* block) {
    Part& part = of(block);
    Block known;
    {
      const std::lock_guard lock(part.mutex);
      const auto found = part.blocks.find(block);
      if (found == part.blocks.end()) return;
      known = found->second;
      part.blocks.erase(found);
    }
    counts().change(known.wave, -known.bytes);
  }

 private:
  struct Block {
    std::int64_t bytes = 0;
    int wave = nobody;
  };
  struct Part {
    std::mutex mutex;
    std::unordered_map<void*, Block> blocks;
  };
  Part& of(void* block) { return parts_[(reinterpret_cast<std::uintptr_t>(block) >> 6) % parts_.size()]; }

  std::array<Part, 16> parts_;
};

Owners& owners() {
  static auto* const made = new Owners;
  return *made;
}

at::DeleterFnPtr free_behind = nullptr;  ///< set once, ahead of the first block

void let_go(void* block) {
  owners().let_go(block);
  free_behind(block);
}

class Counting final : public at::Allocator {
 public:
  explicit Counting(at::Allocator& behind) : behind_(behind) { free_behind = behind.raw_deleter(); }

  at::DataPtr allocate(std::size_t n) override {
    if (n == 0) return {nullptr, nullptr, &let_go, at::kCPU};
    void* const block = behind_.raw_allocate(n);
    owners().take(block, static_cast<std::int64_t>(n), own_wave);
    return {block, block, &let_go, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &let_go; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

  at::Allocator& behind() const { return behind_; }

 private:
  at::Allocator& behind_;
};

/// Made once: LibTorch's allocators live as long as the process, and so does what stands in front of one.
Counting& counting() {
  static auto* const made = new Counting(*c10::GetCPUAllocator());
  return *made;
}

}  // namespace

Meter::Meter() {
  if (c10::GetCPUAllocator()->raw_deleter() == nullptr)
    throw PluginError(
        "LibTorch has an allocator for the CPU that does not free by address: memory of waves cannot be "
        "counted, set memory_budget = 0");
  c10::SetCPUAllocator(&counting());
  if (c10::GetCPUAllocator() != &counting())
    throw PluginError(
        "LibTorch has an allocator for the CPU that may not be replaced: memory of waves cannot be counted, "
        "set "
        "memory_budget = 0");
}

Meter::~Meter() {
  if (c10::GetCPUAllocator() == &counting()) c10::SetCPUAllocator(&counting().behind());
}

void Meter::count_for(int wave) {
  own_wave = wave;
}

std::int64_t Meter::bytes() {
  return counts().all;
}

std::int64_t Meter::bytes(int wave) {
  return counts().bytes[static_cast<std::size_t>(wave)];
}

std::int64_t Meter::take_high(int wave) {
  return counts().high[static_cast<std::size_t>(wave)].exchange(bytes(wave));
}

std::int64_t Meter::take_peak() {
  return counts().peak.exchange(bytes());
}

void Meter::record(bool on) {
  counts().recording = on;
}

std::vector<Meter::Change> Meter::take_changes() {
  const std::lock_guard lock(counts().mutex);
  return std::exchange(counts().changes, {});
}

}  // namespace wavelet
