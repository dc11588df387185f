// LSTM, GRU and RNN, of one direction or both. The products with the inputs are one for all steps, as are those of the
// weights' gradients; what goes from step to step, a product with the output of the step before and the cell
// (kernels/cpu/cells.hpp), is independent for each direction and each row of the batch: threads take rows through all
// steps.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "called_product.hpp"
#include "compiler.hpp"
#include "kernels/cpu/cells.hpp"
#include "loops.hpp"

namespace compiled {
namespace {

using trainyard::kernels::Cell;
using trainyard::kernels::CellGradients;
using trainyard::kernels::CellKernels;
using trainyard::kernels::CellStep;
using Type = dnnl::memory::data_type;

Layout sheet(Type type, std::int64_t rows, std::int64_t columns) {
  return plain({rows, columns}, type);
}
Layout turned_weight(std::int64_t from, std::int64_t to) {
  return {{from, to}, f32, Dims{1, from}};
}
/// In the layout that a product chooses.
Layout any_weight(Type type, std::int64_t from, std::int64_t to) {
  return {{from, to}, type, dnnl::memory::format_tag::any};
}

/// A matrix or more in a memory, from an element on.
struct Part {
  dnnl::memory memory;
  Layout layout;
  std::int64_t first = 0;

  void* data() const {
    return static_cast<std::byte*>(memory.get_data_handle()) +
           static_cast<std::size_t>(first) * dnnl::memory::data_type_size(layout.get_data_type());
  }
};

/// What lies in one part goes to another.
class Move {
 public:
  Move(const Part& from, const Part& to)
      : from_(from),
        to_(to),
        source_(from.layout, engine(), nullptr),
        target_(to.layout, engine(), nullptr),
        call_(reorder(source_, target_)) {}
  void run() const {
    source_.set_data_handle(from_.data());
    target_.set_data_handle(to_.data());
    call_.run();
  }

 private:
  Part from_, to_;
  dnnl::memory source_, target_;
  Call call_;
};

/// The weight of a direction as products take it, packed in each pass where they take it otherwise than it lies.
class GateWeight {
 public:
  GateWeight(Compiler& compiler, const Part& weight, const Layout& wanted) : lies_(weight) {
    if (wanted == weight.layout) return;
    lies_ = {compiler.scratch(wanted), wanted};
    pack_.emplace(weight, lies_);
  }
  const void* data() const { return lies_.data(); }
  void pack() const {
    if (pack_) pack_->run();
  }

 private:
  Part lies_;
  std::optional<Move> pack_;
};

/// dW = dz^T x and, where it is asked for, db, the sum of the rows of dz.
class WeightProduct {
 public:
  WeightProduct(Type type, std::int64_t rows, std::int64_t in, std::int64_t out, bool has_bias) {
    using dnnl::inner_product_forward;
    const Layout x = sheet(type, rows, in), given = sheet(type, rows, out), weight = sheet(type, out, in),
                 of_weight = sheet(f32, out, in), bias = has_bias ? plain({out}) : Layout();
    const inner_product_forward::primitive_desc hint(engine(), dnnl::prop_kind::forward_training, x, weight,
                                                     bias, given);
    const dnnl::inner_product_backward_weights::primitive_desc made(engine(), x, of_weight, bias, given,
                                                                    hint);
    operands_ = {dnnl::memory(x, engine(), nullptr), dnnl::memory(given, engine(), nullptr),
                 dnnl::memory(of_weight, engine(), nullptr)};
    std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_SRC, operands_[0]},
                                                           {DNNL_ARG_DIFF_DST, operands_[1]},
                                                           {DNNL_ARG_DIFF_WEIGHTS, operands_[2]}};
    if (has_bias) {
      of_bias_ = dnnl::memory(bias, engine(), nullptr);
      arguments.emplace_back(DNNL_ARG_DIFF_BIAS, of_bias_);
    }
    call_ = {dnnl::inner_product_backward_weights(made), std::move(arguments)};
  }
  void operator()(const void* x, const void* given, float* of_weight, float* of_bias) const {
    operands_[0].set_data_handle(const_cast<void*>(x));
    operands_[1].set_data_handle(const_cast<void*>(given));
    operands_[2].set_data_handle(of_weight);
    if (of_bias_) of_bias_.set_data_handle(of_bias);
    call_.run();
  }

 private:
  std::array<dnnl::memory, 3> operands_;
  dnnl::memory of_bias_;
  Call call_;
};

