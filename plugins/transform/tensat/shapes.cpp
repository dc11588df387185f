#include "shapes.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <stdexcept>

namespace tensat {
namespace {

using Sizes = std::vector<std::int64_t>;

/// The sizes behind the last '@' of a name, "x@2_3".
std::optional<Sizes> sizes_of(const std::string& name) {
  const std::size_t at = name.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  Sizes made;
  const char *here = name.data() + at + 1, *const end = name.data() + name.size();
  while (here < end) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(here, end, size);
    if (error != std::errc{} || size < 1 || (next != end && *next != '_')) return std::nullopt;
    made.push_back(size);
    here = next + 1;
  }
  if (made.empty()) return std::nullopt;
  return made;
}

std::optional<Value> leaf(const std::string& name) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc{} && end == name.data() + name.size())
    return Value{.kind = Value::Kind::number, .number = number, .weights = true};
  return Value{.weights = true};
}

Value tensor(Sizes shape, bool weights) {
  return {.kind = Value::Kind::tensor, .shape = std::move(shape), .weights = weights};
}

std::optional<Value> matmul(const Value& a, const Value& b, bool weights) {
  const std::size_t rank = a.shape.size();
  if (a.kind != Value::Kind::tensor || !b.is_tensor(rank) || (rank != 2 && rank != 3)) return std::nullopt;
  if (rank == 3 && a.shape[0] != b.shape[0]) return std::nullopt;
  if (a.shape[rank - 1] != b.shape[rank - 2]) return std::nullopt;
  Sizes shape = a.shape;
  shape[rank - 1] = b.shape[rank - 1];
  return tensor(std::move(shape), weights);
}

std::optional<Value> concat(const Value& axis, const Value& a, const Value& b, bool weights) {
  if (axis.kind != Value::Kind::number || a.kind != Value::Kind::tensor || !b.is_tensor(a.shape.size()))
    return std::nullopt;
  if (axis.number < 0 || axis.number >= static_cast<std::int64_t>(a.shape.size())) return std::nullopt;
  Sizes shape = a.shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<std::int64_t>(i) == axis.number)
      shape[i] += b.shape[i];
    else if (shape[i] != b.shape[i])
      return std::nullopt;
  }
  return tensor(std::move(shape), weights);
}

/// A head or a tail, which have the same shape.
std::optional<Value> part(std::span<const Value> of, bool weights) {
  const Value &axis = of[0], &whole = of[1], &like = of[2], &dimension = of[3];
  const auto within = [](const Value& number, const Value& of_shape) {
    return number.kind == Value::Kind::number && number.number >= 0 &&
           number.number < static_cast<std::int64_t>(of_shape.shape.size());
  };
  if (!within(axis, whole) || !within(dimension, like)) return std::nullopt;
  Sizes shape = whole.shape;
  std::int64_t& size = shape[static_cast<std::size_t>(axis.number)];
  const std::int64_t taken = like.shape[static_cast<std::size_t>(dimension.number)];
  if (taken >= size) return std::nullopt;
  size = taken;
  return tensor(std::move(shape), weights && whole.weights);
}

/// What a window leaves of a dimension; nothing where it is larger.
std::optional<std::int64_t> slid(std::int64_t size, std::int64_t window, const Value& stride,
                                 const Value& pad) {
  if (stride.kind != Value::Kind::number || pad.kind != Value::Kind::number) return std::nullopt;
  if (stride.number < 1 || (pad.number != 0 && pad.number != 1) || window < 1) return std::nullopt;
  const std::int64_t padded = size + (pad.number == 0 ? (window - 1) / 2 * 2 : 0);
  if (padded < window) return std::nullopt;
  return (padded - window) / stride.number + 1;
}

std::optional<Value> conv2d(std::span<const Value> of, bool weights) {
  const Value &x = of[4], &w = of[5];
  if (!x.is_tensor(4) || !w.is_tensor(4) || of[3].kind != Value::Kind::number) return std::nullopt;
  if (of[3].number < 0 || of[3].number > 3 || x.shape[1] % w.shape[1] != 0) return std::nullopt;
  if (w.shape[0] % (x.shape[1] / w.shape[1]) != 0) return std::nullopt;
  const auto height = slid(x.shape[2], w.shape[2], of[0], of[2]),
             width = slid(x.shape[3], w.shape[3], of[1], of[2]);
  if (!height || !width) return std::nullopt;
  return tensor({x.shape[0], w.shape[0], *height, *width}, weights);
}

