// Conv, ConvTranspose and the poolings: operators with a window, over one to three dimensions; and Resize.
#include <ATen/ops/amax.h>
#include <ATen/ops/avg_pool1d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/conv_transpose3d.h>
#include <ATen/ops/div.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>

#include <limits>

#include "operator.hpp"

namespace trainyard {
namespace {

/// The window of a node, one entry a spatial dimension.
struct Window {
  Shape kernel, strides, dilations;
  Shape begin, end;  ///< padding
  bool ceil = false;

  bool symmetric() const { return begin == end; }
  /// For constant_pad_nd: pairs from the last dimension on.
  Shape pad_pairs() const {
    Shape pairs;
    for (std::size_t i = begin.size(); i-- > 0;) pairs.insert(pairs.end(), {begin[i], end[i]});
    return pairs;
  }
};

Window window_of(const NodeView& op, Shape kernel) {
  const auto spatial = static_cast<std::size_t>(op.rank(0) - 2);
  const Node& node = op.node();
  Window w;
  w.kernel = std::move(kernel);
  w.strides = node.integers("strides", Shape(spatial, 1));
  w.dilations = node.integers("dilations", Shape(spatial, 1));
  w.ceil = node.integer("ceil_mode", 0) != 0;
  const Shape pads = node.integers("pads", Shape(2 * spatial, 0));
  const auto check = [&](const char* name, const Shape& values, std::size_t count, std::int64_t least) {
    op.require(values.size() == count, "attribute `" + std::string(name) + "` has " +
                                           std::to_string(values.size()) + " numbers, needs " +
                                           std::to_string(count));
    for (const std::int64_t v : values)
      op.require(v >= least, "attribute `" + std::string(name) + "` holds " + std::to_string(v) + ", needs " +
                                 std::to_string(least) + " or more");
  };
  check("kernel_shape", w.kernel, spatial, 1);
  check("strides", w.strides, spatial, 1);
  check("dilations", w.dilations, spatial, 1);
  check("pads", pads, 2 * spatial, 0);
  w.begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
  w.end.assign(pads.begin() + static_cast<std::ptrdiff_t>(spatial), pads.end());

  const std::string auto_pad = node.text("auto_pad", "NOTSET");
  if (auto_pad == "NOTSET") return w;
  w.begin = w.end = Shape(spatial, 0);
  if (auto_pad == "VALID") return w;
  op.require(auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER",
             "attribute `auto_pad` is \"" + auto_pad + "\", one of NOTSET, VALID, SAME_UPPER, SAME_LOWER");
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t size = op.shape(0)[2 + i], out = (size + w.strides[i] - 1) / w.strides[i];
    const std::int64_t total =
        std::max<std::int64_t>(0, (out - 1) * w.strides[i] + (w.kernel[i] - 1) * w.dilations[i] + 1 - size);
    w.begin[i] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.end[i] = total - w.begin[i];
  }
  return w;
}

void check_image(const NodeView& op) {
  op.require(op.rank(0) >= 3 && op.rank(0) <= 5,
             "input " + op.value(0).name + " has shape " + shape_text(op.shape(0)) +
                 ", needs [batch, channels] and the lengths of one to three dimensions");
  op.require_floating(0);
  for (std::size_t i = 1; i < op.shape(0).size(); ++i)
    op.require(op.shape(0)[i] > 0, "only the first dimension of " + op.value(0).name + " " +
                                       shape_text(op.shape(0)) + " may depend on the batch");
}

/// Returns the shape of the output with these channels.
Shape slide(const NodeView& op, const Window& w, std::int64_t channels) {
  Shape result = {op.shape(0)[0], channels};
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    const std::int64_t size = op.shape(0)[2 + i] + w.begin[i] + w.end[i];
    const std::int64_t room = size - (w.kernel[i] - 1) * w.dilations[i] - 1;
    op.require(room >= 0, "input " + op.value(0).name + " " + shape_text(op.shape(0)) + ", padded to " +
                              std::to_string(size) + ", is smaller than the window of " +
                              std::to_string((w.kernel[i] - 1) * w.dilations[i] + 1));
    std::int64_t out = room / w.strides[i] + 1;
    // A last, partial window counts only where it starts inside the input or its left padding.
    if (w.ceil && room % w.strides[i] != 0 && out * w.strides[i] < size - w.end[i]) ++out;
    result.push_back(out);
  }
  return result;
}

