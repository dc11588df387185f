// "did you mean": the nearest of the words that would have been right.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard::config {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal string
/// alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The nearest candidate, if it is near enough to be a slip of the fingers, else empty. The first of equals;
/// of a list of thousands only the first hundreds are compared.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "did you mean `momentum`?   allowed: dampening, lr, momentum": a hint; candidates in the given order, of a
/// long list the first.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates,
                       std::string_view label = "allowed");

/// "a, b, c"
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace trainyard::config
