#include "operator.hpp"

#include <algorithm>
#include <array>

#include <trainyard/error.hpp>

namespace trainyard {
namespace {

/// Returns "Gemm", or the known operator that reads most like it.
std::string suggestion(std::string_view name) {
  const auto lower = [](std::string_view text) {
    std::string result(text);
    for (char& c : result)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
  };
  for (const std::string& known : known_operators())
    if (lower(known) == lower(name)) return "; did you mean " + known + "?";
  return "; an operator is an entry of the table in sdk/src/operators";
}

}  // namespace

const Operator* find_operator(std::string_view name) {
  static const auto table = [] {
    std::vector<const Operator*> all;
    for (const auto family : {dense_operators(), convolution_operators(), normalization_operators(),
                              elementwise_operators(), layout_operators(), sequence_operators()})
      for (const Operator& entry : family) all.push_back(&entry);
    std::ranges::sort(all, {}, [](const Operator* entry) { return std::string_view(entry->name); });
    return all;
  }();
  const auto name_of = [](const Operator* entry) { return std::string_view(entry->name); };
  const auto found = std::ranges::lower_bound(table, name, {}, name_of);
  return found != table.end() && name_of(*found) == name ? *found : nullptr;
}

std::vector<std::string> known_operators() {
  std::vector<std::string> names;
  for (const auto family : {dense_operators(), convolution_operators(), normalization_operators(),
                            elementwise_operators(), layout_operators(), sequence_operators()})
    for (const Operator& entry : family) names.emplace_back(entry.name);
  std::ranges::sort(names);
  return names;
}

std::vector<TensorType> infer(const NodeView& view) {
  const Node& node = view.node();
  const Operator* entry = find_operator(node.op);
  if (entry == nullptr) view.fail("unknown operator" + suggestion(node.op));

  const std::size_t given = node.inputs.size();
  if (given < entry->least_inputs || given > entry->most_inputs)
    view.fail("has " + std::to_string(given) + " inputs, takes " + std::to_string(entry->least_inputs) +
              (entry->most_inputs == entry->least_inputs ? ""
               : entry->most_inputs == any_number        ? " or more"
                                                         : " to " + std::to_string(entry->most_inputs)));
  for (std::size_t i = 0; i < entry->least_inputs; ++i)
    view.require(view.has(i), "input " + std::to_string(i) + " is not optional");
  for (const auto& [name, value] : node.attributes)
    if (std::ranges::find(entry->attributes, name) == entry->attributes.end()) {
      std::string known;
      for (const char* attribute : entry->attributes)
        known += (known.empty() ? "" : ", ") + std::string(attribute);
      view.fail("does not take attribute `" + name + "`; takes: " + (known.empty() ? "none" : known));
    }

  std::vector<TensorType> types = entry->infer(view);
  if (node.outputs.size() > types.size())
    view.fail("has " + std::to_string(node.outputs.size()) + " outputs, gives " +
              std::to_string(types.size()));
  types.resize(node.outputs.size());
  return types;
}

std::vector<std::int64_t> NodeView::constant_integers(std::size_t index) const {
  const GraphValue& value = this->value(index);
  require(value.initializer.defined() && !c10::isFloatingType(value.initializer.scalar_type()),
          "input " + std::to_string(index) + " (" + value.name + ") must be an initializer of integers");
  const at::Tensor flat = value.initializer.cpu().to(at::kLong).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

double NodeView::constant_number(std::size_t index) const {
  const GraphValue& value = this->value(index);
  require(value.initializer.defined() && value.initializer.numel() == 1,
          "input " + std::to_string(index) + " (" + value.name + ") must be an initializer of one number");
  return value.initializer.item().toDouble();
}

std::int64_t NodeView::axis(std::int64_t axis, std::int64_t rank) const {
  if (axis < -rank || axis >= rank)
    fail("axis " + std::to_string(axis) + " is outside of " + std::to_string(rank) + " dimensions");
  return axis < 0 ? axis + rank : axis;
}

void NodeView::fail(const std::string& message) const {
  throw ConfigError("node \"" + node_->name + "\" (" + node_->op + "): " + message);
}

void NodeView::require_rank(std::size_t index, std::int64_t expected) const {
  if (rank(index) != expected)
    fail("input " + value(index).name + " has shape " + shape_text(shape(index)) + ", needs " +
         std::to_string(expected) + " dimensions");
}

void NodeView::require_floating(std::size_t index) const {
  if (!c10::isFloatingType(dtype(index)))
    fail("input " + value(index).name + " holds " + c10::toString(dtype(index)) +
         ", needs floating-point numbers");
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    if (dim < 0) text += "batch";
    if (dim < -1) text += "*";
    if (dim != -1) text += std::to_string(per_sample(dim));
  }
  return text + "]";
}

std::optional<std::int64_t> product(const Shape& shape, std::size_t first, std::size_t last) {
  std::int64_t result = 1;
  for (std::size_t i = first; i < last; ++i) {
    if (result < 0 && shape[i] < 0) return std::nullopt;
    result *= shape[i];
  }
  return result;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const std::size_t lead = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& dim = result[lead + i];
    if (dim == 1) dim = shorter[i];
    if (shorter[i] != 1 && shorter[i] != dim) return std::nullopt;
  }
  return result;
}

}  // namespace trainyard
