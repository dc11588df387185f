// Parses `take` of a split, the part of its samples to use: "first 1000", "last 10%", "fold 0 of 5", "folds 0 to
// 2 of 5", and "all but ..." of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trainyard::config {

struct Take {
  enum class Part : std::uint8_t { first, last, fold };

  Part part = Part::first;
  bool all_but = false;                  ///< selects the samples that are not in the part
  double count = 0.0;                    ///< for first and last: samples, or percent of them
  bool percent = false;                  ///< count is in (0, 100]
  std::int64_t fold = 0, last_fold = 0;  ///< in [0, folds)
  std::int64_t folds = 0;                ///< at least 2
};

/// Parses `take`; nothing where the text is none of these.
std::optional<Take> parse_take(std::string_view text);

}  // namespace trainyard::config
