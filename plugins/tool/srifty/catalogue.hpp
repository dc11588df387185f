// Machines that can be rented, with prices: a CSV file with its date and source.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace srifty {

/// One row: a type of machine in a region, perhaps in a zone.
struct Machine {
  std::string type, accelerator, region, zone;
  int count = 1;                            ///< accelerators, a rank each
  double memory_bytes = 0.0;                ///< of an accelerator; 0: not said
  std::optional<double> price, spot_price;  ///< USD an hour; none: not offered
  double network = 0.0;                     ///< bytes a second between machines
  double inside = 0.0;                      ///< bytes a second between accelerators of a machine; 0: not said
  std::string link;                         ///< name of measured links; empty: by the rates above
  std::string as_of, source;
};

struct Catalogue {
  std::string path, as_of, source;
  std::vector<Machine> machines;
};

/// Reads a catalogue's text. Throws DataError with file and line for anything that is not as the README says.
Catalogue read_catalogue(const std::string& text, const std::string& path);

/// Returns the days from a date, "2026-11-27", to another; nothing where either is no date.
std::optional<std::int64_t> days_between(std::string_view from, std::string_view to);

/// Returns the date of today in UTC.
std::string today();

}  // namespace srifty
