// Gather of rows of a weight by tokens that come with the batch.
#include <cstring>

#include <trainyard/error.hpp>

#include "compiler.hpp"

namespace compiled {
namespace {

class Embedding final : public Instruction {
 public:
  Embedding(Compiler& compiler, ValueNumber weight, ValueNumber tokens, ValueNumber y)
      : weight_(weight), tokens_(tokens), y_(y), name_(compiler.node().name) {
    const Dims& dims = compiler.value(weight).dims;
    rows_ = dims[0];
    width_ = dims[1];
    from_ = compiler.memory(weight);
    places_ = compiler.place(tokens);
    to_ = compiler.memory(y);
    count_ = elements(to_) / width_;
  }

  void forward(const Pass&) override {
    const auto* tokens = static_cast<const std::int64_t*>(places_->data());
    for (std::int64_t i = 0; i < count_; ++i) {
      if (tokens[i] < 0 || tokens[i] >= rows_)
        throw trainyard::PluginError("node \"" + name_ + "\" (Gather): index " + std::to_string(tokens[i]) +
                                     " is out of range for " + std::to_string(rows_) + " rows");
      copy(floats(to_) + i * width_, floats(from_) + tokens[i] * width_, width_);
    }
  }

  void plan_backward(Compiler& compiler) override {
    given_ = *compiler.gradient(y_);
    compiler.place(tokens_);
    is_first_ = !compiler.has_gradient(weight_);
    into_ = compiler.contribute(weight_, true).memory;
  }

  void backward(const Pass&) override {
    if (is_first_) std::memset(into_.get_data_handle(), 0, into_.get_desc().get_size());
    const auto* tokens = static_cast<const std::int64_t*>(places_->data());
    for (std::int64_t i = 0; i < count_; ++i)
      add_into(floats(into_) + tokens[i] * width_, floats(given_) + i * width_, width_);
  }

 private:
  ValueNumber weight_, tokens_, y_;
  std::string name_;
  std::int64_t rows_ = 0, width_ = 0, count_ = 0;
  dnnl::memory from_, to_, given_, into_;
  std::optional<Address> places_;
  bool is_first_ = false;
};

}  // namespace

bool embedding_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  if (node.op != "Gather" || node.integer("axis", 0) != 0 || !compiler.is_constant(0)) return false;
  const ValueNumber weight = compiler.input(0), tokens = compiler.input(1);
  // A weight that is fixed may be asked for places from its end, and LibTorch checks and counts them.
  if (!compiler.value(weight).is_parameter || compiler.value(weight).dtype != at::kFloat ||
      compiler.value(weight).dims.size() != 2 || compiler.value(tokens).dtype != at::kLong)
    return false;
  const Dims dims = compiler.dims_of(node.outputs[0]);
  for (const std::int64_t size : dims)
    if (size == 0) return false;
  const ValueNumber y = compiler.make(dims, plain(dims), compiler.wants_gradient(weight));
  compiler.emit<Embedding>({y}, weight, tokens, y);
  compiler.give(node.outputs[0], y);
  return true;
}

}  // namespace compiled
