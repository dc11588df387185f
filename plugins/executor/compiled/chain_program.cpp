#include "chain_program.hpp"

#include <algorithm>

namespace compiled {

std::optional<ChainOp> flipped(ChainOp op) {
  switch (op) {
    case ChainOp::add:
    case ChainOp::multiply:
    case ChainOp::maximum:
    case ChainOp::minimum: return op;
    case ChainOp::subtract: return ChainOp::subtract_from;
    case ChainOp::subtract_from: return ChainOp::subtract;
    case ChainOp::divide: return ChainOp::divide_into;
    case ChainOp::divide_into: return ChainOp::divide;
    default: return std::nullopt;
  }
}

namespace {

/// Values of a program: a term, or the gradient of one.
struct Key {
  std::size_t term;
  bool is_gradient;
  bool operator==(const Key&) const = default;
};

/// The step from the gradient of what a function gave to that of what it took.
struct Through {
  ChainOp op;
  bool by_output;  ///< it looks at what the function gave
};
Through through(ChainOp op) {
  switch (op) {
    case ChainOp::absolute: return {ChainOp::through_absolute, false};
    case ChainOp::reciprocal: return {ChainOp::through_reciprocal, true};
    case ChainOp::square_root: return {ChainOp::through_square_root, true};
    case ChainOp::exponential: return {ChainOp::multiply, true};
    case ChainOp::logarithm: return {ChainOp::through_logarithm, false};
    case ChainOp::relu: return {ChainOp::through_relu, true};
    case ChainOp::leaky_relu: return {ChainOp::through_leaky_relu, false};
    case ChainOp::elu: return {ChainOp::through_elu, false};
    case ChainOp::sigmoid: return {ChainOp::through_sigmoid, true};
    case ChainOp::tanh: return {ChainOp::through_tanh, true};
    case ChainOp::gelu: return {ChainOp::through_gelu, false};
    case ChainOp::softplus: return {ChainOp::through_softplus, false};
    case ChainOp::hard_sigmoid: return {ChainOp::through_hard_sigmoid, false};
    default: return {ChainOp::through_clip, false};
  }
}

/// Puts steps behind each other and knows what the accumulator holds. It goes over a program twice: in the first
/// round it learns which values are asked for when the accumulator has others already, in the second it keeps them.
class Writer {
 public:
  Writer(const Formula& formula, std::size_t in_memory) : formula_(formula), in_memory_(in_memory) {}

  template <class Write>
  Program twice(const Write& write) {
    write();
    program_ = {};
    held_.reset();
    write();
    program_.rooms = rooms_.size();
    return std::move(program_);
  }

  /// A value that lies in memory, or is to be written there.
  void lies_at(Key key, std::size_t operand) { places_.emplace_back(key, operand); }

  void load(Key key) {
    if (held_ == key) return;
    put({ChainOp::load, operand(key)});
  }
  bool holds(Key key) const { return held_ == key; }
  void apply(ChainOp op, Key b) { put({op, operand(b)}); }
  void apply(ChainOp op, float first = 0.0f, float second = 0.0f) { put({op, -1, first, second}); }
  void apply(ChainOp op, Key b, const Term& numbers) { put({op, operand(b), numbers.first, numbers.second}); }
  /// With the constant of a term.
  void apply_constant(ChainOp op, const Term& term) {
    if (term.constant) program_.constants.emplace_back(program_.steps.size(), *term.constant);
    put({op, -1, term.first});
  }
  /// The accumulator holds that value now.
  void becomes(Key key, bool is_output = false) {
    held_ = key;
    const auto room = std::find(rooms_.begin(), rooms_.end(), key);
    if (is_output)
      program_.steps.push_back({ChainOp::keep, operand(key)});
    else if (room != rooms_.end())
      program_.steps.push_back({ChainOp::keep, number(room)});
  }

 private:
  void put(const ChainStep& step) {
    program_.steps.push_back(step);
    held_.reset();
  }
  std::int32_t number(std::vector<Key>::iterator room) const {
    return static_cast<std::int32_t>(in_memory_ + static_cast<std::size_t>(room - rooms_.begin()));
  }
  std::int32_t operand(Key key) {
    if (!key.is_gradient && !formula_[key.term].op) return static_cast<std::int32_t>(key.term);
    for (const auto& [each, place] : places_)
      if (each == key) return static_cast<std::int32_t>(place);
    const auto room = std::find(rooms_.begin(), rooms_.end(), key);
    if (room != rooms_.end()) return number(room);
    rooms_.push_back(key);
    return number(rooms_.end() - 1);
  }

