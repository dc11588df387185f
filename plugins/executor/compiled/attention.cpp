// Scaled dot-product attention of heads that lie beside each other in the rows, causal or whole, one sample after
// another, so that the weights of its heads stay in the cache. They are computed again in the backward pass from
// the logarithm of their sums (Dao et al., "FlashAttention", NeurIPS 2022, section 3.1 and algorithm 4).
#include <array>
#include <cmath>

#include "compiler.hpp"
#include "loops.hpp"

namespace compiled {
namespace {

constexpr auto f32 = dnnl::memory::data_type::f32;

struct Heads {
  std::int64_t samples, time, count, width;
  bool causal;
  float factor;

  std::int64_t row() const { return count * width; }
};

/// The matrices of the heads of a sample, [time, width] each, in rows of `stride` floats, or transposed.
Layout heads(const Heads& h, std::int64_t stride, bool transposed = false) {
  if (transposed) return {{h.count, h.width, h.time}, f32, Dims{h.width, 1, stride}};
  return {{h.count, h.time, h.width}, f32, Dims{h.width, stride, 1}};
}

/// Their weights, [time, time] each.
Layout squares(const Heads& h, bool transposed = false) {
  return {{h.count, h.time, h.time},
          f32,
          transposed ? Dims{h.time * h.time, 1, h.time} : Dims{h.time * h.time, h.time, 1}};
}

/// A product of matrices that moves on from sample to sample.
class Product {
 public:
  Product() = default;
  Product(const Layout& a, const Layout& b, const Layout& c)
      : a_(a, engine(), nullptr),
        b_(b, engine(), nullptr),
        c_(c, engine(), nullptr),
        call_(dnnl::matmul(dnnl::matmul::primitive_desc(engine(), a, b, c)),
              {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}}) {}
  void operator()(const float* a, const float* b, float* c) {
    a_.set_data_handle(const_cast<float*>(a));
    b_.set_data_handle(const_cast<float*>(b));
    c_.set_data_handle(c);
    call_.run();
  }

 private:
  dnnl::memory a_, b_, c_;
  Call call_;
};

/// Rows that a value holds, perhaps beside others: of packed queries, keys and values.
struct Rows {
  ValueNumber value;
  std::int64_t first, stride;
};

class Attention final : public Instruction {
 public:
  Attention(Compiler& compiler, const Heads& h, const std::array<Rows, 3>& inputs, ValueNumber y)
      : h_(h), inputs_(inputs), y_(y) {
    for (std::size_t i = 0; i < 3; ++i) from_[i] = compiler.memory(inputs[i].value);
    to_ = compiler.memory(y);
    logs_ = compiler.make({h.samples, h.count * h.time}, plain({h.samples, h.count * h.time}), false);
    to_logs_ = compiler.memory(logs_);
    weights_ = compiler.scratch(squares(h));
    scores_ = {heads(h, inputs[0].stride), heads(h, inputs[1].stride, true), squares(h)};
    mix_ = {squares(h), heads(h, inputs[2].stride), heads(h, h.row())};
  }

  void forward(const Pass&) override {
    for (std::int64_t s = 0; s < h_.samples; ++s) {
      scores_(at(from_, 0, s), at(from_, 1, s), floats(weights_));
      float* const logs = floats(to_logs_) + s * h_.count * h_.time;
      for (std::int64_t head = 0; head < h_.count; ++head)
        softmax_rows(square(weights_, head), logs + head * h_.time, h_.time, h_.time, h_.factor, h_.causal);
      mix_(floats(weights_), at(from_, 2, s), floats(to_) + s * h_.time * h_.row());
    }
  }

  void plan_backward(Compiler& compiler) override {
    given_ = *compiler.gradient(y_);
    output_ = compiler.memory(y_);
    from_logs_ = compiler.memory(logs_);
    const bool packed = inputs_[0].value == inputs_[1].value;
    for (std::size_t i = 0; i < 3; ++i) {
      again_[i] = compiler.memory(inputs_[i].value);
      into_[i] = packed && i > 0 ? into_[0] : compiler.contribute(inputs_[i].value);
    }
    if (packed) into_[1].then = into_[2].then = Contribution::Finish::nothing;
    backward_weights_ = compiler.scratch(squares(h_));
    of_weights_ = compiler.scratch(squares(h_));
    inner_ = compiler.scratch(plain({h_.count * h_.time}));
    const Layout output = heads(h_, h_.row());
    const auto rows = [&](std::size_t i, bool transposed = false) {
      return heads(h_, inputs_[i].stride, transposed);
    };
    of_value_ = {squares(h_, true), output, rows(2)};
    of_weight_ = {output, rows(2, true), squares(h_)};
    of_query_ = {squares(h_), rows(1), rows(0)};
    of_key_ = {squares(h_, true), rows(0), rows(1)};
  }

