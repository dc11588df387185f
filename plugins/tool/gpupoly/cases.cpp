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

std::string holds_of(const Layers& layers, int soundness) {
  if (soundness == 1) return "nothing: bounds are rounded to nearest";
  if (soundness == 2) return "the real function of the weights, not the program that computes it";
  const bool transformed = std::any_of(layers.all.begin(), layers.all.end(), [](const Layer& layer) {
    const Window& w = layer.window;
    return layer.step == Step::conv && layer.value != trainyard::no_value && w.height == w.width &&
           (w.height == 3 || w.height == 5) && w.stride_y == 1 && w.stride_x == 1;
  });
  return std::string("programs on a CPU that compute each node in single precision, sums in any order") +
         (soundness == 4 ? " and any rounding mode" : "") +
         (transformed ? "; none that convolves by transforms (executor.winograd = true)" : "");
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
