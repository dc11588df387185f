// Attention with bfloat16: the products of a strip of rows of a head are oneDNN's, on matrix units, and the softmax between them is
// that of kernels/cpu/attention.hpp, in floats. Weights are computed again on the way back.
#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "attention.hpp"
#include "called_product.hpp"

namespace compiled {
namespace {

using namespace trainyard::kernels;

constexpr std::int64_t strip_rows = 128;  ///< so many that scores stay in the second cache

std::int64_t whole(std::int64_t count) {
  return (count + 15) / 16 * 16;
}

Layout matrix(dnnl::memory::data_type type, std::int64_t rows, std::int64_t columns) {
  return plain({rows, columns}, type);
}
/// That of the transpose of one of bfloat16.
Layout turned(std::int64_t rows, std::int64_t columns) {
  return {{columns, rows}, bf16, Dims{1, columns}};
}

/// A part of the rows of a head, with the keys that they attend to; both fill vectors.
struct Strip {
  std::int64_t keys;
  ScoreRows rows;
  CalledProduct scores, output;
  std::optional<CalledProduct> of_weights, of_value, of_query, of_key;  ///< in training

  Strip(const AttentionShape& shape, std::int64_t first, bool is_training) : Strip(shape, first) {
    if (!is_training) return;
    const std::int64_t count = rows.count, width = shape.width;
    const bool adds = shape.time > strip_rows;
    of_weights.emplace(matrix(bf16, count, width), turned(keys, width), matrix(f32, count, keys));
    of_value.emplace(turned(count, keys), matrix(bf16, count, width), matrix(f32, keys, width), adds);
    of_query.emplace(matrix(bf16, count, keys), matrix(bf16, keys, width), matrix(bf16, count, width));
    of_key.emplace(turned(count, keys), matrix(bf16, count, width), matrix(f32, keys, width), adds);
  }

 private:
  Strip(const AttentionShape& shape, std::int64_t first)
      : keys(whole(shape.causal ? std::min(first + strip_rows, shape.time) : shape.time)),
        rows{first, whole(std::min(strip_rows, shape.time - first)), keys},
        scores(matrix(bf16, rows.count, shape.width), turned(keys, shape.width),
               matrix(f32, rows.count, keys)),
        output(matrix(bf16, rows.count, keys), matrix(bf16, keys, shape.width),
               matrix(bf16, rows.count, shape.width)) {}
};

/// What a thread works with: matrices of a head, its rows beside each other and filled up with zeros, and of a strip.
struct Room {
  std::vector<Half> query, key, value, given, weights, of_scores, found;
  std::vector<float> scores, of_weights, of_key, of_value, logs;
  std::vector<Strip> strips;

  Room(const AttentionShape& shape, bool is_training) {
    const std::int64_t rows = whole(shape.time);
    const auto head = static_cast<std::size_t>(rows * shape.width),
               strip = static_cast<std::size_t>(std::min(rows, strip_rows) * rows);
    for (std::vector<Half>* const each : {&query, &key, &value, &given, &found}) each->resize(head);
    scores.resize(strip);
    weights.resize(strip);
    logs.resize(static_cast<std::size_t>(rows));
    if (is_training) {
      of_weights.resize(strip);
      of_scores.resize(strip);
      of_key.resize(head);
      of_value.resize(head);
    }
    for (std::int64_t first = 0; first < shape.time; first += strip_rows)
      strips.emplace_back(shape, first, is_training);
  }
};

class AttentionOfHalves final : public Instruction {
 public:
  AttentionOfHalves(Compiler& compiler, const Heads& heads, const std::array<Rows, 3>& inputs, ValueNumber y)
      : heads_(heads), inputs_(inputs), y_(y) {
    for (std::size_t i = 0; i < 3; ++i) from_[i] = compiler.memory(inputs[i].value);
    to_ = compiler.memory(y);
    const Dims logs = {heads.samples * heads.count, whole(heads.shape.time)};
    logs_ = compiler.make(logs, plain(logs), false);
    to_logs_ = compiler.memory(logs_);
    for (int i = 0; i < at::get_num_threads(); ++i) rooms_.emplace_back(heads.shape, compiler.is_training());
  }

  void forward(const Pass&) override {
    each_head([&](std::int64_t head, Room& room) {
      pack(from_, head, room);
      for (Strip& each : room.strips) {
        const std::int64_t at = each.rows.first * heads_.shape.width;
        each.scores(room.query.data() + at, room.key.data(), room.scores.data());
        kernels_.weigh(heads_.shape, each.rows, room.scores.data(), bits(room.weights),
                       logs_of(to_logs_, head));
        each.output(room.weights.data(), room.value.data(), room.found.data() + at);
      }
      unpack(room.found.data(), row_of(to_, head), heads_.row());
    });
  }

