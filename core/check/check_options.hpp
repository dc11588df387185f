// How `trainyard plugins check` was called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::check {

struct CheckOptions {
  std::vector<std::string> only;  ///< tests or groups; empty: all
  std::vector<std::string> sets;  ///< KEY=VALUE, as `train --set` has them: in every run around the plugin
  enum class Format : std::uint8_t { text, json, junit } format = Format::text;
  std::uint64_t seed = 1;  ///< of what is random in the tests
  double timeout = 60.0;   ///< seconds a test
};

}  // namespace trainyard::check
