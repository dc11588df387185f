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
    std::vector<std::size_t> numbers(static_cast<std::size_t>(given_options_.trials));
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    rounds_.emplace(std::move(numbers), budgets());
  }

 private:
  std::vector<studies::Stretch> following() override { return rounds_->next(histories()); }
  std::vector<studies::Stretch> left() const override { return rounds_->left(); }

  Options given_options_;
  std::optional<studies::FixedWidthRounds> rounds_;
};
TRAINYARD_PLUGIN(ModifiedSs)
