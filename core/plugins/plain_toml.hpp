// The subset of TOML that sealed manifests are written in: `key = value` lines whose values are booleans,
// integers, floats, basic strings, arrays and inline tables. Any TOML tool reads it; this reader takes
// nothing else, so that it is bounded on hostile text and parses 200 manifests in a tenth of the time of a
// general one.
#pragma once

#include <string>
#include <string_view>

#include <trainyard/value.hpp>

namespace trainyard::plugins {

/// One line an entry; an array of tables takes one line an element. Throws PluginError where a string holds a
/// control character other than a line break or a tab.
std::string to_plain_toml(const Table& table);

/// The reverse. Throws PluginError with the line, what was found and what was expected.
Table parse_plain_toml(std::string_view text);

}  // namespace trainyard::plugins
