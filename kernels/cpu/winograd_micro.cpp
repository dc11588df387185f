// This file is compiled once per instruction set, named by TRAINYARD_ISA. It has no symbol that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/winograd_micro.hpp"

namespace trainyard::kernels {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t block = 16;
#else
constexpr std::int64_t block = 8;
#endif
typedef float Vector __attribute__((vector_size(block * 4)));
typedef float Anywhere __attribute__((vector_size(block * 4), aligned(4), may_alias));

#define TRAINYARD_INLINE inline __attribute__((always_inline))

constexpr std::int64_t side = 6;              ///< side of a tile of inputs
constexpr std::int64_t points = side * side;  ///< products of a tile
constexpr std::int64_t rows_at_once = 12;  ///< tiles of a product: with two vectors each, 24 registers of 32

TRAINYARD_INLINE Vector load(const float* from) {
  return *reinterpret_cast<const Anywhere*>(from);
}
TRAINYARD_INLINE void store(float* to, Vector value) {
  *reinterpret_cast<Anywhere*>(to) = value;
}

TRAINYARD_INLINE std::int64_t up(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}
TRAINYARD_INLINE std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
TRAINYARD_INLINE std::int64_t most(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

// --- one dimension of the transforms: `s` is the distance of the elements of a vector of six, or of `outputs`

/// Computes B^T d.
TRAINYARD_INLINE void of_input(const Vector* d, std::int64_t s, Vector* to, std::int64_t t) {
  const Vector d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s], d5 = d[5 * s];
  const Vector even = d4 - 4.0f * d2, odd = d3 - 4.0f * d1;
  const Vector even2 = d4 - d2, odd2 = 2.0f * (d3 - d1);
  to[0] = 4.0f * d0 - 5.0f * d2 + d4;
  to[t] = even + odd;
  to[2 * t] = even - odd;
  to[3 * t] = even2 + odd2;
  to[4 * t] = even2 - odd2;
  to[5 * t] = 4.0f * d1 - 5.0f * d3 + d5;
}

/// Computes A^T m.
template <std::int64_t outputs>
TRAINYARD_INLINE void to_output(const Vector* m, std::int64_t s, Vector* to, std::int64_t t) {
  const Vector sum = m[s] + m[2 * s], difference = m[s] - m[2 * s];
  const Vector sum2 = m[3 * s] + m[4 * s], difference2 = m[3 * s] - m[4 * s];
  to[0] = m[0] + sum + sum2;
  if constexpr (outputs == 2) {
    to[t] = difference + 2.0f * difference2 + m[5 * s];
  } else {
    to[t] = difference + 2.0f * difference2;
    to[2 * t] = sum + 4.0f * sum2;
    to[3 * t] = difference + 8.0f * difference2 + m[5 * s];
  }
}

/// Computes A y.
template <std::int64_t outputs>
TRAINYARD_INLINE void of_output(const Vector* y, std::int64_t s, Vector* to, std::int64_t t) {
  Vector even = y[0], odd = y[s], even2 = y[0], odd2 = 2.0f * y[s];
  if constexpr (outputs == 4) {
    even += y[2 * s];
    odd += y[3 * s];
    even2 += 4.0f * y[2 * s];
    odd2 += 8.0f * y[3 * s];
  }
  to[0] = y[0];
  to[t] = even + odd;
  to[2 * t] = even - odd;
  to[3 * t] = even2 + odd2;
  to[4 * t] = even2 - odd2;
  to[5 * t] = y[(outputs - 1) * s];
}

/// G, six rows of up to five numbers.
constexpr float filter_matrix[side][5] = {
    {1.0f / 4, 0, 0, 0, 0},
    {-1.0f / 6, -1.0f / 6, -1.0f / 6, -1.0f / 6, -1.0f / 6},
    {-1.0f / 6, 1.0f / 6, -1.0f / 6, 1.0f / 6, -1.0f / 6},
    {1.0f / 24, 2.0f / 24, 4.0f / 24, 8.0f / 24, 16.0f / 24},
    {1.0f / 24, -2.0f / 24, 4.0f / 24, -8.0f / 24, 16.0f / 24},
    {0, 0, 0, 0, 0},  // 1 at the end
};
TRAINYARD_INLINE float filter_number(std::int64_t point, std::int64_t at, std::int64_t kernel) {
  return point < side - 1 ? filter_matrix[point][at] : at == kernel - 1 ? 1.0f : 0.0f;
}

// --- sizes

struct Sizes {
  std::int64_t in, out;                         ///< channels in whole blocks
  std::int64_t tile_rows, tile_columns, tiles;  ///< of an image
  std::int64_t at_once;                         ///< tiles whose products are made together
  std::int64_t in_stride, out_stride;           ///< distance from one point to the next, in floats
  std::int64_t outputs;                         ///< rows and columns of outputs of a tile