// Conv

Shape conv_kernel(const NodeView& op) {
  return {op.shape(1).begin() + 2, op.shape(1).end()};
}

std::vector<TensorType> infer_conv(const NodeView& op) {
  check_image(op);
  op.require_rank(1, op.rank(0));
  const Shape& weight = op.shape(1);
  const std::int64_t groups = op.node().integer("group", 1), channels = op.shape(0)[1];
  op.require(groups >= 1 && weight[0] % groups == 0 && channels % groups == 0,
             "group = " + std::to_string(groups) + " does not divide " + std::to_string(channels) +
                 " input and " + std::to_string(weight[0]) + " output channels");
  op.require(weight[1] * groups == channels, "input " + op.value(0).name + " " + shape_text(op.shape(0)) +
                                                 " has " + std::to_string(channels) + " channels, weight " +
                                                 op.value(1).name + " " + shape_text(weight) + " takes " +
                                                 std::to_string(weight[1] * groups));
  const Shape kernel = op.node().integers("kernel_shape", conv_kernel(op));
  op.require(kernel == conv_kernel(op), "attribute `kernel_shape` is " + shape_text(kernel) + ", weight " +
                                            op.value(1).name + " is " + shape_text(weight));
  if (op.has(2))
    op.require(op.shape(2) == Shape{weight[0]}, "bias " + op.value(2).name + " has shape " +
                                                    shape_text(op.shape(2)) + ", needs " +
                                                    shape_text({weight[0]}));
  return {{slide(op, window_of(op, kernel), weight[0]), op.dtype(0)}};
}

Call compile_conv(const NodeView& op) {
  const Window w = window_of(op, conv_kernel(op));
  const ValueId x = op.input(0), weight = op.input(1), bias = op.input(2), y = op.output();
  const std::int64_t groups = op.node().integer("group", 1);
  const std::size_t dimensions = w.kernel.size();
  const Shape padding = w.symmetric() ? w.begin : Shape(dimensions, 0);
  const Shape pairs = w.symmetric() ? Shape{} : w.pad_pairs();
  return [=, strides = w.strides, dilations = w.dilations](Frame& f) {
    const at::Tensor input = pairs.empty() ? f[x] : at::constant_pad_nd(f[x], pairs);
    const auto convolve = [&](auto function) {
      return function(input, f[weight], f.optional(bias), strides, padding, dilations, groups);
    };
    f[y] = dimensions == 1   ? convolve([](auto&&... a) { return at::conv1d(a...); })
           : dimensions == 2 ? convolve([](auto&&... a) { return at::conv2d(a...); })
                             : convolve([](auto&&... a) { return at::conv3d(a...); });
  };
}

std::int64_t conv_cost(const NodeView& op) {
  std::int64_t result = op.shape(1)[1];
  for (const std::int64_t k : conv_kernel(op)) result *= k;
  for (const std::int64_t dim : op.output_shape()) result *= per_sample(dim);
  return result;
}

// ConvTranspose: the gradient of Conv by its input, as a layer. Weight [in, out / group, kernel...].

/// The elements cut off at the begin and at the end of each dimension, and those added at its end.
struct Crop {
  Shape begin, end, added;
};

Shape transposed_kernel(const NodeView& op) {
  return {op.shape(1).begin() + 2, op.shape(1).end()};
}

Crop crop_of(const NodeView& op, const Window& w) {
  const std::size_t dimensions = w.kernel.size();
  Crop crop{w.begin, w.end, op.node().integers("output_padding", Shape(dimensions, 0))};
  op.require(crop.added.size() == dimensions, "attribute `output_padding` has " +
                                                  std::to_string(crop.added.size()) + " numbers, needs " +
                                                  std::to_string(dimensions));
  for (std::size_t i = 0; i < dimensions; ++i)
    op.require(crop.added[i] >= 0 && (crop.added[i] < w.strides[i] || crop.added[i] < w.dilations[i]),
               "attribute `output_padding` holds " + std::to_string(crop.added[i]) +
                   ", needs 0 or more and less than the stride or the dilation");
  return crop;
}

