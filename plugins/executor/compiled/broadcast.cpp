// Sums, differences and products of two values of which one, or each in other dimensions, is repeated: a bias of rows, a
// factor of channels, the places of an embedding. Also of two of one shape, where chains are not for them. Sums and means over any
// dimensions, which are the same the other way round.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "compiler.hpp"
#include "lanes.hpp"

namespace compiled {
namespace {

enum class Arithmetic : std::uint8_t { add, subtract, multiply };

/// Dimensions beside each other that are repeated alike: so many, and how far apart they lie (0: repeated).
struct Group {
  std::int64_t size, a, b, y;
};

/// y = a op b, in one row.
template <class Of>
PART_OF_EACH void row_of(float* y, const float* a, bool many_a, const float* b, bool many_b,
                         std::int64_t count, const Of& of) {
  if (many_a && many_b) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = of(a[i], b[i]);
  } else if (many_a) {
    const float second = *b;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = of(a[i], second);
  } else {
    const float first = *a;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = of(first, many_b ? b[i] : *b);
  }
}

/// In rows of the last group, of which there are `rows.size`.
TRAINYARD_FOR_EACH_ISA void forward_part(Arithmetic how, float* y, const float* a, const float* b,
                                         const Group& rows, const Group& row) {
  for (std::int64_t r = 0; r < rows.size; ++r, y += rows.y, a += rows.a, b += rows.b) switch (how) {
      case Arithmetic::add:
        row_of(y, a, row.a != 0, b, row.b != 0, row.size, [](float p, float q) { return p + q; });
        break;
      case Arithmetic::subtract:
        row_of(y, a, row.a != 0, b, row.b != 0, row.size, [](float p, float q) { return p - q; });
        break;
      case Arithmetic::multiply:
        row_of(y, a, row.a != 0, b, row.b != 0, row.size, [](float p, float q) { return p * q; });
    }
}

/// The gradient of one operand, of which `into` is a part: `factor` that of y, or its product with the other operand.
template <class Of>
PART_OF_EACH void into_row(float* into, bool many, bool replaces, std::int64_t count, const Of& of) {
  if (!many) {
    *into += sum_of(count, of);
  } else if (replaces) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) into[i] = of(i);
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) into[i] += of(i);
  }
}

TRAINYARD_FOR_EACH_ISA void scaled_part(float factor, bool replaces, float* into, const float* given,
                                        const Group& rows, const Group& row) {
  for (std::int64_t r = 0; r < rows.size; ++r, into += rows.a, given += rows.y)
    into_row(into, row.a != 0, replaces, row.size, [&](std::int64_t i) { return factor * given[i]; });
}

TRAINYARD_FOR_EACH_ISA void product_part(bool replaces, float* into, const float* other, const float* given,
                                         const Group& rows, const Group& row) {
  for (std::int64_t r = 0; r < rows.size; ++r, into += rows.a, other += rows.b, given += rows.y) {
    if (row.b != 0) {
      into_row(into, row.a != 0, replaces, row.size, [&](std::int64_t i) { return given[i] * other[i]; });
    } else {
      const float factor = *other;
      into_row(into, row.a != 0, replaces, row.size, [&](std::int64_t i) { return given[i] * factor; });
    }
  }
}

/// `use(a, b, y, rows, row)` for all rows, the last two groups together.
template <class Use>
void walk(const std::vector<Group>& groups, std::size_t d, float* a, float* b, float* y, const Use& use,
          std::int64_t begin, std::int64_t end) {
  const Group& group = groups[d];
  if (d + 2 == groups.size()) {
    Group rows = group;
    rows.size = end - begin;
    return use(a + begin * group.a, b + begin * group.b, y + begin * group.y, rows, groups.back());
  }
  for (std::int64_t i = begin; i < end; ++i)
    walk(groups, d + 1, a + i * group.a, b + i * group.b, y + i * group.y, use, 0, groups[d + 1].size);
}

/// Threads share the first group, if that is `apart`: each then writes into places of its own.
template <class Use>
void walk_all(const std::vector<Group>& groups, bool apart, float* a, float* b, float* y, const Use& use) {
  const Group& first = groups.front();
  if (!apart || first.y * first.size < 1 << 15) return walk(groups, 0, a, b, y, use, 0, first.size);
  at::parallel_for(0, first.size, std::max<std::int64_t>(1, (1 << 15) / first.y),
                   [&](std::int64_t begin, std::int64_t end) { walk(groups, 0, a, b, y, use, begin, end); });
}

