// This file is compiled once per instruction set, named by TRAINYARD_ISA. It has no symbol that the linker
// could share with other units, as that code would be compiled for this set: functions of headers that it
// calls are trivial or forced inline.
#include "kernels/cpu/attention_micro.hpp"

#include <utility>

#include "kernels/cpu/vector_math.hpp"

namespace trainyard::kernels {
namespace {

constexpr std::int64_t strip =
    32;  ///< rows computed together: fewer cost more per column, more compute more masked scores
constexpr std::int64_t tile_rows = register_bytes == 64 ? 8 : 4,
                       tile_vectors = 2;  ///< of a product: half of the registers

TRAINYARD_INLINE std::int64_t up(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}
TRAINYARD_INLINE std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// --- products of matrices whose sizes fill tiles

struct Matrix {
  const float* data;
  std::int64_t row, column;  ///< distance from one to the next
};

template <std::int64_t vectors, bool adds>
TRAINYARD_INLINE void tile(const Matrix& a, const float* b, std::int64_t b_stride, float* c,
                           std::int64_t c_stride, std::int64_t depth) {
  Vector sums[tile_rows][vectors] = {};
  if (adds)
    for (int r = 0; r < tile_rows; ++r)
      for (int v = 0; v < vectors; ++v) sums[r][v] = load(c + r * c_stride + v * lanes);
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector row[vectors];
    for (int v = 0; v < vectors; ++v) row[v] = load(b + k * b_stride + v * lanes);
    for (int r = 0; r < tile_rows; ++r) {
      const float each = a.data[r * a.row + k * a.column];
      for (int v = 0; v < vectors; ++v) sums[r][v] += each * row[v];
    }
  }
  for (int r = 0; r < tile_rows; ++r)
    for (int v = 0; v < vectors; ++v) store(c + r * c_stride + v * lanes, sums[r][v]);
}

/// Computes c = a b, or c + a b: `rows` of it, which fill tiles, and `columns`, which fill vectors.
template <bool adds>
void product(Matrix a, const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
             std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  std::int64_t j = 0;
  for (; j + tile_vectors * lanes <= columns; j += tile_vectors * lanes)
    for (std::int64_t i = 0; i < rows; i += tile_rows)
      tile<tile_vectors, adds>({a.data + i * a.row, a.row, a.column}, b + j, b_stride, c + i * c_stride + j,
                               c_stride, depth);
  for (; j < columns; j += lanes)
    for (std::int64_t i = 0; i < rows; i += tile_rows)
      tile<1, adds>({a.data + i * a.row, a.row, a.column}, b + j, b_stride, c + i * c_stride + j, c_stride,
                    depth);
}

// --- copies whose sizes fill tiles, zeros around them

struct Sizes {
  std::int64_t time, width;  ///< whole strips, whole vectors
  explicit Sizes(const AttentionShape& shape) : time(up(shape.time, strip)), width(up(shape.width, lanes)) {}
  std::int64_t matrix() const { return time * width; }
};

TRAINYARD_INLINE void copy(const float* from, float* to, std::int64_t count) {
  std::int64_t k = 0;
  for (; k + lanes <= count; k += lanes) store(to + k, load(from + k));
  for (; k < count; ++k) to[k] = from[k];
}
/// Packs a row and fills it up with zeros.
TRAINYARD_INLINE void pack_row(const AttentionShape& shape, const Sizes& sizes, const float* from,
                               float* to) {
  copy(from, to, shape.width);
  for (std::int64_t k = shape.width; k < sizes.width; ++k) to[k] = 0.0f;
}
void pack(const AttentionShape& shape, const Sizes& sizes, const AttentionRows& from, float* to) {
  for (std::int64_t i = 0; i < shape.time; ++i)
    pack_row(shape, sizes, from.data + i * from.stride, to + i * sizes.width);
  for (std::int64_t i = shape.time * sizes.width; i < sizes.matrix(); ++i) to[i] = 0.0f;
}

/// Exchanges blocks of `distance` lanes between a pair of vectors.
template <int distance, int... lane>
TRAINYARD_INLINE void exchange(Vector& low, Vector& high, std::integer_sequence<int, lane...>) {
  constexpr int count = sizeof...(lane);
  const Vector a = low, b = high;
  low = __builtin_shufflevector(a, b, ((lane & distance) != 0 ? count + lane - distance : lane)...);
  high = __builtin_shufflevector(a, b, ((lane & distance) != 0 ? count + lane : lane + distance)...);
}
/// Transposes a square of lanes.
template <int distance = 1>
TRAINYARD_INLINE void exchange(Vector* block) {
  if constexpr (distance < lanes) {
#pragma GCC unroll 16
    for (int l = 0; l < lanes; ++l)
      if ((l & distance) == 0)
        exchange<distance>(block[l], block[l + distance], std::make_integer_sequence<int, lanes>());
    exchange<2 * distance>(block);
  }
}
/// Transposes a packed matrix to [width, time].
void transpose(const Sizes& sizes, const float* from, float* to) {
  for (std::int64_t i = 0; i < sizes.time; i += lanes)
    for (std::int64_t k = 0; k < sizes.width; k += lanes) {
      Vector block[lanes];
#pragma GCC unroll 16
      for (int l = 0; l < lanes; ++l) block[l] = load(from + (i + l) * sizes.width + k);
      exchange(block);
#pragma GCC unroll 16
      for (int l = 0; l < lanes; ++l) store(to + (k + l) * sizes.time + i, block[l]);
    }
}
void unpack(const AttentionShape& shape, const Sizes& sizes, const float* from, std::int64_t first,
            std::int64_t rows, const AttentionRows& to) {
  for (std::int64_t i = 0; i < rows; ++i)
    copy(from + i * sizes.width, to.data + (first + i) * to.stride, shape.width);
}

// --- a strip

/// Returns the columns to which a strip attends, in whole vectors. count_of gives those of one row.
TRAINYARD_INLINE std::int64_t columns_of(const AttentionShape& shape, const Sizes& sizes,
                                         std::int64_t first) {
  return shape.causal ? least(first + strip, sizes.time) : sizes.time;
}
TRAINYARD_INLINE std::int64_t count_of(const AttentionShape& shape, std::int64_t row) {
  return shape.causal ? least(row + 1, shape.time) : shape.time;
}

TRAINYARD_INLINE Words numbers() {
  Words found;
  for (int i = 0; i < lanes; ++i) found[i] = i;
  return found;
}
/// Loads scores, with -infinity in columns to which the row does not attend.
TRAINYARD_INLINE Vector masked(const float* scores, std::int64_t column, std::int64_t count) {
  const Vector found = load(scores + column);
  if (column + lanes <= count) return found;
  return numbers() < static_cast<std::int32_t>(count - column) ? found : Vector{} - infinity;
}

/// Turns scores into exp(factor (score - the largest)). Returns the sum; sets `log` to the number that, taken
/// from factor x score, makes the weights add up to 1.
TRAINYARD_INLINE float exponentials(float* scores, std::int64_t columns, std::int64_t count, float factor,
                                    float& log) {
  Vector most = Vector{} - infinity;
  for (std::int64_t j = 0; j < columns; j += lanes) {
    const Vector each = masked(scores, j, count);
    most = each > most ? each : most;
  }
  const float largest = folded<Max>(most);
  Vector sums{};
  for (std::int64_t j = 0; j < columns; j += lanes) {
    const Vector each = exponential_below(factor * (masked(scores, j, count) - largest));
    store(scores + j, each);
    sums += each;
  }
  const float sum = folded<Add>(sums);
  log = factor * largest + __builtin_logf(sum);
  return sum;
}

/// Turns scores into weights, and the gradients of the weights into those of the scores.
TRAINYARD_INLINE void weights_and_gradients(float* scores, float* gradients, std::int64_t columns,
                                            std::int64_t count, float factor, float log, float inner) {
  for (std::int64_t j = 0; j < columns; j += lanes) {
    const Vector weight = exponential_below(factor * masked(scores, j, count) - log);
    store(scores + j, weight);
    store(gradients + j, weight * (factor * (load(gradients + j) - inner)));
  }
}

std::int64_t room(const AttentionShape& shape) {
  const Sizes sizes(shape);
  return 8 * sizes.matrix() + 2 * strip * sizes.time + lanes;
}

void forward(const AttentionShape& shape, const AttentionInputs& inputs, const AttentionRows& output,
             float* logs, float* room) {
  const Sizes sizes(shape);
  float* const query = room;
  float* const value = query + sizes.matrix();
  float* const key = value + sizes.matrix();
  float* const found = key + sizes.matrix();  // at first holds the key before it is transposed
  float* const scores = found + sizes.matrix();
  pack(shape, sizes, inputs.query, query);
  pack(shape, sizes, inputs.value, value);
  pack(shape, sizes, inputs.key, found);
  transpose(sizes, found, key);
  for (std::int64_t first = 0; first < shape.time; first += strip) {
    const std::int64_t columns = columns_of(shape, sizes, first);
    product<false>({query + first * sizes.width, sizes.width, 1}, key, sizes.time, scores, sizes.time, strip,
                   columns, shape.width);
    float shares[strip];
    for (std::int64_t r = 0; r < strip; ++r) {
      float log = 0.0f;
      shares[r] = 1.0f / exponentials(scores + r * sizes.time, columns, count_of(shape, first + r),
                                      shape.factor, log);
      if (first + r < shape.time) logs[first + r] = log;
    }
    product<false>({scores, sizes.time, 1}, value, sizes.width, found, sizes.width, strip, sizes.width,
                   columns);
    const std::int64_t rows = least(strip, shape.time - first);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < sizes.width; k += lanes) {
        float* const at = found + r * sizes.width + k;
        store(at, shares[r] * load(at));
      }
    unpack(shape, sizes, found, first, rows, output);
  }
}

