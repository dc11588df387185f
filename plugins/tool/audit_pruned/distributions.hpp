// Data that networks are audited on: clean, with noise on what the networks see, and corrupted as images.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/value.hpp>

#include "../../dataset/corrupted/kernels.hpp"
#include "../../dataset/corrupted/pixel_scale.hpp"

namespace audit {

struct Distribution {
  std::string name = "clean";
  corrupted::Corruption corruption = corrupted::Corruption::uniform_noise;
  double eps = 0.0;           ///< of uniform_noise
  std::int64_t severity = 0;  ///< of the others
  std::int64_t draws = 1;     ///< copies of each sample

  bool clean() const { return eps == 0.0 && severity == 0; }
  bool on_pixels() const { return severity > 0; }
};

/// The samples of a split, in memory.
struct Samples {
  at::Tensor inputs, labels;          ///< on the CPU
  std::vector<std::int64_t> indices;  ///< in the dataset
  corrupted::PixelScale scale;        ///< of its pixels
};

/// Throws ConfigError where a split of a resolved run file is corrupted already.
void refuse_corrupted(const trainyard::Table& config, const std::string& split);

/// Makes the scale of a split's pixels from a resolved run file. Throws ConfigError where it does not tell it.
corrupted::PixelScale scale_of(const trainyard::Table& config, const std::string& split,
                               const at::Tensor& inputs);

/// Returns samples [first, first + count) as a distribution has them in one of its draws: the same for every network, and
/// for any division into calls.
at::Tensor inputs_of(const Distribution& distribution, const Samples& samples, std::int64_t first,
                     std::int64_t count, std::uint64_t seed, std::int64_t draw);

}  // namespace audit
