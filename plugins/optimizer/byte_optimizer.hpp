// An optimizer whose averages stand in 8 bits by blocks (Dettmers et al., "8-bit Optimizers via Block-wise Quantization",
// ICLR 2022, arXiv 2110.02861): before each update a block is unpacked to floats, and it is packed again after it. As there,
// parameters of fewer than 4,096 values keep theirs in their own type.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/helpers/slot_optimizer.hpp>
#include <trainyard/mixins/plain_state.hpp>

#include "byte_blocks.hpp"

namespace optimizers {

using namespace trainyard;

constexpr std::int64_t least_packed = 4096;

struct ByteSlot {
  std::string name;
  bool has_sign;
};

/// A block of a parameter, with its averages as floats.
struct BlockOfParameter {
  float* weight;
  const float* gradient;
  std::array<float*, 2> slots;
  std::int64_t width;
};

/// A derived optimizer has its update twice: for whole tensors, and for blocks of floats on the CPU.
class ByteOptimizer : public SlotOptimizer, public PlainState {
 public:
  void save_plain(StateWriter& state) const final {
    each([&](const std::string& name, const UpdateLists& of, std::size_t i, std::int64_t updates) {
      state.scalar("step/" + name, updates);
      for (std::size_t s = 0; s < byte_slots_.size(); ++s)
        state.tensor(byte_slots_[s].name + "/" + name, whole(of, s, i));
    });
  }

  void load_plain(const StateReader& state) final {
    State own;
    own.owner = state.state().owner;
    StateWriter writer(own);
    each([&](const std::string& name, const UpdateLists& of, std::size_t i, std::int64_t) {
      writer.scalar("step/" + name, state.integer("step/" + name));
      for (std::size_t s = 0; s < byte_slots_.size(); ++s) write_packed(writer, state, name, of, s, i);
    });
    load(StateReader(own));
  }

 protected:
  using BlockUpdate = std::function<void(const BlockOfParameter&)>;

  explicit ByteOptimizer(std::vector<ByteSlot> slots)
      : SlotOptimizer(with_scales(slots)), byte_slots_(std::move(slots)) {}

  /// As SlotOptimizer::update(); the slots are those of the constructor, in the parameter's type.
  virtual void update_whole(std::size_t group, UpdateLists& lists, std::int64_t updates) = 0;
  virtual BlockUpdate block_update(std::size_t group, std::int64_t updates) const = 0;

  at::Tensor make_slot(const Slot& slot, const std::string& name, const at::Tensor& param) const final {
    const bool packed = param.numel() >= least_packed;
    for (const ByteSlot& each : byte_slots_) {
      if (slot.name == scale_of(each.name))
        return packed ? make_byte_blocks(param, each.has_sign).scales
                      : at::zeros({0}, param.options().requires_grad(false));
      if (slot.name == each.name && packed) return make_byte_blocks(param, each.has_sign).codes;
    }
    return SlotOptimizer::make_slot(slot, name, param);
  }

  void update(std::size_t group, UpdateLists& lists, std::int64_t updates) final {
    UpdateLists small;
    for (std::size_t i = 0; i < lists.params.size(); ++i) {
      if (!is_packed(lists, i))
        append(small, lists, i, [&](std::size_t s) { return lists.slots[2 * s][i]; });
      else if (lists.params[i].is_cpu() && lists.params[i].scalar_type() == at::kFloat)
        update_blocks(block_update(group, updates), lists, i);
      else
        update_packed(group, lists, i, updates);
    }
    if (!small.params.empty()) update_whole(group, small, updates);
  }

 private:
  static std::string scale_of(const std::string& slot) { return slot + "_scale"; }

  static std::vector<Slot> with_scales(const std::vector<ByteSlot>& slots) {
    std::vector<Slot> all;
    for (const ByteSlot& each : slots) all.insert(all.end(), {Slot{each.name}, Slot{scale_of(each.name)}});
    return all;
  }

  static bool is_packed(const UpdateLists& lists, std::size_t i) {
    return lists.params[i].numel() >= least_packed;
  }

