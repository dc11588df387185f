// Hits: targets that are among the largest scores. On the CPU a kernel counts them.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "../loss/fused.hpp"

namespace metrics {

using namespace trainyard;

struct Hits {
  std::int64_t found = 0, of = 0;
};

/// output [n, ..., classes], target [n, ...]; nothing where the kernel cannot read them.
inline std::optional<Hits> count_hits(const at::Tensor& output, const at::Tensor& target,
                                      std::optional<std::int64_t> ignored, std::int64_t most) {
  if (!losses::is_plain(output) || !losses::is_classes(target)) return std::nullopt;
  const at::Tensor rows = losses::score_rows(output), classes = losses::in_a_piece(target);
  const std::int64_t* const named = classes.const_data_ptr<std::int64_t>();
  const kernels::ClassScores scores{rows.const_data_ptr<float>(), rows.stride(0), rows.size(1), named};
  constexpr std::int64_t no_class = -1;
  std::atomic<std::int64_t> found = 0;
  losses::share_out(classes.numel(), scores.classes,
                    [&, &kernels = kernels::loss_kernels()](std::int64_t begin, std::int64_t end) {
                      found += kernels.hits(scores, ignored.value_or(no_class), most, begin, end);
                    });
  return Hits{found, classes.numel() - (ignored ? std::count(named, named + classes.numel(), *ignored) : 0)};
}

}  // namespace metrics
