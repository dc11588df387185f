// What an audit has found so far, as files of a table each.
#pragma once

#include <string>
#include <vector>

#include "distributions.hpp"
#include "networks.hpp"
#include "outcome.hpp"
#include "summaries.hpp"

namespace audit {

/// What all networks said of one distribution of one split.
struct Finding {
  std::string split;
  Distribution distribution;
  std::vector<Outcome> outcomes;  ///< one a network
};

/// How sure a network is of the true class, seeing only the pixels that one says the most to it or to another one.
struct Shared {
  std::size_t chooser = 0, judge = 0;  ///< numbers of networks
  std::int64_t samples = 0, kept = 0;  ///< pixels
  double confidence = 0.0;
};

struct Findings {
  std::vector<Judged> networks;  ///< the parent, then the pruned ones, then perhaps the yardstick
  std::size_t pruned = 0;
  double delta = 0.0;
  std::vector<Finding> all;
  std::vector<Shared> shared;
  std::int64_t evaluations = 0;  ///< of BackSelect

  bool has_yardstick() const { return networks.size() > pruned + 1; }
  const Judged& yardstick() const { return networks.back(); }
  /// Returns what was found of a distribution on a split; null where it was not looked at.
  const Finding* find(const std::string& split, const std::string& distribution) const;

  /// Returns the ratios of the pruned networks with their errors, or with their excess errors over clean data.
  std::vector<AtRatio> errors(const Finding& finding) const;
  std::vector<AtRatio> excess(const Finding& finding, const Finding& clean) const;
  double potential_of(const Finding& finding) const {
    return potential(finding.outcomes.front().error(), delta, errors(finding));
  }
  /// Returns the number of the pruned network with that ratio; 0, the parent's, where none has it.
  std::size_t at_ratio(double ratio) const;

  /// `report` is the split of the excess errors. Writes errors.csv, potential.csv, excess.csv, classes.csv, networks.csv and, if pixels were chosen, backselect.csv. Each
  /// appears when it is whole. Throws DataError.
  void write(const std::string& folder, const std::string& report) const;
};

}  // namespace audit