std::vector<TensorType> infer_conv_transpose(const NodeView& op) {
  check_image(op);
  op.require_rank(1, op.rank(0));
  op.require(
      op.node().text("auto_pad", "NOTSET") == "NOTSET" && op.node().integers("output_shape", {}).empty(),
      "attributes `auto_pad` and `output_shape` are not supported, give `pads` and `output_padding`");
  const Shape& weight = op.shape(1);
  const std::int64_t groups = op.node().integer("group", 1), channels = op.shape(0)[1];
  op.require(groups >= 1 && weight[0] == channels && channels % groups == 0,
             "input " + op.value(0).name + " " + shape_text(op.shape(0)) + " has " +
                 std::to_string(channels) + " channels in " + std::to_string(groups) + " groups, weight " +
                 op.value(1).name + " " + shape_text(weight) + " takes " + std::to_string(weight[0]));
  const Shape kernel = op.node().integers("kernel_shape", transposed_kernel(op));
  op.require(kernel == transposed_kernel(op), "attribute `kernel_shape` is " + shape_text(kernel) +
                                                  ", weight " + op.value(1).name + " is " +
                                                  shape_text(weight));
  const Window w = window_of(op, kernel);
  const Crop crop = crop_of(op, w);
  Shape result = {op.shape(0)[0], weight[1] * groups};
  if (op.has(2))
    op.require(op.shape(2) == Shape{result[1]}, "bias " + op.value(2).name + " has shape " +
                                                    shape_text(op.shape(2)) + ", needs " +
                                                    shape_text({result[1]}));
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    result.push_back((op.shape(0)[2 + i] - 1) * w.strides[i] + (w.kernel[i] - 1) * w.dilations[i] + 1 +
                     crop.added[i] - crop.begin[i] - crop.end[i]);
    op.require(result.back() > 0, "padding leaves nothing of dimension " + std::to_string(2 + i));
  }
  return {{result, op.dtype(0)}};
}

/// LibTorch cuts alike on both sides; where they differ, this makes the whole and cuts it.
Call compile_conv_transpose(const NodeView& op) {
  const Window w = window_of(op, transposed_kernel(op));
  const Crop crop = crop_of(op, w);
  const ValueId x = op.input(0), weight = op.input(1), bias = op.input(2), y = op.output();
  const std::int64_t groups = op.node().integer("group", 1);
  const std::size_t dimensions = w.kernel.size();
  const Shape padding = w.symmetric() ? w.begin : Shape(dimensions, 0);
  Shape pairs;
  if (!w.symmetric()) {
    pairs = w.pad_pairs();
    for (std::int64_t& pad : pairs) pad = -pad;
  }
  return [=, strides = w.strides, dilations = w.dilations, added = crop.added](Frame& f) {
    const auto convolve = [&](auto function) {
      return function(f[x], f[weight], f.optional(bias), strides, padding, added, groups, dilations);
    };
    const at::Tensor whole =
        dimensions == 1   ? convolve([](auto&&... a) { return at::conv_transpose1d(a...); })
        : dimensions == 2 ? convolve([](auto&&... a) { return at::conv_transpose2d(a...); })
                          : convolve([](auto&&... a) { return at::conv_transpose3d(a...); });
    f[y] = pairs.empty() ? whole : at::constant_pad_nd(whole, pairs);
  };
}

std::int64_t conv_transpose_cost(const NodeView& op) {
  std::int64_t result = op.shape(1)[1];
  for (const std::int64_t k : transposed_kernel(op)) result *= k;
  for (const std::int64_t dim : op.shape(0)) result *= per_sample(dim);
  return result;
}

// Poolings

Window pool_window(const NodeView& op) {
  const Shape kernel = op.node().integers("kernel_shape", {});
  op.require(!kernel.empty(), "attribute `kernel_shape` is missing");
  return window_of(op, kernel);
}

std::vector<TensorType> infer_pool(const NodeView& op) {
  check_image(op);
  const Window w = pool_window(op);
  for (std::size_t i = 0; i < w.kernel.size(); ++i)
    op.require(!w.symmetric() || 2 * w.begin[i] <= w.kernel[i], "padding " + std::to_string(w.begin[i]) +
                                                                    " is more than half of the window of " +
                                                                    std::to_string(w.kernel[i]));
  return {{slide(op, w, op.shape(0)[1]), op.dtype(0)}};
}

