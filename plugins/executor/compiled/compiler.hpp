// From a graph and the shapes of a batch to a list of instructions with their memory. Nodes are taken one after
// another; a rule makes instructions of a node, perhaps with those behind it, or leaves it to LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/graph.hpp>

#include "instruction.hpp"
#include "memory.hpp"
#include "progress.hpp"

namespace compiled {

/// A value of a plan: of the graph, or one that the compiler put between.
struct Value {
  Dims dims;
  at::ScalarType dtype = at::kFloat;
  View view;
  bool wants_gradient = false;
  bool is_parameter = false;         ///< its gradient is handed out
  std::size_t maker = 0;             ///< number of the instruction that makes it, from 1; 0: none
  std::vector<std::size_t> readers;  ///< instructions
  bool is_alias = false;
  std::optional<View> gradient;  ///< from the first contribution on, as the backward pass is planned
  bool shares_gradient = false;  ///< another value's lies in the same place
  std::optional<std::size_t> other_layout;  ///< the value that is this one in blocks, or plain
  bool is_blocked = false;
};
using ValueNumber = std::size_t;

/// Where an instruction puts its part of a gradient. `finish` is to be called behind that.
struct Contribution {
  enum class Finish : std::uint8_t { nothing, add, copy };
  dnnl::memory memory;
  dnnl::memory total;
  Finish then = Finish::nothing;  ///< what makes `memory` part of the total
  void finish() const;
};

class Compiler;

/// Where a value of any type lies.
class Address {
 public:
  Address(Compiler& compiler, const View& view)
      : compiler_(&compiler), buffer_(view.buffer), offset_(view.offset) {}
  void* data() const;
  /// Of a value outside the arena.
  void place(void* data) const;

 private:
  Compiler* compiler_;
  std::size_t buffer_, offset_;
};

/// What a plan is made for: another is needed where one of these differs.
struct PlanKey {
  std::vector<std::vector<std::int64_t>> inputs;  ///< shapes
  bool training = true;                           ///< in evaluation there is no way back
  bool has_dropout = false;
  Copies copies;  ///< that the dropout makes
  int threads = 1;
  at::Device device = at::kCPU;
  bool operator==(const PlanKey&) const = default;
};

struct Choices {
  bool fuses = true;     ///< nodes with a rule are compiled; else each runs by LibTorch
  bool winograd = true;  ///< convolutions may take fewer products, with a digit less
};

/// Lives as long as its plan: instructions know it.
class Compiler final : public Progress {
 public:
  Compiler(const trainyard::Graph& graph, const PlanKey& key, const Choices& choices);

  // What rules read.
  using Progress::node;
  const trainyard::Node& node() const { return node(node_); }
  std::size_t node_number() const { return node_; }
  bool is_training() const { return is_training_; }
  bool has_dropout() const { return has_dropout_; }
  const Choices& choices() const { return choices_; }
  /// The plan's value of an input of the node.
  ValueNumber input(std::size_t index) const;
  bool has_input(std::size_t index) const;
  /// Whether an input is an initializer.
  bool is_constant(std::size_t index) const;
  const Value& value(ValueNumber number) const { return values_[number]; }
  /// The node that alone reads a value of the graph, and once.
  std::optional<std::size_t> only_reader(trainyard::ValueId id) const;
  /// The plan's value of one of the graph, where it has been made.
  std::optional<ValueNumber> known(trainyard::ValueId id) const {
    return of_graph_[static_cast<std::size_t>(id)];
  }
  /// Takes the node behind this one as well where it is `op` and the only reader of `output`: then true, and
  /// `output` is what that node gives.
  bool absorb(std::string_view op, trainyard::ValueId& output);
  bool has_floats(trainyard::ValueId id) const override;
  bool wants_gradient_of(trainyard::ValueId id) const override { return wants_gradient(*known(id)); }

