// Nodes that copy elements to other places: Transpose, Slice, Expand, and Gather of one place of an axis. What they give
// is read from their input with a stride for each dimension; an element that is read by nobody has no gradient, and one
// that is read several times has their sum.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "compiler.hpp"

namespace compiled {
namespace {

/// Element (i, j, ...) of what is given lies at offset + i strides[0] + j strides[1] ... of the input.
struct Walk {
  Dims sizes, strides;
  std::int64_t offset = 0;

  bool is_whole(std::int64_t count) const {
    return std::find(strides.begin(), strides.end(), 0) == strides.end() &&
           std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>()) == count;
  }
};

Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

/// The same walk with as few dimensions as it has.
Walk with_few_dimensions(const Walk& walk) {
  Walk found{.sizes = {}, .strides = {}, .offset = walk.offset};
  for (std::size_t d = 0; d < walk.sizes.size(); ++d) {
    if (walk.sizes[d] == 1) continue;
    if (!found.sizes.empty() && found.strides.back() == walk.sizes[d] * walk.strides[d]) {
      found.sizes.back() *= walk.sizes[d];
      found.strides.back() = walk.strides[d];
    } else {
      found.sizes.push_back(walk.sizes[d]);
      found.strides.push_back(walk.strides[d]);
    }
  }
  if (found.sizes.empty()) found.sizes = found.strides = {1};
  return found;
}

/// `row(of the input, of what is given)` for each row along the last dimension.
template <class Row>
void each_row(const Walk& walk, std::size_t d, float* input, float* given, const Row& row) {
  if (d + 1 == walk.sizes.size()) return row(input, given);
  const std::int64_t step = std::accumulate(walk.sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1,
                                            walk.sizes.end(), std::int64_t{1}, std::multiplies<>());
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      each_row(walk, d + 1, input + i * walk.strides[d], given + i * step, row);
  };
  const bool is_apart = d == 0 && walk.strides[0] != 0;  // threads write into places of their own
  if (!is_apart || step * walk.sizes[0] < 1 << 15) return part(0, walk.sizes[d]);
  at::parallel_for(0, walk.sizes[0], std::max<std::int64_t>(1, (1 << 15) / step), part);
}

class Strided final : public Instruction {
 public:
  Strided(Compiler& compiler, ValueNumber x, ValueNumber y, const Walk& walk)
      : x_(x), y_(y), walk_(with_few_dimensions(walk)), from_(compiler.memory(x)), to_(compiler.memory(y)) {
    // Rows that lie apart are moved in tiles, by oneDNN.
    if (is_tiled()) tiles_ = move(walk_.strides, strides_of(walk_.sizes), from_, to_);
  }

  void forward(const Pass&) override {
    if (tiles_) return tiles_.run();
    const std::int64_t length = walk_.sizes.back(), stride = walk_.strides.back();
    each_row(walk_, 0, floats(from_) + walk_.offset, floats(to_), [&](const float* x, float* y) {
      if (stride == 1) return copy(y, x, length);
      for (std::int64_t i = 0; i < length; ++i) y[i] = x[i * stride];
    });
  }

  void plan_backward(Compiler& compiler) override {
    given_ = *compiler.gradient(y_);
    if (is_tiled()) {
      part_ = compiler.contribute(x_);
      tiles_back_ = move(strides_of(walk_.sizes), walk_.strides, given_, part_.memory);
      return;
    }
    is_first_ = !compiler.has_gradient(x_);
    into_ = compiler.contribute(x_, true).memory;
    replaces_ = is_first_ && walk_.is_whole(elements(into_));
  }

  void backward(const Pass&) override {
    if (tiles_back_) {
      tiles_back_.run();
      return part_.finish();
    }
    if (is_first_ && !replaces_) std::memset(into_.get_data_handle(), 0, into_.get_desc().get_size());
    const std::int64_t length = walk_.sizes.back(), stride = walk_.strides.back();
    each_row(walk_, 0, floats(into_) + walk_.offset, floats(given_), [&](float* x, const float* y) {
      if (stride == 1 && replaces_) return copy(x, y, length);
      if (replaces_)
        for (std::int64_t i = 0; i < length; ++i) x[i * stride] = y[i];
      else
        for (std::int64_t i = 0; i < length; ++i) x[i * stride] += y[i];
    });
  }

