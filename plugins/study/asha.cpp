// Asynchronous successive halving: Li et al., A System for Massively Parallel Hyperparameter Tuning (MLSys 2020),
// algorithm 2. A free place takes the best that can go on from the highest rung where there is one, and otherwise a new
// configuration; nothing waits for a rung to fill. Rung k trains min_budget * eta^(stop_rate + k).
#include <set>

#include <trainyard/study.hpp>

#include "rungs.hpp"

class Asha final : public studies::Rungs {
 public:
  struct Options : RungOptions {
    int trials = 0;
    int stop_rate = 0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("asha").version("1.0.0").summary(
        "Asynchronous successive halving: many short trials, of which the best go on as places become free.");
    describe_rungs(m);
    m.option("trials", &Options::trials, "how many configurations")
        .required()
        .min(1)
        .also({"samples", "n", "num_samples"});
    m.option("stop_rate", &Options::stop_rate, "rungs that are left out at the bottom, s in the paper")
        .min(0);
  }
  explicit Asha(const Options& options) : given_options_(options) {}

  void open(const Resolve& resolve) override {
    begin(given_options_, resolve);
    const int top = halvings() - given_options_.stop_rate;
    if (top < 0)
      throw trainyard::ConfigError("stop_rate = " + std::to_string(given_options_.stop_rate) +
                                   " leaves no rung: from min_budget to max_budget there are " +
                                   std::to_string(halvings() + 1));
    rungs_.resize(static_cast<std::size_t>(top) + 1);
  }

  std::vector<trainyard::StudyStage> stages() const override {
    std::vector<trainyard::StudyStage> all;
    std::size_t expected = static_cast<std::size_t>(given_options_.trials);
    for (std::size_t k = 0; k < rungs_.size(); ++k) {
      std::optional<trainyard::Duration> from;
      if (k > 0) from = resource(k - 1);
      all.push_back({"rung " + std::to_string(k),
                     static_cast<std::int64_t>(std::max(expected, rungs_[k].given)), from, resource(k)});
      expected /= static_cast<std::size_t>(given_options_.eta);
    }
    return all;
  }

  std::optional<trainyard::StudyTrial> next(int /*running*/) override {
    for (std::size_t k = rungs_.size() - 1; k-- > 0;) {
      Rung& rung = rungs_[k];
      for (const Ranked& place :
           top(rung.places, rung.places.size() / static_cast<std::size_t>(given_options_.eta)))
        if (rung.promoted.insert(place.number).second) return give(place.number, k + 1);
    }
    if (drawn_ == static_cast<std::size_t>(given_options_.trials)) return std::nullopt;
    return give(drawn_++, 0);
  }

 private:
  struct Rung {
    std::vector<Ranked> places;      ///< of those that came to its end
    std::set<std::size_t> promoted;  ///< numbers of those that went on
    std::size_t given = 0;
  };

  trainyard::Duration resource(std::size_t k) const {
    return budget(options().min_budget->count *
                  std::pow(given_options_.eta, static_cast<double>(k) + given_options_.stop_rate));
  }

  trainyard::StudyTrial give(std::size_t number, std::size_t k) {
    ++rungs_[k].given;
    at_[number] = k;
    return trial(number, resource(k));
  }

  void over(std::size_t number, const Ranked& place) override {
    rungs_[at_.at(number)].places.push_back(place);
  }

  Options given_options_;
  std::vector<Rung> rungs_;
  std::map<std::size_t, std::size_t> at_;  ///< the rung that a configuration is in
  std::size_t drawn_ = 0;
};
TRAINYARD_PLUGIN(Asha)
