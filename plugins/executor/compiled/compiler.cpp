#include "compiler.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace compiled {

using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::Node;
using trainyard::ValueId;

namespace {

constexpr std::array rules = {product_rule,  convolution_rule, pooling_rule,   normalization_rule,
                              chain_rule,    elementwise_rule, view_rule,      attention_rule,
                              shortcut_rule, joined_rule,      recurrent_rule, narrow_groups_rule,
                              grouped_rule,  broadcast_rule,   embedding_rule, strided_rule,
                              softmax_rule,  reduction_rule,   resize_rule,    group_norm_rule};

/// A change of layout; its gradient goes back the same way.
class Reorder final : public Instruction {
 public:
  Reorder(Compiler& compiler, ValueNumber from, ValueNumber to, const Layout& from_layout,
          const Layout& to_layout)
      : from_(from), to_(to), from_layout_(from_layout), to_layout_(to_layout) {
    forward_ = reorder(compiler.memory(from, from_layout), compiler.memory(to, to_layout));
  }
  void forward(const Pass&) override { forward_.run(); }
  void plan_backward(Compiler& compiler) override {
    const dnnl::memory given = *compiler.gradient(to_);
    into_ = compiler.contribute(from_);
    const auto as = [&](const dnnl::memory& memory, const Layout& layout) {
      return dnnl::memory(layout, engine(), memory.get_data_handle());
    };
    given_ = given;
    source_ = as(given, to_layout_);
    target_ = as(into_.memory, from_layout_);
    backward_ = reorder(source_, target_);
  }
  void backward(const Pass&) override {
    source_.set_data_handle(given_.get_data_handle());
    target_.set_data_handle(into_.memory.get_data_handle());
    backward_.run();
    into_.finish();
  }

 private:
  ValueNumber from_, to_;
  Layout from_layout_, to_layout_;
  Call forward_, backward_;
  dnnl::memory given_, source_, target_;
  Contribution into_;
};

}  // namespace

void Contribution::finish() const {
  switch (then) {
    case Finish::nothing: return;
    case Finish::add:
      return typed([&](auto* to, auto* part) { add_into(to, part, elements(total)); }, total, memory);
    case Finish::copy:
      std::memcpy(total.get_data_handle(), memory.get_data_handle(), total.get_desc().get_size());
  }
}

Compiler::Compiler(const Graph& graph, const PlanKey& key, const Choices& choices)
    : Progress(graph, key.inputs, key.copies),
      is_training_(key.training),
      has_halves_(key.precision == at::kBFloat16 && choices.halves),
      dropped_(key.dropped),
      choices_(choices),
      of_graph_(graph.values.size()) {
  const std::vector<std::vector<std::int64_t>>& inputs = key.inputs;
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const GraphValue& value = graph.values[id];
    if (!value.initializer.defined()) continue;
    of_graph_[id] =
        make_outside(value.initializer.sizes().vec(), value.dtype, value.trainable && key.training);
    values_.back().is_parameter = value.trainable;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    give(graph.inputs[i],
         make_outside(inputs[i], graph.values[static_cast<std::size_t>(graph.inputs[i])].dtype, false));

  for (node_ = 0; node_ < graph.nodes.size(); ++node_) {
    if (is_taken(node_)) continue;
    const bool known = choices.fuses &&
                       std::any_of(rules.begin(), rules.end(), [&](const Rule rule) { return rule(*this); });
    if (known) continue;
    by_libtorch_.push_back(node().name + " (" + node().op + ")");
    libtorch_rule(*this);
  }
}

void Compiler::plan_backward(ValueNumber output) {
  backward_at_ = 0;
  const std::size_t count = instructions_.size();
  if (values_[output].wants_gradient) {
    values_[output].gradient = add_buffer(values_[output].view.layout);
    buffers_[values_[output].gradient->buffer].use(static_cast<int>(count));
  }
  for (std::size_t i = count; i-- > 0;) {
    backward_at_ = time_back(i);
    const Entry& entry = instructions_[i];
    const bool reached = std::any_of(entry.outputs.begin(), entry.outputs.end(),
                                     [&](ValueNumber each) { return values_[each].gradient.has_value(); });
    if (!reached) continue;
    entry.instruction->plan_backward(*this);
    backward_.push_back(i);
  }
}

ValueNumber Compiler::input(std::size_t index) const {
  return *of_graph_[static_cast<std::size_t>(node().inputs[index])];
}

KernelTimes Compiler::times() const {
  if (!choices_.kernels) return {};
  const auto found = choices_.kernels->find(shape_key(graph(), node()));
  return found == choices_.kernels->end() ? KernelTimes() : found->second;
}

bool Compiler::has_input(std::size_t index) const {
  return index < node().inputs.size() && node().inputs[index] != trainyard::no_value;
}

bool Compiler::is_constant(std::size_t index) const {
  return graph().values[static_cast<std::size_t>(node().inputs[index])].initializer.defined();
}

