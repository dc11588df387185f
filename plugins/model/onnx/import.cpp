#include "import.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/ops/tensor.h>

#include <trainyard/error.hpp>

#include "lib/words.hpp"

namespace onnx {
namespace {

/// Constants that are computed here are small: shapes and what shapes are made of. This is far beyond.
constexpr std::int64_t most_elements = std::int64_t{1} << 28;

std::string as_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

at::ScalarType dtype_of(const FileValue& value) {
  switch (value.type) {
    case 1: return at::kFloat;
    case 6:  // ids serve as they come
    case 7: return at::kLong;
    case 9: return at::kBool;
    case 11: return at::kDouble;
    default:
      throw ConfigError("input \"" + value.name + "\" is no tensor of float, double, int32, int64 or bool");
  }
}

std::string shape_of_file(const FileValue& value) {
  std::string text = "[";
  for (const auto& dim : *value.shape)
    text += (text.size() > 1 ? ", " : "") + (dim ? std::to_string(*dim) : std::string("?"));
  return text + "]";
}

}  // namespace

std::unique_ptr<GraphNetwork> import_network(const ModelFile& model, const std::vector<GraphValue>& inputs,
                                             const ImportOptions& options) {
  try {
    return std::make_unique<GraphNetwork>(Import(model, inputs, options).run());
  } catch (const ConfigError& error) {
    throw ConfigError(model.path + ": " + error.what());
  } catch (const PluginError& error) {  // of the Graph, for an attribute of another type
    throw ConfigError(model.path + ": " + error.what());
  } catch (const DataError& error) {
    throw DataError(model.path + ": " + error.what());
  }
}

Import::Import(const ModelFile& model, const std::vector<GraphValue>& inputs, const ImportOptions& options)
    : model_(model), given_(inputs), options_(options) {}

Graph Import::run() {
  if (model_.opset < oldest_opset || model_.opset > newest_opset)
    throw ConfigError("is of opset " + std::to_string(model_.opset) + ", needs one of " +
                      std::to_string(oldest_opset) + " to " + std::to_string(newest_opset) +
                      ": convert it with onnx.version_converter");
  std::string output = options_.output;
  if (output.empty()) {
    std::vector<std::string> names;
    for (const FileValue& value : model_.outputs) names.push_back(value.name);
    if (names.size() != 1)
      throw ConfigError("has " + std::to_string(names.size()) + " outputs (" + as_text(names) +
                        "): name one by option output");
    output = names.front();
  }
  const std::vector<bool> takes_part = needed(output);
  // An operator that is not known is told ahead of any work.
  for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
    node_ = &model_.nodes[i];
    index_ = i;
    if (!takes_part[i]) continue;
    if (!node_->domain.empty() && node_->domain != "ai.onnx")
      fail("is of the domain \"" + node_->domain + "\"; only ONNX's own operators are read");
    if (find_rule(node_->op) == nullptr)
      fail("this operator is not known; what is known is listed in plugins/model/onnx/OPERATORS.md");
  }
  take_initializers();
  take_inputs();
  for (std::size_t i = 0; i < model_.nodes.size(); ++i)
    if (takes_part[i]) take_node(model_.nodes[i], i);
  const auto found = values_.find(output);
  if (found == values_.end()) throw ConfigError("no node gives the output \"" + output + "\"");
  graph_.outputs = {found->second};
  graph_.infer_shapes();
  return std::move(graph_);
}

/// Which nodes the output depends on; what they read is noted.
std::vector<bool> Import::needed(const std::string& output) {
  std::vector<bool> result(model_.nodes.size(), false);
  read_ = {output};
  for (std::size_t i = model_.nodes.size(); i-- > 0;) {
    const FileNode& node = model_.nodes[i];
    result[i] =
        std::ranges::any_of(node.outputs, [&](const std::string& name) { return read_.contains(name); });
    if (!result[i]) continue;
    for (const std::string& name : node.inputs)
      if (!name.empty()) read_.insert(name);
  }
  for (const FileNode& node : model_.nodes) value_names_.insert(node.outputs.begin(), node.outputs.end());
  for (const FileValue& value : model_.inputs) value_names_.insert(value.name);
  for (const TensorData& tensor : model_.initializers) value_names_.insert(tensor.name);
  for (const SparseData& tensor : model_.sparse_initializers) value_names_.insert(tensor.values.name);
  return result;
}

