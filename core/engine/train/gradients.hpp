// Operations on gradients between backward and the optimizer.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// Makes each row of a sparse gradient occur once, as optimizers require; several micro-batches make it occur
/// several times.
void coalesce_gradients(std::vector<at::Tensor>& parameters);

/// Returns the stored values of the parameters' defined gradients, in their order.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters);

/// Drops all gradients, so that the next backward hands over its own tensors instead of adding to these.
void clear_gradients(std::vector<at::Tensor>& parameters);

/// Clips in place: `norm` scales all by max / (total 2-norm + 1e-6) if that is below 1 (Pascanu et al., "On
/// the difficulty of training recurrent neural networks", ICML 2013, section 3.2, as
/// torch.nn.utils.clip_grad_norm_); `value` clamps each element to [-max, max]. Returns the total norm before
/// clipping (undefined for `value`), on the gradients' device; does not wait for it.
at::Tensor clip(std::vector<at::Tensor>& gradients, const config::GradClip& rule);

}  // namespace trainyard::train