bool Compiler::is_weight(std::size_t index) const {
  return is_constant(index) || values_[input(index)].is_parameter;
}

std::optional<Dims> Compiler::numbers(std::size_t index) const {
  if (!has_input(index)) return std::nullopt;
  const at::Tensor& tensor = graph().values[static_cast<std::size_t>(node().inputs[index])].initializer;
  if (!tensor.defined() || tensor.scalar_type() != at::kLong || !tensor.is_contiguous()) return std::nullopt;
  const auto* data = tensor.const_data_ptr<std::int64_t>();
  return Dims(data, data + tensor.numel());
}

std::optional<std::size_t> Compiler::only_reader(ValueId id) const {
  if (std::count(graph().outputs.begin(), graph().outputs.end(), id) != 0) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < graph().nodes.size(); ++i)
    for (const ValueId input : graph().nodes[i].inputs) {
      if (input != id) continue;
      if (found) return std::nullopt;
      found = i;
    }
  return found;
}

bool Compiler::is_read_as_half(ValueId id) const {
  const std::optional<std::size_t> reader = only_reader(id);
  if (!has_halves_ || !reader || is_dropped(*reader)) return false;
  const Node& node = graph().nodes[*reader];
  const auto is_one_of = [&](const auto& ops) {
    return std::find(ops.begin(), ops.end(), node.op) != ops.end();
  };
  constexpr std::array<std::string_view, 12> takes = {"Gemm",    "Conv",        "Relu",      "Gelu",
                                                      "Sigmoid", "Tanh",        "LeakyRelu", "Elu",
                                                      "MaxPool", "AveragePool", "Attention", "MatMul"};
  constexpr std::array<std::string_view, 5> hands_on = {"Reshape", "Flatten", "Squeeze", "Unsqueeze",
                                                        "Identity"};
  if (recurrent_cell(node)) return node.inputs[0] == id;  // its states are floats
  if (is_one_of(takes)) return true;
  if (is_one_of(hands_on)) return is_read_as_half(node.outputs[0]);
  // Queries, keys and values that one layer gives.
  const std::optional<std::size_t> next = node.op == "Split" ? only_reader(node.outputs[0]) : std::nullopt;
  return next && graph().nodes[*next].op == "Attention";
}

bool Compiler::absorb(std::string_view op, ValueId& output) {
  const std::optional<std::size_t> next = only_reader(output);
  if (!next || graph().nodes[*next].op != op) return false;
  take(*next);
  output = graph().nodes[*next].outputs[0];
  return true;
}

bool Compiler::has_floats(ValueId id) const {
  return known(id) && is_real(*known(id));
}

View Compiler::add_buffer(const Layout& layout) {
  buffers_.emplace_back(layout.get_size(), false);
  return {buffers_.size() - 1, 0, layout};
}

ValueNumber Compiler::make(const Dims& dims, const Layout& layout, bool wants_gradient, bool is_blocked) {
  values_.push_back({.dims = dims,
                     .dtype = layout.get_data_type() == bf16 ? at::kBFloat16 : at::kFloat,
                     .view = add_buffer(layout),
                     .wants_gradient = wants_gradient,
                     .is_blocked = is_blocked});
  return values_.size() - 1;
}

ValueNumber Compiler::make_outside(const Dims& dims, at::ScalarType dtype, bool wants_gradient) {
  const Layout layout = dtype == at::kFloat ? plain(dims) : Layout();
  buffers_.emplace_back(0, true);
  values_.push_back({.dims = dims,
                     .dtype = dtype,
                     .view = {buffers_.size() - 1, 0, layout},
                     .wants_gradient = wants_gradient});
  return values_.size() - 1;
}

ValueNumber Compiler::make_joined(const Dims& dims, bool wants_gradient) {
  const ValueNumber made = make_outside(dims, at::kFloat, wants_gradient);
  values_[made].is_parameter = true;
  return made;
}

ValueNumber Compiler::alias(ValueNumber of, const Dims& dims) {
  Value value = values_[of];
  value.dims = dims;
  value.view.layout = plain(dims, value.view.layout.get_data_type());
  value.is_parameter = false;
  value.is_alias = true;
  values_[of].readers.push_back(instructions_.size() + 1);  // the instruction that is about to be emitted
  value.other_layout.reset();
  values_.push_back(std::move(value));
  return values_.size() - 1;
}

Layout Compiler::image(const Dims& dims) const {
  if (has_halves_) return channels_last(dims);
  Dims whole = dims;
  whole[1] = whole_blocks(dims[1]);
  return blocked(whole);
}

/// `from` and `to` describe the values alone, `whole` all of the memory, with what fills it up.
ValueNumber Compiler::in_other(ValueNumber number, const Layout& from, const Layout& to, const Layout& whole,
                               bool is_blocked) {
  const std::optional<std::size_t> other = values_[number].other_layout;
  if (other && values_[*other].view.layout == whole) return *other;
  const Dims dims = values_[number].dims;
  const ValueNumber made = make(dims, whole, values_[number].wants_gradient, is_blocked);
  values_[number].other_layout = made;
  values_[made].other_layout = number;
  emit<Reorder>({made}, number, made, from, to);
  return made;
}

