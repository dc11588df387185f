// Samples as they lie in memory, in a file that is mapped.
#pragma once

#include <optional>

#include "../kept_file.hpp"
#include "samples.hpp"

namespace xc {

/// The file of a folder for samples of that name.
inline datasets::KeptFile kept_samples(const std::string& folder, const std::string& name) {
  return {folder, name, "tyxc1", "xc"};
}

/// The samples of the file; nothing where it is not there. Throws DataError where it is damaged.
inline std::optional<Samples> map_kept(const datasets::KeptFile& file) {
  const std::optional<datasets::Kept> kept = file.map();
  if (!kept) return std::nullopt;
  if (kept->numbers.size() != 2 || kept->parts.size() != 5) file.fail_damaged();
  Samples samples{.features = kept->numbers[0],
                  .classes = kept->numbers[1],
                  .entries_end = kept->part<std::int64_t>(0),
                  .labels_end = kept->part<std::int64_t>(1),
                  .index = kept->part<std::int32_t>(2),
                  .value = kept->part<float>(3),
                  .label = kept->part<std::int32_t>(4),
                  .owner = kept->owner};
  if (samples.size() < 0 || samples.entries_end.size() != samples.labels_end.size() ||
      samples.entries_end.back() != std::ssize(samples.index) ||
      samples.index.size() != samples.value.size() || samples.labels_end.back() != std::ssize(samples.label))
    file.fail_damaged();
  return samples;
}

/// Throws DataError where that cannot be done.
inline void keep(const datasets::KeptFile& file, const Samples& samples) {
  datasets::Kept kept{.numbers = {samples.features, samples.classes}, .parts = {}, .owner = {}};
  kept.add(samples.entries_end);
  kept.add(samples.labels_end);
  kept.add(samples.index);
  kept.add(samples.value);
  kept.add(samples.label);
  file.write(kept);
}

}  // namespace xc
