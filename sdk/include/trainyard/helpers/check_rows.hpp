// Whether a loss can compare what a network gave with the targets of a batch.
#pragma once

#include <cstdint>
#include <string>

#include <trainyard/batch.hpp>
#include <trainyard/error.hpp>

namespace trainyard {

/// The batch, for Loss::forward. Throws PluginError where it has another number of targets than the network gave rows.
inline const Batch& check_rows(const Batch& batch, std::int64_t rows) {
  if (!batch.target.defined() || batch.target.dim() == 0 || batch.target.size(0) == rows) return batch;
  throw PluginError(
      "the model gives " + std::to_string(rows) + " rows for " + std::to_string(batch.target.size(0)) +
      " targets: a hook or a dropout that makes other rows of a batch has to make its inputs and "
      "its targets alike");
}

}  // namespace trainyard
