// Says which widths of a network are worth changing: a width with the layers that share it, wider ones beside it, all timed
// in the same rounds. Nothing here knows what a processor likes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "network_times.hpp"

namespace ops {

/// Nodes that have the same number of channels: that of a layer's output, of all that passes it on, and of what reads it.
struct Width {
  std::int64_t channels = 0;
  std::vector<std::size_t> makers;  ///< nodes whose output channels it is
  std::vector<std::size_t>
      followers;  ///< those that pass it on: activations, normalizations, pools, depthwise layers
  struct Reader {
    std::size_t node;
    std::int64_t each = 1;  ///< features of its input for each channel
  };
  std::vector<Reader> readers;  ///< nodes whose input channels it is
};

/// Returns the widths that may be changed: not those of inputs and outputs, nor what a concatenation or a shape fixes.
std::vector<Width> widths_of(const trainyard::Graph& graph);

/// A width and a better one. Gains are shares of the sum of all nodes' times in a training pass.
struct Advice {
  enum class Kind : std::uint8_t {
    faster,    ///< more channels in less time
    free,      ///< more channels in the same time, within 1 %
    narrower,  ///< at most a tenth fewer channels that save 5 % or more
  };
  Kind kind = Kind::faster;
  Width width;
  std::int64_t channels = 0;         ///< the better ones
  std::string layers;                ///< names of the makers
  double before = 0.0, after = 0.0;  ///< seconds in the nodes concerned
  double gain = 0.0;
};
std::string text_of(const Advice& advice);

struct Advised {
  std::vector<Advice> advice;  ///< the most saved first
  std::size_t widths = 0;      ///< that were timed
  bool noisy = false;          ///< medians are far from the least
  double bf16_gain = 0.0;      ///< saved where convolutions and linear layers compute in bf16
};

/// Times each width beside others, up to a quarter more and a tenth less, and layers in bf16. Empty where `stop` says so.
Advised advise(const trainyard::Graph& graph, const NetworkTimes& times, const Rounds& rounds,
               const trainyard::RandomStream& random, const std::function<bool()>& stop);

}  // namespace ops
