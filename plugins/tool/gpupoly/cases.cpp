#include "cases.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <trainyard/error.hpp>

namespace gpupoly {

using trainyard::ConfigError;

void require_single(const trainyard::Network& network, int soundness) {
  if (soundness < 3) return;
  for (const auto& [name, tensor] : network.parameters()) {
    if (tensor.scalar_type() != at::kFloat)
      throw ConfigError("gpupoly: soundness 3 is of programs in single precision, and " + name + " is " +
                        std::string(at::toString(tensor.scalar_type())) + "; set soundness = 2");
    if (!tensor.device().is_cpu())
      throw ConfigError("gpupoly: soundness 3 is of the program that a CPU runs, and the network is on " +
                        tensor.device().str() + "; set soundness = 2, or the run's device to cpu");
  }
}

double margin(Verifier& verifier, const std::vector<Case>& cases) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Forms forms;
  for (std::size_t group = 0; group < cases.size(); ++group) {
    if (cases[group].atoms.empty()) return -infinity;
    for (const Atom& atom : cases[group].atoms) {
      forms.lower.insert(forms.lower.end(), atom.lower.begin(), atom.lower.end());
      forms.upper.insert(forms.upper.end(), atom.upper.begin(), atom.upper.end());
      forms.constants.push_back(atom.constant_lower);
      forms.groups.push_back(group);
    }
  }
  std::vector<double> lower, upper;
  for (const std::int64_t i : order(verifier.layers().input_shape)) {
    lower.push_back(cases.front().lower[static_cast<std::size_t>(i)]);
    upper.push_back(cases.front().upper[static_cast<std::size_t>(i)]);
    if (verifier.settings().soundness < 3) continue;
    // The program has its inputs in single precision.
    lower.back() =
        std::min<double>(lower.back(), std::nextafter(static_cast<float>(lower.back()), -HUGE_VALF));
    upper.back() =
        std::max<double>(upper.back(), std::nextafter(static_cast<float>(upper.back()), HUGE_VALF));
  }
  const std::vector<double> bounds = verifier.lower_bounds(lower, upper, forms);
  std::vector<double> best(cases.size(), -infinity);
  for (std::size_t i = 0; i < bounds.size(); ++i)
    if (bounds[i] > best[forms.groups[i]]) best[forms.groups[i]] = bounds[i];
  return *std::min_element(best.begin(), best.end());
}

}  // namespace gpupoly
