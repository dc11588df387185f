#include "core/check/tests.hpp"

#include <algorithm>

namespace trainyard::check {

bool Report::passed() const {
  return std::ranges::none_of(results, [](const Result& result) {
    return result.verdict == Verdict::fail || result.verdict == Verdict::crash;
  });
}

bool wanted(std::string_view test, const std::vector<std::string>& only) {
  return only.empty() || std::ranges::any_of(only, [&](const std::string& word) {
           return test == word || test.starts_with(word + ".");
         });
}

std::string unknown_word(const std::vector<std::string>& only) {
  for (const std::string& word : only)
    if (std::ranges::none_of(tests, [&](const TestRow& test) { return wanted(test.name, {word}); }))
      return word;
  return {};
}

}  // namespace trainyard::check
