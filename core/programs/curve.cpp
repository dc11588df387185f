#include "core/programs/curve.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>

#include "core/cli/run_state.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

constexpr std::size_t most_points = 1 << 16;
constexpr std::size_t label_width = 10;

/// The dots of a drawing: a braille character has two columns of four dots.
class Dots {
 public:
  Dots(std::size_t columns, std::size_t rows, bool unicode)
      : across_(unicode ? 2 : 1),
        down_(unicode ? 4 : 1),
        columns_(columns),
        cells_(columns * rows, 0),
        letters_(columns * rows, '\0') {}

  std::size_t width() const { return columns_ * across_; }
  std::size_t height() const { return cells_.size() / columns_ * down_; }

  void set(std::size_t x, std::size_t y) {
    constexpr unsigned bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[y / down_ * columns_ + x / across_] |= bits[y % down_][x % across_];
  }

  void letter(std::size_t x, std::size_t y, char letter) {
    letters_[y / down_ * columns_ + x / across_] = letter;
  }
  std::size_t column(std::size_t x) const { return x / across_; }

  std::string row(std::size_t index) const {
    std::string text;
    for (std::size_t i = 0; i < columns_; ++i) {
      const unsigned cell = cells_[index * columns_ + i];
      if (letters_[index * columns_ + i] != '\0')
        text += letters_[index * columns_ + i];
      else if (cell == 0)
        text += ' ';
      else if (across_ == 1)
        text += '*';
      else  // UTF-8 of U+2800 plus the dots
        text += {'\xe2', static_cast<char>(0xa0 | cell >> 6), static_cast<char>(0x80 | (cell & 0x3f))};
    }
    return text;
  }

 private:
  std::size_t across_, down_, columns_;
  std::vector<unsigned> cells_;
  std::vector<char> letters_;
};

/// Maps steps and values to dots.
struct Extent {
  double first = 0.0, last = 0.0, low = 0.0, high = 0.0;

  std::int64_t x(double step, const Dots& dots) const {
    return place((step - first) / (last - first), dots.width());
  }
  std::int64_t y(double value, const Dots& dots) const {
    return place(high > low ? (high / 2 - value / 2) / (high / 2 - low / 2) : 0.5, dots.height());
  }

 private:
  static std::int64_t place(double share, std::size_t count) {
    return static_cast<std::int64_t>(std::llround(share * static_cast<double>(count - 1)));
  }
};

Extent extent_of(const std::vector<Drawn>& curves) {
  Extent extent{.first = std::numeric_limits<double>::infinity(),
                .last = -std::numeric_limits<double>::infinity(),
                .low = std::numeric_limits<double>::infinity(),
                .high = -std::numeric_limits<double>::infinity()};
  for (const Drawn& curve : curves)
    for (const Series::Point& point : curve.series->points()) {
      extent.first = std::min(extent.first, point.step);
      extent.last = std::max(extent.last, point.step);
      extent.low = std::min(extent.low, point.value);
      extent.high = std::max(extent.high, point.value);
    }
  return extent;
}

void draw_line(const Drawn& curve, const Extent& extent, Dots& dots) {
  const std::vector<Series::Point>& points = curve.series->points();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Series::Point& from = points[i == 0 ? 0 : i - 1];
    const std::int64_t x = extent.x(from.step, dots), y = extent.y(from.value, dots);
    const std::int64_t dx = extent.x(points[i].step, dots) - x, dy = extent.y(points[i].value, dots) - y;
    const std::int64_t steps = std::max<std::int64_t>({std::abs(dx), std::abs(dy), 1});
    for (std::int64_t k = 0; k <= steps; ++k)
      dots.set(static_cast<std::size_t>(x + dx * k / steps), static_cast<std::size_t>(y + dy * k / steps));
  }
}

/// Sets letters on a curve, from the last point backwards, since readers look for that one.
void set_letters(const Drawn& curve, const Extent& extent, Dots& dots) {
  const std::vector<Series::Point>& points = curve.series->points();
  std::optional<std::size_t> newest;
  for (std::size_t i = points.size(); i-- > 0;) {
    const auto x = static_cast<std::size_t>(extent.x(points[i].step, dots));
    if (newest && dots.column(x) + curve.gap > *newest) continue;
    newest = dots.column(x);
    dots.letter(x, static_cast<std::size_t>(extent.y(points[i].value, dots)), curve.letter);
  }
}

std::string right_aligned(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

}  // namespace

void Series::add(std::int64_t step, double value) {
  const auto at = static_cast<double>(step);
  while (!points_.empty() && points_.back().step >= at) {
    points_.pop_back();
    in_last_ = each_;
  }
  if (!std::isfinite(value)) return;
  if (!points_.empty() && in_last_ < each_) {
    Point& last = points_.back();
    last.step = at;
    ++in_last_;
    last.value += value / in_last_ - last.value / in_last_;
    return;
  }
  points_.push_back({at, value});
  in_last_ = 1;
  if (points_.size() < most_points) return;
  for (std::size_t i = 0; i + 1 < points_.size(); i += 2)
    points_[i / 2] = {points_[i + 1].step, points_[i].value / 2 + points_[i + 1].value / 2};
  points_.resize(points_.size() / 2);
  each_ *= 2;
  in_last_ = each_;
}

void Series::clear() {
  *this = {};
}

bool terminal_has_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first that is set decides
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    return std::strstr(value, "UTF-8") != nullptr || std::strstr(value, "utf8") != nullptr;
  }
  return false;
}

std::vector<std::string> draw(const Series& series, std::size_t columns, std::size_t rows, bool unicode) {
  return draw(std::vector<Drawn>{{.series = &series}}, columns, rows, unicode);
}

std::vector<std::string> draw(const std::vector<Drawn>& curves, std::size_t columns, std::size_t rows,
                              bool unicode) {
  const Extent extent = extent_of(curves);
  if (!(extent.first < extent.last) || rows < 3 || columns < label_width + 10) return {};
  Dots dots(columns - label_width - 2, rows - 1, unicode);  // the last row shows steps
  for (const Drawn& curve : curves) draw_line(curve, extent, dots);
  for (const Drawn& curve : curves)
    if (curve.letter != '\0') set_letters(curve, extent, dots);

  std::vector<std::string> lines;
  for (std::size_t i = 0; i + 1 < rows; ++i) {
    const std::string label = i == 0          ? lib::metric_text(extent.high)
                              : i + 2 == rows ? lib::metric_text(extent.low)
                                              : "";
    lines.push_back(right_aligned(label, label_width) + (unicode ? " │" : " |") + dots.row(i));
  }
  const std::string from = std::to_string(static_cast<std::int64_t>(extent.first));
  const std::string to = std::to_string(static_cast<std::int64_t>(extent.last));
  lines.push_back(std::string(label_width + 2, ' ') + from +
                  right_aligned(to, columns - label_width - 2 - from.size()));
  return lines;
}

}  // namespace trainyard::cli
