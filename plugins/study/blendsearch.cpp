// BlendSearch: Wang, Wu, Huang and Saied, "Economical Hyperparameter Optimization With Blended Search Strategy", ICLR 2021:
// local searches by short steps, as those of cfo, which begin at a cheap point and where a global search found something
// good (blend_search.hpp).
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/study.hpp>

#include "blend_search.hpp"
#include "guided.hpp"

enum class Cost : std::uint8_t { wall, cpu, steps };
template <>
struct trainyard::Words<Cost> {
  static constexpr std::string_view words[] = {"wall", "cpu", "steps"};
};

class Blendsearch final : public studies::Guided {
 public:
  struct Options : GuidedOptions {
    Cost cost = Cost::wall;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("blendsearch")
        .version("1.0.0")
        .summary(
            "A global search, and local ones from where it found something good, by what each gains for its "
            "cost.");
    describe_guided(m);
    m.option(
        "cost", &Options::cost,
        "what trials cost: seconds, seconds of processors, or steps, of which two studies have the same; "
        "seconds of a trial that was interrupted are those of its last process");
  }
  explicit Blendsearch(const Options& options) : Guided(options), cost_(options.cost) {}

 private:
  void begin_at(std::vector<studies::Knob> knobs, studies::Values start, std::uint64_t seed) override {
    search_.emplace(std::move(knobs), std::move(start), seed);
  }
  /// The cost that is left is that of as many trials as are left, as they were up to now.
  std::optional<studies::Values> propose(int running) override {
    if (running > 0 && reported_ == 0) return std::nullopt;  // all others go by the first one
    return search_->next(running, reported_ == 0 ? 0.0 : spent_ / reported_ * left());
  }
  void learn(const studies::Values& values, double error, const trainyard::TrialOutcome& outcome) override {
    const double cost = cost_ == Cost::wall  ? outcome.seconds
                        : cost_ == Cost::cpu ? outcome.cpu_seconds
                                             : static_cast<double>(outcome.steps);
    spent_ += cost;
    ++reported_;
    search_->report(values, error, cost);
  }

  Cost cost_;
  double spent_ = 0.0;
  int reported_ = 0;
  std::optional<studies::BlendSearch> search_;
};
TRAINYARD_PLUGIN(Blendsearch)
