// Rules of tensors: the families that TASO's generator found (Jia, Padon, Thomas, Warszawski, Zaharia, Aiken, "TASO: Optimizing Deep
// Learning Computation with Automatic Generation of Graph Substitutions", SOSP 2019) and those that TENSAT wrote by hand, each once and
// with the conditions that shapes do not say: without them some are wrong for convolutions of groups.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "rewrite.hpp"
#include "shapes.hpp"

namespace tensat {

struct TensorRule {
  std::string_view name, text;
  /// Words, each said of all samples that the rule holds for, separated by ';':
  ///   dense X W      the convolution of X by W has one group
  ///   equal A I B K  dimension I of A is dimension K of B
  ///   unlike I K     two numbers differ
  ///   smaller V W    the kernel of V is smaller than that of W, and no larger in either direction
  ///   narrow W N     a group of W has N channels at most
  std::string_view condition;
};

std::span<const TensorRule> tensor_rules();

/// Returns whether a condition holds for the values of a rule's variables. Throws std::invalid_argument where it is none.
bool holds(std::string_view condition, std::span<const std::string> variables, std::span<const Value> values);

/// The table for a graph whose shapes an analysis keeps, which outlives them.
std::vector<Rule> rules_of(EGraph& graph, const Shapes& shapes);

}  // namespace tensat
