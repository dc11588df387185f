#include <trainyard/helpers/offenders.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainyard {

void Offenders::add(std::string tensor, double badness, double measured, std::string says) {
  if (std::isnan(badness)) badness = std::numeric_limits<double>::infinity();
  offenders_.push_back({std::move(tensor), badness, measured, std::move(says)});
}

std::optional<Finding> Offenders::finding(std::vector<std::pair<std::string, double>> limits) {
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

}  // namespace trainyard