/// Of dimensions in which the operands have the size of the result or 1; at least two.
std::vector<Group> groups_of(const Dims& a, const Dims& b, const Dims& y) {
  std::vector<Group> groups;  // from the last one on
  std::int64_t of_a = 1, of_b = 1, of_y = 1;
  for (std::size_t d = y.size(); d-- > 0;) {
    if (y[d] == 1) continue;
    const Group group{y[d], a[d] == 1 ? 0 : of_a, b[d] == 1 ? 0 : of_b, of_y};
    const bool same = !groups.empty() && (groups.back().a == 0) == (group.a == 0) &&
                      (groups.back().b == 0) == (group.b == 0);
    if (same)
      groups.back().size *= group.size;
    else
      groups.push_back(group);
    of_a *= a[d];
    of_b *= b[d];
    of_y *= y[d];
  }
  while (groups.size() < 2) groups.push_back({1, of_a, of_b, of_y});
  std::reverse(groups.begin(), groups.end());
  return groups;
}

class Broadcast final : public Instruction {
 public:
  Broadcast(Compiler& compiler, Arithmetic how, ValueNumber a, ValueNumber b, ValueNumber y,
            std::vector<Group> groups)
      : how_(how), y_(y), operands_{Operand{.value = a}, Operand{.value = b}}, groups_(std::move(groups)) {
    for (Operand& each : operands_) each.from = compiler.memory(each.value);
    to_ = compiler.memory(y);
    others_ = groups_;
    for (Group& each : others_) std::swap(each.a, each.b);
    operands_[0].repeated = is_repeated(groups_);
    operands_[1].repeated = is_repeated(others_);
  }

  void forward(const Pass&) override {
    walk_all(groups_, true, floats(operands_[0].from), floats(operands_[1].from), floats(to_),
             [&](const float* a, const float* b, float* y, const Group& rows, const Group& row) {
               forward_part(how_, y, a, b, rows, row);
             });
  }

  void plan_backward(Compiler& compiler) override {
    given_ = own_ = *compiler.gradient(y_);
    Operand& first = operands_[0];
    // A term that is not repeated takes over the gradient of the sum, behind who else reads it.
    const bool hands_on =
        how_ != Arithmetic::multiply && !first.repeated && compiler.wants_gradient(first.value);
    if (hands_on) own_ = compiler.over_gradient(y_);
    for (std::size_t i = hands_on ? 1 : 0; i < 2; ++i) {
      Operand& operand = operands_[i];
      if (!compiler.wants_gradient(operand.value)) continue;
      const bool is_first = !compiler.has_gradient(operand.value);
      operand.replaces = is_first && !operand.repeated;
      operand.clears = is_first && operand.repeated;
      operand.into = compiler.contribute(operand.value, true).memory;
      if (how_ == Arithmetic::multiply) operand.other = compiler.memory(operands_[1 - i].value);
    }
    if (hands_on) rest_ = compiler.pass_on(first.value, y_);
  }

  void backward(const Pass&) override {
    if (floats(own_) != floats(given_))
      std::memcpy(own_.get_data_handle(), given_.get_data_handle(), own_.get_desc().get_size());
    for (std::size_t i = 0; i < 2; ++i) {
      const Operand& operand = operands_[i];
      if (!operand.into) continue;
      if (operand.clears) std::memset(operand.into.get_data_handle(), 0, operand.into.get_desc().get_size());
      const std::vector<Group>& groups = i == 0 ? groups_ : others_;
      const float factor = i == 1 && how_ == Arithmetic::subtract ? -1.0f : 1.0f;
      walk_all(groups, groups.front().a != 0, floats(operand.into),
               operand.other ? floats(operand.other) : nullptr, floats(given_),
               [&](float* into, const float* other, const float* given, const Group& rows, const Group& row) {
                 if (how_ == Arithmetic::multiply)
                   return product_part(operand.replaces, into, other, given, rows, row);
                 scaled_part(factor, operand.replaces, into, given, rows, row);
               });
    }
    rest_.finish();
  }

 private:
  struct Operand {
    ValueNumber value;
    bool repeated = false, replaces = false, clears = false;
    dnnl::memory from, into, other;
  };
  static bool is_repeated(const std::vector<Group>& groups) {
    return std::any_of(groups.begin(), groups.end(),
                       [](const Group& each) { return each.a == 0 && each.size > 1; });
  }

  Arithmetic how_;
  ValueNumber y_;
  Operand operands_[2];
  std::vector<Group> groups_, others_;  ///< others_: the second operand in the place of the first
  dnnl::memory to_, given_, own_;
  Contribution rest_;
};

/// The sum or the mean over dimensions of a plain value: what is repeated of a gradient is summed, and the other way round.
class Reduction final : public Instruction {
 public:
  Reduction(Compiler& compiler, ValueNumber x, ValueNumber y, std::vector<Group> groups, float factor)
      : x_(x),
        y_(y),
        groups_(std::move(groups)),
        factor_(factor),
        from_(compiler.memory(x)),
        to_(compiler.memory(y)) {}

