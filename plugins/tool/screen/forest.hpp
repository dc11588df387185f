// A random forest for regression (Breiman, 2001) on columns cut into at most 64 bins. It takes the place of a slow
// detector's scoring: it learns the scores that the detector gave to its own rows.
#pragma once

#include "detector.hpp"
#include "draws.hpp"

namespace screen {

class Forest {
 public:
  Forest() = default;
  explicit Forest(std::size_t trees) : trees_(trees) {}

  void fit(const Matrix& rows, const std::vector<double>& targets, const Fitting& fitting);
  /// Returns the mean of the trees for each row.
  std::vector<double> predict(const Matrix& rows, const Fitting& fitting) const;
  void keep(Archive& archive, std::size_t columns);

 private:
  struct Growing;
  void grow_tree(Growing& growing);
  /// Returns whether the node was cut; its rows are then in two parts, the second from `border` on.
  bool cut_node(Growing& growing, std::size_t node, std::size_t first, std::size_t last, std::size_t& border);

  std::size_t trees_ = 0;
  // Nodes of all trees: the column that is cut, -1 for a leaf; the largest number below the cut, or the leaf's answer;
  // the node below the cut, which that above it follows.
  std::vector<std::int32_t> column_, below_;
  std::vector<double> cut_;
  std::vector<std::int32_t> roots_;
};

}  // namespace screen
