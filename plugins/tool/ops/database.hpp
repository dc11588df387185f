// What was measured, with where and how: a CSV file that each finding can be derived from again by one query.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "machine.hpp"
#include "operator.hpp"

namespace ops {

/// How the times of a row were taken.
struct Conditions {
  bool keeps_pages = true;  ///< the allocator keeps freed pages
  bool flushes = false;     ///< caches have other data before each call
  bool operator==(const Conditions& other) const = default;
  bool operator<(const Conditions& other) const {
    return std::pair(keeps_pages, flushes) < std::pair(other.keeps_pages, other.flushes);
  }
};

struct Row {
  std::string sweep;  ///< what it was measured for
  Operator point;
  Conditions conditions;
  Timing timing;
  int rounds = 0;
  Work work;
};

/// Rows of one machine. A point that several sweeps have stands once for each.
class Database {
 public:
  explicit Database(Machine machine) : machine_(std::move(machine)) {}

  /// Adds what a file has of this machine, and keeps the rest of it for `text`, each line once. Several databases, one
  /// behind the other, are one. Throws DataError for a file that is no database, with file and line.
  void read(const std::string& text, const std::string& path);
  /// Replaces the row of this sweep, point and conditions where there is one.
  void add(Row row);

  const Machine& machine() const { return machine_; }
  const std::vector<Row>& rows() const { return rows_; }
  /// Returns the row of a sweep, or of any where `sweep` is empty; null where there is none.
  const Row* find(const std::string& sweep, const Operator& point, const Conditions& conditions = {}) const;
  std::vector<const Row*> of_sweep(const std::string& sweep) const;
  /// Returns the whole file.
  std::string text() const;

  /// Returns how many rows of other machines the files had.
  std::size_t others() const { return others_.size(); }

 private:
  using Key = std::tuple<std::string, Operator, Conditions>;
  Machine machine_;
  std::vector<Row> rows_;
  std::map<Key, std::size_t> places_;
  std::vector<std::string> other_machines_, others_;  ///< lines of the files
  std::set<std::string> others_known_;                ///< all of these
};

}  // namespace ops