  explicit TRAINYARD_INLINE Sizes(const WinogradShape& shape) {
    in = up(shape.in, block);
    out = up(shape.out, block);
    outputs = side + 1 - shape.kernel;
    tile_rows = (shape.out_rows + outputs - 1) / outputs;
    tile_columns = (shape.out_columns + outputs - 1) / outputs;
    tiles = tile_rows * tile_columns;
    // Inputs and outputs of the products stay in the L2 cache, with the filters.
    constexpr std::int64_t cached = 56 << 10;  // floats
    at_once = most(least(cached / (points * (in + out)) / rows_at_once, 8), 1) * rows_at_once;
    // Neither stride is a multiple of the bytes in a way of the L1 cache.
    in_stride = at_once * in + block;
    out_stride = at_once * out + block;
  }
};

// --- transforms of tiles

/// The place of a tile in the images.
struct Tile {
  std::int64_t image, row, column;  ///< of its first output
  TRAINYARD_INLINE Tile(const Sizes& sizes, std::int64_t number) {
    image = number / sizes.tiles;
    const std::int64_t inside = number % sizes.tiles;
    row = inside / sizes.tile_columns * sizes.outputs;
    column = inside % sizes.tile_columns * sizes.outputs;
  }
};

/// Keeps the compiler from working on all columns of a tile at once, for which there are too few registers.
TRAINYARD_INLINE void in_order() {
  asm volatile("" ::: "memory");
}

/// Pixels of a block of channels, rows `stride` floats apart.
struct Pixels {
  const float* first;
  std::int64_t stride;
};

/// Returns `count` x `count` pixels from (row, column) on; copied to `room`, with zeros, if some are outside.
template <std::int64_t count>
TRAINYARD_INLINE Pixels fetch(const float* image, std::int64_t rows, std::int64_t columns, std::int64_t row,
                              std::int64_t column, float* room) {
  const float* const from = image + (row * columns + column) * block;
  if (row >= 0 && column >= 0 && row + count <= rows && column + count <= columns)
    return {from, columns * block};
  for (std::int64_t i = 0; i < count * count; ++i) store(room + i * block, Vector{});
  for (std::int64_t i = most(0, -row); i < least(count, rows - row); ++i)
    for (std::int64_t j = most(0, -column); j < least(count, columns - column); ++j) {
      store(room + (i * count + j) * block, load(from + (i * columns + j) * block));
      in_order();  // no call of memmove for these few
    }
  return {room, count * block};
}

/// Transforms tiles [first, last) of x to [point][tile][channel].
void inputs(const WinogradShape& shape, const Sizes& sizes, const float* x, std::int64_t first,
            std::int64_t last, float* to) {
  const std::int64_t image = shape.in_rows * shape.in_columns * block;
  alignas(64) float room[points * block];
  Vector half[points];
  for (std::int64_t number = first; number < last; ++number) {
    const Tile tile(sizes, number);
    for (std::int64_t b = 0; b < sizes.in / block; ++b) {
      const Pixels given =
          fetch<side>(x + (tile.image * (sizes.in / block) + b) * image, shape.in_rows, shape.in_columns,
                      tile.row - shape.rows_before, tile.column - shape.columns_before, room);
      // Prefetches the rows of the tile below that this one lacks.
      const float* const below =
          x + (tile.image * (sizes.in / block) + b) * image +
          ((tile.row - shape.rows_before + side) * shape.in_columns + tile.column) * block;
      for (std::int64_t j = 0; j < side; ++j) {
        Vector column[side];
        for (std::int64_t i = 0; i < side; ++i) column[i] = load(given.first + i * given.stride + j * block);
        for (std::int64_t i = 0; i < sizes.outputs; ++i)
          if (j < sizes.outputs) __builtin_prefetch(below + (i * shape.in_columns + j) * block);
        of_input(column, 1, half + j, side);
        in_order();
      }
      float* into = to + (number - first) * sizes.in + b * block;
      for (std::int64_t i = 0; i < side; ++i) {
        Vector row[side];
        of_input(half + i * side, 1, row, 1);
        for (std::int64_t j = 0; j < side; ++j, into += sizes.in_stride) store(into, row[j]);
        in_order();
      }
    }
  }
}

/// Transforms tiles of the gradient of y to [point][tile][channel].
template <std::int64_t outputs>
void gradients(const WinogradShape& shape, const Sizes& sizes, const float* given, std::int64_t first,
               std::int64_t last, float* to) {
  const std::int64_t image = shape.out_rows * shape.out_columns * block;
  alignas(64) float room[outputs * outputs * block];
  Vector half[side * outputs];
  for (std::int64_t number = first; number < last; ++number) {
    const Tile tile(sizes, number);
    for (std::int64_t b = 0; b < sizes.out / block; ++b) {
      const Pixels of_tile = fetch<outputs>(given + (tile.image * (sizes.out / block) + b) * image,
                                            shape.out_rows, shape.out_columns, tile.row, tile.column, room);
      for (std::int64_t j = 0; j < outputs; ++j) {
        Vector column[outputs];
        for (std::int64_t i = 0; i < outputs; ++i)
          column[i] = load(of_tile.first + i * of_tile.stride + j * block);
        of_output<outputs>(column, 1, half + j, outputs);
        in_order();
      }
      float* into = to + (number - first) * sizes.out + b * block;
      for (std::int64_t i = 0; i < side; ++i) {
        Vector row[side];
        of_output<outputs>(half + i * outputs, 1, row, 1);
        for (std::int64_t j = 0; j < side; ++j, into += sizes.out_stride) store(into, row[j]);
        in_order();
      }
    }
  }
}

/// Transforms [point][tile][channel] to tiles of y.
template <std::int64_t outputs>
void results(const WinogradConvolution& what, const Sizes& sizes, const float* from, std::int64_t first,
             std::int64_t last) {
  const WinogradShape& shape = what.shape;
  const std::int64_t image = shape.out_rows * shape.out_columns * block;
  Vector half[outputs * side];
  for (std::int64_t number = first; number < last; ++number) {
    const Tile tile(sizes, number);
    const std::int64_t rows = least(outputs, shape.out_rows - tile.row);
    const std::int64_t columns = least(outputs, shape.out_columns - tile.column);
    for (std::int64_t b = 0; b < sizes.out / block; ++b) {
      const float* const products = from + (number - first) * sizes.out + b * block;
      const Vector bias = what.bias != nullptr ? load(what.bias + b * block) : Vector{};
      float* into = what.y + (tile.image * (sizes.out / block) + b) * image +
                    (tile.row * shape.out_columns + tile.column) * block;
      for (std::int64_t j = 0; j < side; ++j) {
        Vector column[side];
        for (std::int64_t i = 0; i < side; ++i)
          column[i] = load(products + (i * side + j) * sizes.out_stride);
        for (std::int64_t i = 0; i < outputs; ++i)  // prefetches the tile below, which is written next
          if (j < outputs) __builtin_prefetch(into + ((outputs + i) * shape.out_columns + j) * block, 1);
        to_output<outputs>(column, 1, half + j, side);
        in_order();
      }
      for (std::int64_t i = 0; i < rows; ++i, into += shape.out_columns * block) {
        Vector row[outputs];
        to_output<outputs>(half + i * side, 1, row, 1);
        for (Vector& y : row) {
          y += bias;
          if (what.relu) y = y < 0.0f ? Vector{} : y;
        }
        for (std::int64_t j = 0; j < outputs; ++j)
          if (j < columns) store(into + j * block, row[j]);
        in_order();
      }
    }
  }
}

// --- products of a point

/// c[tile][block of out] = sum over k of a[tile][k] b[k][out], for `rows` tiles and `vectors` blocks.
template <std::int64_t rows, std::int64_t vectors>
TRAINYARD_INLINE void product(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
                              std::int64_t depth, float* c, std::int64_t c_stride) {
  Vector sums[rows][vectors] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector factors[vectors];
    for (std::int64_t v = 0; v < vectors; ++v) factors[v] = load(b + k * b_stride + v * block);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t v = 0; v < vectors; ++v) sums[r][v] += a[r * a_stride + k] * factors[v];
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t v = 0; v < vectors; ++v) store(c + r * c_stride + v * block, sums[r][v]);
}