void backward(const AttentionShape& shape, const AttentionInputs& inputs, const AttentionRows& output,
              const float* logs, const AttentionRows& given, const AttentionInputs& gradients, float* room) {
  const Sizes sizes(shape);
  const std::int64_t size = sizes.matrix();
  float* const query = room;
  float* const key = query + size;
  float* const of_output = key + size;
  float* const key_transposed = of_output + size;
  float* const value_transposed = key_transposed + size;
  float* const of_query = value_transposed + size;
  float* const of_key = of_query + size;
  float* const of_value = of_key + size;
  float* const scores = of_value + size;
  float* const of_scores = scores + strip * sizes.time;
  pack(shape, sizes, inputs.query, query);
  pack(shape, sizes, inputs.key, key);
  pack(shape, sizes, given, of_output);
  transpose(sizes, key, key_transposed);
  pack(shape, sizes, inputs.value, of_value);  // temporarily
  transpose(sizes, of_value, value_transposed);
  for (std::int64_t i = 0; i < size; ++i) of_key[i] = of_value[i] = 0.0f;
  for (std::int64_t first = 0; first < shape.time; first += strip) {
    const std::int64_t columns = columns_of(shape, sizes, first), at = first * sizes.width;
    product<false>({query + at, sizes.width, 1}, key_transposed, sizes.time, scores, sizes.time, strip,
                   columns, shape.width);
    product<false>({of_output + at, sizes.width, 1}, value_transposed, sizes.time, of_scores, sizes.time,
                   strip, columns, shape.width);
    for (std::int64_t r = 0; r < strip; ++r) {
      const std::int64_t row = first + r;
      float inner = 0.0f, log = infinity;  // rows beyond the end get weights of 0
      if (row < shape.time) {
        log = logs[row];
        // The output row is put where its gradient for the query will be.
        pack_row(shape, sizes, output.data + row * output.stride, of_query);
        Vector sums{};
        for (std::int64_t k = 0; k < sizes.width; k += lanes)
          sums += load(of_output + row * sizes.width + k) * load(of_query + k);
        inner = folded<Add>(sums);
      }
      weights_and_gradients(scores + r * sizes.time, of_scores + r * sizes.time, columns,
                            count_of(shape, row), shape.factor, log, inner);
    }
    product<false>({of_scores, sizes.time, 1}, key, sizes.width, of_query, sizes.width, strip, sizes.width,
                   columns);
    unpack(shape, sizes, of_query, first, least(strip, shape.time - first), gradients.query);
    product<true>({of_scores, 1, sizes.time}, query + at, sizes.width, of_key, sizes.width, columns,
                  sizes.width, strip);
    product<true>({scores, 1, sizes.time}, of_output + at, sizes.width, of_value, sizes.width, columns,
                  sizes.width, strip);
  }
  unpack(shape, sizes, of_key, 0, shape.time, gradients.key);
  unpack(shape, sizes, of_value, 0, shape.time, gradients.value);
}

