// Operators on tensors, and the shapes of what they make: what is known of each class of an e-graph of tensors.
//   (input NAME@2_3) (weight NAME@4_3)   tensors by their sizes
//   (ewadd A B) (ewmul A B)              of equal shapes
//   (relu A) (tanh A) (sigmoid A)
//   (matmul A B)                         of matrices, or of as many
//   (transpose A)                        of the last two dimensions
//   (concat AXIS A B)
//   (head AXIS A LIKE K) (tail AXIS A LIKE K)   the first or last of A along AXIS, as many as dimension K of LIKE has
//   (conv2d SH SW PAD ACT X W)           strides; 0 pads (k - 1) / 2 on each side, 1 nothing; 0 none, 1 sigmoid, 2 relu, 3 tanh. As many
//                                        groups as X has times the channels of W
//   (poolmax KH KW SH SW PAD X) (poolavg ...)   a mean counts what is padded
//   (enlarge W LIKE)                     a kernel of odd sizes with zeros around it, as large as that of LIKE
//   (merge W X N)                        the kernel of a convolution of X with an N-th of its groups: each has the channels of N, of which
//                                        those that are not its own are zeros
//   (smul X S)                           a tensor times a number, which is a tensor of one
//   (bias AXIS X B)                      a vector added along an axis
// Other operators of a network are symbols that say what they make (terms.hpp).
// A head or tail says by a tensor how long it is, and so does not lean on which concat of an equal tensor is meant.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "egraph.hpp"

namespace tensat {

/// What is known of a class.
struct Value {
  enum class Kind : std::uint8_t { none, number, tensor };
  Kind kind = Kind::none;  ///< none: a name
  std::int64_t number = 0;
  std::vector<std::int64_t> shape;
  bool weights = false;  ///< it follows from weights alone

  bool is_tensor(std::size_t rank) const { return kind == Kind::tensor && shape.size() == rank; }
};

/// Returns what an operator makes of these; nothing where it cannot.
std::optional<Value> infer(const std::string& op, std::span<const Value> children);

class Shapes : public Analysis {
 public:
  const Value& of(const EGraph& graph, ClassId each) const { return values_[graph.find(each)]; }

  /// Throws std::invalid_argument for a node that cannot be, with the shapes that it was to be made of.
  bool make(const EGraph& graph, NodeId node, ClassId of) override;
  /// Throws std::logic_error where a shape is another one.
  bool merge(ClassId into, ClassId from) override;
  bool has_opinions() const override { return true; }
  bool admits(const EGraph& graph, std::span<const Target> targets,
              std::span<const Equality> equal) const override;

 private:
  std::vector<Value> values_;
};

}  // namespace tensat
