// Operators that rearrange, select or reduce.
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/permute.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/slice.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "joined.hpp"
#include "operator.hpp"

namespace trainyard {
namespace {

/// Makes a call that views input 0 in the inferred shape: at most one of its dimensions depends on the batch.
Call compile_view(const NodeView& op) {
  Shape sizes = op.output_shape();
  for (std::int64_t& dim : sizes) dim = std::max<std::int64_t>(dim, -1);
  return [sizes, x = op.input(0), y = op.output()](Frame& f) { f[y] = at::reshape(f[x], sizes); };
}

std::int64_t elements(const NodeView& op, std::size_t first, std::size_t last) {
  const auto result = product(op.shape(0), first, last);
  if (!result) op.fail("more than one dimension of " + shape_text(op.shape(0)) + " depends on the batch");
  return *result;
}

std::vector<TensorType> infer_flatten(const NodeView& op) {
  const std::int64_t axis = op.node().integer("axis", 1), rank = op.rank(0);
  op.require(axis >= -rank && axis <= rank,
             "axis " + std::to_string(axis) + " is outside of " + std::to_string(rank) + " dimensions");
  const auto cut = static_cast<std::size_t>(axis < 0 ? axis + rank : axis), size = op.shape(0).size();
  return {{{elements(op, 0, cut), elements(op, cut, size)}, op.dtype(0)}};
}

std::vector<TensorType> infer_reshape(const NodeView& op) {
  const Shape& from = op.shape(0);
  const Shape wanted = op.constant_integers(1);
  const std::int64_t total = elements(op, 0, from.size());
  const std::string change = shape_text(from) + " to [" + [&] {
    std::string text;
    for (const std::int64_t dim : wanted) text += (text.empty() ? "" : ", ") + std::to_string(dim);
    return text;
  }() + "]";
  Shape result = wanted;
  std::optional<std::size_t> free;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i] == 0 && op.node().integer("allowzero", 0) == 0) {
      op.require(i < from.size(),
                 "reshapes " + change + ": dimension " + std::to_string(i) + " has nothing to copy");
      result[i] = from[i];
    } else if (wanted[i] == -1) {
      op.require(!free, "reshapes " + change + ": only one dimension can be -1");
      free = i;
      result[i] = 1;
    } else {
      op.require(wanted[i] >= 0, "reshapes " + change + ": dimensions are positive, 0 (copy) or -1 (infer)");
    }
  }
  const auto known = product(result);
  const bool whole = known && *known != 0 && total % *known == 0;
  op.require(whole && (free ? *known > 0 || total < 0 : *known == total),
             "cannot reshape " + change + ": the number of elements differs");
  if (free) result[*free] = total / *known;
  return {{result, op.dtype(0)}};
}

/// Returns the axes in their place since opset 13: constant input `index`; without it, `fallback`.
Shape axes_input(const NodeView& op, std::size_t index, std::int64_t rank, Shape fallback) {
  if (!op.has(index)) return fallback;
  Shape axes = op.constant_integers(index);
  for (std::int64_t& axis : axes) axis = op.axis(axis, rank);
  std::ranges::sort(axes);
  op.require(std::ranges::adjacent_find(axes) == axes.end(), "an axis is named twice");
  return axes;
}

