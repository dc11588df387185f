// The detectors that a pool can have, by the names that options use: "knn:5".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "detector.hpp"
#include "schedule.hpp"

namespace screen {

struct Family {
  std::string_view name, summary;
  double parameter = 0.0;              ///< where the text names none
  double least = 0.0, most = 0.0;      ///< of the parameter; both 0: it has none
  bool whole = true;                   ///< the parameter is a whole number
  bool projects = false;               ///< distances decide: it may be given projected rows
  bool rows_beyond_parameter = false;  ///< it needs more rows than its parameter
  PowerLaw cost;                       ///< forecast of the seconds that a fit takes, one thread
  std::unique_ptr<Detector> (*make)(double parameter) = nullptr;
};

/// Returns all, in the order of the help. A new detector is one more row.
const std::vector<Family>& families();

/// A detector as an option names it.
struct Spec {
  const Family* family = nullptr;
  double parameter = 0.0;

  std::string text() const;
  /// Returns the fewest rows that it can be fitted to.
  std::size_t rows_needed() const;
};

/// Throws ConfigError that says what there is.
Spec parse_spec(const std::string& text);

/// Returns the family; throws ConfigError that says what there is.
const Family& find_family(std::string_view name);

}  // namespace screen
