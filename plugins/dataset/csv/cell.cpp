#include "cell.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace csv {

std::optional<double> number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  return error == std::errc{} ? value : std::numeric_limits<double>::infinity();
}

std::string printed(double number) {
  constexpr double exact = 9007199254740992.0;  // 2^53
  if (number == std::floor(number) && std::abs(number) <= exact)
    return std::to_string(static_cast<std::int64_t>(number));
  std::array<char, 40> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), end};
}

void Cell::set_gap() {
  kind_ = Kind::gap;
  text_.clear();
}

void Cell::set_number(double value) {
  kind_ = Kind::number;
  number_ = value;
  text_.clear();
}

void Cell::print() const {
  text_ = printed(number_);
}

Gaps::Gaps(const std::vector<std::string>& texts) : texts_(texts) {
  for (const std::string& text : texts)
    if (const std::optional<double> value = number(text); value && std::isfinite(*value))
      numbers_.push_back(*value);
}

bool Gaps::operator()(const Cell& cell) const {
  if (cell.is_gap()) return true;
  if (cell.is_number()) return std::find(numbers_.begin(), numbers_.end(), *cell.number()) != numbers_.end();
  return std::find(texts_.begin(), texts_.end(), cell.text()) != texts_.end();
}

}  // namespace csv