Shape all_axes(std::int64_t rank) {
  Shape axes(static_cast<std::size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

std::vector<TensorType> infer_squeeze(const NodeView& op) {
  Shape ones;
  for (std::int64_t i = 0; i < op.rank(0); ++i)
    if (op.shape(0)[static_cast<std::size_t>(i)] == 1) ones.push_back(i);
  const Shape axes = axes_input(op, 1, op.rank(0), ones);
  Shape result = op.shape(0);
  for (std::size_t i = axes.size(); i-- > 0;) {
    op.require(result[static_cast<std::size_t>(axes[i])] == 1,
               "dimension " + std::to_string(axes[i]) + " of " + shape_text(op.shape(0)) + " is not 1");
    result.erase(result.begin() + axes[i]);
  }
  return {{result, op.dtype(0)}};
}

std::vector<TensorType> infer_unsqueeze(const NodeView& op) {
  const auto added = static_cast<std::int64_t>(op.constant_integers(1).size());
  Shape result = op.shape(0);
  for (const std::int64_t axis : axes_input(op, 1, op.rank(0) + added, {}))
    result.insert(result.begin() + axis, 1);
  return {{result, op.dtype(0)}};
}

Shape permutation(const NodeView& op) {
  Shape reversed = all_axes(op.rank(0));
  std::ranges::reverse(reversed);
  Shape perm = op.node().integers("perm", reversed);
  Shape sorted = perm;
  std::ranges::sort(sorted);
  op.require(sorted == all_axes(op.rank(0)), "attribute `perm` is " + shape_text(perm) +
                                                 ", needs each dimension of " + shape_text(op.shape(0)) +
                                                 " once");
  return perm;
}

std::vector<TensorType> infer_transpose(const NodeView& op) {
  Shape result;
  for (const std::int64_t axis : permutation(op))
    result.push_back(op.shape(0)[static_cast<std::size_t>(axis)]);
  return {{result, op.dtype(0)}};
}

Call compile_transpose(const NodeView& op) {
  return [perm = permutation(op), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = at::permute(f[x], perm);
  };
}

std::vector<TensorType> infer_concat(const NodeView& op) {
  op.require(op.node().attributes.contains("axis"), "attribute `axis` is missing");
  const auto axis = static_cast<std::size_t>(op.axis_attribute(0));
  Shape result = op.shape(0);
  for (std::size_t i = 1; i < op.inputs(); ++i) {
    Shape other = op.shape(i);
    const bool fits = other.size() == result.size() && (other[axis] < 0) == (result[axis] < 0) &&
                      op.dtype(i) == op.dtype(0);
    if (fits) {
      result[axis] += other[axis];
      other[axis] = result[axis];
    }
    op.require(fits && other == result, "input " + op.value(i).name + " " + shape_text(op.shape(i)) +
                                            " does not fit " + op.value(0).name + " " +
                                            shape_text(op.shape(0)) + ": all dimensions but axis " +
                                            std::to_string(axis) + " must be equal");
  }
  return {{result, op.dtype(0)}};
}

/// Weights are joined where they lie, if that is behind each other.
Call compile_concat(const NodeView& op) {
  const std::int64_t axis = op.axis_attribute(0);
  bool weights = axis == 0;
  for (std::size_t i = 0; i < op.inputs(); ++i) weights = weights && op.value(i).initializer.defined();
  return [=, inputs = op.node().inputs, y = op.output()](Frame& f) {
    std::vector<at::Tensor> parts;
    parts.reserve(inputs.size());
    for (const ValueId id : inputs) parts.push_back(f[id]);
    if (weights)
      if (auto whole = joined_in_place(parts)) {
        f[y] = *std::move(whole);
        return;
      }
    f[y] = at::cat(parts, axis);
  };
}

/// Returns the length of each part: as input 1 says, else of `num_outputs` equal ones, the last shorter where
/// they do not divide.
Shape split_sizes(const NodeView& op) {
  const auto axis = static_cast<std::size_t>(op.axis_attribute(0));
  const std::int64_t length = op.shape(0)[axis];
  if (op.has(1)) {
    Shape sizes = op.constant_integers(1);
    op.require(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == length,
               "parts " + shape_text(sizes) + " do not add up to axis " + std::to_string(axis) + " of " +
                   shape_text(op.shape(0)));
    return sizes;
  }
  const auto parts = op.node().integer("num_outputs", static_cast<std::int64_t>(op.node().outputs.size()));
  op.require(length > 0,
             "axis " + std::to_string(axis) + " of " + shape_text(op.shape(0)) + " depends on the batch");
  const std::int64_t size = parts < 1 ? 0 : (length + parts - 1) / parts;
  op.require(parts >= 1 && size * (parts - 1) < length, "cannot split axis " + std::to_string(axis) + " of " +
                                                            shape_text(op.shape(0)) + " into " +
                                                            std::to_string(parts) + " parts");
  Shape sizes(static_cast<std::size_t>(parts), size);
  sizes.back() = length - size * (parts - 1);
  return sizes;
}

std::vector<TensorType> infer_split(const NodeView& op) {
  std::vector<TensorType> types;
  for (const std::int64_t size : split_sizes(op)) {
    Shape part = op.shape(0);
    part[static_cast<std::size_t>(op.axis_attribute(0))] = size;
    types.push_back({part, op.dtype(0)});
  }
  op.require(op.node().outputs.size() == types.size(), "has " + std::to_string(op.node().outputs.size()) +
                                                           " outputs for " + std::to_string(types.size()) +
                                                           " parts");
  return types;
}

Call compile_split(const NodeView& op) {
  return [axis = op.axis_attribute(0), sizes = split_sizes(op), x = op.input(0),
          outputs = op.node().outputs](Frame& f) {
    std::vector<at::Tensor> parts = at::split_with_sizes(f[x], sizes, axis);
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (outputs[i] != no_value) f[outputs[i]] = std::move(parts[i]);
  };
}

struct Cut {
  std::int64_t axis, start, end, step;
};

std::vector<Cut> cuts_of(const NodeView& op) {
  const Shape starts = op.constant_integers(1), ends = op.constant_integers(2);
  Shape axes = op.has(3) ? op.constant_integers(3) : all_axes(static_cast<std::int64_t>(starts.size()));
  const Shape steps = op.has(4) ? op.constant_integers(4) : Shape(starts.size(), 1);
  op.require(ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size(),
             "starts, ends, axes and steps differ in number");
  std::vector<Cut> cuts;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t axis = op.axis(axes[i], op.rank(0));
    const std::int64_t length = op.shape(0)[static_cast<std::size_t>(axis)];
    op.require(length >= 0, "cuts axis " + std::to_string(axis) + " of " + shape_text(op.shape(0)) +
                                ", which depends on the batch");
    op.require(steps[i] > 0, "step " + std::to_string(steps[i]) + " is not supported, needs 1 or more");
    const auto place = [&](std::int64_t index) {
      return std::clamp<std::int64_t>(index < 0 ? std::max(index, -length) + length : index, 0, length);
    };
    const std::int64_t start = place(starts[i]);
    cuts.push_back({axis, start, std::max(start, place(ends[i])), steps[i]});
  }
  return cuts;
}

std::vector<TensorType> infer_slice(const NodeView& op) {
  Shape result = op.shape(0);
  for (const Cut& cut : cuts_of(op))
    result[static_cast<std::size_t>(cut.axis)] = (cut.end - cut.start + cut.step - 1) / cut.step;
  return {{result, op.dtype(0)}};
}

Call compile_slice(const NodeView& op) {
  return [cuts = cuts_of(op), x = op.input(0), y = op.output()](Frame& f) {
    at::Tensor result = f[x];
    for (const Cut& cut : cuts) result = at::slice(result, cut.axis, cut.start, cut.end, cut.step);
    f[y] = std::move(result);
  };
}

std::vector<TensorType> infer_gather(const NodeView& op) {
  const std::int64_t axis = op.axis_attribute(0);
  op.require(c10::isIntegralType(op.dtype(1), false),
             "indices " + op.value(1).name + " hold " + c10::toString(op.dtype(1)) + ", need integers");
  op.require(op.shape(0)[static_cast<std::size_t>(axis)] > 0, "gathers along axis " + std::to_string(axis) +
                                                                  " of " + shape_text(op.shape(0)) +
                                                                  ", which depends on the batch");
  Shape result = op.shape(0);
  result.erase(result.begin() + axis);
  result.insert(result.begin() + axis, op.shape(1).begin(), op.shape(1).end());
  return {{result, op.dtype(0)}};
}

/// Takes rows of a matrix as an embedding, whose gradient LibTorch has a kernel for.
Call compile_gather(const NodeView& op) {
  const std::int64_t axis = op.axis_attribute(0);
  const ValueId data = op.input(0), indices = op.input(1), y = op.output();
  if (axis == 0 && op.rank(0) == 2 && op.value(0).trainable)
    return [=](Frame& f) { f[y] = at::embedding(f[data], f[indices]); };
  const std::int64_t length = op.shape(0)[static_cast<std::size_t>(axis)];
  return [=](Frame& f) {
    const at::Tensor flat = f[indices].reshape(-1);
    const at::Tensor places = at::where(flat.lt(0), flat.add(length), flat);
    Shape shape = f[data].sizes().vec();
    shape.erase(shape.begin() + axis);
    shape.insert(shape.begin() + axis, f[indices].sizes().begin(), f[indices].sizes().end());
    f[y] = at::index_select(f[data], axis, places).reshape(shape);
  };
}

/// Returns the padding of each dimension, as at::pad takes it: pairs from the last dimension on.
Shape pad_pairs(const NodeView& op) {
  const Shape pads = op.constant_integers(1);
  const Shape axes = op.has(3) ? op.constant_integers(3) : all_axes(op.rank(0));
  op.require(pads.size() == 2 * axes.size(), "has " + std::to_string(pads.size()) + " pads for " +
                                                 std::to_string(axes.size()) + " axes, needs two each");
  Shape pairs(2 * op.shape(0).size(), 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto from_end = static_cast<std::size_t>(op.rank(0) - 1 - op.axis(axes[i], op.rank(0)));
    pairs[2 * from_end] = pads[i];
    pairs[2 * from_end + 1] = pads[axes.size() + i];
  }
  return pairs;
}

/// Maps ONNX's name of the mode to PyTorch's.
std::string pad_mode(const NodeView& op) {
  const std::string mode = op.node().text("mode", "constant");
  for (const auto& [onnx, torch] : {std::pair("constant", "constant"),
                                    {"reflect", "reflect"},
                                    {"edge", "replicate"},
                                    {"wrap", "circular"}})
    if (mode == onnx) return torch;
  op.fail("attribute `mode` is \"" + mode + "\", one of constant, reflect, edge, wrap");
}

std::vector<TensorType> infer_pad(const NodeView& op) {
  const Shape pairs = pad_pairs(op);
  const std::string mode = pad_mode(op);
  if (op.has(2)) op.constant_number(2);
  Shape result = op.shape(0);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t from_end = result.size() - 1 - i;
    const std::int64_t before = pairs[2 * from_end], after = pairs[2 * from_end + 1];
    if (before == 0 && after == 0) continue;
    op.require(result[i] >= 0, "pads dimension " + std::to_string(i) + " of " + shape_text(op.shape(0)) +
                                   ", which depends on the batch");
    op.require(mode == "constant" || i >= 2,
               "mode other than constant pads the dimensions after the second only");
    result[i] += before + after;
    op.require(result[i] >= 0, "crops more than dimension " + std::to_string(i) + " of " +
                                   shape_text(op.shape(0)) + " holds");
  }
  return {{result, op.dtype(0)}};
}

