// Sub-sampling: Huang, Li, Ye, Li and Zhang, "An Efficient and Effective Sub-Sampling Method for Hyper-parameter
// Optimization" (MLSys 2022): rounds.hpp, subsampling.hpp.
#include <trainyard/study.hpp>

#include "observed.hpp"

class Ss final : public studies::Observed {
 public:
  struct Options : ObservedOptions {
    int trials = 0;
    studies::Comparison compare = studies::Comparison::window_mean;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("ss").version("1.0.0").summary(
        "Sub-sampling: who is not worse than the worst stretch of the one that was trained most goes on; "
        "nobody is out for good.");
    describe_observed(m);
    m.option("trials", &Options::trials, "how many configurations")
        .required()
        .min(2)
        .also({"samples", "n", "num_samples"});
    m.option("compare", &Options::compare,
             "window_mean: the mean of all that was observed of one with as many observations in a row of "
             "the leader; "
             "same_rung: the last observation with the leader's at the same place");
  }
  explicit Ss(const Options& options) : given_options_(options) {}

  void open(const Resolve& resolve) override {
    begin_observed(given_options_, resolve);
    rounds_ = std::make_unique<studies::SubSamplingRounds>(first(given_options_.trials), budgets(),
                                                           given_options_.compare, random());
  }

 private:
  Options given_options_;
};
TRAINYARD_PLUGIN(Ss)
