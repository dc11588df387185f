#include "memory_level.hpp"

namespace cache {
namespace {

using trainyard::Sample;

/// What a tensor takes beside its numbers: its object, its storage, their places in the heap and in a table
/// (measured: cache_test.cpp).
constexpr std::int64_t beside_numbers = 512;

std::int64_t size_of(const Sample& sample) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : sample)
    bytes += static_cast<std::int64_t>(tensor.nbytes()) + beside_numbers;
  return bytes;
}

}  // namespace

std::optional<Sample> MemoryLevel::get(std::int64_t index) {
  const std::lock_guard lock(mutex_);
  const auto shard = shards_.find(index / limits_.shard);
  if (shard == shards_.end()) return std::nullopt;
  const auto found = shard->second.samples.find(index);
  if (found == shard->second.samples.end()) return std::nullopt;
  if (!shard->second.pinned) recent_.splice(recent_.begin(), recent_, shard->second.place);
  return found->second;
}

void MemoryLevel::put(std::int64_t index, const Sample& sample) {
  const std::int64_t bytes = size_of(sample), number = index / limits_.shard;
  const std::lock_guard lock(mutex_);
  if (const auto found = shards_.find(number);
      found != shards_.end() && found->second.samples.contains(index))
    return;
  if (!make_room(bytes, number)) return;
  Shard& shard = shard_for(number, bytes);
  shard.samples.emplace(index, sample);
  shard.bytes += bytes;
  usage_.bytes += bytes;
  ++usage_.samples;
  usage_.pinned += shard.pinned;
}

MemoryLevel::Usage MemoryLevel::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

/// One that is new is pinned if all of it fits, should its other samples be as large as the first.
MemoryLevel::Shard& MemoryLevel::shard_for(std::int64_t number, std::int64_t bytes) {
  const auto [found, made] = shards_.try_emplace(number);
  Shard& shard = found->second;
  if (!made) return shard;
  const std::int64_t whole = bytes * limits_.shard;
  shard.pinned =
      static_cast<double>(reserved_ + whole) <= limits_.pinned * static_cast<double>(limits_.budget);
  if (shard.pinned)
    reserved_ += whole;
  else
    shard.place = recent_.insert(recent_.begin(), number);
  return shard;
}

/// Evicts shards, but not the one of number `spared`, until `bytes` fit; false where they do not.
bool MemoryLevel::make_room(std::int64_t bytes, std::int64_t spared) {
  while (usage_.bytes + bytes > limits_.budget) {
    auto last = recent_.rbegin();
    if (last != recent_.rend() && *last == spared) ++last;
    if (last == recent_.rend()) return false;
    const auto shard = shards_.find(*last);
    usage_.bytes -= shard->second.bytes;
    usage_.samples -= static_cast<std::int64_t>(shard->second.samples.size());
    recent_.erase(shard->second.place);
    shards_.erase(shard);
  }
  return true;
}

}  // namespace cache
