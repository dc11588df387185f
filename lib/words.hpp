// Works on words: joins them, trims them, hands them to a program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard::lib {

/// Joins a range of texts.
template <class Words>
std::string join(const Words& words, std::string_view separator = ", ") {
  std::string text;
  for (const auto& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

/// Removes characters of `blank` from both ends.
inline std::string_view trimmed(std::string_view text, std::string_view blank = " \t") {
  const std::size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

/// Replaces the letters A to Z; others stay.
inline std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

/// Returns what exec and its like take: pointers into the words, which they leave as they are, and a null pointer.
inline std::vector<char*> argv_of(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return argv;
}

}  // namespace trainyard::lib
