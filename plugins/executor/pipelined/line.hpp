// The ranks that share the stages of a pipeline, one behind the other, and what neighbours hand to each other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/ranks.hpp>

#include "stage.hpp"

namespace pipelined {

using namespace trainyard;

/// What goes one way between two ranks, in its order. How many tensors there are in a message, their types, sizes and
/// strides follow from the sizes of the samples in its unit, which both ranks have: they go along with the first
/// message of such samples only. Tensors lie in the memory of the CPU. Throws DistributedError where the other rank
/// is gone.
class Wire {
 public:
  /// `pair`: the two; `giver`: which of them gives.
  Wire(std::unique_ptr<RankGroup> pair, int giver) : pair_(std::move(pair)), giver_(giver) {}

  /// Begins to hand on; nobody writes to the tensors before settle().
  void give(const Message& message);
  /// The next message, which is of this unit. Waits.
  Message take(UnitHandle unit);
  /// Waits until all that was given is there.
  void settle();

 private:
  using Numbers = std::vector<std::int64_t>;
  const Numbers& form(const Unit& unit, const Numbers* own);
  void send(const at::Tensor& tensor);
  void receive(const at::Tensor& tensor);

  std::unique_ptr<RankGroup> pair_;
  int giver_;
  std::map<Numbers, Numbers> forms_;  ///< of messages, by the sizes of the samples
  std::vector<std::pair<at::Tensor, std::unique_ptr<Exchange>>> given_;
};

/// Place p of n is rank n - 1 - p: rank 0, which writes what there is to be written, has the last stages, with the
/// loss and the hooks.
class Line {
 public:
  /// All ranks make it at the same point. They outlive it.
  explicit Line(Ranks& ranks);

  int size() const { return ranks_.size(); }
  int place() const { return rank_of(ranks_.rank()); }
  int rank_of(int place) const { return ranks_.size() - 1 - place; }

  /// To and from the rank with the stages behind, and with those ahead: null at the ends.
  struct Side {
    std::unique_ptr<Wire> out, in;
  };
  Side& behind() { return behind_; }
  Side& ahead() { return ahead_; }

  /// Each list of tensors, dense and of the same strides on all ranks, becomes what the rank in that place has.
  void share(std::span<const Tensors> of_place);
  Ranks& ranks() { return ranks_; }

 private:
  Ranks& ranks_;
  Side behind_, ahead_;
};

}  // namespace pipelined