/// c[row][block of out] += sum over the tiles of a[tile][row] b[tile][out].
template <std::int64_t rows, std::int64_t vectors>
TRAINYARD_INLINE void outer(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
                            std::int64_t tiles, float* c, std::int64_t c_stride) {
  Vector sums[rows][vectors] = {};
  for (std::int64_t t = 0; t < tiles; ++t) {
    Vector factors[vectors];
    for (std::int64_t v = 0; v < vectors; ++v) factors[v] = load(b + t * b_stride + v * block);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t v = 0; v < vectors; ++v) sums[r][v] += a[t * a_stride + r] * factors[v];
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t v = 0; v < vectors; ++v) {
      float* const to = c + r * c_stride + v * block;
      store(to, load(to) + sums[r][v]);
    }
}

#if defined(__AVX512F__)
constexpr std::int64_t product_rows = rows_at_once, outer_rows = 8;
#else
constexpr std::int64_t product_rows = 4, outer_rows = 4;
#endif

void products(const Sizes& sizes, std::int64_t depth, std::int64_t tiles, const float* a,
              const float* filters, float* c) {
  for (std::int64_t p = 0; p < points;
       ++p, a += sizes.in_stride, c += sizes.out_stride, filters += depth * sizes.out) {
    std::int64_t o = 0;
    for (; o + 2 * block <= sizes.out; o += 2 * block)
      for (std::int64_t t = 0; t < tiles; t += product_rows)
        product<product_rows, 2>(a + t * sizes.in, sizes.in, filters + o, sizes.out, depth,
                                 c + t * sizes.out + o, sizes.out);
    if (o == sizes.out) continue;
    for (std::int64_t t = 0; t < tiles; t += product_rows)
      product<product_rows, 1>(a + t * sizes.in, sizes.in, filters + o, sizes.out, depth,
                               c + t * sizes.out + o, sizes.out);
  }
}