  // What rules make.
  ValueNumber make(const Dims& dims, const Layout& layout, bool wants_gradient, bool is_blocked = false);
  /// One outside the arena: of any dtype.
  ValueNumber make_outside(const Dims& dims, at::ScalarType dtype, bool wants_gradient);
  /// What a primitive keeps for its backward pass.
  ValueNumber make_bytes(const Layout& layout) { return make({}, layout, false); }
  /// The same memory in another shape.
  ValueNumber alias(ValueNumber of, const Dims& dims);
  /// The value in blocks of channels, or plain, with an instruction where it is not so.
  ValueNumber in_blocks(ValueNumber number);
  ValueNumber in_plain(ValueNumber number);
  void give(trainyard::ValueId id, ValueNumber number) { of_graph_[static_cast<std::size_t>(id)] = number; }
  template <class T, class... Arguments>
  void emit(std::vector<ValueNumber> outputs, Arguments&&... arguments) {
    for (const ValueNumber each : outputs)
      if (!values_[each].is_alias) values_[each].maker = instructions_.size() + 1;
    instructions_.push_back({std::move(outputs), nullptr});
    instructions_.back().instruction = std::make_unique<T>(*this, std::forward<Arguments>(arguments)...);
  }

  // What instructions ask for; from then on it is used at the time of the instruction.
  dnnl::memory memory(ValueNumber number);
  /// In a layout that describes the same bytes in another way.
  dnnl::memory memory(ValueNumber number, const Layout& layout);
  Address place(ValueNumber number);
  dnnl::memory scratch(const Layout& layout);
  bool wants_gradient(ValueNumber number) const { return values_[number].wants_gradient; }
  /// False where training takes no gradient to the value.
  bool is_reached(ValueNumber number) const { return !is_training_ || wants_gradient(number); }
  /// Of an output, in the layout of the value. Nothing where nobody gave any.
  std::optional<dnnl::memory> gradient(ValueNumber number);
  /// Where an instruction puts what it makes of the gradient of its output, as what it is from then on: over it,
  /// unless it is shared.
  dnnl::memory over_gradient(ValueNumber number);
  bool has_gradient(ValueNumber number) const { return values_[number].gradient.has_value(); }
  /// `adds`: the instruction adds by itself to what is there, where has_gradient said so.
  Contribution contribute(ValueNumber number, bool adds = false);
  /// The gradient of `output`, which is of the same bytes and needed by nobody else any more, is a part of
  /// that of `number`. With copy_on it is copied, as somebody else takes its place over.
  Contribution pass_on(ValueNumber number, ValueNumber output);
  Contribution copy_on(ValueNumber number, ValueNumber output);
  /// Two values, `b` made behind `a`, are about to take over the gradient of their sum. True where both may: who
  /// makes b reads it before anything else is added for a.
  bool share_gradient(ValueNumber a, ValueNumber b);

 private:
  friend class Plan;
  friend class Address;
  struct Entry {
    std::vector<ValueNumber> outputs;
    std::unique_ptr<Instruction> instruction;
  };

  void use(const View& view);
  void read(ValueNumber number);
  int now() const;
  Buffer& buffer(const View& view) { return buffers_[view.buffer]; }
  View add_buffer(const Layout& layout);
  void plan_backward(ValueNumber output);

  bool is_training_, has_dropout_;
  Choices choices_;
  std::size_t node_ = 0;
  std::vector<std::optional<ValueNumber>> of_graph_;
  std::vector<Value> values_;
  std::vector<Buffer> buffers_;
  std::vector<Entry> instructions_;
  std::vector<std::size_t> backward_;  ///< instructions, in the order of that pass
  std::optional<std::size_t> backward_at_;
  std::vector<std::string> by_libtorch_;  ///< nodes
};

/// Makes instructions of the node, or says that it cannot. Those of one family of operators each, in the file
/// of its name.
using Rule = bool (*)(Compiler&);
bool linear_rule(Compiler&);
bool convolution_rule(Compiler&);
bool pooling_rule(Compiler&);
bool normalization_rule(Compiler&);
bool chain_rule(Compiler&);
bool elementwise_rule(Compiler&);
bool view_rule(Compiler&);
bool attention_rule(Compiler&);
bool shortcut_rule(Compiler&);
/// Any node.
void libtorch_rule(Compiler&);

}  // namespace compiled
