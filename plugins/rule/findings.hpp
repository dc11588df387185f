// What rules say: tensors that break a limit, the worst first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/error.hpp>
#include <trainyard/manifest.hpp>
#include <trainyard/rule.hpp>

namespace rules {

using namespace trainyard;

/// "0.25", "3e-09".
inline std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", number);
  return text;
}

/// The values of a tensor that a rule watches with `values`.
inline const at::Tensor& values_of(const TensorRecord& tensor) {
  if (tensor.value.defined()) return tensor.value;
  throw PluginError("tensor \"" + tensor.name +
                    "\" was recorded without its values, which this rule needs; record them raw");
}

/// The elements of a tensor.
inline std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous();
  const double* first = flat.const_data_ptr<double>();
  return {first, first + flat.numel()};
}

/// States what a rule needs of the executor where its option names a collection that not every executor shows.
template <class Options>
void needs_collection(Manifest<Options>& m, const std::string& option = "tensors") {
  m.needs("grads where " + option + " = gradients").needs("losses where " + option + " = losses");
}

class Offenders {
 public:
  /// `badness`: the higher, the worse; NaN is the worst. `measured` becomes evidence under the tensor's name,
  /// `says` follows it in the message: "mean |g| is 3e-09, below 1e-07".
  void add(std::string tensor, double badness, double measured, std::string says) {
    if (std::isnan(badness)) badness = std::numeric_limits<double>::infinity();
    offenders_.push_back({std::move(tensor), badness, measured, std::move(says)});
  }
  bool empty() const { return offenders_.empty(); }

  /// Nothing where no tensor offends. `limits`: what was expected, by the names of the options.
  std::optional<Finding> finding(std::vector<std::pair<std::string, double>> limits) {
    if (offenders_.empty()) return std::nullopt;
    std::stable_sort(offenders_.begin(), offenders_.end(),
                     [](const Offender& a, const Offender& b) { return a.badness > b.badness; });
    Finding finding;
    finding.message = offenders_[0].tensor + ": " + offenders_[0].says;
    if (const std::size_t more = offenders_.size() - 1; more > 0)
      finding.message += "; and " + std::to_string(more) + (more == 1 ? " other" : " others");
    for (const Offender& each : offenders_) {
      finding.tensors.push_back(each.tensor);
      finding.evidence.emplace_back(each.tensor, each.measured);
    }
    finding.evidence.insert(finding.evidence.end(), limits.begin(), limits.end());
    return finding;
  }

 private:
  struct Offender {
    std::string tensor;
    double badness;
    double measured;
    std::string says;
  };
  std::vector<Offender> offenders_;
};

}  // namespace rules
