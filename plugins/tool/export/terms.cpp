#include "terms.hpp"

#include <algorithm>
#include <optional>

#include "sparse_rows.hpp"

namespace {

using namespace trainyard;

at::Tensor as_matrix(const at::Tensor& tensor) {
  return tensor.flatten(0, -2);
}

/// Reads terms off the nodes that make a matrix. A value of more dimensions is one, too: its last are the columns, and the rows
/// of one block lie below those of the block before.
class Reader {
 public:
  Reader(const Graph& graph, const Constants& constants) : graph_(graph), constants_(constants) {}

  std::vector<Term> read(ValueId id) const {
    const Node* const node = maker(id);
    if (node == nullptr) return whole(id);
    if (node->op == "Add") {
      if (tensor(node->inputs[0]).sizes() != tensor(node->inputs[1]).sizes()) return whole(id);
      std::vector<Term> terms = read(node->inputs[0]);
      std::ranges::move(read(node->inputs[1]), std::back_inserter(terms));
      return terms;
    }
    if (node->op == "Mul" && is_one(node->inputs[1])) return read(node->inputs[0]);
    if (node->op == "MatMul" && tensor(id).dim() == 2)
      return {low_rank(tensor(node->inputs[0]), tensor(node->inputs[1]))};
    if (node->op == "MatMul" && tensor(id).dim() == 3) return blocks({id});
    if (node->op == "Concat" && tensor(id).dim() == 3 && node->integer("axis", 0) == 1)
      return blocks(node->inputs);
    if (node->op == "Reshape") return reshaped(id, node->inputs[0]);
    return whole(id);
  }

 private:
  const at::Tensor& tensor(ValueId id) const { return constants_.at(id); }

  /// Returns the node that makes a value; null where it is given.
  const Node* maker(ValueId id) const {
    for (const Node& node : graph_.nodes)
      if (std::ranges::find(node.outputs, id) != node.outputs.end()) return &node;
    return nullptr;
  }

  /// Returns whether it scales nothing: rows that a hook may silence while it trains.
  bool is_one(ValueId id) const { return tensor(id).eq(1).all().item<bool>(); }

  static Term matrix(const at::Tensor& all) {
    const Term sparse{.form = Term::Form::sparse, .left = all};
    const Term dense{.form = Term::Form::dense, .left = all};
    const bool fits = all.size(0) <= most_places && all.size(1) <= most_places;
    return fits && sparse.bytes() < dense.bytes() ? sparse : dense;
  }
  /// Returns a matrix as one term, or as several where it has more rows than one of a sparse matrix.
  std::vector<Term> whole(ValueId id) const {
    std::vector<Term> terms;
    for (const at::Tensor& part : as_matrix(tensor(id)).split(most_places)) {
      terms.push_back(matrix(part));
      terms.back().row = most_places * (std::ssize(terms) - 1);
    }
    return terms;
  }

  static Term low_rank(const at::Tensor& left, const at::Tensor& right) {
    return {.form = Term::Form::low_rank, .left = left, .right = right};
  }

  std::vector<Term> reshaped(ValueId id, ValueId from) const {
    const Node* const node = maker(from);
    if (node != nullptr && node->op == "Mul")
      if (const std::optional<Term> term =
              kronecker(as_matrix(tensor(id)), tensor(node->inputs[0]), tensor(node->inputs[1])))
        return {*term};
    const at::Tensor& source = tensor(from);
    if (source.dim() > 1 && source.size(-1) == tensor(id).size(-1)) return read(from);
    return whole(id);
  }

  /// left [a, 1, c, 1] times right [1, b, 1, d], as [a b, c d].
  static std::optional<Term> kronecker(const at::Tensor& to, const at::Tensor& left,
                                       const at::Tensor& right) {
    const auto ones = [](const at::Tensor& x, std::int64_t first) {
      return x.dim() == 4 && x.size(first) == 1 && x.size(first + 2) == 1;
    };
    if (!ones(left, 1) || !ones(right, 0) || to.size(0) != left.size(0) * right.size(1)) return std::nullopt;
    return Term{.form = Term::Form::kronecker,
                .left = left.squeeze(3).squeeze(1),
                .right = right.squeeze(2).squeeze(0)};
  }

  /// Returns the terms of parts of [blocks, rows, columns], in each block below each other: some as they are, others products.
  std::vector<Term> blocks(const std::vector<ValueId>& parts) const {
    std::vector<Term> terms;
    std::int64_t row = 0;
    for (std::int64_t block = 0; block < tensor(parts[0]).size(0); ++block)
      for (const ValueId part : parts) {
        const Node* const product = maker(part);
        Term term = product != nullptr && product->op == "MatMul" && is_batch(*product)
                        ? low_rank(tensor(product->inputs[0])[block], tensor(product->inputs[1])[block])
                        : matrix(tensor(part)[block]);
        term.row = row;
        row += term.rows();
        terms.push_back(std::move(term));
      }
    return terms;
  }

  /// Returns whether both sides have a matrix for each block.
  bool is_batch(const Node& product) const {
    const at::Tensor &left = tensor(product.inputs[0]), &right = tensor(product.inputs[1]);
    return left.dim() == 3 && right.dim() == 3 && left.size(0) == right.size(0);
  }

  const Graph& graph_;
  const Constants& constants_;
};

}  // namespace

std::int64_t Term::rows() const {
  return left.size(0) * (form == Form::kronecker ? right.size(0) : 1);
}

std::int64_t Term::numbers() const {
  if (form == Form::sparse) return left.count_nonzero().item<std::int64_t>();
  return left.numel() + (right.defined() ? right.numel() : 0);
}

std::int64_t Term::bytes() const {
  if (form == Form::sparse) return sparse_bytes(left);
  return 4 * numbers();
}

std::vector<Term> terms_of(const Graph& graph, const Constants& constants, ValueId matrix) {
  std::vector<Term> terms = Reader(graph, constants).read(matrix);
  Term dense{.form = Term::Form::dense, .left = as_matrix(constants.at(matrix))};
  std::int64_t bytes = 0;
  for (const Term& each : terms) bytes += each.bytes();
  if (2 * bytes > dense.bytes()) return {std::move(dense)};
  return terms;
}