  void plan_backward(Compiler& compiler) override {
    back_.plan(compiler, inputs_, y_);
    from_logs_ = compiler.memory(logs_);
  }

  void backward(const Pass&) override {
    const std::int64_t width = heads_.shape.width;
    each_head([&](std::int64_t head, Room& room) {
      pack(back_.inputs, head, room);
      pack(row_of(back_.given, head), heads_.row(), room.given.data());
      pack(row_of(back_.output, head), heads_.row(), room.found.data());
      if (room.strips.size() > 1) {
        std::fill(room.of_key.begin(), room.of_key.end(), 0.0f);
        std::fill(room.of_value.begin(), room.of_value.end(), 0.0f);
      }
      for (Strip& each : room.strips) {
        const std::int64_t at = each.rows.first * width;
        const Half* const given = room.given.data() + at;
        each.scores(room.query.data() + at, room.key.data(), room.scores.data());
        (*each.of_weights)(given, room.value.data(), room.of_weights.data());
        kernels_.weigh_again(heads_.shape, each.rows, room.scores.data(), room.of_weights.data(),
                             logs_of(from_logs_, head), {bits(room.found), width}, {bits(room.given), width},
                             bits(room.weights), bits(room.of_scores));
        (*each.of_value)(room.weights.data(), given, room.of_value.data());
        (*each.of_key)(room.of_scores.data(), room.query.data() + at, room.of_key.data());
        // In the place of the output's rows, which are not needed any more.
        (*each.of_query)(room.of_scores.data(), room.key.data(), room.found.data() + at);
      }
      const std::array<Half*, 3> to = heads_of(back_.into, head);
      unpack(room.found.data(), to[0], inputs_[0].stride);
      for (std::int64_t t = 0; t < heads_.shape.time; ++t) {
        narrow(to[1] + t * inputs_[1].stride, room.of_key.data() + t * width, width);
        narrow(to[2] + t * inputs_[2].stride, room.of_value.data() + t * width, width);
      }
    });
    back_.finish();
  }

 private:
  static std::uint16_t* bits(std::vector<Half>& halves) {
    return reinterpret_cast<std::uint16_t*>(halves.data());
  }
  static Half* halves(const dnnl::memory& memory) { return static_cast<Half*>(memory.get_data_handle()); }

  template <class Use>
  void each_head(const Use& use) {
    at::parallel_for(0, heads_.samples * heads_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      Room& room = rooms_[static_cast<std::size_t>(at::get_thread_num())];
      for (std::int64_t head = begin; head < end; ++head) use(head, room);
    });
  }

  void pack(const Half* from, std::int64_t stride, Half* to) const {
    for (std::int64_t t = 0; t < heads_.shape.time; ++t)
      std::copy_n(from + t * stride, heads_.shape.width, to + t * heads_.shape.width);
  }
  void pack(const std::array<dnnl::memory, 3>& memories, std::int64_t head, Room& room) const {
    const std::array<Half*, 3> from = heads_of(memories, head);
    pack(from[0], inputs_[0].stride, room.query.data());
    pack(from[1], inputs_[1].stride, room.key.data());
    pack(from[2], inputs_[2].stride, room.value.data());
  }
  void unpack(const Half* from, Half* to, std::int64_t stride) const {
    for (std::int64_t t = 0; t < heads_.shape.time; ++t)
      std::copy_n(from + t * heads_.shape.width, heads_.shape.width, to + t * stride);
  }

  // Heads are numbered through all samples.
  std::array<Half*, 3> heads_of(const std::array<dnnl::memory, 3>& memories, std::int64_t head) const {
    const std::int64_t sample = head / heads_.count;
    std::array<Half*, 3> found{};
    for (std::size_t i = 0; i < 3; ++i)
      found[i] = halves(memories[i]) + inputs_[i].first + head % heads_.count * heads_.shape.width +
                 sample * heads_.shape.time * inputs_[i].stride;
    return found;
  }
  Half* row_of(const dnnl::memory& memory, std::int64_t head) const {
    return halves(memory) + head / heads_.count * heads_.shape.time * heads_.row() +
           head % heads_.count * heads_.shape.width;
  }
  float* logs_of(const dnnl::memory& memory, std::int64_t head) const {
    return floats(memory) + head * whole(heads_.shape.time);
  }

  Heads heads_;
  const AttentionKernels& kernels_ = attention_kernels();
  std::array<Rows, 3> inputs_;
  ValueNumber y_, logs_ = 0;
  std::vector<Room> rooms_;  ///< by thread
  std::array<dnnl::memory, 3> from_;
  AttentionGradients back_;
  dnnl::memory to_, to_logs_, from_logs_;
};

}  // namespace

void attend_in_halves(Compiler& compiler, const Heads& heads, const std::array<Rows, 3>& inputs,
                      ValueNumber y) {
  compiler.emit<AttentionOfHalves>({y}, heads, inputs, y);
}

}  // namespace compiled
