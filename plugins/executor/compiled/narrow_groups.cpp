// Conv in groups of few channels each, in blocks of channels that groups share (kernels/cpu/grouped_conv.hpp), with its bias and a ReLU
// behind it.
#include "narrow_groups.hpp"

#include <algorithm>

#include "images.hpp"
#include "window.hpp"

namespace compiled {
namespace {

using trainyard::kernels::GroupedConvKernels;
using trainyard::kernels::GroupedConvShape;

const GroupedConvKernels& group_kernels() {
  static const GroupedConvKernels& found = trainyard::kernels::grouped_conv_kernels();
  return found;
}

class NarrowGroups final : public Instruction {
 public:
  struct Values {
    ValueNumber x, weight;
    std::optional<ValueNumber> bias;
    ValueNumber y;
  };
  NarrowGroups(Compiler& compiler, const GroupedConvShape& shape, std::int64_t images, const Values& values,
               bool relu)
      : shape_(shape),
        images_(images),
        values_(values),
        relu_(relu),
        x_(compiler.memory(values.x)),
        weight_(compiler.memory(values.weight)),
        y_(compiler.memory(values.y)),
        filters_(compiler.scratch(floats_of(group_kernels().filter_floats(shape)))),
        scratch_floats_(group_kernels().scratch_floats(shape)),
        scratch_(compiler.scratch(floats_of(scratch_floats_ * at::get_num_threads()))) {
    if (values.bias) bias_ = compiler.memory(*values.bias);
  }

  void forward(const Pass&) override {
    group_kernels().pack(shape_, floats(weight_), floats(filters_));
    over_images(images_, scratch_, scratch_floats_,
                [&](std::int64_t begin, std::int64_t end, float* scratch) {
                  group_kernels().forward({.shape = shape_,
                                           .x = floats(x_),
                                           .filters = floats(filters_),
                                           .bias = values_.bias ? floats(bias_) : nullptr,
                                           .relu = relu_,
                                           .y = floats(y_),
                                           .scratch = scratch},
                                          begin, end);
                });
  }

  void plan_backward(Compiler& compiler) override {
    given_ = unmasked_ = *compiler.gradient(values_.y);
    if (relu_) {
      output_ = compiler.memory(values_.y);
      given_ = compiler.over_gradient(values_.y);
    }
    if (compiler.wants_gradient(values_.weight)) {
      from_ = compiler.memory(values_.x);
      sum_.emplace(compiler, images_, group_kernels().filter_floats(shape_), scratch_floats_);
      into_weight_ = compiler.contribute(values_.weight);
    }
    if (values_.bias && compiler.wants_gradient(*values_.bias))
      into_bias_ = compiler.contribute(*values_.bias);
    if (!compiler.wants_gradient(values_.x)) return;
    backward_weight_ = compiler.memory(values_.weight);
    backward_filters_ = compiler.scratch(floats_of(group_kernels().filter_floats(shape_)));
    backward_scratch_ = compiler.scratch(floats_of(scratch_floats_ * at::get_num_threads()));
    into_x_ = compiler.contribute(values_.x);
  }

  void backward(const Pass&) override {
    if (relu_) through_relu(given_, unmasked_, output_);
    if (sum_) {
      const float* const sums =
          sum_->run([&](std::int64_t begin, std::int64_t end, float* gradients, float* scratch) {
            group_kernels().weights({.shape = shape_,
                                     .x = floats(from_),
                                     .given = floats(given_),
                                     .sums = gradients,
                                     .scratch = scratch},
                                    begin, end);
          });
      group_kernels().unpack(shape_, sums, floats(into_weight_.memory));
      into_weight_.finish();
    }
    if (into_bias_) {
      sum_pixels(floats(into_bias_->memory), floats(given_), images_, shape_.groups * shape_.out,
                 shape_.out_rows * shape_.out_columns, channel_block());
      into_bias_->finish();
    }
    if (!into_x_) return;
    group_kernels().pack_back(shape_, floats(backward_weight_), floats(backward_filters_));
    over_images(images_, backward_scratch_, scratch_floats_,
                [&](std::int64_t begin, std::int64_t end, float* scratch) {
                  group_kernels().data({.shape = shape_,
                                        .filters = floats(backward_filters_),
                                        .given = floats(given_),
                                        .x_gradient = floats(into_x_->memory),
                                        .scratch = scratch},
                                       begin, end);
                });
    into_x_->finish();
  }

 private:
  GroupedConvShape shape_;
  std::int64_t images_;
  Values values_;
  bool relu_;
  dnnl::memory x_, weight_, bias_, y_, filters_;
  std::int64_t scratch_floats_;
  dnnl::memory scratch_, given_, unmasked_, output_, from_, backward_weight_, backward_filters_,
      backward_scratch_;
  std::optional<SumOverImages> sum_;
  Contribution into_weight_;
  std::optional<Contribution> into_bias_, into_x_;
};

}  // namespace

std::optional<GroupedConvShape> narrow_groups(const trainyard::Graph& graph, const trainyard::Node& node,
                                              std::int64_t times) {
  if (node.op != "Conv" || group_kernels().block != channel_block()) return std::nullopt;
  const auto dims_of = [&](trainyard::ValueId id) {
    return graph.values[static_cast<std::size_t>(id)].shape;
  };
  const std::vector<std::int64_t> in = dims_of(node.inputs[0]), kernel = dims_of(node.inputs[1]),
                                  out = dims_of(node.outputs[0]);
  if (in.size() != 4 || std::min({in[2], in[3], out[2], out[3]}) < 1) return std::nullopt;
  const std::optional<Window> window = window_of(node, {kernel[2], kernel[3]});
  if (!window || window->dilated() || window->strides != Dims{1, 1} ||
      std::min(window->begin[0], window->begin[1]) < 0)
    return std::nullopt;
  const std::int64_t groups = node.integer("group", 1);
  const GroupedConvShape shape{.groups = groups * times,
                               .in = kernel[1],
                               .out = kernel[0] / groups,
                               .in_rows = in[2],
                               .in_columns = in[3],
                               .out_rows = out[2],
                               .out_columns = out[3],
                               .rows_before = window->begin[0],
                               .columns_before = window->begin[1],
                               .kernel_rows = kernel[2],
                               .kernel_columns = kernel[3]};
  return group_kernels().fits(shape) ? std::optional(shape) : std::nullopt;
}

bool narrow_groups_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  if (node.op != "Conv" || node.integer("group", 1) < 2 || compiler.has_halves()) return false;
  NarrowGroups::Values values{compiler.input(0), compiler.input(1), {}, {}};
  if (compiler.has_input(2)) values.bias = compiler.input(2);
  if (compiler.value(values.x).dtype != at::kFloat || !compiler.is_weight(1) ||
      (values.bias && !compiler.is_weight(2)))
    return false;
  const std::optional<GroupedConvShape> shape = narrow_groups(compiler.graph(), node);
  if (!shape) return false;
  trainyard::ValueId output = node.outputs[0];
  const Dims dims = compiler.dims_of(output);
  values.x = compiler.in_blocks(values.x);
  const bool relu = compiler.absorb("Relu", output);
  const bool wants = compiler.wants_gradient(values.x) || compiler.wants_gradient(values.weight) ||
                     (values.bias && compiler.wants_gradient(*values.bias));
  values.y = compiler.make(dims, compiler.image(dims), wants, true);
  compiler.emit<NarrowGroups>({values.y}, *shape, dims[0], values, relu);
  compiler.give(output, values.y);
  return true;
}

}  // namespace compiled
