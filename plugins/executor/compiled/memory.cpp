#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>

namespace compiled {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  static dnnl::stream stream(engine());
  return stream;
}

bool has_halves() {
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  static const bool has = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
  return has;
}

Layout plain(const Dims& dims, dnnl::memory::data_type type) {
  if (dims.empty()) return plain({1}, type);
  Dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t d = dims.size(); d-- > 0; stride *= std::max<std::int64_t>(dims[d], 1))
    strides[d] = stride;
  return {dims, type, strides};
}

Layout channels_last(const Dims& dims) {
  return {dims, bf16, dnnl::memory::format_tag::nhwc};
}

std::int64_t channel_block() {
  static const bool wide = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) &
                            static_cast<unsigned>(dnnl::cpu_isa::avx512_core)) ==
                           static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return wide ? 16 : 8;
}

std::int64_t whole_blocks(std::int64_t channels) {
  const std::int64_t block = channel_block();
  return (channels + block - 1) / block * block;
}

Layout blocked(const Dims& dims) {
  using Tag = dnnl::memory::format_tag;
  return {dims, f32, channel_block() == 16 ? Tag::nChw16c : Tag::nChw8c};
}

dnnl::memory Buffer::memory(const Layout& layout, std::size_t offset) {
  for (const Follower& each : followers_)
    if (each.offset == offset && each.memory.get_desc() == layout) return each.memory;
  followers_.push_back({dnnl::memory(layout, engine(), data_ == nullptr ? nullptr : data_ + offset), offset});
  return followers_.back().memory;
}

void Buffer::place(void* data) {
  if (data == data_) return;
  data_ = static_cast<std::byte*>(data);
  for (Follower& each : followers_) each.memory.set_data_handle(data_ + each.offset);
}

Arena::Arena(std::size_t bytes) {
  constexpr std::size_t large = std::size_t{2} << 20, line = 64;
  const std::size_t unit = bytes < large ? line : large;
  const std::size_t whole = std::max(bytes + unit - 1, unit) / unit * unit;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(unit, whole)));
  if (!data_) throw std::bad_alloc();
  if (unit == large)
    (void)madvise(data_.get(), whole, MADV_HUGEPAGE);  // as good as it gets where there are none
}

void Arena::Free::operator()(std::byte* data) const {
  std::free(data);
}

std::size_t lay_out(const std::vector<Buffer>& buffers, std::vector<std::size_t>& offsets) {
  constexpr std::size_t line = 64;
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return buffers[a].bytes() > buffers[b].bytes(); });
  offsets.assign(buffers.size(), 0);
  std::size_t size = 0;
  std::vector<std::size_t> placed;
  for (const std::size_t i : order) {
    const Buffer& buffer = buffers[i];
    if (buffer.outside() || !buffer.used()) continue;
    std::vector<std::size_t> beside;
    for (const std::size_t other : placed)
      if (buffers[other].first() <= buffer.last() && buffer.first() <= buffers[other].last())
        beside.push_back(other);
    std::sort(beside.begin(), beside.end(),
              [&](std::size_t a, std::size_t b) { return offsets[a] < offsets[b]; });
    std::size_t offset = 0;
    for (const std::size_t other : beside) {
      if (offset + buffer.bytes() <= offsets[other]) break;
      offset = std::max(offset, (offsets[other] + buffers[other].bytes() + line - 1) / line * line);
    }
    offsets[i] = offset;
    size = std::max(size, offset + buffer.bytes());
    placed.push_back(i);
  }
  return size;
}

}  // namespace compiled
