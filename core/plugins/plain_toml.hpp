// The subset of TOML in which sealed manifests are written: `key = value` lines whose values are booleans,
// integers, floats, basic strings, arrays and inline tables. Any TOML tool reads it; this reader accepts
// nothing else, so that it is bounded on hostile text and parses 200 manifests in a tenth of the time of a
// general one.
#pragma once

#include <string>
#include <string_view>

#include <trainyard/value.hpp>

namespace trainyard::plugins {

/// Writes one line per entry, and one per element in an array of tables. Throws PluginError where a string
/// holds a control character other than a line break or a tab.
std::string to_plain_toml(const Table& table);

/// Parses such text. Throws PluginError with the line, what was found and what was expected.
Table parse_plain_toml(std::string_view text);

}  // namespace trainyard::plugins
