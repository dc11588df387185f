// A field of a row of a table: a text, a number or a gap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace csv {

/// A number, finite or not; nothing where the text is none.
std::optional<double> number(std::string_view text);

class Cell {
 public:
  void set_gap();
  void set_number(double value);
  /// Returns the text to fill in.
  std::string& set_text() {
    kind_ = Kind::text;
    return text_;
  }

  bool is_gap() const { return kind_ == Kind::gap; }
  bool is_number() const { return kind_ == Kind::number; }

  /// That of a text, too, which may say one.
  std::optional<double> number() const {
    if (is_number()) return number_;
    return is_gap() ? std::nullopt : csv::number(text_);
  }
  /// Of a number the shortest text that says it; of a gap none.
  const std::string& text() const {
    if (is_number() && text_.empty()) print();
    return text_;
  }

 private:
  enum class Kind : std::uint8_t { text, number, gap };
  void print() const;

  Kind kind_ = Kind::gap;
  double number_ = 0.0;
  mutable std::string text_;  ///< of a number: empty until it is asked for
};

std::string printed(double number);

/// Which cells are gaps, where some texts stand for one.
class Gaps {
 public:
  explicit Gaps(const std::vector<std::string>& texts);
  bool operator()(const Cell& cell) const;

 private:
  const std::vector<std::string>& texts_;
  std::vector<double> numbers_;  ///< that some of them say
};

}  // namespace csv
