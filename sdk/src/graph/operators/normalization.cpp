// BatchNormalization, LayerNormalization, InstanceNormalization, GroupNormalization, LRN, Softmax, LogSoftmax,
// Dropout.
#include <ATen/ops/add.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/softmax.h>

#include "dropout_places.hpp"
#include "operator.hpp"

namespace trainyard {
namespace {

std::vector<TensorType> infer_batch_norm(const NodeView& op) {
  op.require(op.rank(0) >= 2, "input " + op.value(0).name + " " + shape_text(op.shape(0)) +
                                  " has no channel dimension, needs [batch, channels, ...]");
  op.require_floating(0);
  const Shape channels = {op.shape(0)[1]};
  for (std::size_t i = 1; i < 5; ++i)
    op.require(op.shape(i) == channels, "input " + op.value(i).name + " has shape " +
                                            shape_text(op.shape(i)) + ", needs the channels of " +
                                            op.value(0).name + ": " + shape_text(channels));
  return {{op.shape(0), op.dtype(0)}};
}

/// The pass says whether it is training, not the attribute training_mode. In training the running statistics
/// are updated in place, the variance by its unbiased estimate as PyTorch does (ONNX leaves it biased).
/// ONNX's momentum is the share that stays.
Call compile_batch_norm(const NodeView& op) {
  const double epsilon = op.node().number("epsilon", 1e-5),
               momentum = 1.0 - op.node().number("momentum", 0.9);
  return [=, x = op.input(0), scale = op.input(1), bias = op.input(2), mean = op.input(3),
          variance = op.input(4), y = op.output()](Frame& f) {
    f[y] = at::batch_norm(f[x], f[scale], f[bias], f[mean], f[variance], f.context.training, momentum,
                          epsilon, true);
  };
}

Shape normalized_shape(const NodeView& op) {
  return {op.shape(0).begin() + op.axis_attribute(-1), op.shape(0).end()};
}

std::vector<TensorType> infer_layer_norm(const NodeView& op) {
  op.require_floating(0);
  const Shape normalized = normalized_shape(op);
  for (const std::int64_t dim : normalized)
    op.require(dim > 0,
               "normalizes over dimensions of " + shape_text(op.shape(0)) + " that depend on the batch");
  for (std::size_t i = 1; i < op.inputs(); ++i)
    if (op.has(i))
      op.require(op.shape(i) == normalized,
                 "input " + op.value(i).name + " has shape " + shape_text(op.shape(i)) +
                     ", needs that of the normalized axes: " + shape_text(normalized));
  return {{op.shape(0), op.dtype(0)}};
}

Call compile_layer_norm(const NodeView& op) {
  return [normalized = normalized_shape(op), epsilon = op.node().number("epsilon", 1e-5), x = op.input(0),
          scale = op.input(1), bias = op.input(2), y = op.output()](Frame& f) {
    f[y] = at::layer_norm(f[x], normalized, f[scale], f.optional(bias), epsilon);
  };
}

/// Inputs 1 and 2 are scale and bias of the channels, dimension 1.
std::vector<TensorType> infer_channel_norm(const NodeView& op) {
  op.require_floating(0);
  op.require(op.rank(0) >= 3, "input " + op.value(0).name + " " + shape_text(op.shape(0)) +
                                  " has no places, needs [batch, channels, ...]");
  for (std::size_t i = 1; i < 3; ++i)
    op.require(op.shape(i) == Shape{op.shape(0)[1]},
               "input " + op.value(i).name + " has shape " + shape_text(op.shape(i)) +
                   ", needs a number for each channel of " + shape_text(op.shape(0)));
  return {{op.shape(0), op.dtype(0)}};
}

Call compile_instance_norm(const NodeView& op) {
  return [epsilon = op.node().number("epsilon", 1e-5), x = op.input(0), scale = op.input(1),
          bias = op.input(2), y = op.output()](Frame& f) {
    f[y] = at::instance_norm(f[x], f[scale], f[bias], {}, {}, true, 0.0, epsilon, false);
  };
}

std::vector<TensorType> infer_group_norm(const NodeView& op) {
  std::vector<TensorType> types = infer_channel_norm(op);
  const std::int64_t groups = op.node().integer("num_groups", 0), channels = op.shape(0)[1];
  op.require(groups > 0 && channels % groups == 0, "attribute `num_groups` is " + std::to_string(groups) +
                                                       ", which does not divide " + std::to_string(channels) +
                                                       " channels");
  return types;
}

Call compile_group_norm(const NodeView& op) {
  return [groups = op.node().integer("num_groups", 1), epsilon = op.node().number("epsilon", 1e-5),
          x = op.input(0), scale = op.input(1), bias = op.input(2),
          y = op.output()](Frame& f) { f[y] = at::group_norm(f[x], groups, f[scale], f[bias], epsilon); };
}

std::vector<TensorType> infer_lrn(const NodeView& op) {
  op.require_floating(0);
  op.require_rank(0, 4);
  op.require(op.node().integer("size", 0) >= 1, "attribute `size` is missing or below 1");
  return {{op.shape(0), op.dtype(0)}};
}

/// x / (bias + alpha / size * sum of squares of `size` channels around)^beta (Krizhevsky et al., "ImageNet
/// classification with deep convolutional neural networks", NeurIPS 2012, section 3.3).
Call compile_lrn(const NodeView& op) {
  const Node& node = op.node();
  const std::int64_t size = node.integer("size", 1), before = (size - 1) / 2, after = size - 1 - before;
  return [=, alpha = node.number("alpha", 1e-4), beta = node.number("beta", 0.75),
          bias = node.number("bias", 1.0), x = op.input(0), y = op.output()](Frame& f) {
    const at::Tensor squares = at::constant_pad_nd(at::mul(f[x], f[x]), {0, 0, 0, 0, before, after});
    const at::Tensor means = at::avg_pool3d(squares.unsqueeze(1), {size, 1, 1}, {1, 1, 1}).squeeze(1);
    f[y] = at::div(f[x], at::pow(at::add(at::mul(means, alpha), bias), beta));
  };
}

std::vector<TensorType> infer_softmax(const NodeView& op) {
  op.require_floating(0);
  op.axis_attribute(-1);
  return {{op.shape(0), op.dtype(0)}};
}

Call compile_softmax(const NodeView& op) {
  return [axis = op.axis_attribute(-1), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = at::softmax(f[x], axis);
  };
}

Call compile_log_softmax(const NodeView& op) {
  return [axis = op.axis_attribute(-1), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = at::log_softmax(f[x], axis);
  };
}

std::vector<TensorType> infer_dropout(const NodeView& op) {
  op.require_floating(0);
  op.axis_attribute(1);
  return {{op.shape(0), op.dtype(0)}};
}

/// A site that the run's dropout plugin serves. Attribute `axis` is ours: the feature axis; ONNX's ratio is
/// the plugin's to choose.
Call compile_dropout(const NodeView& op) {
  return [site = *site_number(op.graph(), op.node()), x = op.input(0), y = op.output()](Frame& f) {
    f[y] = f.drops_at(site) ? f.dropped(f[x], site) : f[x];
  };
}

const Operator normalization_table[] = {
    {"BatchNormalization",
     5,
     5,
     {"epsilon", "momentum", "training_mode"},
     infer_batch_norm,
     compile_batch_norm},
    {"LayerNormalization", 2, 3, {"axis", "epsilon", "stash_type"}, infer_layer_norm, compile_layer_norm},
    {"InstanceNormalization", 3, 3, {"epsilon"}, infer_channel_norm, compile_instance_norm},
    {"GroupNormalization",
     3,
     3,
     {"epsilon", "num_groups", "stash_type"},
     infer_group_norm,
     compile_group_norm},
    {"LRN", 1, 1, {"alpha", "beta", "bias", "size"}, infer_lrn, compile_lrn},
    {"Softmax", 1, 1, {"axis"}, infer_softmax, compile_softmax},
    {"LogSoftmax", 1, 1, {"axis"}, infer_softmax, compile_log_softmax},
    {"Dropout", 1, 3, {"axis", "seed"}, infer_dropout, compile_dropout},
};

}  // namespace

std::span<const Operator> normalization_operators() {
  return normalization_table;
}

}  // namespace trainyard