void outers(const Sizes& sizes, std::int64_t in, std::int64_t tiles, const float* a, const float* b,
            float* c) {
  for (std::int64_t p = 0; p < points;
       ++p, a += sizes.in_stride, b += sizes.out_stride, c += sizes.in * sizes.out) {
    for (std::int64_t i = 0; i < in; i += outer_rows) {
      std::int64_t o = 0;
      for (; o + 2 * block <= sizes.out; o += 2 * block)
        outer<outer_rows, 2>(a + i, sizes.in, b + o, sizes.out, tiles, c + i * sizes.out + o, sizes.out);
      if (o == sizes.out) continue;
      outer<outer_rows, 1>(a + i, sizes.in, b + o, sizes.out, tiles, c + i * sizes.out + o, sizes.out);
    }
  }
}

// --- what the table has

std::int64_t filter_floats(const WinogradShape& shape) {
  return points * up(shape.in, block) * up(shape.out, block);
}

std::int64_t scratch_floats(const WinogradShape& shape) {
  const Sizes sizes(shape);
  return points * (sizes.in_stride + sizes.out_stride);
}

/// Transforms one dimension of G g G^T: from `kernel` vectors to six.
TRAINYARD_INLINE void of_filter(const Vector* g, std::int64_t s, std::int64_t kernel, Vector* to,
                                std::int64_t t) {
  for (std::int64_t p = 0; p < side; ++p) {
    Vector sum = filter_number(p, 0, kernel) * g[0];
    for (std::int64_t k = 1; k < kernel; ++k) sum += filter_number(p, k, kernel) * g[k * s];
    to[p * t] = sum;
  }
}

/// Transforms weights to [point][in][out]; neighbours in `out` are `step` apart, those in `in` `in_step`.
/// Rotates filters by half a turn if `back`.
TRAINYARD_INLINE void transform_filters(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                        const float* weight, std::int64_t step, std::int64_t in_step,
                                        bool back, float* filters) {
  const std::int64_t width = up(out, block);
  const std::int64_t size = kernel * kernel;
  for (std::int64_t o = 0; o < width; o += block)
    for (std::int64_t i = 0; i < in; ++i) {
      alignas(64) float given[25 * block] = {};
      for (std::int64_t lane = 0; lane < least(block, out - o); ++lane) {
        const float* const from = weight + (o + lane) * step + i * in_step;
        for (std::int64_t k = 0; k < size; ++k) given[k * block + lane] = from[back ? size - 1 - k : k];
      }
      Vector plain[25], half[side * 5], whole[points];
      for (std::int64_t k = 0; k < size; ++k) plain[k] = load(given + k * block);
      for (std::int64_t j = 0; j < kernel; ++j) of_filter(plain + j, kernel, kernel, half + j, kernel);
      for (std::int64_t p = 0; p < side; ++p) of_filter(half + p * kernel, 1, kernel, whole + p * side, 1);
      for (std::int64_t p = 0; p < points; ++p) store(filters + (p * in + i) * width + o, whole[p]);
    }
}

