// Collects tensors that break a limit, for the finding of a rule, the worst first.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/rule.hpp>

TRAINYARD_CONTRACT("helpers/offenders.hpp");

namespace trainyard {

class Offenders {
 public:
  /// `badness`: the higher, the worse; NaN is the worst. `measured` becomes evidence under the tensor's name,
  /// `says` follows it in the message: "mean |g| is 3e-09, below 1e-07".
  void add(std::string tensor, double badness, double measured, std::string says);
  bool empty() const { return offenders_.empty(); }

  /// Returns nothing where no tensor offends. `limits`: the expected values, by the names of the options.
  std::optional<Finding> finding(std::vector<std::pair<std::string, double>> limits);

 private:
  struct Offender {
    std::string tensor;
    double badness;
    double measured;
    std::string says;
  };
  std::vector<Offender> offenders_;
};

}  // namespace trainyard