std::optional<Value> pool(std::span<const Value> of, bool weights) {
  const Value& x = of[5];
  if (!x.is_tensor(4) || of[0].kind != Value::Kind::number || of[1].kind != Value::Kind::number)
    return std::nullopt;
  const auto height = slid(x.shape[2], of[0].number, of[2], of[4]),
             width = slid(x.shape[3], of[1].number, of[3], of[4]);
  if (!height || !width) return std::nullopt;
  return tensor({x.shape[0], x.shape[1], *height, *width}, weights);
}

std::optional<Value> enlarge(const Value& w, const Value& like) {
  if (!w.is_tensor(4) || !like.is_tensor(4)) return std::nullopt;
  for (const std::size_t i : {2, 3})
    if (w.shape[i] % 2 == 0 || like.shape[i] % 2 == 0 || w.shape[i] > like.shape[i]) return std::nullopt;
  return tensor({w.shape[0], w.shape[1], like.shape[2], like.shape[3]}, w.weights);
}

/// The kernel of a convolution of `x` with fewer groups.
std::optional<Value> merged(const Value& w, const Value& x, const Value& count) {
  if (!w.is_tensor(4) || !x.is_tensor(4) || count.kind != Value::Kind::number || count.number < 2)
    return std::nullopt;
  if (x.shape[1] % (w.shape[1] * count.number) != 0) return std::nullopt;
  if (w.shape[0] % (x.shape[1] / w.shape[1]) != 0) return std::nullopt;
  return tensor({w.shape[0], w.shape[1] * count.number, w.shape[2], w.shape[3]}, w.weights);
}

/// A number that a tensor is multiplied by, which has one dimension in a graph, or none.
std::optional<Value> scaled(const Value& x, const Value& by) {
  const bool one = by.is_tensor(1) ? by.shape[0] == 1 : by.kind == Value::Kind::none && by.shape.empty();
  if (x.kind != Value::Kind::tensor || !one) return std::nullopt;
  return tensor(x.shape, x.weights && by.weights);
}

/// Something that is an operator of a network and none of these: its name says what it makes.
std::optional<Value> symbol(const std::string& name, std::span<const Value> of) {
  if (!name.starts_with("node ") && !name.starts_with("output ") && !name.starts_with("constant ") &&
      name != "list" && !name.starts_with("given ") && name != "none@")
    return std::nullopt;
  const bool weights = std::ranges::all_of(of, &Value::weights) && !name.starts_with("given ");
  if (auto sizes = sizes_of(name)) return tensor(*std::move(sizes), weights);
  return Value{.weights = weights};
}

/// A vector that is added along an axis.
std::optional<Value> biased(const Value& axis, const Value& x, const Value& b, bool weights) {
  if (axis.kind != Value::Kind::number || x.kind != Value::Kind::tensor || !b.is_tensor(1))
    return std::nullopt;
  if (axis.number < 0 || axis.number >= static_cast<std::int64_t>(x.shape.size())) return std::nullopt;
  if (x.shape[static_cast<std::size_t>(axis.number)] != b.shape[0]) return std::nullopt;
  return tensor(x.shape, weights);
}

enum class Op {
  input,
  weight,
  bias,
  elementwise,
  map,
  matmul,
  transpose,
  concat,
  part,
  conv2d,
  pool,
  enlarge,
  merge,
  scale
};

struct Known {
  Op op;
  std::size_t children;
};

const Known* known(const std::string& name) {
  static const std::map<std::string, Known, std::less<>> all = {
      {"input", {Op::input, 1}},       {"weight", {Op::weight, 1}}, {"ewadd", {Op::elementwise, 2}},
      {"ewmul", {Op::elementwise, 2}}, {"relu", {Op::map, 1}},      {"tanh", {Op::map, 1}},
      {"sigmoid", {Op::map, 1}},       {"matmul", {Op::matmul, 2}}, {"transpose", {Op::transpose, 1}},
      {"concat", {Op::concat, 3}},     {"head", {Op::part, 4}},     {"tail", {Op::part, 4}},
      {"conv2d", {Op::conv2d, 6}},     {"poolmax", {Op::pool, 6}},  {"poolavg", {Op::pool, 6}},
      {"enlarge", {Op::enlarge, 2}},   {"bias", {Op::bias, 3}},     {"merge", {Op::merge, 3}},
      {"smul", {Op::scale, 2}},
  };
  const auto found = all.find(name);
  return found != all.end() ? &found->second : nullptr;
}

}  // namespace

