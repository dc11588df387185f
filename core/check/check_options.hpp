// The options of `trainyard plugins check`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::check {

struct CheckOptions {
  std::vector<std::string> only;  ///< tests or groups; empty: all
  std::vector<std::string> sets;  ///< KEY=VALUE, as in `train --set`, for every run around the plugin
  enum class Format : std::uint8_t { text, json, junit } format = Format::text;
  std::uint64_t seed = 1;  ///< seed of random values in the tests
  double timeout = 60.0;   ///< seconds per test
};

}  // namespace trainyard::check