Call compile_pad(const NodeView& op) {
  Shape pairs = pad_pairs(op);
  while (pairs.size() >= 2 && pairs[pairs.size() - 1] == 0 && pairs[pairs.size() - 2] == 0)
    pairs.resize(pairs.size() - 2);
  const double value = op.has(2) ? op.constant_number(2) : 0.0;
  const ValueId x = op.input(0), y = op.output();
  if (pad_mode(op) == "constant") return [=](Frame& f) { f[y] = at::constant_pad_nd(f[x], pairs, value); };
  // The other kernels of LibTorch take the pairs of all dimensions after the second.
  pairs.resize(2 * (op.shape(0).size() - 2), 0);
  return [=, mode = pad_mode(op)](Frame& f) { f[y] = at::pad(f[x], pairs, mode); };
}

Shape reduced_axes(const NodeView& op) {
  const bool nothing = op.node().integer("noop_with_empty_axes", 0) != 0;
  const Shape none = nothing ? Shape{} : all_axes(op.rank(0));
  const Shape axes = axes_input(op, 1, op.rank(0), none);
  return axes.empty() ? none : axes;
}

std::vector<TensorType> infer_reduce(const NodeView& op) {
  op.require_floating(0);
  const bool keep = op.node().integer("keepdims", 1) != 0;
  Shape result = op.shape(0);
  const Shape axes = reduced_axes(op);
  for (std::size_t i = axes.size(); i-- > 0;) {
    if (keep)
      result[static_cast<std::size_t>(axes[i])] = 1;
    else
      result.erase(result.begin() + axes[i]);
  }
  return {{result, op.dtype(0)}};
}