std::optional<Value> infer(const std::string& op, std::span<const Value> of) {
  if (const auto own = symbol(op, of)) return own;
  if (of.empty()) {
    auto made = leaf(op);
    if (const auto shape = sizes_of(op)) made->shape = *shape;  // of a name, which is no tensor by itself
    return made;
  }
  const Known* const what = known(op);
  if (what == nullptr || what->children != of.size()) return std::nullopt;
  const bool weights = std::ranges::all_of(of, &Value::weights);
  switch (what->op) {
    case Op::input:
    case Op::weight:
      if (of[0].kind != Value::Kind::none || of[0].shape.empty()) return std::nullopt;
      return tensor(of[0].shape, what->op == Op::weight);
    case Op::bias: return biased(of[0], of[1], of[2], weights);
    case Op::elementwise:
      if (of[0].kind != Value::Kind::tensor || of[1].kind != Value::Kind::tensor ||
          of[0].shape != of[1].shape)
        return std::nullopt;
      return tensor(of[0].shape, weights);
    case Op::map:
      if (of[0].kind != Value::Kind::tensor) return std::nullopt;
      return tensor(of[0].shape, weights);
    case Op::matmul: return matmul(of[0], of[1], weights);
    case Op::transpose: {
      if (!of[0].is_tensor(2) && !of[0].is_tensor(3)) return std::nullopt;
      Sizes shape = of[0].shape;
      std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
      return tensor(std::move(shape), weights);
    }
    case Op::concat: return concat(of[0], of[1], of[2], weights);
    case Op::part: return part(of, weights);
    case Op::conv2d: return conv2d(of, weights);
    case Op::pool: return pool(of, weights);
    case Op::enlarge: return enlarge(of[0], of[1]);
    case Op::merge: return merged(of[0], of[1], of[2]);
    case Op::scale: return scaled(of[0], of[1]);
  }
  return std::nullopt;
}

namespace {

std::string text_of(const Value& value) {
  if (value.kind == Value::Kind::number) return std::to_string(value.number);
  if (value.kind == Value::Kind::none) return "a name";
  std::string text = "[";
  for (const std::int64_t size : value.shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

bool same(const Value& a, const Value& b) {
  return a.kind == b.kind && a.number == b.number && a.shape == b.shape;
}

}  // namespace

bool Shapes::make(const EGraph& graph, NodeId node, ClassId of) {
  std::vector<Value> children;
  for (const ClassId child : graph.children(node)) children.push_back(this->of(graph, child));
  const std::string& name = graph.symbols.name(graph.op(node));
  auto made = infer(name, children);
  if (!made) {
    std::string text = name + " cannot be made of ";
    for (std::size_t i = 0; i < children.size(); ++i) text += (i > 0 ? ", " : "") + text_of(children[i]);
    throw std::invalid_argument(text);
  }
  if (values_.size() <= of) {
    values_.resize(of + std::size_t{1});
    values_[of] = std::move(*made);
    return true;
  }
  if (!made->weights || values_[of].weights) return false;
  values_[of].weights = true;
  return true;
}

bool Shapes::merge(ClassId into, ClassId from) {
  if (!same(values_[into], values_[from]))
    throw std::logic_error("tensors of " + text_of(values_[into]) + " and " + text_of(values_[from]) +
                           " are said to be equal");
  const bool changed = values_[into].weights != values_[from].weights;
  values_[into].weights = values_[into].weights || values_[from].weights;
  return changed;
}

bool Shapes::admits(const EGraph& graph, std::span<const Target> targets,
                    std::span<const Equality> equal) const {
  std::vector<Value> made, children;
  const auto value_of = [&](const Target::Child& child) -> const Value& {
    return child.is_class ? of(graph, child.index) : made[child.index];
  };
  for (const Target& target : targets) {
    children.clear();
    for (const Target::Child& child : target.children) children.push_back(value_of(child));
    auto value = infer(graph.symbols.name(target.op), children);
    if (!value) return false;
    made.push_back(std::move(*value));
  }
  for (const Equality& each : equal)
    if (!same(of(graph, each.source), value_of(each.target))) return false;
  return true;
}

}  // namespace tensat
