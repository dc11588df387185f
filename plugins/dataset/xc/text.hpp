// Files of the Extreme Classification Repository (Bhatia et al., 2016): text, a header "samples features
// labels", then a line a sample, "3,17 5:0.25 9:1": its labels, then its features with their values, all
// counted from 0. A line without labels begins with a blank or with a feature; an empty one is a sample
// without either.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "../files.hpp"
#include "../parsed.hpp"

namespace datasets {

using namespace trainyard;

class XcText {
 public:
  struct Entry {
    std::int32_t feature;
    float value;
  };

  /// Reads the header. What is wrong in a file throws DataError that names file, line and column.
  explicit XcText(const std::string& path) : file_(path) {
    if (!next_line()) file_.fail("the file is empty: its first line names samples, features and labels");
    std::string_view rest = line_;
    samples_ = header_number(rest, "samples", std::numeric_limits<std::int64_t>::max());
    features_ = header_number(rest, "features", std::numeric_limits<std::int32_t>::max());
    classes_ = header_number(rest, "labels", std::numeric_limits<std::int32_t>::max());
    if (const std::string_view more = next_word(rest); !more.empty())
      fail(more, "the first line names samples, features and labels, and here is " + shown(more));
    if (samples_ == 0) fail(line_, "the file has no sample");
  }

  std::int64_t samples() const { return samples_; }
  std::int64_t features() const { return features_; }
  std::int64_t classes() const { return classes_; }

  /// Reads a sample; false after the last.
  bool next() {
    if (read_ == samples_) return check_end();
    if (!next_line())
      file_.fail("the first line names " + std::to_string(samples_) + " samples, and the file ends after " +
                 std::to_string(read_) + ": fetch it again, or mend the first line");
    ++read_;
    read_sample();
    return true;
  }
  /// Of the sample that was read: ascending, each once.
  const std::vector<std::int32_t>& labels() const { return labels_; }
  const std::vector<Entry>& entries() const { return entries_; }

  /// Of the sample that was read.
  [[noreturn]] void fail(const std::string& message) {
    file_.check_rest();
    throw DataError(file_.path() + ":" + std::to_string(number_) + ": " + message);
  }

 private:
  static constexpr std::string_view blanks = " \t";

  /// `part` is where in the line the mistake is.
  [[noreturn]] void fail(std::string_view part, const std::string& message) {
    file_.check_rest();
    throw DataError(file_.path() + ":" + std::to_string(number_) + ":" +
                    std::to_string(part.data() - line_.data() + 1) + ": " + message);
  }

  bool next_line() {
    ++number_;
    return file_.line(line_);
  }

  /// Cuts the first word off.
  static std::string_view next_word(std::string_view& rest) {
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    const std::string_view word = rest.substr(0, rest.find_first_of(blanks));
    rest.remove_prefix(word.size());
    return word;
  }

  std::int64_t header_number(std::string_view& rest, const char* what, std::int64_t most) {
    const std::string_view word = next_word(rest);
    const std::optional<std::int64_t> number = parsed<std::int64_t>(word);
    if (number && *number >= 0 && *number <= most) return *number;
    fail(word, "the first line names samples, features and labels, and " + shown(word) + " is no number of " +
                   what + " from 0 to " + std::to_string(most));
  }

  /// Only blank lines may follow.
  bool check_end() {
    while (next_line())
      if (line_.find_first_not_of(blanks) != std::string::npos)
        fail("the first line names " + std::to_string(samples_) + " samples, and here is one more");
    return false;
  }

  void read_sample() {
    labels_.clear();
    entries_.clear();
    std::string_view rest = line_;
    std::string_view word = next_word(rest);
    const bool labelled = word.data() == line_.data() && word.find(':') == std::string_view::npos;
    if (labelled && !word.empty()) {
      read_labels(word);
      word = next_word(rest);
    }
    for (; !word.empty(); word = next_word(rest)) read_entry(word);
    sort_once(labels_, "label", [](std::int32_t label) { return label; });
    sort_once(entries_, "feature", [](const Entry& entry) { return entry.feature; });
  }

  void read_labels(std::string_view list) {
    for (;;) {
      const std::string_view text = list.substr(0, list.find(','));
      labels_.push_back(index(text, "label", classes_));
      if (text.size() == list.size()) return;
      list.remove_prefix(text.size() + 1);
    }
  }

  void read_entry(std::string_view word) {
    const std::size_t colon = word.find(':');
    if (colon == std::string_view::npos)
      fail(word, shown(word) + " is no feature with its value, as 5:0.25 is");
    const std::int32_t feature = index(word.substr(0, colon), "feature", features_);
    const std::string_view text = word.substr(colon + 1);
    const std::optional<double> value = parsed<double>(text);
    if (!value || !(std::abs(*value) <= std::numeric_limits<float>::max()))
      fail(text, shown(text) + ", the value of feature " + std::to_string(feature) +
                     ", is no finite number of single precision");
    entries_.push_back({feature, static_cast<float>(*value)});
  }

  std::int32_t index(std::string_view text, const std::string& what, std::int64_t count) {
    const std::optional<std::int64_t> number = parsed<std::int64_t>(text);
    if (!number) fail(text, shown(text) + " is no number of a " + what);
    if (*number < 0 || *number >= count)
      fail(text, what + " " + std::to_string(*number) + " is out of range: the first line names " +
                     std::to_string(count) + " " + what + "s, which count from 0");
    return static_cast<std::int32_t>(*number);
  }

  /// Most files are in order; two of one number are a mistake, of which nobody knows the right one.
  template <class Element, class Number>
  void sort_once(std::vector<Element>& elements, const std::string& what, Number&& number) {
    const auto less = [&](const Element& a, const Element& b) { return number(a) < number(b); };
    if (!std::is_sorted(elements.begin(), elements.end(), less))
      std::sort(elements.begin(), elements.end(), less);
    const auto twice = std::adjacent_find(elements.begin(), elements.end(),
                                          [&](const Element& a, const Element& b) { return !less(a, b); });
    if (twice != elements.end())
      fail(what + " " + std::to_string(number(*twice)) + " stands there twice: drop one of the two");
  }

  files::Reader file_;
  std::int64_t samples_ = 0, features_ = 0, classes_ = 0;
  std::int64_t read_ = 0;    ///< samples so far
  std::int64_t number_ = 0;  ///< of the line
  std::string line_;
  std::vector<std::int32_t> labels_;
  std::vector<Entry> entries_;
};

}  // namespace datasets