  const kernels::ByteMap& map(std::size_t slot) const {
    return byte_slots_[slot].has_sign ? kernels::signed_map() : kernels::unsigned_map();
  }

  static ByteBlocks blocks(const UpdateLists& lists, std::size_t slot, std::size_t i) {
    return {lists.slots[2 * slot][i], lists.slots[2 * slot + 1][i]};
  }

  at::Tensor whole(const UpdateLists& lists, std::size_t slot, std::size_t i) const {
    if (!is_packed(lists, i)) return lists.slots[2 * slot][i];
    return unpacked(blocks(lists, slot, i), map(slot)).to(lists.params[i].scalar_type());
  }

  void write_packed(StateWriter& writer, const StateReader& state, const std::string& name,
                    const UpdateLists& of, std::size_t slot, std::size_t i) const {
    const std::string& kind = byte_slots_[slot].name;
    const at::Tensor& values = state.tensor(kind + "/" + name);
    if (values.sizes() != of.params[i].sizes())
      throw PluginError("state \"" + kind + "/" + name + "\" does not have the shape of the parameter");
    ByteBlocks packed{values, blocks(of, slot, i).scales};
    if (is_packed(of, i)) {
      packed = make_byte_blocks(of.params[i], byte_slots_[slot].has_sign);
      pack(values, packed, map(slot));
    }
    writer.tensor(kind + "/" + name, packed.codes);
    writer.tensor(scale_of(kind) + "/" + name, packed.scales);
  }

  template <class Use>
  void each(const Use& use) const {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t i = 0; i < groups_[g].names.size(); ++i)
        use(groups_[g].names[i], lists(g), i, updates(g, i));
  }

  template <class SlotValue>
  void append(UpdateLists& to, const UpdateLists& from, std::size_t i, const SlotValue& slot) const {
    to.params.push_back(from.params[i]);
    to.grads.push_back(from.grads[i]);
    to.slots.resize(byte_slots_.size());
    for (std::size_t s = 0; s < byte_slots_.size(); ++s) to.slots[s].push_back(slot(s));
  }

  void update_packed(std::size_t group, const UpdateLists& lists, std::size_t i, std::int64_t updates) {
    UpdateLists one;
    append(one, lists, i, [&](std::size_t s) { return whole(lists, s, i); });
    update_whole(group, one, updates);
    for (std::size_t s = 0; s < byte_slots_.size(); ++s) pack(one.slots[s][0], blocks(lists, s, i), map(s));
  }

  /// The same without a copy of the averages that is larger than a block.
  void update_blocks(const BlockUpdate& update_block, const UpdateLists& lists, std::size_t i) const {
    const at::Tensor gradient = lists.grads[i].contiguous();
    const auto* const gradients = gradient.const_data_ptr<float>();
    auto* const weights = lists.params[i].mutable_data_ptr<float>();
    const kernels::ByteMapKernels& kernels = kernels::byte_map_kernels();
    const std::size_t slots = byte_slots_.size();
    std::array<std::uint8_t*, 2> codes{};
    std::array<float*, 2> scales{};
    for (std::size_t s = 0; s < slots; ++s) {
      codes[s] = bytes_of(lists.slots[2 * s][i]);
      scales[s] = lists.slots[2 * s + 1][i].mutable_data_ptr<float>();
    }
    each_block(gradient.numel(), [&](std::int64_t block, std::int64_t at, std::int64_t width) {
      std::array<std::array<float, block_values>, 2> averages;
      for (std::size_t s = 0; s < slots; ++s)
        kernels.unpack(averages[s].data(), codes[s] + at, scales[s][block], width, map(s));
      update_block({weights + at, gradients + at, {averages[0].data(), averages[1].data()}, width});
      for (std::size_t s = 0; s < slots; ++s)
        scales[s][block] = kernels.pack(codes[s] + at, averages[s].data(), width, map(s));
    });
  }

  std::vector<ByteSlot> byte_slots_;  ///< at most two
};

}  // namespace optimizers