void transform(const WinogradShape& shape, const float* weight, float* filters) {
  const std::int64_t kernel = shape.kernel, size = kernel * kernel;
  transform_filters(shape.in, shape.out, kernel, weight, shape.in * size, size, false, filters);
}

void transform_back(const WinogradShape& shape, const float* weight, float* filters) {
  const std::int64_t kernel = shape.kernel, size = kernel * kernel;
  transform_filters(shape.out, shape.in, kernel, weight, size, shape.in * size, true, filters);
}

void convolve(const WinogradConvolution& what, std::int64_t begin, std::int64_t end) {
  const Sizes sizes(what.shape);
  float* const a = what.scratch;
  float* const c = a + points * sizes.in_stride;
  const std::int64_t last = end * sizes.tiles;
  for (std::int64_t first = begin * sizes.tiles; first < last; first += sizes.at_once) {
    const std::int64_t until = least(first + sizes.at_once, last);
    inputs(what.shape, sizes, what.x, first, until, a);
    products(sizes, what.shape.in, until - first, a, what.filters, c);
    if (sizes.outputs == 4)
      results<4>(what, sizes, c, first, until);
    else
      results<2>(what, sizes, c, first, until);
  }
}

void weights(const WinogradWeights& what, std::int64_t begin, std::int64_t end) {
  const Sizes sizes(what.shape);
  float* const a = what.scratch;
  float* const b = a + points * sizes.in_stride;
  const std::int64_t last = end * sizes.tiles;
  for (std::int64_t first = begin * sizes.tiles; first < last; first += sizes.at_once) {
    const std::int64_t until = least(first + sizes.at_once, last);
    inputs(what.shape, sizes, what.x, first, until, a);
    if (sizes.outputs == 4)
      gradients<4>(what.shape, sizes, what.given, first, until, b);
    else
      gradients<2>(what.shape, sizes, what.given, first, until, b);
    outers(sizes, what.shape.in, until - first, a, b, what.gradient);
  }
}

/// Transforms one dimension of G^T u G: from six vectors to `kernel`.
TRAINYARD_INLINE void to_filter(const Vector* u, std::int64_t s, std::int64_t kernel, Vector* to,
                                std::int64_t t) {
  for (std::int64_t k = 0; k < kernel; ++k) {
    Vector sum = filter_number(0, k, kernel) * u[0];
    for (std::int64_t p = 1; p < side; ++p) sum += filter_number(p, k, kernel) * u[p * s];
    to[k * t] = sum;
  }
}

void weights_end(const WinogradShape& shape, const float* gradient, float* weight) {
  const std::int64_t in = up(shape.in, block), out = up(shape.out, block);
  const std::int64_t kernel = shape.kernel, size = kernel * kernel;
  for (std::int64_t o = 0; o < out; o += block)
    for (std::int64_t i = 0; i < shape.in; ++i) {
      Vector given[points], half[5 * side], plain[25];
      for (std::int64_t p = 0; p < points; ++p) given[p] = load(gradient + (p * in + i) * out + o);
      for (std::int64_t q = 0; q < side; ++q) to_filter(given + q, side, kernel, half + q, side);
      for (std::int64_t k = 0; k < kernel; ++k) to_filter(half + k * side, 1, kernel, plain + k * kernel, 1);
      alignas(64) float found[25 * block];
      for (std::int64_t k = 0; k < size; ++k) store(found + k * block, plain[k]);
      for (std::int64_t lane = 0; lane < least(block, shape.out - o); ++lane)
        for (std::int64_t k = 0; k < size; ++k)
          weight[((o + lane) * shape.in + i) * size + k] = found[k * block + lane];
    }
}

}  // namespace

#define TRAINYARD_TABLE_OF(isa) winograd_##isa
#define TRAINYARD_TABLE(isa) TRAINYARD_TABLE_OF(isa)
const WinogradKernels TRAINYARD_TABLE(TRAINYARD_ISA) = {
    block, filter_floats, scratch_floats, transform, transform_back, convolve, weights, weights_end};

}  // namespace trainyard::kernels
