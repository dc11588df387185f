// Scaled dot-product attention of heads that lie beside each other in the rows, causal or whole: a head of a sample
// after another, by kernels/cpu/attention.hpp.
#include <ATen/Parallel.h>

#include <cmath>

#include "attention.hpp"

namespace compiled {
namespace {

using namespace trainyard::kernels;

class Attention final : public Instruction {
 public:
  Attention(Compiler& compiler, const Heads& heads, const std::array<Rows, 3>& inputs, ValueNumber y)
      : heads_(heads), inputs_(inputs), y_(y) {
    for (std::size_t i = 0; i < 3; ++i) from_[i] = compiler.memory(inputs[i].value);
    to_ = compiler.memory(y);
    const Dims logs = {heads.samples, heads.count * heads.shape.time};
    logs_ = compiler.make(logs, plain(logs), false);
    to_logs_ = compiler.memory(logs_);
    room_ = compiler.scratch(rooms());
  }

  void forward(const Pass&) override {
    each_head(room_, [&](std::int64_t sample, std::int64_t head, float* room) {
      kernels_.forward(heads_.shape, inputs(from_, sample, head), row(to_, sample, head),
                       logs(to_logs_, sample, head), room);
    });
  }

  void plan_backward(Compiler& compiler) override {
    back_.plan(compiler, inputs_, y_);
    from_logs_ = compiler.memory(logs_);
    backward_room_ = compiler.scratch(rooms());
  }

  void backward(const Pass&) override {
    each_head(backward_room_, [&](std::int64_t sample, std::int64_t head, float* room) {
      kernels_.backward(heads_.shape, inputs(back_.inputs, sample, head), row(back_.output, sample, head),
                        logs(from_logs_, sample, head), row(back_.given, sample, head),
                        inputs(back_.into, sample, head), room);
    });
    back_.finish();
  }

 private:
  Layout rooms() const { return plain({at::get_num_threads(), kernels_.room(heads_.shape)}); }
  template <class Use>
  void each_head(const dnnl::memory& room, const Use& use) const {
    at::parallel_for(0, heads_.samples * heads_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      float* const mine = floats(room) + at::get_thread_num() * kernels_.room(heads_.shape);
      for (std::int64_t i = begin; i < end; ++i) use(i / heads_.count, i % heads_.count, mine);
    });
  }
  AttentionInputs inputs(const std::array<dnnl::memory, 3>& memories, std::int64_t sample,
                         std::int64_t head) const {
    const auto part = [&](std::size_t i) {
      float* const data = floats(memories[i]) + inputs_[i].first + head * heads_.shape.width;
      return AttentionRows{data + sample * heads_.shape.time * inputs_[i].stride, inputs_[i].stride};
    };
    return {part(0), part(1), part(2)};
  }
  AttentionRows row(const dnnl::memory& memory, std::int64_t sample, std::int64_t head) const {
    return {floats(memory) + sample * heads_.shape.time * heads_.row() + head * heads_.shape.width,
            heads_.row()};
  }
  float* logs(const dnnl::memory& memory, std::int64_t sample, std::int64_t head) const {
    return floats(memory) + (sample * heads_.count + head) * heads_.shape.time;
  }

  Heads heads_;
  const AttentionKernels& kernels_ = attention_kernels();
  std::array<Rows, 3> inputs_;
  ValueNumber y_, logs_ = 0;
  std::array<dnnl::memory, 3> from_;
  AttentionGradients back_;
  dnnl::memory to_, to_logs_, from_logs_, room_, backward_room_;
};

}  // namespace

bool attention_rule(Compiler& compiler) {
  // One linear layer often gives queries, keys and values, which a Split takes apart.
  const bool split = compiler.node().op == "Split";
  std::size_t number = compiler.node_number();
  if (split) {
    const std::optional<std::size_t> reader = compiler.only_reader(compiler.node().outputs[0]);
    if (!reader) return false;
    number = *reader;
  }
  const trainyard::Node& node = compiler.node(number);
  const std::int64_t count = node.integer("q_num_heads", 0);
  if (node.op != "Attention" || node.inputs.size() != 3 || count < 1 || compiler.is_dropped(number) ||
      node.integer("kv_num_heads", count) != count || node.number("scale", 0.0) != 0.0)
    return false;
  const Dims dims = compiler.dims_of(node.outputs[0]);
  if (dims.size() != 3) return false;
  for (const trainyard::ValueId id : node.inputs)
    if (compiler.dims_of(id) != dims) return false;
  const std::int64_t width = dims[2] / count;
  const Heads heads{.samples = dims[0],
                    .count = count,
                    .shape = {.time = dims[1],
                              .width = width,
                              .causal = node.integer("is_causal", 0) != 0,
                              .factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)))}};
  const auto as_taken = [&](ValueNumber each) {
    return compiler.has_halves() ? compiler.in_half(each) : compiler.in_plain(each);
  };
  std::array<Rows, 3> inputs;
  if (split) {
    if (compiler.node().outputs != node.inputs) return false;
    for (const trainyard::ValueId id : node.inputs)
      if (compiler.only_reader(id) != number) return false;
    if (!compiler.is_real(compiler.input(0))) return false;
    const ValueNumber x = as_taken(compiler.input(0));
    if (compiler.value(x).dims != Dims{dims[0], dims[1], 3 * dims[2]}) return false;
    for (std::size_t i = 0; i < 3; ++i) inputs[i] = {x, static_cast<std::int64_t>(i) * dims[2], 3 * dims[2]};
    compiler.take(number);
  } else {
    for (std::size_t i = 0; i < 3; ++i) {
      if (!compiler.is_real(compiler.input(i))) return false;
      inputs[i] = {as_taken(compiler.input(i)), 0, dims[2]};
      if (!compiler.is_reached(inputs[i].value)) return false;
      for (std::size_t k = 0; k < i; ++k)
        if (inputs[k].value == inputs[i].value) return false;
    }
  }
  if (!compiler.is_reached(inputs[0].value)) return false;
  const ValueNumber y =
      compiler.make(dims, plain(dims, compiler.has_halves() ? bf16 : f32), compiler.is_training());
  if (compiler.has_halves())
    attend_in_halves(compiler, heads, inputs, y);
  else
    compiler.emit<Attention>({y}, heads, inputs, y);
  compiler.give(node.outputs[0], y);
  return true;
}

}  // namespace compiled