  const Formula& formula_;
  std::size_t in_memory_;
  std::vector<std::pair<Key, std::size_t>> places_;
  std::vector<Key> rooms_;
  std::optional<Key> held_;
  Program program_;
};

Key value_of(std::size_t term) {
  return {term, false};
}
Key gradient_of(std::size_t term) {
  return {term, true};
}

void write_term(Writer& writer, const Formula& formula, std::size_t number) {
  const Term& term = formula[number];
  if (!term.b) {
    writer.load(value_of(term.a));
    flipped(*term.op) ? writer.apply_constant(*term.op, term)
                      : writer.apply(*term.op, term.first, term.second);
    return;
  }
  if (writer.holds(value_of(*term.b)) && !writer.holds(value_of(term.a))) {
    writer.apply(*flipped(*term.op), value_of(term.a));
    return;
  }
  writer.load(value_of(term.a));
  writer.apply(*term.op, value_of(*term.b));
}

/// Whose values the gradients are made of, and what those are made of.
std::vector<bool> needed_values(const Formula& formula, const std::vector<bool>& wanted) {
  std::vector<bool> needed(formula.size());
  const auto need = [&](std::size_t term) { needed[term] = true; };
  for (std::size_t t = formula.size(); t-- > 0;) {
    const Term& term = formula[t];
    if (!term.op) continue;
    if (wanted[t]) switch (*term.op) {
        case ChainOp::add:
        case ChainOp::subtract:
        case ChainOp::subtract_from:
        case ChainOp::negate: break;
        case ChainOp::multiply:
        case ChainOp::maximum:
        case ChainOp::minimum:
          need(term.a);
          if (term.b) need(*term.b);
          break;
        case ChainOp::divide:
          if (term.b) need(*term.b);
          if (term.b && wanted[*term.b]) need(t);
          break;
        case ChainOp::divide_into:
          need(term.a);
          need(t);
          break;
        default: need(through(*term.op).by_output ? t : term.a);
      }
    if (!needed[t]) continue;
    need(term.a);
    if (term.b) need(*term.b);
  }
  return needed;
}

/// What the gradient of a term is for its first input, or for its second: into the accumulator.
void write_part(Writer& writer, const Formula& formula, std::size_t t, bool of_second) {
  const Term& term = formula[t];
  const Key given = gradient_of(t), a = value_of(term.a);
  const auto other = [&](ChainOp op) {
    if (of_second)
      writer.apply(op, a);
    else if (term.b)
      writer.apply(op, value_of(*term.b));
    else
      writer.apply_constant(op, term);
  };
  switch (*term.op) {
    case ChainOp::add: return writer.load(given);
    case ChainOp::negate: writer.load(given); return writer.apply(ChainOp::negate);
    case ChainOp::subtract:
    case ChainOp::subtract_from:
      writer.load(given);
      if (of_second == (*term.op == ChainOp::subtract)) writer.apply(ChainOp::negate);
      return;
    case ChainOp::multiply: writer.load(given); return other(ChainOp::multiply);
    case ChainOp::divide:
      writer.load(given);
      if (!of_second) return other(ChainOp::divide);
      writer.apply(ChainOp::multiply, value_of(t));
      writer.apply(ChainOp::divide, value_of(*term.b));
      return writer.apply(ChainOp::negate);
    case ChainOp::divide_into:  // by a constant alone
      writer.load(given);
      writer.apply(ChainOp::multiply, value_of(t));
      writer.apply(ChainOp::divide, a);
      return writer.apply(ChainOp::negate);
    case ChainOp::maximum:
    case ChainOp::minimum:
      writer.load(of_second ? value_of(*term.b) : a);
      other(*term.op == ChainOp::maximum ? ChainOp::is_larger : ChainOp::is_smaller);
      return writer.apply(ChainOp::multiply, given);
    default: {
      const Through step = through(*term.op);
      writer.load(given);
      return writer.apply(step.op, step.by_output ? value_of(t) : a, term);
    }
  }
}

/// Adds up what a term gives for the gradients of its inputs.
void write_parts(Writer& writer, const Formula& formula, std::size_t t, const std::vector<bool>& wanted,
                 std::vector<bool>& begun) {
  const Term& term = formula[t];
  for (const bool of_second : {false, true}) {
    if (of_second && !term.b) continue;
    const std::size_t input = of_second ? *term.b : term.a;
    if (!wanted[input]) continue;
    write_part(writer, formula, t, of_second);
    if (begun[input]) writer.apply(ChainOp::add, gradient_of(input));
    begun[input] = true;
    writer.becomes(gradient_of(input), !formula[input].op);
  }
}

/// How many terms are inputs; they come first.
std::size_t inputs_of(const Formula& formula) {
  return static_cast<std::size_t>(
      std::count_if(formula.begin(), formula.end(), [](const Term& each) { return !each.op; }));
}

}  // namespace

Program forward_program(const Formula& formula) {
  const std::size_t inputs = inputs_of(formula);
  Writer writer(formula, inputs + 1);
  writer.lies_at(value_of(formula.size() - 1), inputs);
  return writer.twice([&] {
    for (std::size_t t = inputs; t < formula.size(); ++t) {
      write_term(writer, formula, t);
      writer.becomes(value_of(t), t + 1 == formula.size());
    }
  });
}

Program backward_program(const Formula& formula) {
  std::vector<bool> wanted;
  for (const Term& each : formula)
    wanted.push_back(each.op ? wanted[each.a] || (each.b && wanted[*each.b]) : each.wants_gradient);
  const std::vector<bool> needed = needed_values(formula, wanted);
  const std::size_t inputs = inputs_of(formula);
  const auto outputs = static_cast<std::size_t>(
      std::count_if(formula.begin(), formula.end(), [](const Term& each) { return each.wants_gradient; }));

  Writer writer(formula, inputs + 1 + outputs);
  writer.lies_at(gradient_of(formula.size() - 1), inputs);
  for (std::size_t t = 0, place = inputs + 1; t < inputs; ++t)
    if (wanted[t]) writer.lies_at(gradient_of(t), place++);
  return writer.twice([&] {
    for (std::size_t t = inputs; t < formula.size(); ++t) {
      if (!needed[t]) continue;
      write_term(writer, formula, t);
      writer.becomes(value_of(t));
    }
    std::vector<bool> begun(formula.size());
    for (std::size_t t = formula.size(); t-- > inputs;)
      if (wanted[t]) write_parts(writer, formula, t, wanted, begun);
  });
}

}  // namespace compiled