 private:
  bool is_tiled() const {
    return walk_.strides.back() > 1 && walk_.sizes.size() > 1 && walk_.is_whole(elements(from_));
  }
  Call move(const Dims& from_strides, const Dims& to_strides, const dnnl::memory& from,
            const dnnl::memory& to) const {
    return {
        dnnl::reorder({engine(), {walk_.sizes, f32, from_strides}, engine(), {walk_.sizes, f32, to_strides}}),
        {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
  }

  ValueNumber x_, y_;
  Walk walk_;
  dnnl::memory from_, to_, given_, into_;
  bool is_first_ = false, replaces_ = false;
  Call tiles_, tiles_back_;
  Contribution part_;
};

Walk in_order(const Dims& in, const Dims& order) {
  const Dims strides = strides_of(in);
  Walk walk;
  for (const std::int64_t d : order) {
    walk.sizes.push_back(in[static_cast<std::size_t>(d)]);
    walk.strides.push_back(strides[static_cast<std::size_t>(d)]);
  }
  return walk;
}

std::optional<Walk> transposed(const Compiler& compiler, const Dims& in) {
  Dims order(in.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return in_order(in, compiler.node().integers("perm", order));
}

std::optional<Walk> gathered(const Compiler& compiler, const Dims& in) {
  const std::optional<Dims> places = compiler.numbers(1);
  const auto rank = static_cast<std::int64_t>(in.size());
  std::int64_t axis = compiler.node().integer("axis", 0);
  if (axis < 0) axis += rank;
  if (!places || places->size() != 1 || axis < 0 || axis >= rank) return std::nullopt;
  const auto d = static_cast<std::size_t>(axis);
  const std::int64_t place = places->front() < 0 ? places->front() + in[d] : places->front();
  if (place < 0 || place >= in[d]) return std::nullopt;
  Walk walk{.sizes = in, .strides = strides_of(in)};
  walk.offset = place * walk.strides[d];
  walk.sizes[d] = 1;
  return walk;
}

std::optional<Walk> sliced(const Compiler& compiler, const Dims& in) {
  const std::optional<Dims> starts = compiler.numbers(1), axes = compiler.numbers(3),
                            steps = compiler.numbers(4);
  if (!starts || (compiler.has_input(3) && !axes) || (compiler.has_input(4) && !steps)) return std::nullopt;
  const Dims out = compiler.dims_of(compiler.node().outputs[0]);
  Walk walk{.sizes = out, .strides = strides_of(in)};
  for (std::size_t i = 0; i < starts->size(); ++i) {
    std::int64_t axis = axes ? (*axes)[i] : static_cast<std::int64_t>(i);
    if (axis < 0) axis += static_cast<std::int64_t>(in.size());
    const auto d = static_cast<std::size_t>(axis);
    const std::int64_t step = steps ? (*steps)[i] : 1;
    const std::int64_t start = std::clamp<std::int64_t>(
        (*starts)[i] < 0 ? (*starts)[i] + in[d] : (*starts)[i], 0, std::max<std::int64_t>(in[d] - 1, 0));
    if (step < 1) return std::nullopt;
    walk.offset += start * walk.strides[d];
    walk.strides[d] *= step;
  }
  return walk;
}

std::optional<Walk> expanded(const Compiler& compiler, const Dims& in) {
  const Dims out = compiler.dims_of(compiler.node().outputs[0]), strides = strides_of(in);
  if (out.size() < in.size()) return std::nullopt;
  Walk walk{.sizes = out, .strides = Dims(out.size(), 0)};
  const std::size_t ahead = out.size() - in.size();
  for (std::size_t d = 0; d < in.size(); ++d)
    if (in[d] == out[ahead + d]) walk.strides[ahead + d] = strides[d];
  return walk;
}

ValueNumber strided(Compiler& compiler, ValueNumber x, const Walk& walk, const Dims& dims) {
  const ValueNumber y = compiler.make(dims, plain(dims), compiler.wants_gradient(x));
  compiler.emit<Strided>({y}, x, y, walk);
  return y;
}

}  // namespace

bool strided_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  std::optional<Walk> (*const walk_of)(const Compiler&, const Dims&) = node.op == "Transpose" ? transposed
                                                                       : node.op == "Gather"  ? gathered
                                                                       : node.op == "Slice"   ? sliced
                                                                       : node.op == "Expand"  ? expanded
                                                                                              : nullptr;
  if (walk_of == nullptr || !compiler.is_real(compiler.input(0))) return false;
  const Dims in = compiler.value(compiler.input(0)).dims, out = compiler.dims_of(node.outputs[0]);
  const std::optional<Walk> walk = walk_of(compiler, in);
  const auto is_none = [](std::int64_t size) { return size == 0; };
  if (!walk || in.empty() || out.empty() || std::any_of(out.begin(), out.end(), is_none)) return false;
  compiler.give(node.outputs[0], strided(compiler, compiler.in_plain(compiler.input(0)), *walk, out));
  return true;
}

ValueNumber turned(Compiler& compiler, ValueNumber x, const Dims& order) {
  const Walk walk = in_order(compiler.value(x).dims, order);
  return strided(compiler, x, walk, walk.sizes);
}

}  // namespace compiled