  void forward(const Pass&) override {
    std::memset(to_.get_data_handle(), 0, to_.get_desc().get_size());
    walk_all(groups_, groups_.front().a != 0, floats(to_), nullptr, floats(from_),
             [&](float* to, const float*, const float* from, const Group& rows, const Group& row) {
               scaled_part(factor_, false, to, from, rows, row);
             });
  }
  void plan_backward(Compiler& compiler) override {
    given_ = *compiler.gradient(y_);
    into_ = compiler.contribute(x_);
  }
  void backward(const Pass&) override {
    walk_all(groups_, true, floats(given_), &factor_, floats(into_.memory),
             [](const float* given, const float* factor, float* into, const Group& rows, const Group& row) {
               forward_part(Arithmetic::multiply, into, given, factor, rows, row);
             });
    into_.finish();
  }

 private:
  ValueNumber x_, y_;
  std::vector<Group> groups_;  ///< a: of y, b: of the factor, y: of x
  float factor_;
  dnnl::memory from_, to_, given_;
  Contribution into_;
};

/// With ones ahead.
Dims of_rank(const Dims& dims, std::size_t rank) {
  Dims found(rank - dims.size(), 1);
  found.insert(found.end(), dims.begin(), dims.end());
  return found;
}

/// As images in blocks lie in memory.
Dims in_memory(const Dims& dims) {
  const std::int64_t block = channel_block();
  return {dims[0], whole_blocks(dims[1]) / block, dims[2], dims[3], block};
}

std::optional<Arithmetic> arithmetic_of(const trainyard::Node& node) {
  if (node.inputs.size() != 2) return std::nullopt;
  if (node.op == "Add") return Arithmetic::add;
  if (node.op == "Sub") return Arithmetic::subtract;
  if (node.op == "Mul") return Arithmetic::multiply;
  return std::nullopt;
}

}  // namespace

bool broadcast_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const std::optional<Arithmetic> how = arithmetic_of(node);
  if (!how || !compiler.is_real(compiler.input(0)) || !compiler.is_real(compiler.input(1))) return false;
  ValueNumber a = compiler.input(0), b = compiler.input(1);
  const Dims y = compiler.dims_of(node.outputs[0]);
  const auto is_none = [](std::int64_t size) { return size == 0; };
  if (y.empty() || std::any_of(y.begin(), y.end(), is_none)) return false;
  // The one that is not repeated comes first, where the order does not matter.
  if (*how != Arithmetic::subtract && compiler.value(a).dims != y) std::swap(a, b);
  const Dims of_a = compiler.value(a).dims, of_b = compiler.value(b).dims;
  const bool in_blocks = !compiler.has_halves() &&
                         (compiler.value(a).is_blocked || compiler.value(b).is_blocked) && of_a.size() == 4 &&
                         of_b.size() == 4 && of_a[1] == of_b[1];
  a = in_blocks ? compiler.in_blocks(a) : compiler.in_plain(a);
  b = in_blocks ? compiler.in_blocks(b) : compiler.in_plain(b);
  std::vector<Group> groups = in_blocks ? groups_of(in_memory(of_a), in_memory(of_b), in_memory(y))
                                        : groups_of(of_rank(of_a, y.size()), of_rank(of_b, y.size()), y);
  const bool wants = compiler.wants_gradient(a) || compiler.wants_gradient(b);
  const ValueNumber made = compiler.make(y, in_blocks ? compiler.image(y) : plain(y), wants, in_blocks);
  compiler.emit<Broadcast>({made}, *how, a, b, made, std::move(groups));
  compiler.give(node.outputs[0], made);
  return true;
}

bool reduction_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const bool is_mean = node.op == "ReduceMean";
  if ((!is_mean && node.op != "ReduceSum") || !compiler.is_real(compiler.input(0))) return false;
  const Dims dims = compiler.value(compiler.input(0)).dims;
  const auto rank = static_cast<std::int64_t>(dims.size());
  const std::optional<Dims> axes = compiler.numbers(1);
  if (!axes || axes->empty() || std::find(dims.begin(), dims.end(), 0) != dims.end()) return false;
  Dims kept = dims;
  for (const std::int64_t axis : *axes) kept[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = 1;
  std::int64_t count = 1;
  for (std::size_t d = 0; d < dims.size(); ++d) count *= dims[d] / kept[d];
  const ValueNumber x = compiler.in_plain(compiler.input(0));
  const Dims out = compiler.dims_of(node.outputs[0]);
  const ValueNumber y = compiler.make(out, plain(out), compiler.wants_gradient(x));
  compiler.emit<Reduction>({y}, x, y, groups_of(kept, Dims(dims.size(), 1), dims),
                           is_mean ? 1.0f / static_cast<float>(count) : 1.0f);
  compiler.give(node.outputs[0], y);
  return true;
}

}  // namespace compiled
