// LSTM and Attention.
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/promote_types.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "dropout_places.hpp"
#include "operator.hpp"

namespace trainyard {
namespace {

// LSTM. X [time, batch, in] (layout 0) or [batch, time, in] (layout 1), W [directions, 4 hidden, in],
// R [directions, 4 hidden, hidden], B [directions, 8 hidden] (those of W, then of R); gates in the order i o
// f c.

struct Sequence {
  std::int64_t time, batch, in, hidden, directions;
  bool batch_first;
};

Sequence lstm_sizes(const NodeView& op) {
  op.require_rank(0, 3);
  op.require_rank(1, 3);
  Sequence s;
  s.batch_first = op.node().integer("layout", 0) != 0;
  s.batch = op.shape(0)[s.batch_first ? 0 : 1];
  s.time = op.shape(0)[s.batch_first ? 1 : 0];
  s.in = op.shape(0)[2];
  s.hidden = op.node().integer("hidden_size", op.shape(1)[1] / 4);
  s.directions = op.node().text("direction", "forward") == "bidirectional" ? 2 : 1;
  return s;
}

std::vector<TensorType> infer_lstm(const NodeView& op) {
  const std::string direction = op.node().text("direction", "forward");
  op.require(direction == "forward" || direction == "bidirectional",
             "attribute `direction` is \"" + direction + "\", one of forward, bidirectional");
  op.require(!op.has(4) && !op.has(7),
             "sequence_lens and peephole weights are not supported, leave inputs 4 and 7 out");
  op.require_floating(0);
  const Sequence s = lstm_sizes(op);
  op.require(s.time > 0 && s.in > 0, "input " + op.value(0).name + " has shape " + shape_text(op.shape(0)) +
                                         ", needs " +
                                         (s.batch_first ? "[batch, time, in]" : "[time, batch, in]"));
  const auto check = [&](std::size_t index, const Shape& expected) {
    if (op.has(index) && op.shape(index) != expected)
      op.fail("input " + op.value(index).name + " has shape " + shape_text(op.shape(index)) + ", needs " +
              shape_text(expected));
  };
  const Shape state =
      s.batch_first ? Shape{s.batch, s.directions, s.hidden} : Shape{s.directions, s.batch, s.hidden};
  check(1, {s.directions, 4 * s.hidden, s.in});
  check(2, {s.directions, 4 * s.hidden, s.hidden});
  check(3, {s.directions, 8 * s.hidden});
  check(5, state);
  check(6, state);
  const Shape output = s.batch_first ? Shape{s.batch, s.time, s.directions, s.hidden}
                                     : Shape{s.time, s.directions, s.batch, s.hidden};
  return {{output, op.dtype(0)}, {state, op.dtype(0)}, {state, op.dtype(0)}};
}

/// Maps gates i o f c to PyTorch's i f c o: copies the weights each pass, little beside one time step's work.
at::Tensor torch_gates(const at::Tensor& onnx) {
  const std::vector<at::Tensor> gate = onnx.chunk(4, 0);
  return at::cat({gate[0], gate[2], gate[3], gate[1]});
}

/// Runs one direction, time step by time step, such that dropout can mix the states (zoneout). x [batch,
/// time, in], h and c [batch, hidden], weights as at::lstm takes them. Returns [batch, time, hidden] and the
/// last states.
std::tuple<at::Tensor, at::Tensor, at::Tensor> carried_lstm(const at::Tensor& x, at::Tensor h, at::Tensor c,
                                                            const std::vector<at::Tensor>& weights,
                                                            std::size_t cell, const Frame& f) {
  const bool bias = weights.size() == 4;
  const auto bias_of = [&](std::size_t i) { return bias ? std::optional(weights[i]) : std::nullopt; };
  const at::Tensor inputs = at::linear(x, weights[0], bias_of(2));
  const DropoutService& dropout = f.dropout;
  const DropoutCall call = dropout.call(dropout.cells[cell], f.context);
  std::vector<at::Tensor> outputs;
  for (std::int64_t time = 0; time < x.size(1); ++time) {
    const at::Tensor sums = at::add(inputs.select(1, time), at::linear(h, weights[1], bias_of(3)));
    const std::vector<at::Tensor> gate = sums.chunk(4, 1);
    const at::Tensor memory =
        at::add(at::mul(at::sigmoid(gate[1]), c), at::mul(at::sigmoid(gate[0]), at::tanh(gate[2])));
    const at::Tensor output = at::mul(at::sigmoid(gate[3]), at::tanh(memory));
    c = dropout.carries->carry(c, memory, cell, true, time, call);
    h = dropout.carries->carry(h, output, cell, false, time, call);
    outputs.push_back(h);
  }
  return {at::stack(outputs, 1), h, c};
}

/// oneDNN has LSTMs of bfloat16 for these instructions alone, and at::lstm does not ask it: in a run of mixed precision
/// on another processor they are of float.
bool has_narrow_lstm() {
  static const bool has = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq");
  return has;
}

Call compile_lstm(const NodeView& op) {
  const Sequence s = lstm_sizes(op);
  const std::optional<std::size_t> cell = cell_number(op.graph(), op.node());
  const ValueId x = op.input(0), w = op.input(1), r = op.input(2), b = op.input(3), h0 = op.input(5),
                c0 = op.input(6);
  std::vector<ValueId> outputs = op.node().outputs;
  outputs.resize(3, no_value);
  return [=](Frame& f) {
    std::vector<at::Tensor> weights;
    for (std::int64_t d = 0; d < s.directions; ++d) {
      weights.push_back(torch_gates(f[w].select(0, d)));
      weights.push_back(torch_gates(f[r].select(0, d)));
      if (b == no_value) continue;
      for (const at::Tensor& half : f[b].select(0, d).chunk(2, 0)) weights.push_back(torch_gates(half));
    }
    // Under autocast the layer before may give half precision, which at::lstm does not mix with its weights.
    const at::Tensor input = f[x].to(weights.front().scalar_type());
    const auto state = [&](ValueId given) {
      if (given != no_value) return s.batch_first ? f[given].transpose(0, 1) : f[given];
      return at::zeros({s.directions, input.size(s.batch_first ? 0 : 1), s.hidden}, input.options());
    };
    const auto run = [&] {
      std::optional<c10::impl::ExcludeDispatchKeyGuard> in_float;
      if (input.is_cpu() && !has_narrow_lstm()) in_float.emplace(c10::DispatchKey::AutocastCPU);
      if (!cell || f.dropout.p == 0.0 || !f.dropout.plan->places().cells[*cell].active)
        return at::lstm(input, {state(h0), state(c0)}, weights, b != no_value, 1, 0.0, f.context.training,
                        s.directions == 2, s.batch_first);
      auto [output, h, c] = carried_lstm(s.batch_first ? input : input.transpose(0, 1),
                                         state(h0).select(0, 0), state(c0).select(0, 0), weights, *cell, f);
      return std::tuple(s.batch_first ? output : output.transpose(0, 1), h.unsqueeze(0), c.unsqueeze(0));
    };
    const auto [output, h, c] = run();
    if (outputs[0] != no_value) {
      const at::Tensor apart = output.unflatten(2, {s.directions, s.hidden});
      f[outputs[0]] = s.batch_first ? apart : apart.transpose(1, 2);
    }
    if (outputs[1] != no_value) f[outputs[1]] = s.batch_first ? h.transpose(0, 1) : h;
    if (outputs[2] != no_value) f[outputs[2]] = s.batch_first ? c.transpose(0, 1) : c;
  };
}

std::int64_t lstm_cost(const NodeView& op) {
  const Sequence s = lstm_sizes(op);
  return per_sample(s.time) * per_sample(s.batch) * s.directions * 4 * s.hidden * (s.in + s.hidden);
}

// Attention (opset 23). Q, K, V either [batch, time, heads x width] with the numbers of heads as attributes,
// or [batch, heads, time, width].

struct Heads {
  std::int64_t query, key;
  std::int64_t query_time, key_time;
  std::int64_t width, value_width;  ///< of one head
  bool flat;
};

Heads attention_sizes(const NodeView& op) {
  Heads h;
  h.flat = op.rank(0) == 3;
  if (h.flat) {
    h.query = op.node().integer("q_num_heads", 0);
    h.key = op.node().integer("kv_num_heads", h.query);
    op.require(h.query >= 1 && h.key >= 1,
               "takes attributes q_num_heads and kv_num_heads of 1 or more for inputs of 3 dimensions");
    op.require(op.shape(0)[2] % h.query == 0 && op.shape(1)[2] % h.key == 0 && op.shape(2)[2] % h.key == 0,
               "widths of " + shape_text(op.shape(0)) + ", " + shape_text(op.shape(1)) + ", " +
                   shape_text(op.shape(2)) + " do not divide into " + std::to_string(h.query) +
                   " query and " + std::to_string(h.key) + " key heads");
    h.query_time = op.shape(0)[1];
    h.key_time = op.shape(1)[1];
    h.width = op.shape(0)[2] / h.query;
    h.value_width = op.shape(2)[2] / h.key;
  } else {
    h.query = op.shape(0)[1];
    h.key = op.shape(1)[1];
    h.query_time = op.shape(0)[2];
    h.key_time = op.shape(1)[2];
    h.width = op.shape(0)[3];
    h.value_width = op.shape(2)[3];
  }
  return h;
}

std::vector<TensorType> infer_attention(const NodeView& op) {
  op.require_floating(0);
  for (std::size_t i = 0; i < 3; ++i)
    op.require(op.rank(i) == op.rank(0) && (op.rank(0) == 3 || op.rank(0) == 4),
               "Q, K, V have shapes " + shape_text(op.shape(0)) + ", " + shape_text(op.shape(1)) + ", " +
                   shape_text(op.shape(2)) +
                   "; all need [batch, time, width] or [batch, heads, time, width]");
  op.require(op.node().number("softcap", 0.0) == 0.0, "attribute `softcap` other than 0 is not supported");
  op.require(!op.has(3) || op.node().integer("is_causal", 0) == 0, "takes a mask or is_causal = 1, not both");
  const Heads h = attention_sizes(op);
  const Shape &key = op.shape(1), &value = op.shape(2);
  const bool same_key = h.flat ? key[2] == h.key * h.width : key[3] == h.width;
  const bool same_value = h.flat ? value[1] == key[1] : value[1] == key[1] && value[2] == key[2];
  op.require(same_key && same_value && key[0] == op.shape(0)[0] && value[0] == key[0] && h.query % h.key == 0,
             "Q, K, V of shapes " + shape_text(op.shape(0)) + ", " + shape_text(key) + ", " +
                 shape_text(value) + " with " + std::to_string(h.query) + " query and " +
                 std::to_string(h.key) + " key heads do not fit");
  Shape result = op.shape(0);
  result.back() = h.flat ? h.query * h.value_width : h.value_width;
  return {{result, op.dtype(0)}};
}

/// Computes attention of [batch, heads, time, width] by its formula, such that dropout can act on the weights
/// (Vaswani et al., "Attention is all you need", NeurIPS 2017, equation 1; GPT-2 drops them).
at::Tensor dropped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             std::optional<at::Tensor> mask, bool causal, std::optional<double> scale,
                             std::size_t site, const Frame& f) {
  const std::int64_t shared = q.size(1) / k.size(1);  // query heads that a key head serves
  const auto of_queries = [&](const at::Tensor& x) {
    return shared == 1 ? x : x.repeat_interleave(shared, 1);
  };
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  at::Tensor scores = at::matmul(at::mul(q, factor), of_queries(k).transpose(2, 3));
  if (causal) mask = at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).tril();
  if (mask)
    scores = mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), -INFINITY)
                                              : at::add(scores, *mask);
  // Rows that attend to nothing are 0, as in the fused operator.
  const at::Tensor weights =
      at::_safe_softmax(scores, -1, at::promote_types(scores.scalar_type(), at::kFloat));
  return at::matmul(f.dropped(weights, site).to(v.scalar_type()), of_queries(v));
}

