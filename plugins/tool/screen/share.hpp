// A part of a screening's detectors, which one of several machines fits: "2/4" is the second of four.
#pragma once

#include <cstddef>
#include <string>

namespace screen {

struct Share {
  std::size_t number = 1, of = 1;  ///< from 1

  std::string text() const { return std::to_string(number) + "/" + std::to_string(of); }
};

/// Throws ConfigError that says how a share is written.
Share parse_share(const std::string& text);

}  // namespace screen
