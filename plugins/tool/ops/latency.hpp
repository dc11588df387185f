// Predicts the time of an operator that was not measured: boosted trees (XGBoost's) over its shape, for each kind of
// operator and pass. What they learn is the logarithm of the time over the multiply-adds of the padded shape, after
// nn-Meter (Zhang et al., MobiSys 2021, section 4), whose forests have the shape alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../../model/trees/booster.hpp"
#include "operator.hpp"

namespace ops {

struct Sample {
  Operator point;
  double seconds = 0.0;
};

/// What operators are predicted by one model: "conv forward", "depthwise training".
std::string family_of(const Operator& point);

/// Returns its multiply-adds, or the elements of its output where it has none, forward.
double work_like(const Operator& point);

/// Shares of predictions within a tenth and so on, of samples that no model has seen.
struct Accuracy {
  std::size_t samples = 0;
  double within_5 = 0.0, within_10 = 0.0, within_15 = 0.0;
  double rmspe = 0.0;            ///< root of the mean squared relative error
  double flops_within_10 = 0.0;  ///< of a line through the multiply-adds, fitted to the same samples
};

/// The model of one family.
class LatencyModel {
 public:
  /// `width`: that of the staircase over output channels, 1 for none; channels are padded to it.
  LatencyModel(const std::vector<Sample>& samples, std::int64_t width, std::uint64_t seed);
  double seconds(const Operator& point) const;
  std::vector<double> seconds(const std::vector<Operator>& points) const;

 private:
  std::int64_t width_;
  double mean_ = 0.0;  ///< of the logarithms that the trees start from
  std::vector<trees::Booster> boosters_;
};

/// Returns how well a model predicts samples that it was not fitted to.
Accuracy accuracy_of(const LatencyModel& model, const std::vector<Sample>& fitted,
                     const std::vector<Sample>& held_out);

/// Returns the samples whose time is off by more than a tenth when a model of the others predicts it (five folds).
std::vector<Operator> hard_points(const std::vector<Sample>& samples, std::int64_t width, std::uint64_t seed);

/// The models of all families.
class Latencies {
 public:
  void fit(const std::vector<Sample>& samples, std::int64_t width, std::uint64_t seed);
  /// Nothing for an operator whose family has no model.
  std::optional<double> seconds(const Operator& point) const;

 private:
  std::map<std::string, LatencyModel> models_;
};

}  // namespace ops
