// Modified sub-sampling of Huang et al. (MLSys 2022), by the code of Vega, whose rounds have fixed widths: rounds.hpp.
#include <trainyard/study.hpp>

#include "observed.hpp"

class ModifiedSs final : public studies::Observed {
 public:
  struct Options : ObservedOptions {
    int trials = 0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("modified_ss")
        .version("1.0.0")
        .summary(
            "Rounds of fixed widths: those nearest to the leader go on, chosen among all, so that one that "
            "was left out may return.");
    describe_observed(m);
    m.option("trials", &Options::trials, "how many configurations")
        .required()
        .min(2)
        .also({"samples", "n", "num_samples"});
  }
  explicit ModifiedSs(const Options& options) : given_options_(options) {}

  void open(const Resolve& resolve) override {
    begin_observed(given_options_, resolve);
    rounds_ = std::make_unique<studies::FixedWidthRounds>(first(given_options_.trials), budgets());
  }

 private:
  Options given_options_;
};
TRAINYARD_PLUGIN(ModifiedSs)
