// An outlier detector: one opinion on how odd a row is. A new one is a class of this interface and a row in
// the table of detectors.cpp; projection, approximation, schedule, combination and files come with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <trainyard/random.hpp>

#include "archive.hpp"
#include "matrix.hpp"

namespace screen {

/// Thrown by Fitting::check where the work is to end: a signal has come.
struct Stopped : std::runtime_error {
  Stopped() : std::runtime_error("stopped") {}
};

/// What a detector is given beside its rows.
struct Fitting {
  trainyard::RandomStream random{0, "screen"};  ///< of this detector alone
  std::function<bool()> stopping;               ///< any thread; empty: never

  /// Throws Stopped where the work is to end. Long loops call it every few milliseconds.
  void check() const {
    if (stopping && stopping()) throw Stopped();
  }
};

class Detector {
 public:
  virtual ~Detector() = default;

  /// Learns from the rows, and returns the score of each: larger is more outlying. Called once, on any thread.
  virtual std::vector<double> fit(const Matrix& rows, const Fitting& fitting) = 0;

  /// Returns the scores of rows that were not learned from. The score of a row is the same, to the bit,
  /// whatever other rows it is scored with. Any thread, several at once.
  virtual std::vector<double> score(const Matrix& rows, const Fitting& fitting) const = 0;

  /// Reads or writes what was learned.
  virtual void keep(Archive& archive) = 0;
};

}  // namespace screen
