// Random search (Bergstra and Bengio, 2012): each key drawn by itself, so that few trials try many values of each. What
// a trial has is a function of the seed, its number and the key: the order in which trials finish changes nothing, and
// more trials go on where fewer ended.
#include <trainyard/study.hpp>

#include "search.hpp"

class Random final : public studies::Search {
 public:
  struct Options : SearchOptions {
    int trials = 0;
    std::int64_t seed = 0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("random").version("1.0.0").summary(
        "Values drawn at random from ranges and choices, each trial in full.");
    m.option("space", &Options::space, "what is drawn: keys and their ranges or choices").required();
    m.option("trials", &Options::trials, "how many configurations")
        .required()
        .min(1)
        .also({"samples", "n", "num_samples"});
    m.option("seed", &Options::seed, "of what is drawn");
    m.option("seeds", &Options::seeds, "runs of each configuration").min(1);
    m.option("budget", &Options::budget, "trainer.max_duration; the run file's without one");
  }
  explicit Random(const Options& options) : options_(options) {}

  void open(const Resolve&) override {
    studies::check(options_.space);
    std::vector<studies::Point> points;
    for (int number = 0; number < options_.trials; ++number)
      points.push_back(studies::draw(options_.space, static_cast<std::uint64_t>(options_.seed),
                                     static_cast<std::uint64_t>(number)));
    begin(options_, std::move(points));
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(Random)