struct Sequence {
  Cell cell;
  std::int64_t time, batch, in, hidden, directions;
  bool batch_first, is_reversed;

  std::int64_t sums() const { return trainyard::kernels::gates_of(cell) * hidden; }
  std::int64_t kept() const { return trainyard::kernels::kept_values(cell) * hidden; }
  std::int64_t rows() const { return time * batch; }
  std::int64_t state() const { return batch * hidden; }  ///< elements of one

  // Inside, time is in front, and directions are behind each other. States are those ahead of the first step and
  // behind each one, in the order of time.
  std::int64_t states() const { return (time + 1) * state(); }
  bool is_back(std::int64_t direction) const { return is_reversed || direction == 1; }
  std::int64_t step(std::int64_t direction, std::int64_t i) const {
    return is_back(direction) ? time - 1 - i : i;
  }
  std::int64_t before(std::int64_t direction, std::int64_t t) const {
    return direction * states() + (is_back(direction) ? t + 1 : t) * state();
  }
  std::int64_t behind(std::int64_t direction, std::int64_t t) const {
    return direction * states() + (is_back(direction) ? t : t + 1) * state();
  }
  std::int64_t begin(std::int64_t direction) const { return before(direction, step(direction, 0)); }
  std::int64_t end(std::int64_t direction) const { return behind(direction, step(direction, time - 1)); }

  // Parts of the graph's values, in its layouts.
  Part input(const dnnl::memory& x) const {
    return {x,
            {{time, batch, in}, type_of(x), batch_first ? Dims{in, time * in, 1} : Dims{batch * in, in, 1}}};
  }
  Part output(const dnnl::memory& y, std::int64_t direction) const {
    const std::int64_t all = directions * hidden;
    return {y,
            {{time, batch, hidden},
             type_of(y),
             batch_first ? Dims{all, time * all, 1} : Dims{batch * all, hidden, 1}},
            direction * (batch_first ? hidden : state())};
  }
  Part state_of(const dnnl::memory& states, std::int64_t direction) const {
    return {states,
            {{batch, hidden}, type_of(states), Dims{batch_first ? directions * hidden : hidden, 1}},
            direction * (batch_first ? hidden : state())};
  }
  // And those inside.
  Part steps(const dnnl::memory& memory) const { return {memory, plain({time, batch, in}, type_of(memory))}; }
  Part outputs(const dnnl::memory& memory, std::int64_t first) const {
    return {memory, plain({time, batch, hidden}, type_of(memory)), first};
  }
  Part one_state(const dnnl::memory& memory, std::int64_t first) const {
    return {memory, sheet(type_of(memory), batch, hidden), first};
  }

 private:
  static Type type_of(const dnnl::memory& memory) { return memory.get_desc().get_data_type(); }
};

struct Values {
  ValueNumber x, w, r;
  std::optional<ValueNumber> b, first,
      cells;  ///< bias, and states that the sequence begins with
  std::optional<ValueNumber> y, last, last_cells;
};

/// Rows of the batch in a direction, which go through all steps on one thread.
struct Strand {
  std::int64_t direction, begin, rows;
  CalledProduct step, back;
  std::vector<float> sums;
};

class Recurrent final : public Instruction {
 public:
  Recurrent(Compiler& compiler, const Sequence& s, const Values& values, Type type)
      : s_(s), values_(values), type_(type) {
    x_ = values.x;
    const dnnl::memory x = compiler.memory(values.x);
    if (s.batch_first || x.get_desc().get_data_type() != type) {
      x_ = compiler.make_bytes(sheet(type, s.rows(), s.in));
      before_.emplace_back(s.input(x), s.steps(compiler.memory(x_)));
    }
    outputs_ = compiler.make_bytes(sheet(type, s.directions * (s.time + 1) * s.batch, s.hidden));
    // The output of others than an LSTM is their memory: there is one where both are floats.
    memory_ = outputs_;
    if (s.cell == Cell::lstm || type != f32)
      memory_ = compiler.make_bytes(sheet(f32, s.directions * (s.time + 1) * s.batch, s.hidden));
    if (compiler.is_training()) kept_ = compiler.make_bytes(sheet(type, s.directions * s.rows(), s.kept()));
    at_ = lie(compiler);
    sums_ = compiler.scratch(sheet(f32, s.directions * s.rows(), s.sums()));
    if (values.b) bias_ = compiler.memory(*values.b);
    const Layout row = values.b ? sheet(f32, 1, s.sums()) : Layout();
    with_inputs_ = CalledProduct(sheet(type, s.rows(), s.in), any_weight(type_, s.in, s.sums()),
                                 sheet(f32, s.rows(), s.sums()), false, row);
    divide();
    Layout weight_of_steps = any_weight(type, s.hidden, s.sums());
    for (Strand& each : strands_) {
      each.step = CalledProduct(sheet(type, each.rows, s.hidden), weight_of_steps,
                                sheet(f32, each.rows, s.sums()), false, row);
      weight_of_steps = each.step.factor();  // the one that the first has chosen
    }
    for (std::int64_t d = 0; d < s.directions; ++d) {
      w_.emplace_back(compiler, weight(compiler, values.w, s.in, d, true), with_inputs_.factor());
      r_.emplace_back(compiler, weight(compiler, values.r, s.hidden, d, true), weight_of_steps);
      start(compiler, values.first, at_.outputs, d);
      if (memory_ != outputs_)
        start(compiler, s.cell == Cell::lstm ? values.cells : values.first, at_.memory, d);
      if (values.y)
        behind_.emplace_back(s.outputs(at_.outputs, s.behind(d, 0)), s.output(compiler.memory(*values.y), d));
      finish(compiler, values.last, at_.outputs, d);
      finish(compiler, values.last_cells, at_.memory, d);
    }
  }

