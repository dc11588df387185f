// The memory of a plan: values, which are stretches of buffers, and the buffers, which lie in one arena where
// those that are not needed at the same time share their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <dnnl.hpp>

namespace compiled {

using Dims = dnnl::memory::dims;
using Layout = dnnl::memory::desc;

/// The engine and the stream that all plans share; oneDNN runs on the threads of LibTorch.
const dnnl::engine& engine();
dnnl::stream& stream();

constexpr auto f32 = dnnl::memory::data_type::f32;
constexpr auto bf16 = dnnl::memory::data_type::bf16;
/// Whether this processor computes with bfloat16 (AVX512-BF16; AMX as well).
bool has_halves();

/// The layout of values in the order of their dimensions.
Layout plain(const Dims& dims, dnnl::memory::data_type type = f32);
/// Images of bfloat16, all channels of a pixel beside each other: what oneDNN has kernels of matrix units for.
Layout channels_last(const Dims& dims);
/// Channels, the second dimension of four, in blocks of `channel_block()` beside each other, as convolutions
/// run fastest on this processor. `dims` has channels that fill blocks.
Layout blocked(const Dims& dims);
std::int64_t channel_block();
/// The channels that a blocked value has: up to the next whole block.
std::int64_t whole_blocks(std::int64_t channels);

/// A stretch of memory, used from one time of the plan to another. One outside the arena has its place said to
/// it in each pass: an input, a parameter, what is handed out.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool outside) : bytes_(bytes), outside_(outside) {}

  std::size_t bytes() const { return bytes_; }
  bool outside() const { return outside_; }
  /// Lies outside the arena from now on.
  void go_outside() { outside_ = true; }
  int first() const { return first_; }
  int last() const { return last_; }
  bool used() const { return last_ >= first_; }
  void use(int time) {
    if (time < first_) first_ = time;
    if (time > last_) last_ = time;
  }

  /// A memory of oneDNN's that follows the buffer's place, `offset` bytes behind its start.
  dnnl::memory memory(const Layout& layout, std::size_t offset);
  void place(void* data);
  std::byte* data() const { return data_; }

 private:
  struct Follower {
    dnnl::memory memory;
    std::size_t offset;
  };
  std::size_t bytes_;
  bool outside_;
  int first_ = INT32_MAX, last_ = -1;
  std::byte* data_ = nullptr;
  std::vector<Follower> followers_;
};

/// Where buffers lie: the first gap that is free for as long as a buffer is used, the large ones first. Gives
/// the size of the arena in bytes; `offsets` is by buffer.
std::size_t lay_out(const std::vector<Buffer>& buffers, std::vector<std::size_t>& offsets);

/// One stretch of memory for a plan, in large pages where the system has them: a step walks through all of it,
/// and looking up small pages took a quarter of the time of one of ResNet-20.
class Arena {
 public:
  explicit Arena(std::size_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

/// Part of a buffer, as floats or what else a tensor holds.
struct View {
  std::size_t buffer = 0;
  std::size_t offset = 0;  ///< in bytes
  Layout layout;           ///< of floats or halves; without dimensions for other types
};

}  // namespace compiled
