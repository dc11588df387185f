// Terms with variables: written, searched for in an e-graph, and made there.
// De Moura and Bjorner, "Efficient E-Matching for SMT Solvers", CADE 2007: a pattern is compiled to instructions on registers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "egraph.hpp"

namespace tensat {

struct Pattern {
  static constexpr int no_variable = -1;
  struct Term {
    OpId op = 0;
    int variable = no_variable;  ///< its number, of a variable
    std::vector<int> children;   ///< terms before this one
  };
  std::vector<Term> terms;  ///< equal parts once; the last is the whole

  bool is_variable() const { return terms.back().variable != no_variable; }
  /// Operators over each other, of a variable 0.
  int depth() const;
};

/// Reads "(+ ?a (* -1 ?b))". Variables have numbers by their place among `variables`, to which new ones are appended, so that
/// patterns of one rule share theirs. Throws std::invalid_argument that shows where it is wrong.
Pattern parse_pattern(std::string_view text, Symbols& symbols, std::vector<std::string>& variables);

/// The same pattern with its variables numbered in the order of their first visit; names[i] is the number that i had.
struct Canonical {
  Pattern pattern;
  std::vector<int> names;
};
Canonical canonical(const Pattern& pattern);
bool operator==(const Pattern& a, const Pattern& b);

/// Makes a pattern of classes for its variables. Returns its class.
ClassId instantiate(EGraph& graph, const Pattern& pattern, std::span<const ClassId> variables);
/// The same for several rows of classes, each of so many, that begin with `skipped` ones that are no variables; appends their classes. A graph
/// that does not fit into caches takes them much faster together.
void instantiate(EGraph& graph, const Pattern& pattern, std::span<const ClassId> rows, std::size_t width,
                 std::size_t skipped, std::vector<ClassId>& made);
/// Appends the nodes of a pattern that an e-graph has not yet, in the order in which they are made. Returns the whole.
Target::Child targets_of(const EGraph& graph, const Pattern& pattern, std::span<const ClassId> variables,
                         std::vector<Target>& targets);

/// What a search finds: rows of the class of the whole, then the classes of the variables.
class Matches {
 public:
  explicit Matches(std::size_t variables = 0) : width_(variables + 1) {}
  std::size_t size() const { return rows_.size() / width_; }
  std::size_t width() const { return width_; }
  std::span<const ClassId> row(std::size_t i) const { return {rows_.data() + i * width_, width_}; }
  ClassId root(std::size_t i) const { return rows_[i * width_]; }
  std::span<const ClassId> variables(std::size_t i) const { return row(i).subspan(1); }
  void append(ClassId root, std::span<const ClassId> variables) {
    rows_.push_back(root);
    rows_.insert(rows_.end(), variables.begin(), variables.end());
  }
  void reserve(std::size_t rows) { rows_.reserve(rows * width_); }

 private:
  std::size_t width_ = 1;
  std::vector<ClassId> rows_;
};

/// Where a search begins: at nodes that are new, or near ones that changed; everywhere unless it is given.
struct Since {
  NodeId node = 0;  ///< nodes from this on are new
  ClassId of = 0;   ///< so are classes from this on
  std::span<const std::uint8_t>
      near;       ///< by node: so many operators above a change, counted from 1; 0 is none
  int reach = 0;  ///< as far above one is searched
};

/// A pattern as instructions. Its variables are numbered from 0 without gaps up to `variables`.
class Matcher {
 public:
  Matcher(const Pattern& pattern, std::size_t variables);
  /// Appends what is found. Patterns over the same classes are found once each. Returns false where that were more than `limit` rows.
  bool search(const Index& index, Matches& found, std::size_t limit, const Since* since = nullptr) const;
  /// So many operators above a change a match may be new: more by one where variables are compared.
  int reach() const { return reach_; }
  /// The same where what a condition asks of the variables may change, too.
  int reach_of_variables() const { return depth_; }

 private:
  struct Step {
    enum Kind : std::uint8_t { bind, same, is } kind = bind;
    OpId op = 0;              // bind
    std::uint16_t arity = 0;  // bind
    std::uint16_t from = 0;   // register of the class
    std::uint16_t to =
        0;  // bind: the first of the children's; same: another one; is: the number of a ground term
  };
  struct Search;

  Pattern pattern_;
  std::vector<Step> steps_;
  std::vector<std::uint16_t> registers_;  // by variable
  std::vector<int> ground_;               // terms without variables
  std::size_t used_ = 0;                  // registers
  int depth_ = 0, reach_ = 0;
};

}  // namespace tensat
