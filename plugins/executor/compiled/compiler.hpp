// From a graph and the shapes of a batch to a list of instructions with their memory. Nodes are taken one after
// another; a rule makes instructions of a node, perhaps with those behind it, or leaves it to LibTorch.
#pragma once

#include <algorithm>
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
#include "kernel_times.hpp"
#include "kernels/cpu/cells.hpp"
#include "memory.hpp"
#include "progress.hpp"

namespace compiled {

/// A value of a plan: of the graph, or one that the compiler put between.
struct Value {
  Dims dims;
  at::ScalarType dtype = at::kFloat;  ///< kBFloat16: a value of floats, kept as halves
  View view;
  bool wants_gradient = false;
  bool is_parameter = false;         ///< its gradient is handed out
  std::size_t maker = 0;             ///< number of the instruction that makes it, from 1; 0: none
  std::vector<std::size_t> readers;  ///< instructions
  bool is_alias = false;
  std::optional<View> gradient;  ///< from the first contribution on, as the backward pass is planned
  bool shares_gradient = false;  ///< another value's lies in the same place
  std::optional<std::size_t> other_layout;  ///< the value that is this one in blocks or halves, or plain
  bool is_blocked = false;                  ///< an image as convolutions are fastest: Compiler::image
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
  std::vector<std::size_t> dropped;               ///< nodes at which the dropout acts, in order
  Copies copies;                                  ///< that it makes
  int threads = 1;
  at::Device device = at::kCPU;
  at::ScalarType precision = at::kFloat;  ///< kBFloat16: of operands where matrix units are
  bool operator==(const PlanKey&) const = default;
};

struct Choices {
  bool fuses = true;                           ///< nodes with a rule are compiled; else each runs by LibTorch
  bool winograd = true;                        ///< convolutions may take fewer products, with a digit less
  bool halves = true;                          ///< in a pass that may have them
  std::shared_ptr<const KernelTable> kernels;  ///< measured; where it has not the shape, counts decide
  std::size_t message = std::size_t{1} << 20;  ///< bytes of gradients that are worth a message of their own
};

/// What computes one direction of a convolution.
struct Kernel {
  std::size_t node;
  Direction direction;
  Way way;
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
  /// Whether the dropout acts at a node.
  bool is_dropped(std::size_t node) const {
    return std::binary_search(dropped_.begin(), dropped_.end(), node);
  }
  const Choices& choices() const { return choices_; }
  /// What was measured of the node; nothing, as infinities, where it was not.
  KernelTimes times() const;
  void note(const Kernel& kernel) { kernels_.push_back(kernel); }
  /// Whether what matrix units work on is kept as bfloat16; sums, statistics, parameters and their gradients are floats.
  bool has_halves() const { return has_halves_; }
  /// The plan's value of an input of the node.
  ValueNumber input(std::size_t index) const;
  bool has_input(std::size_t index) const;
  /// Whether an input is an initializer.
  bool is_constant(std::size_t index) const;
  /// True for parameters as well that nodes hand on: joined, or by an Identity, as exporters have it for two that are equal.
  bool is_weight(std::size_t index) const;
  /// An input of integers that is constant. Nothing where it is another, or is not there.
  std::optional<Dims> numbers(std::size_t index) const;
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

  /// Of floats, or of halves in their place.
  bool is_real(ValueNumber number) const {
    return values_[number].dtype == at::kFloat || values_[number].dtype == at::kBFloat16;
  }
  /// Whether who reads a value of the graph, if it is one node alone, takes halves as well as floats.
  bool is_read_as_half(trainyard::ValueId id) const;

  // What rules make.
  ValueNumber make(const Dims& dims, const Layout& layout, bool wants_gradient, bool is_blocked = false);
  /// One outside the arena: of any dtype.
  ValueNumber make_outside(const Dims& dims, at::ScalarType dtype, bool wants_gradient);
  /// Parameters joined: outside, and its gradient is handed out by those who are cut from it.
  ValueNumber make_joined(const Dims& dims, bool wants_gradient);
  /// What a primitive keeps for its backward pass.
  ValueNumber make_bytes(const Layout& layout) { return make({}, layout, false); }
  /// The same memory in another shape.
  ValueNumber alias(ValueNumber of, const Dims& dims);
  /// The layout of an image as convolutions are fastest: in blocks, which are filled up, or of halves by pixels.
  Layout image(const Dims& dims) const;
  /// An image so, and a value of floats or of halves in the order of its dimensions, with an instruction where it is not so.
  ValueNumber in_blocks(ValueNumber number);
  ValueNumber in_plain(ValueNumber number);
  ValueNumber in_half(ValueNumber number);
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
  /// The gradient of a parameter that has none yet is a stretch of that of joined ones, from a byte on. False where it has one.
  bool cut_gradient(ValueNumber joined, ValueNumber parameter, std::size_t offset);
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

  /// A parameter whose gradient is a stretch of another's.
  struct Cut {
    ValueNumber joined, parameter;
    std::size_t offset;
  };

  void use(const View& view);
  void read(ValueNumber number);
  int now() const;
  Buffer& buffer(const View& view) { return buffers_[view.buffer]; }
  View add_buffer(const Layout& layout);
  ValueNumber in_other(ValueNumber number, const Layout& from, const Layout& to, const Layout& whole,
                       bool is_blocked);
  void plan_backward(ValueNumber output);
  /// The time of an instruction on the way back.
  int time_back(std::size_t instruction) const {
    return static_cast<int>(2 * instructions_.size() - instruction);
  }

  bool is_training_, has_halves_;
  std::vector<std::size_t> dropped_;
  Choices choices_;
  std::size_t node_ = 0;
  std::vector<std::optional<ValueNumber>> of_graph_;
  std::vector<Value> values_;
  std::vector<Buffer> buffers_;
  std::vector<Entry> instructions_;
  std::vector<std::size_t> backward_;  ///< instructions, in the order of that pass
  std::optional<int> backward_at_;     ///< the time, as that pass is planned
  std::vector<Cut> cuts_;
  std::vector<std::string> by_libtorch_;  ///< nodes
  std::vector<Kernel> kernels_;
};

/// What a recurrent node does in a step; nothing where no rule compiles it, as a GRU that resets ahead of its product.
std::optional<trainyard::kernels::Cell> recurrent_cell(const trainyard::Node& node);

/// Makes instructions of the node, or says that it cannot. Those of one family of operators each, in the file
/// of its name.
using Rule = bool (*)(Compiler&);
bool product_rule(Compiler&);
bool convolution_rule(Compiler&);
bool pooling_rule(Compiler&);
bool normalization_rule(Compiler&);
bool chain_rule(Compiler&);
bool elementwise_rule(Compiler&);
bool view_rule(Compiler&);
bool attention_rule(Compiler&);
bool shortcut_rule(Compiler&);
bool joined_rule(Compiler&);
bool recurrent_rule(Compiler&);
bool grouped_rule(Compiler&);
bool narrow_groups_rule(Compiler&);
bool broadcast_rule(Compiler&);
bool embedding_rule(Compiler&);
bool strided_rule(Compiler&);
bool softmax_rule(Compiler&);
bool reduction_rule(Compiler&);
bool resize_rule(Compiler&);
bool group_norm_rule(Compiler&);
/// Any node.
void libtorch_rule(Compiler&);

/// A plain value in another shape, and with its dimensions in another order.
ValueNumber reshaped(Compiler& compiler, ValueNumber x, const Dims& dims);
ValueNumber turned(Compiler& compiler, ValueNumber x, const Dims& order);

}  // namespace compiled
