// What hits_at_k and mrr share: the rank of a positive among its negatives.
#pragma once

#include <string>

#include <trainyard/helpers/mean_metric.hpp>

namespace metrics {

using namespace trainyard;

/// Throws ConfigError where samples are no edges with negatives, as dataset graph has them.
inline void require_links(const std::string& who, const std::vector<std::int64_t>& output,
                          const BatchSchema& schema) {
  if (schema.target.name != "link" || schema.target.shape.size() != 1 || output != schema.target.shape)
    throw ConfigError(
        who +
        " needs a score for an edge and for each of its negatives, as task = \"edge\" of dataset "
        "graph has them; " +
        shapes_text(output, schema));
}

/// output and target [size, 1 + negatives], the target being above 0 for the positive: its rank from 1,
/// [size]. Of ties it has the mean rank, as in the Open Graph Benchmark, whose evaluator takes the mean of
/// the ranks with all ties ahead and with all ties behind. A score that is not a number is ahead of nothing.
inline at::Tensor link_ranks(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor scores = output.reshape(target.sizes()), positive = target.gt(0);
  const at::Tensor own = scores.gather(1, positive.to(at::kByte).argmax(1, /*keepdim=*/true));
  const at::Tensor negative = positive.logical_not();
  const auto count = [&](const at::Tensor& which) {
    return which.logical_and(negative).sum(1).to(at::kDouble);
  };
  return negative.sum(1).add(1).sub(count(scores.lt(own))).sub(count(scores.eq(own)).mul(0.5));
}

}  // namespace metrics
