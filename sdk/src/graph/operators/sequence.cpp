// LSTM, GRU, RNN and Attention.
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/gru_ops.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/promote_types.h>
#include <ATen/ops/rnn_relu_ops.h>
#include <ATen/ops/rnn_tanh_ops.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "dropout_places.hpp"
#include "operator.hpp"

namespace trainyard {
namespace {

// LSTM, GRU and RNN. X [time, batch, in] (layout 0) or [batch, time, in] (layout 1), W [directions, gates hidden, in],
// R [directions, gates hidden, hidden], B [directions, 2 gates hidden] (those of W, then of R); gates in the order i o
// f c, and z r h; a RNN has one.

/// The reset gate of `gru` acts behind its product, as PyTorch has it, and that of `early_gru` ahead of it.
enum class Cell : std::uint8_t { lstm, gru, early_gru, tanh, relu };

struct Sequence {
  Cell cell;
  std::int64_t gates, time, batch, in, hidden, directions;
  bool batch_first, is_reversed;
};

/// Both directions of a RNN have one function.
Cell cell_of(const NodeView& op) {
  const Node& node = op.node();
  if (node.op == "LSTM") return Cell::lstm;
  if (node.op == "GRU") return node.integer("linear_before_reset", 0) != 0 ? Cell::gru : Cell::early_gru;
  const auto given = node.attributes.find("activations");
  if (given == node.attributes.end()) return Cell::tanh;
  const auto* const names = std::get_if<std::vector<std::string>>(&given->second);
  op.require(names != nullptr && !names->empty() && (names->front() == "Tanh" || names->front() == "Relu") &&
                 std::count(names->begin(), names->end(), names->front()) == std::ssize(*names),
             "attribute `activations` needs Tanh or Relu, the same for both directions");
  return names->front() == "Relu" ? Cell::relu : Cell::tanh;
}

Sequence sizes(const NodeView& op) {
  op.require_rank(0, 3);
  op.require_rank(1, 3);
  Sequence s;
  s.cell = cell_of(op);
  s.gates = s.cell == Cell::lstm ? 4 : op.node().op == "GRU" ? 3 : 1;
  s.batch_first = op.node().integer("layout", 0) != 0;
  s.batch = op.shape(0)[s.batch_first ? 0 : 1];
  s.time = op.shape(0)[s.batch_first ? 1 : 0];
  s.in = op.shape(0)[2];
  s.hidden = op.node().integer("hidden_size", op.shape(1)[1] / s.gates);
  const std::string direction = op.node().text("direction", "forward");
  s.directions = direction == "bidirectional" ? 2 : 1;
  s.is_reversed = direction == "reverse";
  return s;
}

/// A LSTM has a second state, of its cells.
std::vector<TensorType> infer_recurrent(const NodeView& op) {
  const std::string direction = op.node().text("direction", "forward");
  op.require(direction == "forward" || direction == "bidirectional" || direction == "reverse",
             "attribute `direction` is \"" + direction + "\", one of forward, reverse, bidirectional");
  op.require(!op.has(4) && !op.has(7),
             "sequence_lens and peephole weights are not supported, leave inputs 4 and 7 out");
  op.require_floating(0);
  const Sequence s = sizes(op);
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
  check(1, {s.directions, s.gates * s.hidden, s.in});
  check(2, {s.directions, s.gates * s.hidden, s.hidden});
  check(3, {s.directions, 2 * s.gates * s.hidden});
  check(5, state);
  check(6, state);
  const Shape output = s.batch_first ? Shape{s.batch, s.time, s.directions, s.hidden}
                                     : Shape{s.time, s.directions, s.batch, s.hidden};
  std::vector<TensorType> types(s.cell == Cell::lstm ? 3 : 2, {state, op.dtype(0)});
  types.front().shape = output;
  return types;
}

/// Maps gates i o f c to PyTorch's i f c o, and z r h to its r z n: copies the weights each pass, little beside one time
/// step's work.
at::Tensor torch_gates(const at::Tensor& onnx, std::int64_t gates) {
  if (gates == 1) return onnx;
  const std::vector<at::Tensor> gate = onnx.chunk(gates, 0);
  return gates == 4 ? at::cat({gate[0], gate[2], gate[3], gate[1]}) : at::cat({gate[1], gate[0], gate[2]});
}

/// The part of all: weights of all directions in PyTorch's order, the input as LibTorch takes it, in the order of the
/// steps, and states, which are zeros where none are given.
struct Recurrent {
  Sequence s;
  ValueId x, w, r, b;
  std::vector<ValueId> outputs;

