// Text files of a graph, line by line.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../files.hpp"
#include "../parsed.hpp"

namespace graph {

/// Lines with fields; blank ones, and comments that begin with #, do not count. What is wrong is told with
/// the place.
class Lines {
 public:
  Lines(const std::string& path, char separator) : file_(path), separator_(separator) {}

  bool next() {
    do {
      if (!file_.line(line_)) return false;
      ++number_;
    } while (line_.empty() || line_.front() == '#');
    datasets::split(line_, separator_, fields_);
    return true;
  }
  const std::vector<std::string_view>& fields() const { return fields_; }
  void expect_fields(std::size_t count, const char* which) {
    if (fields_.size() != count)
      fail("found " + std::to_string(fields_.size()) + " fields, expected " + std::to_string(count) + ": " +
           which);
  }

  /// The whole text as an integer in [0, bound).
  std::int64_t index(std::string_view text, std::int64_t bound, const char* what) {
    const auto value = datasets::parsed<std::int64_t>(text);
    if (!value || *value < 0 || *value >= bound)
      fail(std::string(what) + " is " + datasets::shown(text) + ", expected " +
           (bound > 0 ? "0 to " + std::to_string(bound - 1) : "none"));
    return *value;
  }
  /// A label, or -1 for none: "-1", "nan" or an empty text.
  std::int64_t label(std::string_view text, std::int64_t classes) {
    if (text == "-1" || text == "nan" || text.empty()) return -1;
    if (text.ends_with(".0")) text.remove_suffix(2);
    return index(text, classes > 0 ? classes : most_classes, "the label");
  }
  float feature(std::string_view text) {
    const auto value = datasets::parsed<float>(text);
    if (!value || !std::isfinite(*value)) fail(datasets::shown(text) + " is no finite number");
    return *value;
  }

  [[noreturn]] void fail(const std::string& message) {
    file_.check_rest();  // of a damaged file that is told
    throw trainyard::DataError(file_.path() + ":" + std::to_string(number_) + ": " + message);
  }

  static constexpr std::int64_t most_classes = 1 << 24;

 private:
  datasets::files::Reader file_;
  const char separator_;
  std::string line_;
  std::vector<std::string_view> fields_;
  std::int64_t number_ = 0;
};

}  // namespace graph
