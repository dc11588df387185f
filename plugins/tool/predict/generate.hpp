// Text, token by token, from a network that says what comes next.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <trainyard/network.hpp>
#include <trainyard/random.hpp>

namespace predict {

struct Sampling {
  std::int64_t tokens = 0;
  double temperature = 1.0;              ///< 0: always the likeliest
  std::int64_t top_k = 0;                ///< of the likeliest tokens one is drawn; 0: of all
  std::optional<std::int64_t> left_out;  ///< is never drawn
};

/// A token for a distribution, [vocabulary] logits on the CPU. `draw`: in [0, 1).
std::int64_t draw_token(const std::vector<float>& logits, const Sampling& sampling, double draw);

/// Goes on from `context`, which may be of any length but 0: the network sees the last `window` tokens, padded to as many
/// behind them, which a causal network does not look at. Each token is told to `tell`; false ends it.
void generate(trainyard::Network& network, at::Device device, std::int64_t window,
              std::vector<std::int64_t> context, const Sampling& sampling,
              const trainyard::RandomStream& draws, const std::function<bool(std::int64_t)>& take);

}  // namespace predict
