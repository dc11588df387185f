// Scaled dot-product attention of heads that lie beside each other in the rows, causal or whole: a strip of rows of
// all heads of a sample after another, so that its weights stay in the cache, and what causal attention never looks
// at is not computed. Weights are computed again in the backward pass from the logarithm of their sums (Dao et al.,
// "FlashAttention", NeurIPS 2022, section 3.1 and algorithm 4).
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

/// Rows of the heads of a sample, [rows, width] each, `stride` floats apart, or transposed.
Layout heads(const Heads& h, std::int64_t rows, std::int64_t stride, bool transposed = false) {
  if (transposed) return {{h.count, h.width, rows}, f32, Dims{h.width, 1, stride}};
  return {{h.count, rows, h.width}, f32, Dims{h.width, stride, 1}};
}

/// Rows of attention that are computed together, and the columns that they look at.
struct Strip {
  std::int64_t first, rows, columns;
};

std::vector<Strip> strips_of(const Heads& h) {
  constexpr std::int64_t most =
      64;  // of 32 rows there is less to compute, in more and smaller products: slower
  std::vector<Strip> strips;
  for (std::int64_t first = 0; first < h.time; first += most) {
    const std::int64_t rows = std::min(most, h.time - first);
    strips.push_back({first, rows, h.causal ? first + rows : h.time});
  }
  return strips;
}

/// The weights of a strip, [rows, columns] for each head, or transposed.
Layout weights(const Heads& h, const Strip& strip, bool transposed = false) {
  const std::int64_t head = strip.rows * strip.columns;
  if (transposed) return {{h.count, strip.columns, strip.rows}, f32, Dims{head, 1, strip.columns}};
  return {{h.count, strip.rows, strip.columns}, f32, Dims{head, strip.columns, 1}};
}

