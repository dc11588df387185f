// Suggests the nearest valid word to a wrong one ("did you mean").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard::config {

/// Counts the insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
/// string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the nearest candidate, the first of equal ones, if it is near enough for a typing error, else
/// empty text; capital letters count as small ones. Compares only the first few hundred of a long list.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns a hint: "did you mean `momentum`?   allowed: dampening, lr, momentum"; candidates in the given
/// order, and only the first of a long list.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates,
                       std::string_view label = "allowed");

}  // namespace trainyard::config
