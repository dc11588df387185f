// A node that LibTorch computes, forward and backward, as the network would: operators without a rule, and those
// at which dropout acts.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <torch/csrc/autograd/autograd.h>

#include <cstring>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

#include "compiler.hpp"
#include "loops.hpp"

namespace compiled {
namespace {

class ByLibTorch final : public Instruction {
 public:
  ByLibTorch(Compiler& compiler, std::vector<std::optional<ValueNumber>> inputs,
             std::vector<std::optional<ValueNumber>> outputs)
      : node_(compiler.node_number()), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
    for (const std::optional<ValueNumber>& input : inputs_) {
      Operand& operand = operands_.emplace_back();
      if (!input) continue;
      const Value& value = compiler.value(*input);
      operand = {.place = compiler.place(*input),
                 .dims = value.dims,
                 .dtype = value.dtype,
                 .wants_gradient = value.wants_gradient};
    }
    for (const std::optional<ValueNumber>& output : outputs_) {
      places_.push_back(output ? std::optional(compiler.place(*output)) : std::nullopt);
      shapes_.push_back(output ? compiler.value(*output).dims : Dims());
    }
  }

  void forward(const Pass& pass) override {
    std::vector<at::Tensor> inputs;
    bool wants_gradient = false;
    for (const Operand& operand : operands_) {
      at::Tensor& input = inputs.emplace_back();
      if (!operand.place) continue;
      input = at::from_blob(operand.place->data(), operand.dims, at::TensorOptions(operand.dtype));
      wants_gradient |= operand.wants_gradient;
      if (operand.wants_gradient) input.requires_grad_();
    }
    const at::AutoGradMode tracks(wants_gradient);
    made_ = pass.run_node(node_, inputs, pass.context);
    given_ = std::move(inputs);
    kept_.clear();
    for (std::size_t i = 0; i < made_.size(); ++i) {
      if (!places_[i]) continue;
      if (made_[i].sizes() != at::IntArrayRef(shapes_[i])) refuse_shape(pass, made_[i], shapes_[i]);
      // One that lies in an input, or not in the order of its dimensions, is copied.
      // Floats, where mixed precision gave halves.
      const bool is_real = made_[i].is_floating_point();
      at::Tensor& kept = kept_.emplace_back(
          made_[i].detach().to(is_real ? at::kFloat : made_[i].scalar_type()).contiguous());
      for (const at::Tensor& input : given_)
        if (input.defined() && kept.storage().is_alias_of(input.storage())) kept = kept.clone();
      places_[i]->place(kept.mutable_data_ptr());
    }
  }

  void plan_backward(Compiler& compiler) override {
    for (const std::optional<ValueNumber>& output : outputs_) {
      gradients_.emplace_back();
      if (output && compiler.has_gradient(*output)) gradients_.back() = compiler.gradient(*output);
    }
    for (const std::optional<ValueNumber>& input : inputs_) {
      into_.emplace_back();
      if (!input) continue;
      compiler.place(*input);
      if (compiler.wants_gradient(*input)) into_.back() = compiler.contribute(*input);
    }
  }

  void backward(const Pass&) override {
    std::vector<at::Tensor> outputs, gradients, inputs;
    for (std::size_t i = 0; i < made_.size(); ++i) {
      if (!gradients_[i] || !made_[i].requires_grad()) continue;
      outputs.push_back(made_[i]);
      gradients.push_back(at::from_blob(gradients_[i]->get_data_handle(), made_[i].sizes(), at::kFloat)
                              .to(made_[i].scalar_type()));
    }
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (into_[i]) inputs.push_back(given_[i]);
    std::vector<at::Tensor> found(inputs.size());
    if (!outputs.empty())
      found = torch::autograd::grad(outputs, inputs, gradients, std::nullopt, false, /*allow_unused=*/true);
    std::size_t next = 0;
    for (const std::optional<Contribution>& into : into_) {
      if (!into) continue;
      const at::Tensor gradient = found[next++];
      if (gradient.defined())
        copy(floats(into->memory), gradient.contiguous().const_data_ptr<float>(), gradient.numel());
      else
        std::memset(into->memory.get_data_handle(), 0, into->memory.get_desc().get_size());
      into->finish();
    }
    made_.clear();
    given_.clear();
  }

 private:
  struct Operand {
    std::optional<Address> place;
    Dims dims;
    at::ScalarType dtype = at::kFloat;
    bool wants_gradient = false;
  };
  /// The plan would go on with the first rows of it, or with memory behind them.
  [[noreturn]] void refuse_shape(const Pass& pass, const at::Tensor& made, const Dims& expected) const {
    const trainyard::Node& node = pass.network.graph()->nodes[node_];
    const at::IntArrayRef given = given_.front().sizes();
    if (node.op == "Dropout" && made.sizes().slice(1) == given.slice(1) && made.size(0) % given[0] == 0)
      throw OtherRows{node_, made.size(0) / given[0]};
    throw trainyard::PluginError("node \"" + node.name + "\" (" + node.op + ") gives the shape " +
                                 trainyard::shape_text(made.sizes().vec()) + ", and its graph says " +
                                 trainyard::shape_text(expected) + ": set executor.type = \"eager\"");
  }

  std::size_t node_;
  std::vector<std::optional<ValueNumber>> inputs_, outputs_;
  std::vector<Operand> operands_;
  std::vector<std::optional<Address>> places_;
  std::vector<Dims> shapes_;  ///< of the outputs
  std::vector<std::optional<dnnl::memory>> gradients_;
  std::vector<std::optional<Contribution>> into_;
  std::vector<at::Tensor> given_, made_, kept_;
};

}  // namespace

void libtorch_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  std::vector<std::optional<ValueNumber>> inputs, outputs;
  std::vector<ValueNumber> made;
  bool wants_gradient = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.emplace_back();
    if (!compiler.has_input(i)) continue;
    inputs.back() = compiler.in_plain(compiler.input(i));
    wants_gradient |= compiler.wants_gradient(*inputs.back());
  }
  for (const trainyard::ValueId id : node.outputs) {
    outputs.emplace_back();
    if (id == trainyard::no_value) continue;
    const at::ScalarType dtype = compiler.graph().values[static_cast<std::size_t>(id)].dtype;
    outputs.back() =
        compiler.make_outside(compiler.dims_of(id), dtype, wants_gradient && dtype == at::kFloat);
    made.push_back(*outputs.back());
    compiler.give(id, *outputs.back());
  }
  compiler.emit<ByLibTorch>(made, inputs, outputs);
}

}  // namespace compiled
