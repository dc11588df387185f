#include "compiler.hpp"

#include <algorithm>
#include <array>

#include "loops.hpp"

namespace compiled {

using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::Node;
using trainyard::ValueId;

namespace {

constexpr std::array<Rule, 9> rules = {linear_rule,        convolution_rule, pooling_rule,
                                       normalization_rule, chain_rule,       elementwise_rule,
                                       view_rule,          attention_rule,   shortcut_rule};

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
    case Finish::add: return add_into(floats(total), floats(memory), elements(total));
    case Finish::copy: return copy(floats(total), floats(memory), elements(total));
  }
}

Compiler::Compiler(const Graph& graph, const PlanKey& key, const Choices& choices)
    : Progress(graph, key.inputs, key.copies),
      is_training_(key.training),
      has_dropout_(key.has_dropout),
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
    backward_at_ = count + (count - i);
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

bool Compiler::has_input(std::size_t index) const {
  return index < node().inputs.size() && node().inputs[index] != trainyard::no_value;
}

bool Compiler::is_constant(std::size_t index) const {
  return graph().values[static_cast<std::size_t>(node().inputs[index])].initializer.defined();
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

bool Compiler::absorb(std::string_view op, ValueId& output) {
  const std::optional<std::size_t> next = only_reader(output);
  if (!next || graph().nodes[*next].op != op) return false;
  take(*next);
  output = graph().nodes[*next].outputs[0];
  return true;
}

bool Compiler::has_floats(ValueId id) const {
  return known(id) && values_[*known(id)].dtype == at::kFloat;
}

View Compiler::add_buffer(const Layout& layout) {
  buffers_.emplace_back(layout.get_size(), false);
  return {buffers_.size() - 1, 0, layout};
}

ValueNumber Compiler::make(const Dims& dims, const Layout& layout, bool wants_gradient, bool is_blocked) {
  values_.push_back(
      {.dims = dims, .view = add_buffer(layout), .wants_gradient = wants_gradient, .is_blocked = is_blocked});
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

ValueNumber Compiler::alias(ValueNumber of, const Dims& dims) {
  Value value = values_[of];
  value.dims = dims;
  value.view.layout = plain(dims);
  value.is_parameter = false;
  value.is_alias = true;
  values_[of].readers.push_back(instructions_.size() + 1);  // the instruction that is about to be emitted
  value.other_layout.reset();
  values_.push_back(std::move(value));
  return values_.size() - 1;
}

ValueNumber Compiler::in_blocks(ValueNumber number) {
  if (values_[number].is_blocked) return number;
  if (values_[number].other_layout) return *values_[number].other_layout;
  const Dims dims = values_[number].dims;
  Dims whole = dims;
  whole[1] = whole_blocks(dims[1]);
  const ValueNumber made = make(dims, blocked(whole), values_[number].wants_gradient, true);
  values_[number].other_layout = made;
  values_[made].other_layout = number;
  emit<Reorder>({made}, number, made, plain(dims), blocked(dims));
  return made;
}

ValueNumber Compiler::in_plain(ValueNumber number) {
  if (!values_[number].is_blocked) return number;
  if (values_[number].other_layout) return *values_[number].other_layout;
  const Dims dims = values_[number].dims;
  const ValueNumber made = make(dims, plain(dims), values_[number].wants_gradient);
  values_[number].other_layout = made;
  values_[made].other_layout = number;
  emit<Reorder>({made}, number, made, blocked(dims), plain(dims));
  return made;
}

int Compiler::now() const {
  return static_cast<int>(backward_at_ ? *backward_at_ : instructions_.size());
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
