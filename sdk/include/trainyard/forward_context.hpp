// The description of one forward pass for the network and its dropout.
#pragma once

#include <cstdint>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("forward_context.hpp");

namespace trainyard {

/// Says which samples of its step a training pass has, as the data gave them. Dropouts use it to share
/// something out over the whole batch of a step, which gradient accumulation cuts into micro-batches of any
/// length. Hooks may have made other rows of the samples since (R-Drop doubles them).
struct StepPart {
  std::int64_t first = 0;    ///< samples of the step that come before those of the pass
  std::int64_t count = 0;    ///< samples of the pass; 0 where nobody said: the pass is all of the step
  std::int64_t samples = 0;  ///< samples of the whole step
  std::int64_t before = 0;   ///< samples that the run took before the step
};

struct ForwardContext {
  bool training = false;
  /// An evaluation in which dropout acts nevertheless, to sample from the networks that it stands for (Gal
  /// and Ghahramani, ICML 2016, section 4); all else is as in any evaluation.
  bool sampling = false;
  std::uint64_t step = 0;   ///< number of the step in the run, from 0; keys random masks
  std::uint32_t micro = 0;  ///< micro-batch of the step, number of the sample, or batch of the evaluation
  StepPart part;            ///< samples of a training pass

  bool drops() const { return training || sampling; }
};

}  // namespace trainyard
