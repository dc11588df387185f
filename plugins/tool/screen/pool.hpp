// Many detectors as one (SUOD: Zhao et al., MLSys 2021): random projections, forests in the place of slow scoring, a
// balanced schedule, and one score of all.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "detectors.hpp"
#include "forest.hpp"
#include "projection.hpp"

namespace screen {

struct PoolOptions {
  std::vector<std::string> detectors;
  ProjectionMethod projection = ProjectionMethod::basic;
  double fraction = 2.0 / 3.0;           ///< of the columns that a projection leaves
  std::size_t least_columns = 20;        ///< with fewer nothing is projected
  std::vector<std::string> approximate;  ///< families whose scoring a forest takes over
  std::size_t trees = 50;
  std::uint64_t seed = 0;
  bool standardize = true;
};

enum class Combination : std::uint8_t {
  average,
  max,
  aom,  ///< average over groups of the largest in each
  moa,  ///< maximum over groups of the average in each
};

/// Returns one score a row from standard scores [detectors][rows]. Groups are five, or as many as there are detectors:
/// detector i is in group i modulo their number.
std::vector<double> combined(const std::vector<std::vector<double>>& scores, Combination rule);

/// Returns the number that a share `contamination` of the scores lies above: their quantile, between two linearly.
double threshold_of(std::vector<double> scores, double contamination);

/// Detectors of an earlier fit of the same pool to the same rows, which ended before all were fitted; and those of this
/// one for the next.
class FittedBefore {
 public:
  virtual ~FittedBefore() = default;

  /// Returns whether it keeps what the detectors learned, beside their scores. Without, a pool that goes on can neither
  /// score new rows nor be saved.
  virtual bool models() const = 0;
  /// Returns the seconds below which a fit is not worth keeping, as it is soon done again.
  virtual double least_seconds() const = 0;
  /// Returns an archive to read a detector from, by its place in the options.
  virtual std::optional<Archive> find(std::size_t number) = 0;
  /// Takes a detector that was fitted. Any thread; throws nothing.
  virtual void add(std::size_t number, const Archive& archive) = 0;
};

/// A detector that is not of the table in detectors.cpp.
struct Given {
  std::string name;
  std::string options;  ///< a text that tells apart what it was made with
  std::unique_ptr<Detector> detector;
};

class Pool {
 public:
  struct Member {
    Spec spec;
    std::size_t number = 0;   ///< place in the options, by which its random numbers are drawn
    std::size_t columns = 0;  ///< that it sees
    bool projected = false, approximated = false;
    std::unique_ptr<Detector>
        detector;         ///< null where a forest took its place, or of a table, until it is fitted
    bool given = false;   ///< it is not of the table in detectors.cpp
    std::string options;  ///< of one that was given
    Forest forest;
    double mean = 0.0, deviation = 1.0;  ///< of its scores of the rows it was fitted to
    double seconds = 0.0;
    std::vector<double> scores;  ///< standard scores of these rows

    /// "knn:5"; two of one text are told apart by a number: "knn:5 (2)".
    std::string name;
  };
  struct Failure {
    std::string name, reason;
  };
  struct Outcome {
    std::vector<Failure> failures;
    std::vector<std::string> unfinished;  ///< detectors that a stop left out
    std::size_t known = 0;                ///< detectors that were fitted before
    Shift shift;
    double bound = 0.0;  ///< no order of the same tasks on so many workers could be faster
  };

  Pool() = default;
  /// Detectors that are given come behind those of the options. Throws ConfigError for a detector that there is not.
  explicit Pool(PoolOptions options, std::vector<Given> given = {});

  const std::vector<Member>& members() const { return members_; }
  std::size_t columns() const { return columns_; }
  /// Returns standard scores [detectors][rows] of the rows that it was fitted to.
  std::vector<std::vector<double>> fitted_scores() const;

  /// Leaves the detectors of one share alone, and returns how many these are: each is in one of `of` shares, which the
  /// forecast of the schedule balances. Those that are given are in none. Throws DataError as fit() does.
  std::size_t keep_share(std::size_t number, std::size_t of, const Matrix& rows);

  /// Fits all detectors that can be; those that fail or that a stop came before are left out. Throws DataError for rows
  /// that are too few or all the same, NumericError where none is left.
  Outcome fit(const Matrix& rows, const Work& work, FittedBefore* before = nullptr);

  /// Returns standard scores [detectors][rows]; those of a row do not depend on the others. Nothing after a stop.
  /// Throws DataError for another number of columns.
  std::vector<std::vector<double>> score(const Matrix& rows, const Work& work) const;

  void keep(Archive& archive);

 private:
  struct GivenFamily {
    std::string name;
    Family family;
  };
  void add(Spec spec);
  void check_rows(const Matrix& rows) const;
  Matrix standard(const Matrix& rows) const;
  Matrix seen_by(const Member& member, const Matrix& standard_rows) const;
  Fitting fitting_of(const Member& member, const char* purpose, const Work& work) const;
  void fit_member(Member& member, const Matrix& rows, const Work& work) const;
  std::vector<double> raw_scores(const Member& member, const Matrix& rows, const Work& work) const;
  void learn_columns(const Matrix& rows);
  void shape(Member& member) const;
  double forecast(const Member& member, const Matrix& rows) const;
  void keep_member(Member& member, Archive& archive, const std::string& prefix, bool model);

  PoolOptions options_;
  std::size_t rows_ = 0, columns_ = 0;    ///< of the table that it was fitted to
  std::vector<double> mean_, deviation_;  ///< of the columns
  std::list<GivenFamily> families_;       ///< of detectors that were given; members point to them
  std::vector<Member> members_;
};

}  // namespace screen