template <at::Tensor (*Reduce)(const at::Tensor&, at::IntArrayRef, bool)>
Call compile_reduce(const NodeView& op) {
  const Shape axes = reduced_axes(op);
  const ValueId x = op.input(0), y = op.output();
  if (axes.empty()) return [=](Frame& f) { f[y] = f[x]; };
  return [=, keep = op.node().integer("keepdims", 1) != 0](Frame& f) { f[y] = Reduce(f[x], axes, keep); };
}

at::Tensor mean(const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  return at::mean(x, axes, keep);
}
at::Tensor sum(const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  return at::sum(x, axes, keep);
}
at::Tensor largest(const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  return at::amax(x, axes, keep);
}
at::Tensor smallest(const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  return at::amin(x, axes, keep);
}

/// Copies along dimensions of 1, and new ones in front. The shape is constant: it says nothing of the batch,
/// which stays as it is under a 1.
std::vector<TensorType> infer_expand(const NodeView& op) {
  const Shape wanted = op.constant_integers(1);
  for (const std::int64_t dim : wanted)
    op.require(dim >= 0, "expands to " + std::to_string(dim) + ", needs 0 or more");
  const auto result = broadcast(op.shape(0), wanted);
  if (!result)
    op.fail("shape " + shape_text(op.shape(0)) + " of " + op.value(0).name + " does not broadcast with " +
            shape_text(wanted));
  return {{*result, op.dtype(0)}};
}

