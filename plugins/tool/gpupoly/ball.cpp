#include "ball.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <ATen/ATen.h>

#include <trainyard/error.hpp>

namespace gpupoly {
namespace {

using trainyard::ConfigError;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// One an input.
std::vector<double> spread(const char* name, const std::vector<double>& given, double fallback,
                           const std::vector<std::int64_t>& shape) {
  std::size_t size = 1;
  for (const std::int64_t dim : shape) size *= static_cast<std::size_t>(dim);
  const auto channels = static_cast<std::size_t>(shape.front());
  if (given.empty()) return std::vector<double>(size, fallback);
  if (given.size() != 1 && given.size() != channels && given.size() != size)
    throw ConfigError(std::string(name) + " has " + std::to_string(given.size()) +
                      " numbers, needs 1, one a channel (" + std::to_string(channels) +
                      ") or one an input (" + std::to_string(size) + ")");
  std::vector<double> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = given[i * given.size() / size];
  return all;
}

}  // namespace

Ball::Ball(double eps, const std::vector<double>& mean, const std::vector<double>& std,
           const std::vector<double>& clip, const std::vector<std::int64_t>& shape) {
  if (!clip.empty() && (clip.size() != 2 || !(clip[0] < clip[1])))
    throw ConfigError("clip is the smallest and the largest input that there is, or empty");
  const std::vector<double> means = spread("mean", mean, 0.0, shape),
                            deviations = spread("std", std, 1.0, shape);
  for (std::size_t i = 0; i < means.size(); ++i) {
    if (!(deviations[i] > 0.0)) throw ConfigError("std has to be above 0");
    radius_.push_back(std::nextafter(eps / deviations[i], infinity));
    const auto normal = [&](std::size_t end) { return (clip[end] - means[i]) / deviations[i]; };
    lowest_.push_back(clip.empty() ? -infinity : normal(0));
    highest_.push_back(clip.empty() ? infinity : normal(1));
  }
}

std::vector<Case> Ball::around(const at::Tensor& sample, std::int64_t label, std::int64_t classes) const {
  const at::Tensor flat = sample.detach().to(at::kCPU, at::kDouble).contiguous().reshape({-1});
  const auto* const x = flat.data_ptr<double>();
  Case one;
  for (std::size_t i = 0; i < radius_.size(); ++i) {
    // The data's own rounding may leave a sample just outside of what there is.
    one.lower.push_back(std::nextafter(std::min(x[i], std::max(x[i] - radius_[i], lowest_[i])), -infinity));
    one.upper.push_back(std::nextafter(std::max(x[i], std::min(x[i] + radius_[i], highest_[i])), infinity));
  }
  std::vector<Case> cases;
  for (std::int64_t other = 0; other < classes; ++other) {
    if (other == label) continue;
    std::vector<double> row(static_cast<std::size_t>(classes), 0.0);
    row[static_cast<std::size_t>(label)] = 1.0;
    row[static_cast<std::size_t>(other)] = -1.0;
    one.atoms = {{.lower = row, .upper = row}};
    cases.push_back(one);
  }
  return cases;
}

}  // namespace gpupoly
