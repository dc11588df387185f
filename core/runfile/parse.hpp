// Parses TOML text to a tree of values that know their place in the file.
#pragma once

#include <optional>
#include <string>

#include <trainyard/value.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// Reads a file of at most 1 MiB, nested at most 32 deep; any error becomes a finding and returns no table.
std::optional<Table> parse_file(const std::string& file, Findings& findings);

/// Parses text under the name of a file.
std::optional<Table> parse_text(const std::string& file, const std::string& text, Findings& findings);

/// Parses a single TOML value, as --set gives it; nothing where `text` is not one.
std::optional<Value> parse_value(const std::string& text);

}  // namespace trainyard::config