void Import::take_initializers() {
  const auto take = [&](const std::string& name, const auto& data) {
    if (!read_.contains(name)) return;
    if (values_.contains(name)) throw ConfigError("holds two initializers named \"" + name + "\"");
    values_[name] = add_initializer(name, to_tensor(data, model_));
  };
  for (const TensorData& tensor : model_.initializers) take(tensor.name, tensor);
  for (const SparseData& tensor : model_.sparse_initializers) take(tensor.values.name, tensor);
}

ValueId Import::add_initializer(const std::string& name, at::Tensor tensor) {
  GraphValue value;
  value.name = name;
  value.initializer = std::move(tensor);
  value.trainable =
      value.initializer.is_floating_point() && value.initializer.dim() > 0 &&
      std::ranges::none_of(options_.fixed, [&](const std::string& pattern) { return fits(pattern, name); });
  return graph_.add_value(std::move(value));
}

ValueId Import::apart(ValueId id) {
  require(!node_->outputs.empty(), "has no output");
  return add_initializer(node_->outputs.front(), value(id).initializer.clone());
}

void Import::take_inputs() {
  std::vector<const FileValue*> wanted;
  std::vector<std::string> names;
  for (const FileValue& value : model_.inputs)
    if (read_.contains(value.name) && !values_.contains(value.name)) {
      wanted.push_back(&value);
      names.push_back(value.name);
    }
  if (wanted.size() != given_.size())
    throw ConfigError("has " + std::to_string(wanted.size()) + " inputs (" + as_text(names) +
                      "), the data gives " + std::to_string(given_.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (values_.contains(wanted[i]->name))
      throw ConfigError("has two inputs named \"" + wanted[i]->name + "\"");
    values_[wanted[i]->name] = take_input(*wanted[i], given_[i]);
  }
}

ValueId Import::take_input(const FileValue& of_file, const GraphValue& given) {
  const at::ScalarType dtype = dtype_of(of_file);
  if (dtype != given.dtype)
    throw ConfigError("input \"" + of_file.name + "\" holds " + c10::toString(dtype) + ", the data gives " +
                      c10::toString(given.dtype));
  GraphValue value;
  value.name = of_file.name;
  value.shape = given.shape;
  value.dtype = given.dtype;
  const bool batched = !given.shape.empty() && given.shape.front() == batch_dim;
  if (batched && of_file.shape && !of_file.shape->empty()) batch_of_file_ = of_file.shape->front();
  // A name stands for any number; the first dimension of data in batches is the batch, whatever the file says.
  const auto fits_file = [&] {
    if (!of_file.shape) return true;
    if (of_file.shape->size() != given.shape.size()) return false;
    for (std::size_t i = batched ? 1 : 0; i < given.shape.size(); ++i)
      if ((*of_file.shape)[i].value_or(given.shape[i]) != given.shape[i]) return false;
    return true;
  };
  if (fits_file()) {
    graph_.inputs.push_back(graph_.add_value(std::move(value)));
    return graph_.inputs.back();
  }
  std::vector<std::int64_t> wanted;
  std::int64_t there = 1, needed = 1;
  for (std::size_t i = 1; i < given.shape.size(); ++i) there *= given.shape[i];
  for (std::size_t i = 0; i < of_file.shape->size(); ++i) {
    wanted.push_back(i == 0 ? -1 : (*of_file.shape)[i].value_or(0));
    if (i > 0) needed *= wanted.back();
  }
  const std::string misfit = "input \"" + of_file.name + "\" has shape " + shape_of_file(of_file) +
                             " with the batch in front, the data gives " + shape_text(given.shape);
  if (!batched || there != needed || wanted.empty()) throw ConfigError(misfit);
  if (!options_.reshape_input)
    throw ConfigError(misfit +
                      ", which is as many numbers: set reshape_input = true to bring it into that shape");
  value.name = unique(of_file.name + ".data", value_names_);
  graph_.inputs.push_back(graph_.add_value(std::move(value)));
  Node reshape{"Reshape",
               unique(of_file.name + ".reshape", node_names_),
               {graph_.inputs.back(), hold(wanted)},
               {},
               {}};
  return append(std::move(reshape), {of_file.name}).front();
}

void Import::take_node(const FileNode& node, std::size_t index) {
  node_ = &node;
  index_ = index;
  constexpr std::array<std::string_view, 4> take_growing = {"Add", "Gather", "Mul", "Unsqueeze"};
  const bool takes = std::ranges::find(take_growing, node.op) != take_growing.end();
  for (std::size_t i = 0; !takes && i < node.inputs.size(); ++i)
    require(growth(input(i)) == 0,
            "computes with the numbers of the samples, from a Range up to the size of the batch");
  find_rule(node.op)(*this);
}

void Import::bind_growing(ValueId id, std::int64_t growth) {
  growing_[id] = growth;
  bind(0, id);
}

std::int64_t Import::growth(ValueId id) const {
  const auto found = growing_.find(id);
  return found == growing_.end() ? 0 : found->second;
}

ValueId Import::input(std::size_t index) const {
  if (index >= node_->inputs.size() || node_->inputs[index].empty()) return no_value;
  const auto found = values_.find(node_->inputs[index]);
  if (found == values_.end())
    fail("reads \"" + node_->inputs[index] + "\", which no node before it, input or initializer gives");
  return found->second;
}

std::vector<ValueId> Import::all_inputs() const {
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < node_->inputs.size(); ++i) ids.push_back(input(i));
  while (!ids.empty() && ids.back() == no_value) ids.pop_back();
  return ids;
}