/// A product of matrices that moves on from sample to sample.
class Product {
 public:
  /// `adds`: to what c holds.
  Product(const Layout& a, const Layout& b, const Layout& c, bool adds = false)
      : a_(a, engine(), nullptr), b_(b, engine(), nullptr), c_(c, engine(), nullptr) {
    dnnl::primitive_attr attributes;
    dnnl::post_ops then;
    if (adds) then.append_sum();
    attributes.set_post_ops(then);
    call_ = {dnnl::matmul(dnnl::matmul::primitive_desc(engine(), a, b, c, attributes)),
             {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}}};
  }
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
      : h_(h), strips_(strips_of(h)), inputs_(inputs), y_(y) {
    for (std::size_t i = 0; i < 3; ++i) from_[i] = compiler.memory(inputs[i].value);
    to_ = compiler.memory(y);
    logs_ = compiler.make({h.samples, h.count * h.time}, plain({h.samples, h.count * h.time}), false);
    to_logs_ = compiler.memory(logs_);
    weights_ = compiler.scratch(plain({h.count * strips_.front().rows * h.time}));
    for (const Strip& strip : strips_) {
      scores_.emplace_back(query(strip), key(strip, true), weights(h, strip));
      mix_.emplace_back(weights(h, strip), value(strip), heads(h, strip.rows, h.row()));
    }
  }

  void forward(const Pass&) override {
    for (std::int64_t s = 0; s < h_.samples; ++s)
      for (std::size_t i = 0; i < strips_.size(); ++i) {
        const Strip& strip = strips_[i];
        scores_[i](at(from_, 0, s, strip.first), at(from_, 1, s), floats(weights_));
        for (std::int64_t head = 0; head < h_.count; ++head)
          softmax_rows(rows_of(weights_, strip, head), floats(to_logs_) + log(s, head, strip));
        mix_[i](floats(weights_), at(from_, 2, s), floats(to_) + output(s, strip));
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
    const Layout room = plain({h_.count * strips_.front().rows * h_.time});
    backward_weights_ = compiler.scratch(room);
    of_weights_ = compiler.scratch(room);
    inner_ = compiler.scratch(plain({strips_.front().rows}));
    for (const Strip& strip : strips_) {
      // The last strip comes first: it looks at all keys and values, and the others add to its gradients.
      const bool adds = &strip != &strips_.back();
      const Layout given = heads(h_, strip.rows, h_.row());
      of_value_.emplace_back(weights(h_, strip, true), given, value(strip), adds);
      of_weight_.emplace_back(given, value(strip, true), weights(h_, strip));
      of_query_.emplace_back(weights(h_, strip), key(strip), query(strip));
      of_key_.emplace_back(weights(h_, strip, true), query(strip), key(strip), adds);
    }
  }

  void backward(const Pass&) override {
    for (std::int64_t s = 0; s < h_.samples; ++s)
      for (std::size_t i = strips_.size(); i-- > 0;) backward(s, i);
    for (const Contribution& each : into_) each.finish();
  }

 private:
  void backward(std::int64_t s, std::size_t i) {
    const Strip& strip = strips_[i];
    const float* const given = floats(given_) + output(s, strip);
    scores_[i](at(again_, 0, s, strip.first), at(again_, 1, s), floats(backward_weights_));
    of_weight_[i](given, at(again_, 2, s), floats(of_weights_));
    for (std::int64_t head = 0; head < h_.count; ++head)
      softmax_again(rows_of(backward_weights_, strip, head), floats(from_logs_) + log(s, head, strip));
    of_value_[i](floats(backward_weights_), given, at(into_, 2, s));
    for (std::int64_t head = 0; head < h_.count; ++head) {
      row_products(floats(inner_), given + head * h_.width,
                   floats(output_) + output(s, strip) + head * h_.width, strip.rows, h_.width, h_.row());
      through_softmax(rows_of(backward_weights_, strip, head),
                      floats(of_weights_) + head * strip.rows * strip.columns, floats(inner_));
    }
    of_query_[i](floats(backward_weights_), at(again_, 1, s), at(into_, 0, s, strip.first));
    of_key_[i](floats(backward_weights_), at(again_, 0, s, strip.first), at(into_, 1, s));
  }

  Layout query(const Strip& strip) const { return heads(h_, strip.rows, inputs_[0].stride); }
  Layout key(const Strip& strip, bool transposed = false) const {
    return heads(h_, strip.columns, inputs_[1].stride, transposed);
  }
  Layout value(const Strip& strip, bool transposed = false) const {
    return heads(h_, strip.columns, inputs_[2].stride, transposed);
  }
  float* at(const std::array<dnnl::memory, 3>& memories, std::size_t i, std::int64_t sample,
            std::int64_t row = 0) const {
    return floats(memories[i]) + inputs_[i].first + (sample * h_.time + row) * inputs_[i].stride;
  }
  float* at(const std::array<Contribution, 3>& into, std::size_t i, std::int64_t sample,
            std::int64_t row = 0) const {
    return floats(into[i].memory) + inputs_[i].first + (sample * h_.time + row) * inputs_[i].stride;
  }
  std::int64_t output(std::int64_t sample, const Strip& strip) const {
    return (sample * h_.time + strip.first) * h_.row();
  }
  std::int64_t log(std::int64_t sample, std::int64_t head, const Strip& strip) const {
    return (sample * h_.count + head) * h_.time + strip.first;
  }
  ScoreRows rows_of(const dnnl::memory& weights, const Strip& strip, std::int64_t head) const {
    return {.first = floats(weights) + head * strip.rows * strip.columns,
            .rows = strip.rows,
            .columns = strip.columns,
            .stride = strip.columns,
            .number = strip.first,
            .factor = h_.factor,
            .causal = h_.causal};
  }

  Heads h_;
  std::vector<Strip> strips_;
  std::array<Rows, 3> inputs_;
  ValueNumber y_, logs_ = 0;
  std::array<dnnl::memory, 3> from_, again_;
  std::array<Contribution, 3> into_;
  dnnl::memory to_, to_logs_, from_logs_, weights_, backward_weights_, of_weights_, inner_, given_, output_;
  std::vector<Product> scores_, mix_, of_value_, of_weight_, of_query_, of_key_;  ///< by strip
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
  const std::int64_t width = dims[2] / count;
  const Heads h{.samples = dims[0],
                .time = dims[1],
                .count = count,
                .width = width,
                .causal = node.integer("is_causal", 0) != 0,
                .factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)))};
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