Call compile_attention(const NodeView& op) {
  const Heads h = attention_sizes(op);
  const bool causal = op.node().integer("is_causal", 0) != 0;
  const double factor = op.node().number("scale", 0.0);
  const std::optional<double> scale = factor == 0.0 ? std::nullopt : std::optional(factor);
  return [=, q = op.input(0), k = op.input(1), v = op.input(2), mask = op.input(3), y = op.output(),
          site = *site_number(op.graph(), op.node())](Frame& f) {
    const auto heads = [&](const at::Tensor& x, std::int64_t count) {
      return h.flat ? x.view({x.size(0), x.size(1), count, x.size(2) / count}).transpose(1, 2) : x;
    };
    const at::Tensor query = heads(f[q], h.query), key = heads(f[k], h.key), value = heads(f[v], h.key);
    const at::Tensor result =
        f.drops_at(site) ? dropped_attention(query, key, value, f.optional(mask), causal, scale, site, f)
                         : at::scaled_dot_product_attention(query, key, value, f.optional(mask), 0.0, causal,
                                                            scale, h.key != h.query);
    f[y] = h.flat ? result.transpose(1, 2).reshape({result.size(0), h.query_time, h.query * h.value_width})
                  : result;
  };
}

std::int64_t attention_cost(const NodeView& op) {
  const Heads h = attention_sizes(op);
  return per_sample(op.shape(0)[0]) * h.query * h.query_time * h.key_time * (h.width + h.value_width);
}

const Operator sequence_table[] = {
    {"Attention",
     3,
     4,
     {"is_causal", "kv_num_heads", "q_num_heads", "scale", "softcap"},
     infer_attention,
     compile_attention,
     attention_cost},
    {"LSTM", 3, 8, {"direction", "hidden_size", "layout"}, infer_lstm, compile_lstm, lstm_cost},
};

}  // namespace

std::span<const Operator> sequence_operators() {
  return sequence_table;
}

}  // namespace trainyard
