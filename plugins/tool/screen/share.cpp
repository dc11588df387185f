#include "share.hpp"

#include <charconv>
#include <optional>
#include <string_view>

#include <trainyard/error.hpp>

namespace screen {
namespace {

std::optional<std::size_t> whole_number(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

Share parse_share(const std::string& text) {
  constexpr std::size_t most = 1024;
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const std::optional<std::size_t> number = whole_number(std::string_view(text).substr(0, slash));
    const std::optional<std::size_t> of = whole_number(std::string_view(text).substr(slash + 1));
    if (number && of && *number >= 1 && *number <= *of && *of <= most) return {*number, *of};
  }
  throw trainyard::ConfigError("share is \"" + text +
                               "\": expected K/N, as \"2/4\": the K-th of N shares, with K from 1 to N and N "
                               "at most " +
                               std::to_string(most));
}

}  // namespace screen
