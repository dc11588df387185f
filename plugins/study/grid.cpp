// Every combination of the values of some keys.
#include <trainyard/study.hpp>

#include "search.hpp"

/// A key with the values that stand in a grid.
struct GridDimension : studies::Dimension {
  int points = 5;

  static void describe(trainyard::Fields<GridDimension>& m) {
    Dimension::describe(m);
    m.option("points", &GridDimension::points, "how many values from low to high").min(2);
  }

  std::vector<std::string> texts() const {
    std::vector<std::string> all = choices;
    for (const double value : values) all.push_back(studies::key_text(value) + unit);
    const studies::Knob range = knob();
    for (int i = 0; is_range() && i < points; ++i) {
      std::string next = text(range.value(static_cast<double>(i) / (points - 1)));
      if (all.empty() || all.back() != next) all.push_back(std::move(next));
    }
    return all;
  }
};

class Grid final : public studies::Search {
 public:
  struct Options {
    std::vector<GridDimension> space;
    int seeds = 1;
    std::optional<trainyard::Duration> budget;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("grid").version("1.0.0").summary(
        "Every combination of the values of some keys, each over some seeds.");
    m.option("space", &Options::space, "what is tried: keys and their values").required();
    m.option("seeds", &Options::seeds, "runs of each combination").min(1);
    m.option("budget", &Options::budget, "trainer.max_duration; the run file's without one");
  }
  explicit Grid(const Options& options) : options_(options) {}

  void open(const Resolve&) override {
    studies::check(options_.space);
    std::vector<studies::Point> points{{}};
    for (const GridDimension& each : options_.space) {
      std::vector<studies::Point> longer;
      for (const studies::Point& point : points)
        for (const std::string& value : each.texts()) {
          longer.push_back(point);
          longer.back().emplace_back(each.key, value);
        }
      points = std::move(longer);
      if (points.size() > most)
        throw trainyard::ConfigError("the grid has more than " + std::to_string(most) +
                                     " points: leave out values, or take type = \"random\"");
    }
    begin({{options_.space.begin(), options_.space.end()}, options_.seeds, options_.budget},
          std::move(points));
  }

 private:
  static constexpr std::size_t most = 100000;

  Options options_;
};
TRAINYARD_PLUGIN(Grid)
