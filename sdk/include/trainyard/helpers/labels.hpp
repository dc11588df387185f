// Targets of several labels a sample, the topics of a text, say: int64 [size, most], the classes of each
// sample, ascending, filled up with -1. A sample without any counts for nothing, in losses as in metrics.
#pragma once

#include <cstdint>
#include <string>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/error.hpp>

TRAINYARD_CONTRACT("helpers/labels.hpp");

namespace trainyard {

inline constexpr std::int64_t no_label = -1;

/// Returns the field of such targets; `most` is the largest number of labels of a sample.
inline FieldSchema labels_field(std::int64_t most) {
  return {.name = "labels", .shape = {most}, .dtype = at::kLong};
}

inline bool has_several_labels(const BatchSchema& schema) {
  return schema.has_target && schema.classes > 0 && schema.target.name == "labels" &&
         schema.target.shape.size() == 1;
}

/// Throws ConfigError where the data has several labels a sample. `who`: "metric accuracy"; `mend`: "take
/// ...".
inline void refuse_several_labels(const std::string& who, const BatchSchema& schema,
                                  const std::string& mend) {
  if (has_several_labels(schema))
    throw ConfigError(who + " takes one target a sample, but the data has up to " +
                      std::to_string(schema.target.shape.front()) + " labels a sample: " + mend);
}

}  // namespace trainyard
