#include "core/runfile/take.hpp"

#include <charconv>
#include <string>
#include <vector>

namespace trainyard::config {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fits = error == std::errc{} && end == text.data() + text.size() && value >= 0;
  return fits ? std::optional(value) : std::nullopt;
}

/// Reads "1000" or "12.5%".
bool read_count(std::string_view text, Take& take) {
  take.percent = text.ends_with('%');
  if (!take.percent) {
    const std::optional<std::int64_t> samples = whole(text);
    take.count = static_cast<double>(samples.value_or(0));
    return take.count >= 1.0;
  }
  text.remove_suffix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), take.count);
  return error == std::errc{} && end == text.data() + text.size() && take.count > 0.0 && take.count <= 100.0;
}

/// Reads "fold 0 of 5" or "folds 0 to 2 of 5".
bool read_folds(const std::vector<std::string_view>& words, Take& take) {
  const bool several = words.size() == 6 && words[0] == "folds" && words[2] == "to" && words[4] == "of";
  if (!several && !(words.size() == 4 && words[0] == "fold" && words[2] == "of")) return false;
  const std::optional<std::int64_t> first = whole(words[1]), last = whole(words[several ? 3 : 1]),
                                    count = whole(words.back());
  if (!first || !last || !count || *count < 2 || *first > *last || *last >= *count) return false;
  take.part = Take::Part::fold;
  take.fold = *first;
  take.last_fold = *last;
  take.folds = *count;
  return true;
}

}  // namespace

std::optional<Take> parse_take(std::string_view text) {
  std::vector<std::string_view> words = words_of(text);
  Take take;
  if (words.size() > 2 && words[0] == "all" && words[1] == "but") {
    take.all_but = true;
    words.erase(words.begin(), words.begin() + 2);
  }
  if (read_folds(words, take)) return take;
  if (words.size() != 2 || (words[0] != "first" && words[0] != "last") || !read_count(words[1], take))
    return std::nullopt;
  take.part = words[0] == "first" ? Take::Part::first : Take::Part::last;
  return take;
}

}  // namespace trainyard::config
