// Findings: mistakes in a run, with the place in the file and how to mend them. All checks of a run add to
// one report, so that a user can mend all of them at once.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <trainyard/value.hpp>

namespace trainyard::config {

struct Finding {
  enum class Severity : std::uint8_t { error, warning };

  Severity severity = Severity::error;
  std::string code;     ///< "E104"
  Origin at;            ///< line 0: the file as a whole; no file: the run as a whole
  int length = 0;       ///< length of the caret in columns
  std::string message;  ///< what was found and what was expected
  std::string hint;     ///< how to mend it; may be empty
};

/// A line of a file as the report shows it.
struct SourceLine {
  std::string text;
  std::vector<std::size_t> marks;  ///< byte offsets of every n-th column, as lines may be long
};

/// One report. A finding that repeats another (same code, place and message) is kept once.
class Findings {
 public:
  void error(std::string code, const Origin& at, std::string message, std::string hint = {});
  void warning(std::string code, const Origin& at, std::string message, std::string hint = {});

  /// Adds the text of a file, for the lines that the report shows and the lengths of carets; findings are
  /// sorted in the order in which files were added.
  void add_source(const std::string& file, const std::string& text);

  bool failed() const { return errors_ > 0; }
  bool empty() const { return findings_.empty(); }
  std::size_t errors() const { return errors_; }
  /// Returns whether a finding exists at a place.
  bool mentions(const Origin& at) const;
  /// Returns the findings sorted by place.
  std::vector<Finding> list() const;

  /// Returns one block per finding: FILE:LINE:COLUMN: CODE MESSAGE, the source line, a caret with the hint;
  /// ends with a newline unless empty.
  std::string text(bool color = false) const;
  /// {"errors": N, "warnings": N, "findings": [{code, severity, file, line, column, length, message, hint}]}
  std::string json() const;

 private:
  struct Source {
    std::size_t order;
    std::vector<SourceLine> lines;
  };
  using Key = std::tuple<std::string, int, int, std::string, std::string>;  ///< place, code, message

  void add(Finding finding);
  const SourceLine* line_of(const Origin& at) const;
  std::string block(const Finding& finding, bool color) const;

  std::vector<Finding> findings_;
  std::set<Key> keys_;  ///< keys of findings_
  std::map<std::string, Source, std::less<>> sources_;
  std::size_t errors_ = 0;
};

}  // namespace trainyard::config