  void forward(const Pass&) override {
    for (const Move& each : before_) each.run();
    for (const Part& each : zeros_) std::memset(each.data(), 0, each.layout.get_size());
    for (std::size_t d = 0; d < w_.size(); ++d) {
      w_[d].pack();
      r_[d].pack();
      const auto direction = static_cast<std::int64_t>(d);
      with_inputs_(at_.x.get_data_handle(), w_[d].data(), floats(sums_) + direction * s_.rows() * s_.sums(),
                   bias(direction, 0));
    }
    each_strand([&](Strand& strand) {
      type_ == bf16 ? go<std::uint16_t>(strand, kernels_.forward_halves)
                    : go<float>(strand, kernels_.forward);
    });
    for (const Move& each : behind_) each.run();
  }

  void plan_backward(Compiler& compiler) override {
    back_ = lie(compiler);
    const std::int64_t rows = s_.directions * s_.rows();
    of_state_ = compiler.scratch(sheet(f32, s_.directions * s_.batch, s_.hidden));
    of_memory_ = compiler.scratch(sheet(f32, s_.directions * s_.batch, s_.hidden));
    of_inputs_ = of_sums_ = compiler.scratch(sheet(type_, rows, s_.sums()));
    if (s_.cell == Cell::gru) of_sums_ = compiler.scratch(sheet(type_, rows, s_.sums()));
    const bool is_given = values_.y && compiler.has_gradient(*values_.y);
    if (is_given) given_ = compiler.scratch(sheet(f32, rows, s_.hidden));
    Layout weight_of_steps = any_weight(type_, s_.sums(), s_.hidden);
    for (Strand& each : strands_) {
      each.back = CalledProduct(sheet(type_, each.rows, s_.sums()), weight_of_steps,
                                sheet(f32, each.rows, s_.hidden));
      weight_of_steps = each.back.factor();
    }
    for (std::int64_t d = 0; d < s_.directions; ++d) {
      back_r_.emplace_back(compiler, weight(compiler, values_.r, s_.hidden, d, false), weight_of_steps);
      if (is_given)
        received_.emplace_back(s_.output(*compiler.gradient(*values_.y), d),
                               s_.outputs(given_, d * s_.rows() * s_.hidden));
      receive(compiler, values_.last, s_.one_state(of_state_, d * s_.state()), d);
      receive(compiler, values_.last_cells, s_.one_state(of_memory_, d * s_.state()), d);
    }
    if (compiler.wants_gradient(values_.x)) plan_input(compiler);
    plan_weights(compiler);
    hand_on(compiler, values_.first, of_state_);
    hand_on(compiler, values_.cells, of_memory_);
  }

  void backward(const Pass&) override {
    for (const Move& each : received_) each.run();
    for (const Part& each : unreached_) std::memset(each.data(), 0, each.layout.get_size());
    for (const GateWeight& each : back_r_) each.pack();
    each_strand([&](Strand& strand) {
      type_ == bf16 ? go_back<std::uint16_t>(strand, kernels_.backward_halves)
                    : go_back<float>(strand, kernels_.backward);
    });
    for (std::size_t d = 0; d < back_w_.size(); ++d) {
      back_w_[d].pack();
      with_gradients_[d](of_direction(of_inputs_, d), back_w_[d].data(), of_steps_.get_data_handle());
    }
    give_weights();
    for (const Move& each : handed_on_) each.run();
    for (const Contribution& each : into_) each.finish();
  }

