// What the stages of all ranks have made of a step: each gives the gradients of its weights, and its running statistics, to all
// others, whose networks then have what a single rank's would.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <trainyard/graph/graph.hpp>
#include <trainyard/network.hpp>
#include <trainyard/ranks.hpp>

#include "wire.hpp"

namespace wavelet {

using namespace trainyard;

/// Loop thread. All ranks make it, and call it, at the same points.
class StageExchange {
 public:
  /// `parts`: of the network, one of each rank.
  StageExchange(Ranks& ranks, const Network& network, const std::vector<Graph>& parts);

  /// Of one rank, in the order of its graph's initializers.
  struct Made {
    Tensors gradients;   ///< of its parameters, undefined where there is none
    Tensors statistics;  ///< empty: they are as the network has them
  };
  /// `make` waits for those of this rank; what others have made comes meanwhile, those with later stages being done first. Sets
  /// gradients and statistics of the network, to the same bits on all ranks; the gradients are views of memory that
  /// the next call writes to. A weight of several stages gets the sum over them.
  void all(const std::function<Made()>& make);

 private:
  /// A tensor of the network, and where it lies in what its stage gives.
  struct InMessage {
    at::Tensor tensor;
    std::size_t first;
    at::Tensor in(const at::Tensor& message) const;
  };
  struct Share {
    std::vector<InMessage> parameters, statistics;
    at::Tensor message;  ///< bytes; at the end one for each parameter: whether it has a gradient
  };
  void pack(Share& share, const Made& made) const;

  std::unique_ptr<RankGroup> ranks_;
  std::vector<Share> shares_;  ///< by rank
};

}  // namespace wavelet
