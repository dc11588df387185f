// What goes one way between the ranks of two neighbouring stages: messages of some tensors each, in one order. Each way has a
// group of its own, so that no order of the two matters.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/ranks.hpp>

namespace wavelet {

using namespace trainyard;

using Tensors = std::vector<at::Tensor>;

/// One thread. Tensors lie in the memory of the CPU. Throws DistributedError where the other rank is gone.
class Wire {
 public:
  /// `giver`: which of the pair gives; `most`: messages that may be on their way.
  Wire(std::unique_ptr<RankGroup> pair, int giver, std::int64_t most)
      : pair_(std::move(pair)), giver_(giver), most_(static_cast<std::size_t>(most)) {}

  /// Begins to hand on contiguous tensors, which nobody writes to any more. Waits for the oldest message where there are
  /// too many on their way.
  void give(const Tensors& message);
  /// Says of what form the next message is that is not expected yet: begins to write it there.
  void expect(Tensors message);
  /// The oldest that is expected. Waits.
  Tensors take();

 private:
  struct Message {
    Tensors tensors;
    std::vector<std::unique_ptr<Exchange>> exchanges;
  };
  Message begin(Tensors tensors);

  std::unique_ptr<RankGroup> pair_;
  int giver_;
  std::size_t most_;
  std::deque<Message> on_their_way_;
};

}  // namespace wavelet
