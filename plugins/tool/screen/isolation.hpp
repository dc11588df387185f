// Isolation forest (Liu, Ting & Zhou, ICDM 2008): rows that random cuts soon leave alone are odd.
#pragma once

#include "detector.hpp"
#include "draws.hpp"

namespace screen {

class IsolationForest final : public Detector {
 public:
  explicit IsolationForest(std::size_t trees) : trees_(trees) {}
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override;

 private:
  /// Adds the node of `rows` and those below it.
  void grow(const Matrix& table, std::vector<std::size_t>& rows, std::size_t first, std::size_t last,
            std::size_t depth, Draws& draws);
  double depth_of(std::span<const double> row, std::size_t root) const;
  void check_nodes(Archive& archive) const;

  std::size_t trees_;
  std::size_t sample_ = 0, columns_ = 0;  ///< rows that each tree was grown from; columns of the table
  // Nodes of all trees, each before those below it: the column that is cut, -1 for a leaf; where; and the node above the
  // cut (the one below it is the next). A leaf has its expected depth in place of the cut.
  std::vector<std::int32_t> column_, above_;
  std::vector<double> cut_;
  std::vector<std::int32_t> roots_;
};

}  // namespace screen