std::vector<TensorType> infer_max_pool(const NodeView& op) {
  op.require(op.node().integer("storage_order", 0) == 0,
             "attribute `storage_order` = 1 is not supported, leave it out");
  return infer_pool(op);
}

/// Drops the windows that begin in the padding at the far end: where that was written out, LibTorch's ceil
/// mode cannot tell it from the input.
at::Tensor without_last(at::Tensor pooled, const Shape& shape) {
  for (std::size_t i = 2; i < shape.size(); ++i)
    pooled = pooled.narrow(static_cast<std::int64_t>(i), 0, shape[i]);
  return pooled;
}

Call compile_max_pool(const NodeView& op) {
  const Window w = pool_window(op);
  const ValueId x = op.input(0), y = op.output();
  const Shape shape = op.output_shape();
  const std::size_t dimensions = w.kernel.size();
  const Shape padding = w.symmetric() ? w.begin : Shape(dimensions, 0);
  const Shape pairs = w.symmetric() ? Shape{} : w.pad_pairs();
  return [=](Frame& f) {
    constexpr double lowest = -std::numeric_limits<double>::infinity();
    const at::Tensor input = pairs.empty() ? f[x] : at::constant_pad_nd(f[x], pairs, lowest);
    const at::Tensor pooled =
        dimensions == 1   ? at::max_pool1d(input, w.kernel, w.strides, padding, w.dilations, w.ceil)
        : dimensions == 2 ? at::max_pool2d(input, w.kernel, w.strides, padding, w.dilations, w.ceil)
                          : at::max_pool3d(input, w.kernel, w.strides, padding, w.dilations, w.ceil);
    f[y] = pairs.empty() ? pooled : without_last(pooled, shape);
  };
}

std::vector<TensorType> infer_average_pool(const NodeView& op) {
  std::vector<TensorType> types = infer_pool(op);
  const Window w = pool_window(op);
  op.require(w.dilations == Shape(w.kernel.size(), 1), "attribute `dilations` other than 1 is not supported");
  return types;
}

Call compile_average_pool(const NodeView& op) {
  const Window w = pool_window(op);
  const bool count_padding = op.node().integer("count_include_pad", 0) != 0;
  const std::size_t dimensions = w.kernel.size();
  const auto pool = [=](const at::Tensor& x, const Shape& padding) {
    return dimensions == 1   ? at::avg_pool1d(x, w.kernel, w.strides, padding, w.ceil, count_padding)
           : dimensions == 2 ? at::avg_pool2d(x, w.kernel, w.strides, padding, w.ceil, count_padding)
                             : at::avg_pool3d(x, w.kernel, w.strides, padding, w.ceil, count_padding);
  };
  const ValueId x = op.input(0), y = op.output();
  if (w.symmetric()) return [=](Frame& f) { f[y] = pool(f[x], w.begin); };
  // LibTorch pads alike on both sides. Zeros that do not count are divided out by the share of a window that
  // they leave.
  const Shape none(dimensions, 0), pairs = w.pad_pairs(), shape = op.output_shape();
  return [=](Frame& f) {
    const at::Tensor sums = without_last(pool(at::constant_pad_nd(f[x], pairs), none), shape);
    if (count_padding) {
      f[y] = sums;
      return;
    }
    Shape one = f[x].sizes().vec();
    one[0] = one[1] = 1;
    const at::Tensor ones = at::constant_pad_nd(at::ones(one, f[x].options()), pairs);
    f[y] = at::div(sums, without_last(pool(ones, none), shape));
  };
}

std::vector<TensorType> infer_global_pool(const NodeView& op) {
  check_image(op);
  Shape result(op.shape(0).size(), 1);
  result[0] = op.shape(0)[0];
  result[1] = op.shape(0)[1];
  return {{result, op.dtype(0)}};
}

template <at::Tensor (*Reduce)(const at::Tensor&, at::IntArrayRef)>
Call compile_global_pool(const NodeView& op) {
  Shape axes;
  for (std::int64_t axis = 2; axis < op.rank(0); ++axis) axes.push_back(axis);
  return [axes, x = op.input(0), y = op.output()](Frame& f) { f[y] = Reduce(f[x], axes); };
}

