// BatchNormalization, LayerNormalization, Softmax, LogSoftmax, Dropout.
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/log_softmax.h>
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

const Operator table[] = {
    {"BatchNormalization",
     5,
     5,
     {"epsilon", "momentum", "training_mode"},
     infer_batch_norm,
     compile_batch_norm},
    {"LayerNormalization", 2, 3, {"axis", "epsilon", "stash_type"}, infer_layer_norm, compile_layer_norm},
    {"Softmax", 1, 1, {"axis"}, infer_softmax, compile_softmax},
    {"LogSoftmax", 1, 1, {"axis"}, infer_softmax, compile_log_softmax},
    {"Dropout", 1, 3, {"axis", "seed"}, infer_dropout, compile_dropout},
};

}  // namespace

std::span<const Operator> normalization_operators() {
  return table;
}

}  // namespace trainyard
