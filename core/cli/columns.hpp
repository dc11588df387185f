// The formats that verbs print in, and a table for a terminal.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace trainyard::cli {

enum class Format : std::uint8_t { text, json };

/// Prints rows in columns as wide as their widest cell; the last column is not padded.
void print_columns(const std::vector<std::vector<std::string>>& rows, const std::string& indent,
                   std::ostream& out);

}  // namespace trainyard::cli