const at::Tensor& Import::constant(ValueId id) const {
  if (id == no_value || !value(id).initializer.defined())
    fail("needs a constant where \"" + (id == no_value ? std::string("nothing") : value(id).name) +
         "\" is given");
  return value(id).initializer;
}

std::vector<std::int64_t> Import::integers(ValueId id) const {
  const at::Tensor& tensor = constant(id);
  require(!tensor.is_floating_point(), "\"" + value(id).name + "\" holds no integers");
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

const AttributeValue* Import::attribute(const char* name) const {
  const auto found = node_->attributes.find(name);
  return found == node_->attributes.end() ? nullptr : &found->second;
}

namespace {

template <class T>
const T* of_type(const Import& at, const char* name, const char* type) {
  const AttributeValue* const given = at.attribute(name);
  if (given == nullptr) return nullptr;
  const T* const value = std::get_if<T>(given);
  at.require(value != nullptr, std::string("attribute `") + name + "` is not " + type);
  return value;
}

}  // namespace

std::int64_t Import::integer(const char* name, std::int64_t fallback) const {
  const auto* const value = of_type<std::int64_t>(*this, name, "an integer");
  return value == nullptr ? fallback : *value;
}

float Import::number(const char* name, float fallback) const {
  const auto* const value = of_type<float>(*this, name, "a number");
  return value == nullptr ? fallback : *value;
}

std::string Import::text(const char* name, const std::string& fallback) const {
  const auto* const value = of_type<std::string>(*this, name, "text");
  return value == nullptr ? fallback : *value;
}

std::vector<std::int64_t> Import::integer_list(const char* name) const {
  const auto* const value = of_type<std::vector<std::int64_t>>(*this, name, "a list of integers");
  return value == nullptr ? std::vector<std::int64_t>() : *value;
}

Import::Attributes Import::attributes(const std::set<std::string>& without) const {
  Attributes result;
  for (const auto& [name, value] : node_->attributes) {
    if (without.contains(name)) continue;
    if (const auto* const integer = std::get_if<std::int64_t>(&value))
      result[name] = *integer;
    else if (const auto* const number = std::get_if<float>(&value))
      result[name] = static_cast<double>(*number);
    else if (const auto* const text = std::get_if<std::string>(&value))
      result[name] = *text;
    else if (const auto* const integers = std::get_if<std::vector<std::int64_t>>(&value))
      result[name] = *integers;
    else if (const auto* const numbers = std::get_if<std::vector<float>>(&value))
      result[name] = std::vector<double>(numbers->begin(), numbers->end());
    else if (const auto* const texts = std::get_if<std::vector<std::string>>(&value))
      result[name] = *texts;
    else
      fail("attribute `" + name + "` is a graph, a tensor or nothing, which this operator does not take");
  }
  return result;
}

ValueId Import::batched_input() const {
  for (const ValueId id : graph_.inputs)
    if (!shape(id).empty() && shape(id).front() == batch_dim) return id;
  return no_value;
}

void Import::bind(std::size_t index, ValueId id) {
  if (index >= node_->outputs.size() || node_->outputs[index].empty()) return;
  if (!values_.emplace(node_->outputs[index], id).second)
    fail("gives \"" + node_->outputs[index] + "\", which is given already");
}

ValueId Import::hold(const at::Tensor& tensor) {
  GraphValue value;
  value.name = unique(node_ == nullptr ? "constant" : node_name() + ".constant", value_names_);
  value.initializer = tensor;
  return graph_.add_value(std::move(value));
}

ValueId Import::hold(const std::vector<std::int64_t>& integers) {
  return hold(at::tensor(integers, at::kLong));
}

void Import::fix(ValueId id) {
  if (id != no_value) graph_.values[static_cast<std::size_t>(id)].trainable = false;
}

void Import::emit(std::string op, std::vector<ValueId> inputs, Attributes attributes) {
  require(!node_->outputs.empty(), "has no output");
  for (std::size_t i = 1; i < node_->outputs.size(); ++i)
    require(!read_.contains(node_->outputs[i]) || node_->outputs[i].empty(),
            "its output " + std::to_string(i) + ", \"" + node_->outputs[i] +
                "\", is read; only output 0 is given");
  emit_outputs(std::move(op), std::move(inputs), std::move(attributes), 1);
}

void Import::emit_outputs(std::string op, std::vector<ValueId> inputs, Attributes attributes,
                          std::size_t count) {
  const std::vector<std::string> names(node_->outputs.begin(),
                                       node_->outputs.begin() + static_cast<std::ptrdiff_t>(count));
  Node made{std::move(op), unique(node_name(), node_names_), std::move(inputs), {}, std::move(attributes)};
  const std::vector<ValueId> outputs = append(std::move(made), names);
  for (std::size_t i = 0; i < count; ++i) bind(i, outputs[i]);
}

ValueId Import::step(std::string op, std::vector<ValueId> inputs, Attributes attributes) {
  const std::string name = unique(node_name() + "." + lib::lower_case(op), node_names_);
  Node made{std::move(op), name, std::move(inputs), {}, std::move(attributes)};
  return append(std::move(made), {unique(name + ":0", value_names_)}).front();
}

bool Import::all_constant(const Node& node) const {
  return node.op != "Dropout" && std::ranges::all_of(node.inputs, [&](ValueId id) {
           return id == no_value || (value(id).initializer.defined() && !value(id).trainable);
         });
}

/// The node by itself tells its types, and, of constants, its values.
std::vector<ValueId> Import::append(Node node, std::vector<std::string> names) {
  Graph alone;
  std::map<ValueId, ValueId> ids;
  Node copy = node;
  for (ValueId& id : copy.inputs) {
    if (id == no_value) continue;
    const auto [place, fresh] = ids.emplace(id, 0);
    if (fresh) {
      place->second = alone.add_value(value(id));
      if (!value(id).initializer.defined()) alone.inputs.push_back(place->second);
    }
    id = place->second;
  }
  for (const std::string& name : names) {
    GraphValue output;
    output.name = name.empty() ? unique("none", value_names_) : name;
    copy.outputs.push_back(alone.add_value(std::move(output)));
  }
  alone.outputs = copy.outputs;
  alone.nodes.push_back(std::move(copy));
  alone.infer_shapes();

  const bool computed = all_constant(node);
  std::vector<at::Tensor> tensors;
  if (computed) {
    for (const ValueId id : alone.outputs)
      require(elements(alone.values[static_cast<std::size_t>(id)].shape, names.front()) <= most_elements,
              "makes a constant of shape " + shape_text(alone.values[static_cast<std::size_t>(id)].shape));
    // By symbols nothing can be computed; they can be moved, and are like no number but themselves.
    static const std::set<std::string, std::less<>> moving = {"Cast",     "Concat",    "Equal", "Gather",
                                                              "Identity", "Reshape",   "Slice", "Split",
                                                              "Squeeze",  "Unsqueeze", "Where"};
    if (!moving.contains(node.op))
      for (const ValueId id : node.inputs)
        require(
            id == no_value || value(id).dtype != at::kLong || std::ranges::none_of(integers(id), is_batch),
            "computes with the size of the batch, which is known in a training step alone");
    tensors = GraphNetwork(alone).forward_all({}, {});
  }
  std::vector<ValueId> result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    GraphValue output = alone.values[static_cast<std::size_t>(alone.outputs[i])];
    if (computed) output.initializer = tensors[i].contiguous();
    const bool skipped = names[i].empty();
    result.push_back(skipped ? no_value : graph_.add_value(std::move(output)));
  }
  if (computed) return result;
  node.outputs = result;
  graph_.nodes.push_back(std::move(node));
  return result;
}

std::string Import::unique(const std::string& name, std::set<std::string>& taken) {
  std::string result = name;
  for (int i = 1; !taken.insert(result).second; ++i) result = name + ":" + std::to_string(i);
  return result;
}

std::string Import::node_name() const {
  return node_->name.empty() ? lib::lower_case(node_->op) + std::to_string(index_) : node_->name;
}

void Import::fail(const std::string& message) const {
  throw ConfigError("node \"" + node_name() + "\" (" + node_->op + "): " + message);
}

}  // namespace onnx
