// Texts of a file of JSON lines, as datasets of documents are published.
#pragma once

#include <string>
#include <string_view>

namespace text {

/// Joins the texts that the objects of the lines have at `key`, with `between` from one to the next; blank lines are passed
/// over. Throws DataError, which names the line.
std::string joined_texts(std::string_view lines, const std::string& key, const std::string& between);

}  // namespace text
