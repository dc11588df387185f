// How one forward pass runs.
#pragma once

#include <cstdint>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("forward_context.hpp");

namespace trainyard {

/// Which samples of its step a training pass has, as the data gave them: for what is shared out over the
/// whole batch of a step, which accumulation cuts into micro-batches of any length. Hooks may have made other
/// rows of them since (R-Drop doubles them).
struct StepPart {
  std::int64_t first = 0;    ///< samples of the step that come before those of the pass
  std::int64_t count = 0;    ///< of the pass; 0 where nobody said: the pass is all of the step
  std::int64_t samples = 0;  ///< of the step
  std::int64_t before = 0;   ///< samples that the run took before the step
};

struct ForwardContext {
  bool training = false;
  /// An evaluation in which dropout acts nevertheless, to sample from the networks that it stands for (Gal
  /// and Ghahramani, ICML 2016, section 4); all else is as in any evaluation.
  bool sampling = false;
  std::uint64_t step = 0;   ///< of the run, from 0; keys random masks
  std::uint32_t micro = 0;  ///< micro-batch of the step, number of the sample, or batch of the evaluation
  StepPart part;            ///< of a training pass

  bool drops() const { return training || sampling; }
};

}  // namespace trainyard
