// detector/1: says how unlike the others the rows of a table are, without labels. It is a part: `trainyard screen`
// has it among its options (PluginList<Detector>), and no table of the run file is its own.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/random.hpp>

TRAINYARD_CONTRACT("detector.hpp");

namespace trainyard {

/// A table of finite numbers in row-major order; the caller's, for the time of the call.
struct RowTable {
  std::span<const double> values;
  std::size_t rows = 0, columns = 0;

  std::span<const double> row(std::size_t i) const { return values.subspan(i * columns, columns); }
};

class Detector : public Plugin {
 public:
  static constexpr Kind kind{"detector", 1};
  using Learned = std::map<std::string, std::vector<double>>;

  /// Learns from two rows or more, and returns a finite score for each: larger is more unlike the others.
  /// Called once, on any thread, beside other detectors; LibTorch has one thread in it. Equal rows and an
  /// equal `random` have equal scores, to the bit. One that takes long asks `stopping` every few
  /// milliseconds, and returns soon after it is true, with anything. What it throws says why these rows are
  /// none for it: the caller goes on without it.
  virtual std::vector<double> fit(const RowTable& rows, const RandomStream& random,
                                  const std::function<bool()>& stopping) = 0;

  /// Returns the scores of rows that it did not learn from, with as many columns. The score of a row is the
  /// same, to the bit, whatever rows it is scored with. Any thread, several at once.
  virtual std::vector<double> score(const RowTable& rows) const = 0;

  /// Returns what `score` needs, by name, for a file. After `fit`.
  virtual Learned learned() const = 0;
  /// Called in place of `fit`, with what a detector of these options has learned: it scores as that one, to
  /// the bit. Throws DataError where it cannot be used.
  virtual void use(const Learned& learned) = 0;
};

}  // namespace trainyard