Call compile_expand(const NodeView& op) {
  Shape sizes = op.output_shape();
  for (std::int64_t& dim : sizes) dim = std::max<std::int64_t>(dim, -1);  // -1: as it is
  return [sizes, x = op.input(0), y = op.output()](Frame& f) { f[y] = f[x].expand(sizes); };
}

std::vector<TensorType> infer_tile(const NodeView& op) {
  const Shape repeats = op.constant_integers(1);
  op.require(
      repeats.size() == op.shape(0).size(),
      "has " + std::to_string(repeats.size()) + " repeats for the dimensions of " + shape_text(op.shape(0)));
  Shape result = op.shape(0);
  for (std::size_t i = 0; i < result.size(); ++i) {
    op.require(repeats[i] >= 0, "repeats " + std::to_string(repeats[i]) + " times, needs 0 or more");
    std::int64_t dim = 0;
    op.require(!__builtin_mul_overflow(result[i], repeats[i], &dim) && (result[i] > 0 || repeats[i] > 0),
               "repeats dimension " + std::to_string(i) + " of " + shape_text(op.shape(0)) + " " +
                   std::to_string(repeats[i]) + " times");
    result[i] = dim;
  }
  return {{result, op.dtype(0)}};
}

Call compile_tile(const NodeView& op) {
  return [repeats = op.constant_integers(1), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = f[x].repeat(repeats);
  };
}

/// `to`: ONNX's number of the type.
std::vector<TensorType> infer_cast(const NodeView& op) {
  const std::int64_t to = op.node().integer("to", 0);
  for (const auto& [number, dtype] :
       {std::pair(1, at::kFloat), {6, at::kInt}, {7, at::kLong}, {9, at::kBool}, {11, at::kDouble}})
    if (to == number) return {{op.shape(0), dtype}};
  op.fail("attribute `to` = " + std::to_string(to) +
          " is not supported, one of 1 (float), 6 (int32), 7 (int64), 9 (bool), 11 (double)");
}

Call compile_cast(const NodeView& op) {
  return [dtype = infer_cast(op).front().dtype, x = op.input(0), y = op.output()](Frame& f) {
    f[y] = f[x].to(dtype);
  };
}

const Operator layout_table[] = {
    {"Cast", 1, 1, {"saturate", "to"}, infer_cast, compile_cast},
    {"Concat", 1, any_number, {"axis"}, infer_concat, compile_concat},
    {"Expand", 2, 2, {}, infer_expand, compile_expand},
    {"Flatten", 1, 1, {"axis"}, infer_flatten, compile_view},
    {"Gather", 2, 2, {"axis"}, infer_gather, compile_gather},
    {"Pad", 2, 4, {"mode"}, infer_pad, compile_pad},
    {"ReduceMax", 1, 2, {"keepdims", "noop_with_empty_axes"}, infer_reduce, compile_reduce<largest>},
    {"ReduceMean", 1, 2, {"keepdims", "noop_with_empty_axes"}, infer_reduce, compile_reduce<mean>},
    {"ReduceMin", 1, 2, {"keepdims", "noop_with_empty_axes"}, infer_reduce, compile_reduce<smallest>},
    {"ReduceSum", 1, 2, {"keepdims", "noop_with_empty_axes"}, infer_reduce, compile_reduce<sum>},
    {"Reshape", 2, 2, {"allowzero"}, infer_reshape, compile_view},
    {"Slice", 3, 5, {}, infer_slice, compile_slice},
    {"Split", 1, 2, {"axis", "num_outputs"}, infer_split, compile_split},
    {"Squeeze", 1, 2, {}, infer_squeeze, compile_view},
    {"Tile", 2, 2, {}, infer_tile, compile_tile},
    {"Transpose", 1, 1, {"perm"}, infer_transpose, compile_transpose},
    {"Unsqueeze", 2, 2, {}, infer_unsqueeze, compile_view},
};

}  // namespace

std::span<const Operator> layout_operators() {
  return layout_table;
}

}  // namespace trainyard