 private:
  /// What both ways read or write, at the time of one of them.
  struct Lies {
    dnnl::memory x, outputs, memory, kept;
  };
  Lies lie(Compiler& compiler) const {
    return {compiler.memory(x_), compiler.memory(outputs_), compiler.memory(memory_),
            kept_ ? compiler.memory(*kept_) : dnnl::memory()};
  }

  /// A direction's, [to, from]: as it is for the way back, and turned for the way forward.
  Part weight(Compiler& compiler, ValueNumber number, std::int64_t from, std::int64_t direction,
              bool is_turned) const {
    return {compiler.memory(number), is_turned ? turned_weight(from, s_.sums()) : sheet(f32, s_.sums(), from),
            direction * s_.sums() * from};
  }

  /// Into strands, so that each thread has some: of a few rows at least, as a product of one reads as much of the
  /// weight.
  void divide() {
    constexpr std::int64_t few = 4;
    const std::int64_t threads = at::get_num_threads(), most = std::max<std::int64_t>(s_.batch / few, 1),
                       count = std::min((threads + s_.directions - 1) / s_.directions, most);
    for (std::int64_t d = 0; d < s_.directions; ++d)
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t begin = s_.batch * i / count, rows = s_.batch * (i + 1) / count - begin;
        strands_.push_back(
            {d, begin, rows, {}, {}, std::vector<float>(static_cast<std::size_t>(rows * s_.sums()))});
      }
  }
  template <class Use>
  void each_strand(const Use& use) {
    at::parallel_for(0, std::ssize(strands_), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) use(strands_[static_cast<std::size_t>(i)]);
    });
  }

  template <class T>
  static T* of(const dnnl::memory& memory, std::int64_t first) {
    return static_cast<T*>(memory.get_data_handle()) + first;
  }
  const void* of_direction(const dnnl::memory& gradients, std::size_t direction) const {
    return Part{gradients, gradients.get_desc(), static_cast<std::int64_t>(direction) * s_.rows() * s_.sums()}
        .data();
  }
  /// Of the sums over the input, and, behind them, over the output.
  float* bias(std::int64_t direction, std::int64_t which) const {
    return values_.b ? floats(bias_) + (2 * direction + which) * s_.sums() : nullptr;
  }

  template <class T>
  void go(Strand& strand, void (*cell)(Cell, const CellStep<T>&)) const {
    const std::int64_t d = strand.direction, row = strand.begin * s_.hidden;
    for (std::int64_t i = 0; i < s_.time; ++i) {
      const std::int64_t t = s_.step(d, i), first = d * s_.rows() + t * s_.batch + strand.begin,
                         before = s_.before(d, t) + row, behind = s_.behind(d, t) + row;
      strand.step(of<T>(at_.outputs, before), r_[static_cast<std::size_t>(d)].data(), strand.sums.data(),
                  bias(d, 1));
      for (std::int64_t b = 0; b < strand.rows; ++b)
        cell(s_.cell, {.units = s_.hidden,
                       .from_input = floats(sums_) + (first + b) * s_.sums(),
                       .from_output = strand.sums.data() + b * s_.sums(),
                       .before = of<float>(at_.memory, before + b * s_.hidden),
                       .memory = of<float>(at_.memory, behind + b * s_.hidden),
                       .kept = kept_ ? of<T>(at_.kept, (first + b) * s_.kept()) : nullptr,
                       .output = of<T>(at_.outputs, behind + b * s_.hidden)});
    }
  }

  template <class T>
  void go_back(Strand& strand, void (*cell)(Cell, const CellGradients<T>&)) const {
    const std::int64_t d = strand.direction, row = strand.begin * s_.hidden, state = d * s_.state() + row;
    float* const of_state = floats(of_state_) + state;
    float* const of_memory = floats(of_memory_) + state;
    for (std::int64_t i = s_.time; i-- > 0;) {
      const std::int64_t t = s_.step(d, i), first = d * s_.rows() + t * s_.batch + strand.begin,
                         before = s_.before(d, t) + row, behind = s_.behind(d, t) + row;
      for (std::int64_t b = 0; b < strand.rows; ++b)
        cell(s_.cell, {.units = s_.hidden,
                       .before = of<float>(back_.memory, before + b * s_.hidden),
                       .memory = of<float>(back_.memory, behind + b * s_.hidden),
                       .kept = of<T>(back_.kept, (first + b) * s_.kept()),
                       .given = given_ ? floats(given_) + (first + b) * s_.hidden : nullptr,
                       .of_output = of_state + b * s_.hidden,
                       .of_memory = of_memory + b * s_.hidden,
                       .of_input = of<T>(of_inputs_, (first + b) * s_.sums()),
                       .of_sums = of<T>(of_sums_, (first + b) * s_.sums())});
      strand.back(of<T>(of_sums_, first * s_.sums()), back_r_[static_cast<std::size_t>(d)].data(), of_state);
    }
    // The state ahead of a GRU's first step is its memory, too.
    if (s_.cell == Cell::gru) add_into(of_state, of_memory, strand.rows * s_.hidden);
  }

  /// A state that the sequence begins with: the value's, or zeros.
  void start(Compiler& compiler, const std::optional<ValueNumber>& value, const dnnl::memory& to,
             std::int64_t direction) {
    const Part part = s_.one_state(to, s_.begin(direction));
    if (!value) return zeros_.push_back(part);
    before_.emplace_back(s_.state_of(compiler.memory(*value), direction), part);
  }
  void finish(Compiler& compiler, const std::optional<ValueNumber>& value, const dnnl::memory& from,
              std::int64_t direction) {
    if (value)
      behind_.emplace_back(s_.one_state(from, s_.end(direction)),
                           s_.state_of(compiler.memory(*value), direction));
  }
  /// The gradient of a last state, or zeros where nobody gave one.
  void receive(Compiler& compiler, const std::optional<ValueNumber>& value, const Part& to,
               std::int64_t direction) {
    if (!value || !compiler.has_gradient(*value)) return unreached_.push_back(to);
    received_.emplace_back(s_.state_of(*compiler.gradient(*value), direction), to);
  }
  void hand_on(Compiler& compiler, const std::optional<ValueNumber>& value, const dnnl::memory& from) {
    if (!value || !compiler.wants_gradient(*value)) return;
    into_.push_back(compiler.contribute(*value));
    for (std::int64_t d = 0; d < s_.directions; ++d)
      handed_on_.emplace_back(s_.one_state(from, d * s_.state()), s_.state_of(into_.back().memory, d));
  }

  void plan_input(Compiler& compiler) {
    into_.push_back(compiler.contribute(values_.x));
    of_steps_ = into_.back().memory;
    const Type type = of_steps_.get_desc().get_data_type();
    if (s_.batch_first) {
      of_steps_ = compiler.scratch(sheet(type, s_.rows(), s_.in));
      handed_on_.emplace_back(s_.steps(of_steps_), s_.input(into_.back().memory));
    }
    for (std::int64_t d = 0; d < s_.directions; ++d) {
      with_gradients_.emplace_back(sheet(type_, s_.rows(), s_.sums()), any_weight(type_, s_.sums(), s_.in),
                                   sheet(type, s_.rows(), s_.in), d > 0);
      back_w_.emplace_back(compiler, weight(compiler, values_.w, s_.in, d, false),
                           with_gradients_.back().factor());
    }
  }

  void plan_weights(Compiler& compiler) {
    const bool has_bias = values_.b && compiler.wants_gradient(*values_.b);
    if (has_bias) into_b_ = compiler.contribute(*values_.b);
    const auto plan = [&](ValueNumber number, std::int64_t from, std::optional<Contribution>& into,
                          std::optional<WeightProduct>& product) {
      if (!compiler.wants_gradient(number)) return;
      into = compiler.contribute(number);
      product.emplace(type_, s_.rows(), from, s_.sums(), has_bias);
    };
    plan(values_.w, s_.in, into_w_, of_w_);
    plan(values_.r, s_.hidden, into_r_, of_r_);
  }
  void give_weights() const {
    for (std::int64_t d = 0; d < s_.directions; ++d) {
      const auto give = [&](const std::optional<Contribution>& into,
                            const std::optional<WeightProduct>& product, const void* x, std::int64_t from,
                            const dnnl::memory& gradients, std::int64_t which) {
        const void* const given = of_direction(gradients, static_cast<std::size_t>(d));
        float* const of_bias = into_b_ ? floats(into_b_->memory) + (2 * d + which) * s_.sums() : nullptr;
        if (product)
          (*product)(x, given, floats(into->memory) + d * s_.sums() * from, of_bias);
        else if (of_bias != nullptr)
          type_ == bf16 ? sum_rows(of_bias, static_cast<const Half*>(given), s_.rows(), s_.sums())
                        : sum_rows(of_bias, static_cast<const float*>(given), s_.rows(), s_.sums());
      };
      give(into_w_, of_w_, back_.x.get_data_handle(), s_.in, of_inputs_, 0);
      give(into_r_, of_r_, s_.outputs(back_.outputs, s_.before(d, 0)).data(), s_.hidden, of_sums_, 1);
    }
    for (const std::optional<Contribution>* const each : {&into_w_, &into_r_, &into_b_})
      if (*each) (*each)->finish();
  }

  Sequence s_;
  Values values_;
  Type type_;
  const CellKernels& kernels_ = trainyard::kernels::cell_kernels();
  ValueNumber x_ = 0, outputs_ = 0, memory_ = 0;
  std::optional<ValueNumber> kept_;
  Lies at_, back_;
  dnnl::memory sums_, bias_;
  CalledProduct with_inputs_;
  std::vector<Strand> strands_;
  std::vector<GateWeight> w_, r_, back_w_, back_r_;
  std::vector<Move> before_, behind_;
  std::vector<Part> zeros_, unreached_;

  // On the way back.
  dnnl::memory given_, of_state_, of_memory_, of_inputs_, of_sums_, of_steps_;
  std::vector<CalledProduct> with_gradients_;
  std::vector<Move> received_, handed_on_;
  std::vector<Contribution> into_;
  std::optional<Contribution> into_w_, into_r_, into_b_;
  std::optional<WeightProduct> of_w_, of_r_;
};

}  // namespace

