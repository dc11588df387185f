// How sparse a matrix is at a step of a training in which ever more of it is taken away (Zhu and Gupta, "To prune, or not
// to prune", 2017, section 3: the cubic profile).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>
#include <trainyard/manifest.hpp>

namespace transforms {

using namespace trainyard;

enum class Profile : std::uint8_t { cubic, linear, exponential, at_once };

struct Annealing {
  Duration begin{10.0, Duration::Unit::percent};
  Duration end{70.0, Duration::Unit::percent};
  std::int64_t every = 20;
  Profile profile = Profile::cubic;
  double initial = 0.0;

  static void describe(Fields<Annealing>& m);
};

/// An annealing in steps, towards the share of zeros `final`.
class Annealed {
 public:
  /// Throws ConfigError where the length of the run does not tell where it begins or ends.
  Annealed(const Annealing& options, double final, const RunScale& scale)
      : options_(options),
        final_(final),
        begin_(steps("begin", options.begin, scale)),
        end_(std::max(begin_, steps("end", options.end, scale))) {}

  /// Returns the share of zeros after `step` updates. It changes every `every` steps from the begin on, and at the end.
  double sparsity(std::int64_t step) const {
    if (step >= end_) return final_;
    if (step < begin_) return options_.initial;
    const std::int64_t since = (step - begin_) / options_.every * options_.every;
    return at(static_cast<double>(since) / static_cast<double>(end_ - begin_));
  }

 private:
  double at(double done) const {
    const double first = options_.initial;
    switch (options_.profile) {
      case Profile::cubic: return final_ + (first - final_) * std::pow(1.0 - done, 3);
      case Profile::linear: return first + (final_ - first) * done;
      case Profile::exponential: return 1.0 - (1.0 - first) * std::pow((1.0 - final_) / (1.0 - first), done);
      case Profile::at_once: return final_;
    }
    return final_;
  }

  static std::int64_t steps(const std::string& option, const Duration& duration, const RunScale& scale) {
    if (const auto found = duration.steps(scale)) return *found;
    throw ConfigError("sparse." + option + " = \"" + duration.text() +
                      "\" cannot be counted in steps in this run: write it in ep, ba or sp");
  }

  Annealing options_;
  double final_;
  std::int64_t begin_, end_;
};

inline void Annealing::describe(Fields<Annealing>& m) {
  m.option("begin", &Annealing::begin, "when the first elements are taken away");
  m.option("end", &Annealing::end, "from when on as many are left as the target allows, and always the same");
  m.option("every", &Annealing::every, "steps between two times that some are taken away").range(1, 1 << 30);
  m.option("profile", &Annealing::profile, "how the share of zeros grows in between; at_once: at the begin");
  m.option("initial", &Annealing::initial, "share of zeros before").min(0.0).below(1.0);
}

}  // namespace transforms

template <>
struct trainyard::Words<transforms::Profile> {
  static constexpr std::string_view words[] = {"cubic", "linear", "exponential", "at_once"};
};
