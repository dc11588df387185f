// How one forward pass runs.
#pragma once

#include <cstdint>

namespace trainyard {

struct ForwardContext {
  bool training = false;
  /// An evaluation in which dropout acts nevertheless, to sample from the networks that it stands for (Gal
  /// and Ghahramani, ICML 2016, section 4); all else is as in any evaluation.
  bool sampling = false;
  std::uint64_t step = 0;   ///< of the run, from 0; keys random masks
  std::uint32_t micro = 0;  ///< micro-batch of the step, number of the sample, or batch of the evaluation

  bool drops() const { return training || sampling; }
};

}  // namespace trainyard