std::optional<Cell> recurrent_cell(const trainyard::Node& node) {
  if (node.op == "LSTM") return Cell::lstm;
  if (node.op == "GRU" && node.integer("linear_before_reset", 0) != 0) return Cell::gru;
  if (node.op != "RNN") return std::nullopt;
  const auto functions = node.attributes.find("activations");
  const bool is_relu = functions != node.attributes.end() &&
                       std::get<std::vector<std::string>>(functions->second).front() == "Relu";
  return is_relu ? Cell::relu : Cell::tanh;
}

bool recurrent_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const std::optional<Cell> cell = recurrent_cell(node);
  if (!cell || compiler.is_dropped(compiler.node_number())) return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (compiler.has_input(i) &&
        (!compiler.is_real(compiler.input(i)) || (i >= 1 && i <= 3 && !compiler.is_weight(i))))
      return false;
  const Dims in = compiler.value(compiler.input(0)).dims, again = compiler.value(compiler.input(2)).dims;
  const bool batch_first = node.integer("layout", 0) != 0;
  const Sequence s{.cell = *cell,
                   .time = in[batch_first ? 1 : 0],
                   .batch = in[batch_first ? 0 : 1],
                   .in = in[2],
                   .hidden = again[2],
                   .directions = again[0],
                   .batch_first = batch_first,
                   .is_reversed = node.text("direction", "forward") == "reverse"};
  if (compiler.value(compiler.input(0)).is_blocked) return false;
  const auto state = [&](std::size_t i) {
    return compiler.has_input(i) ? std::optional(compiler.in_plain(compiler.input(i))) : std::nullopt;
  };
  Values values{.x = compiler.input(0),
                .w = compiler.input(1),
                .r = compiler.input(2),
                .b = state(3),
                .first = state(5),
                .cells = state(6),
                .y = {},
                .last = {},
                .last_cells = {}};
  bool wants = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    wants = wants || (compiler.has_input(i) && compiler.wants_gradient(compiler.input(i)));
  std::vector<ValueNumber> outputs;
  const auto output = [&](std::size_t i) -> std::optional<ValueNumber> {
    if (i >= node.outputs.size() || node.outputs[i] == trainyard::no_value) return std::nullopt;
    const trainyard::ValueId id = node.outputs[i];
    const Dims dims = compiler.dims_of(id);
    const bool as_half = i == 0 && compiler.is_read_as_half(id);
    outputs.push_back(compiler.make(dims, plain(dims, as_half ? bf16 : f32), wants));
    compiler.give(id, outputs.back());
    return outputs.back();
  };
  values.y = output(0);
  values.last = output(1);
  values.last_cells = output(2);
  compiler.emit<Recurrent>(outputs, s, values, compiler.has_halves() ? bf16 : f32);
  return true;
}

}  // namespace compiled
