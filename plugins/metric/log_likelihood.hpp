// Natural logarithms of the probabilities that a network gives the targets.
#pragma once

#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>

#include "class_counts.hpp"

namespace metrics {

/// [targets], double, 0 or less; 0 where `counts` is 0. With one score for two classes the score is a logit.
inline at::Tensor log_probabilities(const at::Tensor& output, const at::Tensor& target,
                                    const at::Tensor& counts) {
  const at::Tensor left_out = counts.eq(0),
                   classes = target.reshape(-1).to(at::kLong).masked_fill(left_out, 0);
  at::Tensor log;
  if (has_one_score(output, target)) {
    const at::Tensor score = output.reshape(-1);
    log = at::log_sigmoid(at::where(classes.gt(0), score, score.neg()));
  } else {
    log =
        at::log_softmax(output.reshape({-1, output.size(-1)}), -1).gather(1, classes.unsqueeze(1)).squeeze(1);
  }
  return log.to(at::kDouble).masked_fill(left_out, 0.0);
}

}  // namespace metrics