at::Tensor mean_of(const at::Tensor& x, at::IntArrayRef axes) {
  return at::mean(x, axes, true);
}
at::Tensor largest_of(const at::Tensor& x, at::IntArrayRef axes) {
  return at::amax(x, axes, true);
}

// Resize. Height and width alone (attribute `axes` [2, 3]), by `scales` or to `sizes`, as PyTorch resizes: nearest by
// places rounded down, or linear.

struct Resized {
  std::int64_t size[2];
  std::optional<double> scale[2];
};

Resized resized(const NodeView& op) {
  op.require_rank(0, 4);
  op.require(op.node().integers("axes", {}) == Shape{2, 3}, "resizes other dimensions than height and width");
  op.require(op.has(2) != op.has(3), "needs scales, or else sizes");
  Resized r;
  const at::Tensor given = op.value(op.has(3) ? 3 : 2).initializer;
  op.require(given.defined() && given.numel() == 2, "needs two constants: of height and of width");
  for (int i = 0; i < 2; ++i) {
    const double number = given[i].item().toDouble();
    if (!op.has(3)) r.scale[i] = number;
    r.size[i] =
        static_cast<std::int64_t>(op.has(3) ? number : number * static_cast<double>(op.shape(0)[2 + i]));
    op.require(r.size[i] > 0, "resizes to " + std::to_string(r.size[i]) + ", needs 1 or more");
  }
  return r;
}

bool aligns_corners(const NodeView& op) {
  return op.node().text("coordinate_transformation_mode", "half_pixel") == "align_corners";
}

std::vector<TensorType> infer_resize(const NodeView& op) {
  op.require_floating(0);
  const std::string mode = op.node().text("mode", "nearest"),
                    places = op.node().text("coordinate_transformation_mode", "half_pixel"),
                    rounds = op.node().text("nearest_mode", "round_prefer_floor");
  if (mode == "nearest")
    op.require(places == "asymmetric" && rounds == "floor",
               "takes the nearest by " + places + " and " + rounds + ", needs asymmetric and floor");
  else
    op.require(
        mode == "linear" && (places == "half_pixel" || places == "pytorch_half_pixel" || aligns_corners(op)),
        "has the mode \"" + mode + "\" by " + places +
            ", needs nearest, or linear by half_pixel or align_corners");
  const Resized r = resized(op);
  op.require(places != "pytorch_half_pixel" || (r.size[0] > 1 && r.size[1] > 1),
             "resizes to 1 by pytorch_half_pixel");
  return {{{op.shape(0)[0], op.shape(0)[1], r.size[0], r.size[1]}, op.dtype(0)}};
}

Call compile_resize(const NodeView& op) {
  const bool nearest = op.node().text("mode", "nearest") == "nearest";
  return [=, r = resized(op), corners = aligns_corners(op), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = nearest ? at::upsample_nearest2d(f[x], r.size, r.scale[0], r.scale[1])
                   : at::upsample_bilinear2d(f[x], r.size, corners, r.scale[0], r.scale[1]);
  };
}

const Operator convolution_table[] = {
    {"Conv",
     2,
     3,
     {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"},
     infer_conv,
     compile_conv,
     conv_cost},
    {"ConvTranspose",
     2,
     3,
     {"auto_pad", "dilations", "group", "kernel_shape", "output_padding", "output_shape", "pads", "strides"},
     infer_conv_transpose,
     compile_conv_transpose,
     conv_transpose_cost},
    {"MaxPool",
     1,
     1,
     {"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"},
     infer_max_pool,
     compile_max_pool},
    {"AveragePool",
     1,
     1,
     {"auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"},
     infer_average_pool,
     compile_average_pool},
    {"GlobalAveragePool", 1, 1, {}, infer_global_pool, compile_global_pool<mean_of>},
    {"GlobalMaxPool", 1, 1, {}, infer_global_pool, compile_global_pool<largest_of>},
    {"Resize",
     1,
     4,
     {"axes", "coordinate_transformation_mode", "mode", "nearest_mode"},
     infer_resize,
     compile_resize},
};

}  // namespace

std::span<const Operator> convolution_operators() {
  return convolution_table;
}

}  // namespace trainyard
