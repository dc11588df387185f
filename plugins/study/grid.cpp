// Every combination of the values of some keys.
#include <trainyard/study.hpp>

#include "search.hpp"

class Grid final : public studies::Search {
 public:
  struct Options : SearchOptions {};
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
    for (const studies::Dimension& each : options_.space) {
      std::vector<studies::Point> longer;
      for (const studies::Point& point : points)
        for (const std::string& value : each.grid()) {
          longer.push_back(point);
          longer.back().emplace_back(each.key, value);
        }
      points = std::move(longer);
      if (points.size() > most)
        throw trainyard::ConfigError("the grid has more than " + std::to_string(most) +
                                     " points: leave out values, or take type = \"random\"");
    }
    begin(options_, std::move(points));
  }

 private:
  static constexpr std::size_t most = 100000;

  Options options_;
};
TRAINYARD_PLUGIN(Grid)
