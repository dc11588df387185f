#include "terms.hpp"

#include <algorithm>
#include <optional>

namespace {

using namespace trainyard;

constexpr std::int64_t most_columns = 65536;  ///< that 16 bits tell apart

/// Reads terms off the nodes that make a matrix.
class Reader {
 public:
  Reader(const Graph& graph, const Constants& constants) : graph_(graph), constants_(constants) {}

  std::vector<Term> read(ValueId id) const {
    const Node* const node = maker(id);
    if (node == nullptr) return {matrix(tensor(id))};
    if (node->op == "Add") {
      if (tensor(node->inputs[0]).sizes() != tensor(node->inputs[1]).sizes()) return {matrix(tensor(id))};
      std::vector<Term> terms = read(node->inputs[0]);
      std::ranges::move(read(node->inputs[1]), std::back_inserter(terms));
      return terms;
    }
    if (node->op == "Mul" && is_one(node->inputs[1])) return read(node->inputs[0]);
    if (node->op == "MatMul" && tensor(id).dim() == 2)
      return {
          {.form = Term::Form::low_rank, .left = tensor(node->inputs[0]), .right = tensor(node->inputs[1])}};
    if (node->op == "Reshape") return reshaped(id, node->inputs[0]);
    return {matrix(tensor(id))};
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
    return all.size(1) <= most_columns && sparse.bytes() < dense.bytes() ? sparse : dense;
  }

  std::vector<Term> reshaped(ValueId id, ValueId from) const {
    const at::Tensor &to = tensor(id), &source = tensor(from);
    if (to.sizes() == source.sizes()) return read(from);
    const Node* const node = maker(from);
    if (node != nullptr && node->op == "Mul")
      if (const std::optional<Term> term = kronecker(to, tensor(node->inputs[0]), tensor(node->inputs[1])))
        return {*term};
    if (source.dim() == 3 && source.size(0) == 1 && source.size(2) == to.size(1)) return block(from);
    return {matrix(to)};
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

  /// Rows of one block, [1, rows, columns], below each other: some as they are, others a product.
  std::vector<Term> block(ValueId id) const {
    const Node* const node = maker(id);
    std::vector<ValueId> parts = {id};
    if (node != nullptr && node->op == "Concat" && node->integer("axis", 0) == 1) parts = node->inputs;
    std::vector<Term> terms;
    std::int64_t row = 0;
    for (const ValueId part : parts) {
      const Node* const product = maker(part);
      Term term = product != nullptr && product->op == "MatMul" ? Term{.form = Term::Form::low_rank,
                                                                       .left = tensor(product->inputs[0])[0],
                                                                       .right = tensor(product->inputs[1])[0]}
                                                                : matrix(tensor(part)[0]);
      term.row = row;
      row += term.rows();
      terms.push_back(std::move(term));
    }
    return terms;
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
  if (form == Form::sparse) return 6 * numbers() + 2 * rows();
  return 4 * numbers();
}

std::vector<Term> terms_of(const Graph& graph, const Constants& constants, ValueId matrix) {
  std::vector<Term> terms = Reader(graph, constants).read(matrix);
  Term dense{.form = Term::Form::dense, .left = constants.at(matrix)};
  std::int64_t bytes = 0;
  for (const Term& each : terms) bytes += each.bytes();
  if (2 * bytes > dense.bytes()) return {std::move(dense)};
  return terms;
}