  void backward(const Pass&) override {
    for (std::int64_t s = 0; s < h_.samples; ++s) {
      const float* const given = floats(given_) + s * h_.time * h_.row();
      const float* const output = floats(output_) + s * h_.time * h_.row();
      const float* const logs = floats(from_logs_) + s * h_.count * h_.time;
      float* const inner = floats(inner_);
      scores_(at(again_, 0, s), at(again_, 1, s), floats(backward_weights_));
      of_weight_(given, at(again_, 2, s), floats(of_weights_));
      for (std::int64_t head = 0; head < h_.count; ++head) {
        float* const sums = inner + head * h_.time;
        softmax_again(square(backward_weights_, head), logs + head * h_.time, h_.time, h_.time, h_.factor,
                      h_.causal);
        row_products(sums, given + head * h_.width, output + head * h_.width, h_.time, h_.width, h_.row());
      }
      of_value_(floats(backward_weights_), given, at(into_, 2, s));
      for (std::int64_t head = 0; head < h_.count; ++head)
        through_softmax(square(backward_weights_, head), square(of_weights_, head), inner + head * h_.time,
                        h_.time, h_.time, h_.factor);
      of_query_(floats(backward_weights_), at(again_, 1, s), at(into_, 0, s));
      of_key_(floats(backward_weights_), at(again_, 0, s), at(into_, 1, s));
    }
    for (const Contribution& each : into_) each.finish();
  }

 private:
  float* at(const std::array<dnnl::memory, 3>& memories, std::size_t i, std::int64_t sample) const {
    return floats(memories[i]) + inputs_[i].first + sample * h_.time * inputs_[i].stride;
  }
  float* at(const std::array<Contribution, 3>& into, std::size_t i, std::int64_t sample) const {
    return floats(into[i].memory) + inputs_[i].first + sample * h_.time * inputs_[i].stride;
  }
  float* square(const dnnl::memory& weights, std::int64_t head) const {
    return floats(weights) + head * h_.time * h_.time;
  }

  Heads h_;
  std::array<Rows, 3> inputs_;
  ValueNumber y_, logs_ = 0;
  std::array<dnnl::memory, 3> from_, again_;
  std::array<Contribution, 3> into_;
  dnnl::memory to_, to_logs_, from_logs_, weights_, backward_weights_, of_weights_, inner_, given_, output_;
  Product scores_, mix_, of_value_, of_weight_, of_query_, of_key_;
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
  if (node.op != "Attention" || node.inputs.size() != 3 || count < 1 || compiler.has_dropout() ||
      node.integer("kv_num_heads", count) != count || node.number("scale", 0.0) != 0.0)
    return false;
  const Dims dims = compiler.dims_of(node.outputs[0]);
  if (dims.size() != 3) return false;
  for (const trainyard::ValueId id : node.inputs)
    if (compiler.dims_of(id) != dims) return false;
  const Heads h{.samples = dims[0],
                .time = dims[1],
                .count = count,
                .width = dims[2] / count,
                .causal = node.integer("is_causal", 0) != 0,
                .factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dims[2] / count)))};
  std::array<Rows, 3> inputs;
  if (split) {
    if (compiler.node().outputs != node.inputs) return false;
    for (const trainyard::ValueId id : node.inputs)
      if (compiler.only_reader(id) != number) return false;
    const ValueNumber x = compiler.in_plain(compiler.input(0));
    if (compiler.value(x).dims != Dims{dims[0], dims[1], 3 * dims[2]} ||
        compiler.value(x).dtype != at::kFloat)
      return false;
    for (std::size_t i = 0; i < 3; ++i) inputs[i] = {x, static_cast<std::int64_t>(i) * dims[2], 3 * dims[2]};
    compiler.take(number);
  } else {
    for (std::size_t i = 0; i < 3; ++i) {
      inputs[i] = {compiler.in_plain(compiler.input(i)), 0, dims[2]};
      if (compiler.value(inputs[i].value).dtype != at::kFloat || !compiler.wants_gradient(inputs[i].value))
        return false;
      for (std::size_t k = 0; k < i; ++k)
        if (inputs[k].value == inputs[i].value) return false;
    }
  }
  if (!compiler.wants_gradient(inputs[0].value)) return false;
  const ValueNumber y = compiler.make(dims, plain(dims), true);
  compiler.emit<Attention>({y}, h, inputs, y);
  compiler.give(node.outputs[0], y);
  return true;
}

}  // namespace compiled
