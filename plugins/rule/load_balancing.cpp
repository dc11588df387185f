// GPUs that are used unlike each other: the Jensen-Shannon distance of two histograms of their use, at most
// sqrt(ln 2) = 0.8326.
#include <array>
#include <numeric>

#include "memory.hpp"
#include "samples.hpp"

namespace {

using namespace trainyard;
using namespace rules;

/// Bins of two points of percent; 100 belongs to the last.
constexpr std::size_t bins = 50;
using Histogram = std::vector<double>;

/// Divergence of p from q in nats; both are counts, and q is positive where p is.
double divergence(const Histogram& p, double p_sum, const Histogram& q, double q_sum) {
  double sum = 0.0;
  for (std::size_t i = 0; i < bins; ++i)
    if (p[i] > 0.0) sum += p[i] / p_sum * std::log(p[i] / p_sum / (q[i] / q_sum));
  return sum;
}

double distance(const Histogram& a, const Histogram& b) {
  const double a_sum = std::accumulate(a.begin(), a.end(), 0.0);
  const double b_sum = std::accumulate(b.begin(), b.end(), 0.0);
  Histogram middle(bins);
  for (std::size_t i = 0; i < bins; ++i) middle[i] = a[i] / a_sum + b[i] / b_sum;
  const double twice = divergence(a, a_sum, middle, 2.0) + divergence(b, b_sum, middle, 2.0);
  return std::sqrt(std::max(0.0, twice / 2.0));
}

class LoadBalancing final : public Rule {
 public:
  struct Options {
    double threshold = 0.5;
    std::int64_t patience = 1000;
  };
  static void describe(Manifest<Options>& m) {
    m.name("load_balancing").version("1.0.0").summary("Two GPUs are used very differently.");
    m.option("threshold", &Options::threshold, "highest Jensen-Shannon distance of two GPUs")
        .range(0.0, 0.8326);
    m.option("patience", &Options::patience, "samples before it looks for the first time").min(1);
  }
  explicit LoadBalancing(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{"^system/gpu$", true}}; }
  std::vector<Mode> modes() const override { return {Mode::global}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    const std::vector<double> gpus = samples(now, "system/gpu");
    ++samples_;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      Histogram& histogram = histograms_.try_emplace(std::to_string(i), bins).first->second;
      if (std::isfinite(gpus[i]))
        ++histogram[static_cast<std::size_t>(std::clamp(gpus[i] / 2.0, 0.0, bins - 1.0))];
    }
    if (samples_ < options_.patience) return std::nullopt;
    Offenders offenders;
    for (auto a = histograms_.begin(); a != histograms_.end(); ++a)
      for (auto b = std::next(a); b != histograms_.end(); ++b) {
        const double apart = distance(a->second, b->second);
        if (!(apart > options_.threshold)) continue;
        offenders.add("system/gpu/" + b->first, apart, apart,
                      "its use and that of GPU " + a->first + " are " + five_digits(apart) +
                          " apart (Jensen-Shannon), expected at most " + five_digits(options_.threshold));
      }
    return offenders.finding({{"threshold", options_.threshold}});
  }

  void remember(StateWriter& state) const override {
    state.scalar("samples", samples_);
    rules::remember(state, "histograms", histograms_);
  }
  void recall(const StateReader& state) override {
    samples_ = state.integer("samples");
    histograms_ = recall_series<Histogram>(state, "histograms");
  }

 private:
  Options options_;
  std::int64_t samples_ = 0;
  ByTensor<Histogram> histograms_;  ///< by number of the GPU
};

}  // namespace

TRAINYARD_PLUGIN(LoadBalancing)