ValueNumber Compiler::in_half(ValueNumber number) {
  const Value& value = values_[number];
  if (value.dtype == at::kBFloat16 && !value.is_blocked) return number;
  const Layout lies = value.view.layout, half = plain(value.dims, bf16);
  return in_other(number, lies, half, half, false);
}

ValueNumber Compiler::in_blocks(ValueNumber number) {
  const Value& value = values_[number];
  if (value.is_blocked) return number;
  const Layout lies = value.view.layout;
  const Dims dims = value.dims;
  return in_other(number, lies, has_halves_ ? channels_last(dims) : blocked(dims), image(dims), true);
}

ValueNumber Compiler::in_plain(ValueNumber number) {
  const Value& value = values_[number];
  if (!value.is_blocked && value.dtype != at::kBFloat16) return number;
  const Dims dims = value.dims;
  const Layout from = value.dtype == at::kBFloat16 ? value.view.layout : blocked(dims);
  return in_other(number, from, plain(dims), plain(dims), false);
}

int Compiler::now() const {
  return backward_at_ ? *backward_at_ : static_cast<int>(instructions_.size());
}

void Compiler::use(const View& view) {
  buffers_[view.buffer].use(now());
}

dnnl::memory Compiler::memory(ValueNumber number) {
  return memory(number, values_[number].view.layout);
}

dnnl::memory Compiler::memory(ValueNumber number, const Layout& layout) {
  read(number);
  const View& view = values_[number].view;
  return buffer(view).memory(layout, view.offset);
}

dnnl::memory Compiler::scratch(const Layout& layout) {
  const View view = add_buffer(layout);
  use(view);
  return buffer(view).memory(layout, 0);
}

Address Compiler::place(ValueNumber number) {
  read(number);
  return {*this, values_[number].view};
}

void Compiler::read(ValueNumber number) {
  Value& value = values_[number];
  use(value.view);
  if (!backward_at_ && value.maker != instructions_.size()) value.readers.push_back(instructions_.size());
}

void* Address::data() const {
  return compiler_->buffers_[buffer_].data() + offset_;
}

void Address::place(void* data) const {
  compiler_->buffers_[buffer_].place(data);
}

std::optional<dnnl::memory> Compiler::gradient(ValueNumber number) {
  const std::optional<View>& view = values_[number].gradient;
  if (!view) return std::nullopt;
  use(*view);
  return buffer(*view).memory(view->layout, view->offset);
}

Contribution Compiler::contribute(ValueNumber number, bool adds) {
  Value& value = values_[number];
  if (!value.gradient) {
    value.gradient = add_buffer(value.view.layout);
    if (value.is_parameter) buffers_.back() = Buffer(0, true);
    return {.memory = *gradient(number), .total = {}};
  }
  const dnnl::memory total = *gradient(number);
  if (adds) return {.memory = total, .total = total};
  return {.memory = scratch(value.gradient->layout), .total = total, .then = Contribution::Finish::add};
}

dnnl::memory Compiler::over_gradient(ValueNumber number) {
  Value& value = values_[number];
  if (value.shares_gradient) value.gradient = add_buffer(value.gradient->layout);
  value.shares_gradient = false;
  return *gradient(number);
}

bool Compiler::share_gradient(ValueNumber a, ValueNumber b) {
  Value& last = values_[b];
  if (last.is_alias || values_[a].is_alias || last.is_parameter || last.readers.size() != 1 ||
      last.maker <= values_[a].maker)
    return false;
  for (const std::size_t reader : values_[a].readers)
    if (reader >= last.maker && reader != last.readers.front()) return false;
  return last.shares_gradient = true;
}

bool Compiler::cut_gradient(ValueNumber joined, ValueNumber parameter, std::size_t offset) {
  Value& value = values_[parameter];
  if (value.gradient) return false;
  value.gradient = add_buffer(value.view.layout);
  buffers_.back() = Buffer(0, true);
  cuts_.push_back({joined, parameter, offset});
  return true;
}

Contribution Compiler::copy_on(ValueNumber number, ValueNumber output) {
  const dnnl::memory given = *gradient(output);
  return {given, contribute(number).memory, Contribution::Finish::copy};
}

Contribution Compiler::pass_on(ValueNumber number, ValueNumber output) {
  Value& value = values_[number];
  const dnnl::memory given = *gradient(output);
  if (value.gradient) return {given, *gradient(number), Contribution::Finish::add};
  if (value.is_parameter) return copy_on(number, output);
  value.gradient = values_[output].gradient;
  value.gradient->layout = value.view.layout;
  return {};
}

}  // namespace compiled
