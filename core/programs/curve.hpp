// Draws numbers over steps in text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::cli {

/// Values by rising step, in bounded memory: neighbours in a long run are merged into their mean.
class Series {
 public:
  struct Point {
    double step = 0.0, value = 0.0;
  };

  /// Adds a value. A step that is not after the last one replaces everything from there on, as the run went
  /// back to a checkpoint. Values that are not finite are skipped.
  void add(std::int64_t step, double value);
  void clear();
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
  double each_ = 1;     // values merged into each point
  double in_last_ = 1;  // values merged into the last point so far
};

/// A curve among others in one drawing.
struct Drawn {
  const Series* series;
  char letter = '\0';   ///< drawn on the curve now and then, to identify it; 0: none
  std::size_t gap = 1;  ///< least number of columns between two letters
};

/// Returns whether the locale in the environment uses UTF-8.
bool terminal_has_unicode();

/// Draws `rows` lines of `columns` characters: the values between their lowest and highest, labelled, over
/// their steps. Uses braille dots, or '*' where the terminal has no UTF-8. Returns nothing if there is
/// nothing to draw, or no room.
std::vector<std::string> draw(const Series& series, std::size_t columns, std::size_t rows, bool unicode);
/// Draws several curves over the steps of all of them; later ones lie on top.
std::vector<std::string> draw(const std::vector<Drawn>& curves, std::size_t columns, std::size_t rows,
                              bool unicode);

}  // namespace trainyard::cli