// --- rows of bfloat16

TRAINYARD_INLINE float wide(std::uint16_t half) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(half) << 16);
}
TRAINYARD_INLINE float inner_product(const std::uint16_t* a, const std::uint16_t* b, std::int64_t count) {
  Vector sums{};
  std::int64_t k = 0;
  for (; k + lanes <= count; k += lanes) sums += load(a + k) * load(b + k);
  float sum = folded<Add>(sums);
  for (; k < count; ++k) sum += wide(a[k]) * wide(b[k]);
  return sum;
}
/// Writes zeros.
TRAINYARD_INLINE void clear(std::uint16_t* from, std::uint16_t* end) {
  for (; from < end; ++from) *from = 0;
}

void weigh(const AttentionShape& shape, const ScoreRows& rows, float* scores, std::uint16_t* weights,
           float* logs) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    float* const row = scores + r * rows.stride;
    std::uint16_t* const to = weights + r * rows.stride;
    const std::int64_t count = count_of(shape, rows.first + r), columns = up(count, lanes);
    const float share = 1.0f / exponentials(row, columns, count, shape.factor, logs[rows.first + r]);
    for (std::int64_t j = 0; j < columns; j += lanes) store(to + j, share * load(row + j));
    clear(to + columns, to + rows.stride);
  }
}

void weigh_again(const AttentionShape& shape, const ScoreRows& rows, const float* scores,
                 const float* of_weights, const float* logs, const HalfRows& output, const HalfRows& given,
                 std::uint16_t* weights, std::uint16_t* of_scores) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t row = rows.first + r, at = r * rows.stride, count = count_of(shape, row),
                       columns = up(count, lanes);
    const float log = logs[row], inner = inner_product(output.data + row * output.stride,
                                                       given.data + row * given.stride, shape.width);
    for (std::int64_t j = 0; j < columns; j += lanes) {
      const Vector weight = exponential_below(shape.factor * masked(scores + at, j, count) - log);
      store(weights + at + j, weight);
      const Vector of_score = weight * (shape.factor * (load(of_weights + at + j) - inner));
      store(of_scores + at + j, weight > 0.0f ? of_score : Vector{});  // behind the count may be anything
    }
    clear(weights + at + columns, weights + at + rows.stride);
    clear(of_scores + at + columns, of_scores + at + rows.stride);
  }
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(attention_, isa)
const AttentionKernels TRAINYARD_NAME(TRAINYARD_ISA) = {room, forward, backward, weigh, weigh_again};

}  // namespace trainyard::kernels
