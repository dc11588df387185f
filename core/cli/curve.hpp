// Numbers over steps, drawn in text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::cli {

/// Values by rising step, in bounded memory: neighbours of a long run are merged into their mean.
class Series {
 public:
  struct Point {
    double step = 0.0, value = 0.0;
  };

  /// A step that is there already, or one before it, replaces everything from there on: a run went back to a
  /// checkpoint. What is not finite is left out.
  void add(std::int64_t step, double value);
  void clear();
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
  double each_ = 1;     // values that a point stands for
  double in_last_ = 1;  // that the last one has so far
};

/// A curve among others in one drawing.
struct Drawn {
  const Series* series;
  char letter = '\0';   ///< is set upon it here and there, to tell it from others; 0: none
  std::size_t gap = 1;  ///< columns between two letters, at least
};

/// As the environment says it.
bool terminal_has_unicode();

/// `rows` lines of `columns` characters: the values between their lowest and highest, labelled, over their
/// steps. Braille dots, or '*' where the terminal has no UTF-8. Empty where there is nothing to draw, or no
/// room.
std::vector<std::string> draw(const Series& series, std::size_t columns, std::size_t rows, bool unicode);
/// The same for several over the steps of all of them; what is drawn later lies on top.
std::vector<std::string> draw(const std::vector<Drawn>& curves, std::size_t columns, std::size_t rows,
                              bool unicode);

}  // namespace trainyard::cli