  explicit Recurrent(const NodeView& op)
      : s(sizes(op)),
        x(op.input(0)),
        w(op.input(1)),
        r(op.input(2)),
        b(op.input(3)),
        outputs(op.node().outputs) {
    outputs.resize(3, no_value);
  }

  std::vector<at::Tensor> weights(Frame& f) const {
    std::vector<at::Tensor> all;
    for (std::int64_t d = 0; d < s.directions; ++d) {
      all.push_back(torch_gates(f[w].select(0, d), s.gates));
      all.push_back(torch_gates(f[r].select(0, d), s.gates));
      if (b == no_value) continue;
      for (const at::Tensor& half : f[b].select(0, d).chunk(2, 0)) all.push_back(torch_gates(half, s.gates));
    }
    return all;
  }
  /// Under autocast the layer before may give half precision, which at::lstm does not mix with its weights.
  at::Tensor input(Frame& f, const std::vector<at::Tensor>& weights) const {
    return in_steps(f[x].to(weights.front().scalar_type()));
  }
  at::Tensor in_steps(const at::Tensor& values) const {
    return s.is_reversed ? at::flip(values, s.batch_first ? 1 : 0) : values;
  }
  at::Tensor state(Frame& f, ValueId given, const at::Tensor& input) const {
    if (given != no_value) return s.batch_first ? f[given].transpose(0, 1) : f[given];
    return at::zeros({s.directions, input.size(s.batch_first ? 0 : 1), s.hidden}, input.options());
  }
  void give(Frame& f, const at::Tensor& output, const at::Tensor& h) const {
    if (outputs[0] != no_value) {
      const at::Tensor apart = in_steps(output).unflatten(2, {s.directions, s.hidden});
      f[outputs[0]] = s.batch_first ? apart : apart.transpose(1, 2);
    }
    if (outputs[1] != no_value) f[outputs[1]] = s.batch_first ? h.transpose(0, 1) : h;
  }
};

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
  const std::optional<std::size_t> cell = cell_number(op.graph(), op.node());
  return [of = Recurrent(op), cell, h0 = op.input(5), c0 = op.input(6)](Frame& f) {
    const Sequence& s = of.s;
    const std::vector<at::Tensor> weights = of.weights(f);
    const at::Tensor input = of.input(f, weights);
    const at::Tensor first = of.state(f, h0, input), cells = of.state(f, c0, input);
    const auto run = [&] {
      std::optional<c10::impl::ExcludeDispatchKeyGuard> in_float;
      if (input.is_cpu() && !has_narrow_lstm()) in_float.emplace(c10::DispatchKey::AutocastCPU);
      if (!cell || f.dropout.p == 0.0 || !f.dropout.plan->places().cells[*cell].active)
        return at::lstm(input, {first, cells}, weights, of.b != no_value, 1, 0.0, f.context.training,
                        s.directions == 2, s.batch_first);
      auto [output, h, c] = carried_lstm(s.batch_first ? input : input.transpose(0, 1), first.select(0, 0),
                                         cells.select(0, 0), weights, *cell, f);
      return std::tuple(s.batch_first ? output : output.transpose(0, 1), h.unsqueeze(0), c.unsqueeze(0));
    };
    const auto [output, h, c] = run();
    of.give(f, output, h);
    if (of.outputs[2] != no_value) f[of.outputs[2]] = s.batch_first ? c.transpose(0, 1) : c;
  };
}

/// Runs a GRU whose reset gate acts on the state ahead of its product, which LibTorch has not, step by step. x [batch,
/// time, in], h [directions, batch, hidden], weights as at::gru takes them.
std::tuple<at::Tensor, at::Tensor> early_gru(const at::Tensor& x, const at::Tensor& h,
                                             const std::vector<at::Tensor>& weights) {
  const auto each = weights.size() / static_cast<std::size_t>(h.size(0));
  const std::vector<std::int64_t> parts = {2 * h.size(2), h.size(2)};
  std::vector<at::Tensor> rows, last;
  for (std::size_t d = 0; d * each < weights.size(); ++d) {
    const at::Tensor* const own = weights.data() + d * each;
    const at::Tensor inputs =
        at::linear(x, own[0], each == 4 ? std::optional(at::add(own[2], own[3])) : std::nullopt);
    const std::vector<at::Tensor> r = own[1].split_with_sizes(parts);
    std::vector<at::Tensor> outputs(static_cast<std::size_t>(x.size(1)));
    at::Tensor state = h[static_cast<std::int64_t>(d)];
    for (std::int64_t i = 0; i < x.size(1); ++i) {
      const std::int64_t t = d == 0 ? i : x.size(1) - 1 - i;
      const std::vector<at::Tensor> of_x = inputs.select(1, t).split_with_sizes(parts, 1);
      const std::vector<at::Tensor> gate = at::sigmoid(at::add(of_x[0], at::linear(state, r[0]))).chunk(2, 1);
      const at::Tensor fresh = at::tanh(at::add(of_x[1], at::linear(at::mul(gate[0], state), r[1])));
      state = at::add(fresh, at::mul(gate[1], at::sub(state, fresh)));
      outputs[static_cast<std::size_t>(t)] = state;
    }
    rows.push_back(at::stack(outputs, 1));
    last.push_back(state);
  }
  return {at::cat(rows, 2), at::stack(last)};
}

/// GRU and RNN.
Call compile_plain(const NodeView& op) {
  return [of = Recurrent(op), h0 = op.input(5)](Frame& f) {
    const Sequence& s = of.s;
    const std::vector<at::Tensor> weights = of.weights(f);
    const at::Tensor input = of.input(f, weights), first = of.state(f, h0, input);
    if (s.cell == Cell::early_gru) {
      const auto [output, h] = early_gru(s.batch_first ? input : input.transpose(0, 1), first, weights);
      return of.give(f, s.batch_first ? output : output.transpose(0, 1), h);
    }
    auto* const run = s.cell == Cell::gru    ? at::_ops::gru_input::call
                      : s.cell == Cell::tanh ? at::_ops::rnn_tanh_input::call
                                             : at::_ops::rnn_relu_input::call;
    const auto [output, h] = run(input, first, weights, of.b != no_value, 1, 0.0, f.context.training,
                                 s.directions == 2, s.batch_first);
    of.give(f, output, h);
  };
}

std::int64_t recurrent_cost(const NodeView& op) {
  const Sequence s = sizes(op);
  return per_sample(s.time) * per_sample(s.batch) * s.directions * s.gates * s.hidden * (s.in + s.hidden);
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
    {"GRU",
     3,
     6,
     {"direction", "hidden_size", "layout", "linear_before_reset"},
     infer_recurrent,
     compile_plain,
     recurrent_cost},
    {"LSTM", 3, 8, {"direction", "hidden_size", "layout"}, infer_recurrent, compile_lstm, recurrent_cost},
    {"RNN",
     3,
     6,
     {"activations", "direction", "hidden_size", "layout"},
     infer_recurrent,
     compile_plain,
     recurrent_cost},
};

}  // namespace

std::span<const Operator> sequence_operators() {
  return sequence_table;
}

}  // namespace trainyard
