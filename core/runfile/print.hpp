// Prints values as TOML: `config show`, `config diff`, and the resolved file of a run directory.
#pragma once

#include <string>
#include <vector>

#include <trainyard/value.hpp>

namespace trainyard::config {

/// Prints a value on one line: 5, 0.1, "text", [1, 2], { a = 1 }. A float reads back as the same float.
std::string toml_text(const Value& value);

/// Prints a whole run file; `load` reads it back as the same tree ("${" is written as "$${"). With `origins`,
/// each key is followed by the place that its value came from.
std::string toml_file(const Table& root, bool origins = false);

/// A key that differs: its dotted path ("metrics.0.k") and its values as TOML; empty where a file lacks the
/// key.
struct Difference {
  std::string key, a, b;
};
std::vector<Difference> diff(const Table& a, const Table& b);

}  // namespace trainyard::config
