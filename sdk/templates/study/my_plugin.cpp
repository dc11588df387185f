#include <trainyard/study.hpp>
class MyPlugin final : public trainyard::Study {
 public:
  struct Options {
    std::int64_t seeds = 3;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("The mean of a run over seeds.");
    m.option("seeds", &Options::seeds, "how many").range(1, 1e6);
  }
  explicit MyPlugin(const Options& options) : seeds_(options.seeds) {}
  std::vector<trainyard::StudyStage> stages() const override { return {{"seeds", seeds_, {}, {}}}; }
  std::optional<trainyard::StudyTrial> next(int) override {
    if (given_ == seeds_) return {};
    trainyard::StudyTrial trial{std::to_string(++given_), common.run, common.set, {}, {}, common.metric, ""};
    trial.set.push_back("run.seed=" + trial.name);
    return trial;
  }
  void report(const trainyard::TrialOutcome& trial) override {
    if (trial.metrics.contains(common.metric)) sum_ += trial.metrics.at(common.metric), ++told_;
  }
  trainyard::StudyResult result() const override {
    return {{{"means", {common.metric}, {{{std::to_string(sum_ / told_), sum_ / told_, {}}}}}}, {}, {}};
  }

 private:
  std::int64_t seeds_, given_ = 0;
  double sum_ = 0.0, told_ = 0.0;
};
TRAINYARD_PLUGIN(MyPlugin)
