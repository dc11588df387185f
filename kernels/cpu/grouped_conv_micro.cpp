// This file is compiled once per instruction set, named by TRAINYARD_ISA. It has no symbol that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/grouped_conv_micro.hpp"

namespace trainyard::kernels {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t block = 16;
constexpr int pixels_at_once = 14, numbers_at_once = 16, rows_at_once = 5;  // sums in registers
#else
constexpr std::int64_t block = 8;
constexpr int pixels_at_once = 10, numbers_at_once = 8, rows_at_once = 1;
#endif
constexpr std::int64_t most_numbers = 32;  ///< of a kernel's row

typedef float Vector __attribute__((vector_size(block * 4)));
typedef float Anywhere __attribute__((vector_size(block * 4), aligned(4), may_alias));

#define TRAINYARD_INLINE inline __attribute__((always_inline))

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

void clear(float* numbers, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) numbers[i] = 0.0f;
}

struct Sizes {
  std::int64_t rows, columns;          ///< of an image with its zeros around
  std::int64_t line;                   ///< numbers of such a row, all channels of a group
  std::int64_t image;                  ///< numbers of such an image, and room for a vector behind it
  std::int64_t depth;                  ///< numbers of a kernel's row
  std::int64_t whole_depth;            ///< filled up for the sums, and for vectors
  std::int64_t in_blocks, out_blocks;  ///< of all groups, of a group
  std::int64_t in_plane, out_plane;    ///< numbers of a block of an image

  explicit TRAINYARD_INLINE Sizes(const GroupedConvShape& shape) {
    rows = shape.out_rows + shape.kernel_rows - 1;
    columns = shape.out_columns + shape.kernel_columns - 1;
    line = columns * shape.in;
    image = rows * line + 2 * most_numbers;
    depth = shape.kernel_columns * shape.in;
    whole_depth = up(depth, block);
    in_blocks = up(shape.groups * shape.in, block) / block;
    out_blocks = up(shape.out, block) / block;
    in_plane = shape.in_rows * shape.in_columns * block;
    out_plane = shape.out_rows * shape.out_columns * block;
  }
};

/// Numbers of each pixel that lie beside each other in two images, from `from` and `to` on.
struct Piece {
  const float* from;
  float* to;
  std::int64_t count;
};

/// Copies pieces of all pixels of an image, rows of which are `from_row` and `to_row` numbers apart and pixels `from_step` and `to_step`.
/// Whole vectors are written: what is too much is written over by the piece, or the pixel, behind it. The last pixel is copied by itself.
template <int count>
TRAINYARD_INLINE void copy_pieces(const Piece* pieces, std::int64_t rows, std::int64_t columns,
                                  std::int64_t from_row, std::int64_t from_step, std::int64_t to_row,
                                  std::int64_t to_step) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t whole = r + 1 < rows ? columns : columns - 1;
    std::int64_t from = r * from_row, to = r * to_row;
    for (std::int64_t c = 0; c < whole; ++c, from += from_step, to += to_step)
      for (int i = 0; i < count; ++i) store(pieces[i].to + to, load(pieces[i].from + from));
  }
  const std::int64_t from = (rows - 1) * from_row + (columns - 1) * from_step,
                     to = (rows - 1) * to_row + (columns - 1) * to_step;
  for (int i = 0; i < count; ++i)
    for (std::int64_t k = 0; k < pieces[i].count; ++k) pieces[i].to[to + k] = pieces[i].from[from + k];
}

template <int count>
void copy_some(const Piece* pieces, int wanted, std::int64_t rows, std::int64_t columns,
               std::int64_t from_row, std::int64_t from_step, std::int64_t to_row, std::int64_t to_step) {
  if (wanted == count) return copy_pieces<count>(pieces, rows, columns, from_row, from_step, to_row, to_step);
  if constexpr (count > 1)
    copy_some<count - 1>(pieces, wanted, rows, columns, from_row, from_step, to_row, to_step);
}

/// Copies a group of an image out of its blocks, with zeros around.
void gather(const GroupedConvShape& shape, const Sizes& sizes, const float* image, std::int64_t group,
            float* to) {
  Piece pieces[most_numbers / block + 1];
  float* const first = to + shape.rows_before * sizes.line + shape.columns_before * shape.in;
  int count = 0;
  for (std::int64_t done = 0; done < shape.in; done += pieces[count++].count) {
    const std::int64_t channel = group * shape.in + done, lane = channel % block;
    pieces[count] = {image + channel / block * sizes.in_plane + lane, first + done,
                     least(block - lane, shape.in - done)};
  }
  copy_some<most_numbers / block + 1>(pieces, count, shape.in_rows, shape.in_columns,
                                      shape.in_columns * block, block, sizes.line, shape.in);
  if (sizes.rows == shape.in_rows && sizes.columns == shape.in_columns) return;
  const std::int64_t after = (sizes.columns - shape.columns_before - shape.in_columns) * shape.in;
  clear(to, shape.rows_before * sizes.line);
  for (std::int64_t r = 0; r < shape.in_rows; ++r) {
    float* const row = to + (shape.rows_before + r) * sizes.line;
    clear(row, shape.columns_before * shape.in);
    clear(row + sizes.line - after, after);
  }
  const std::int64_t end = (shape.rows_before + shape.in_rows) * sizes.line;
  clear(to + end, sizes.rows * sizes.line - end);
}

/// Puts the groups of an image, each as gather() has them, into their blocks.
void scatter(const GroupedConvShape& shape, const Sizes& sizes, const float* groups, float* image) {
  const std::int64_t channels = shape.groups * shape.in,
                     place = shape.rows_before * sizes.line + shape.columns_before * shape.in;
  for (std::int64_t b = 0; b < sizes.in_blocks; ++b) {
    Piece pieces[block];
    float* const to = image + b * sizes.in_plane;
    int count = 0;
    const std::int64_t end = least(channels - b * block, block);
    for (std::int64_t lane = 0; lane < end; lane += pieces[count++].count) {
      const std::int64_t channel = b * block + lane, inside = channel % shape.in;
      pieces[count] = {groups + channel / shape.in * sizes.image + place + inside, to + lane,
                       least(shape.in - inside, end - lane)};
    }
    copy_some<block>(pieces, count, shape.in_rows, shape.in_columns, sizes.line, shape.in,
                     shape.in_columns * block, block);
    if (end == block) continue;
    for (std::int64_t pixel = 0; pixel < shape.in_rows * shape.in_columns; ++pixel)
      for (std::int64_t lane = end; lane < block; ++lane) to[pixel * block + lane] = 0.0f;
  }
}

// --- forward

/// The outputs of `count` pixels beside each other, of a block of channels.
template <int count>
TRAINYARD_INLINE void pixels_of(const GroupedConvShape& shape, const Sizes& sizes, const float* x,
                                const float* filters, Vector bias, bool relu, float* y) {
  Vector sums[count];
  for (int p = 0; p < count; ++p) sums[p] = bias;
  const std::int64_t in = shape.in;
  for (std::int64_t row = 0; row < shape.kernel_rows; ++row) {
    constexpr int bases =
        (count + 2) / 3;  // each with the two pixels behind it: addresses that need few registers
    const float* at[bases];
    for (int i = 0; i < bases; ++i) at[i] = x + row * sizes.line + 3 * i * in;
    for (std::int64_t j = 0; j < sizes.depth; ++j, filters += block) {
      const Vector filter = load(filters);
      for (int p = 0; p < count; ++p) sums[p] += at[p / 3][p % 3 * in] * filter;
      for (int i = 0; i < bases; ++i) ++at[i];
    }
  }
  for (int p = 0; p < count; ++p)
    store(y + p * block, relu ? (sums[p] < 0.0f ? Vector{} : sums[p]) : sums[p]);
}

template <int count>
void some_pixels(const GroupedConvShape& shape, const Sizes& sizes, const float* x, const float* filters,
                 Vector bias, bool relu, float* y, int wanted) {
  if (wanted == count) return pixels_of<count>(shape, sizes, x, filters, bias, relu, y);
  if constexpr (count > 1) some_pixels<count - 1>(shape, sizes, x, filters, bias, relu, y, wanted);
}

void forward(const GroupedConv& what, std::int64_t begin, std::int64_t end) {
  const GroupedConvShape& shape = what.shape;
  const Sizes sizes(shape);
  const std::int64_t parts = (shape.out_columns + pixels_at_once - 1) / pixels_at_once,
                     part = (shape.out_columns + parts - 1) / parts,
                     filters = shape.kernel_rows * sizes.depth * block;
  for (std::int64_t n = begin; n < end; ++n)
    for (std::int64_t g = 0; g < shape.groups; ++g) {
      gather(shape, sizes, what.x + n * sizes.in_blocks * sizes.in_plane, g, what.scratch);
      for (std::int64_t b = g * sizes.out_blocks; b < (g + 1) * sizes.out_blocks; ++b) {
        const Vector bias = what.bias != nullptr ? load(what.bias + b * block) : Vector{};
        float* y = what.y + (n * shape.groups * sizes.out_blocks + b) * sizes.out_plane;
        for (std::int64_t r = 0; r < shape.out_rows; ++r)
          for (std::int64_t c = 0; c < shape.out_columns; c += part) {
            const std::int64_t count = least(part, shape.out_columns - c);
            some_pixels<pixels_at_once>(shape, sizes, what.scratch + r * sizes.line + c * shape.in,
                                        what.filters + b * filters, bias, what.relu, y,
                                        static_cast<int>(count));
            y += count * block;
          }
      }
    }
}

// --- gradients of the filters

/// Adds to `count` numbers of a kernel's row what all pixels of an image give, for a block of channels.
template <int count>
void numbers_of(const GroupedConvShape& shape, const Sizes& sizes, const float* x, const float* given,
                float* sums) {
  Vector found[count] = {};
  for (std::int64_t r = 0; r < shape.out_rows; ++r) {
    const float* at = x + r * sizes.line;
    for (std::int64_t c = 0; c < shape.out_columns; ++c, at += shape.in, given += block) {
      const Vector of_pixel = load(given);
      for (int j = 0; j < count; ++j) found[j] += at[j] * of_pixel;
    }
  }
  for (int j = 0; j < count; ++j) store(sums + j * block, load(sums + j * block) + found[j]);
}

void weights(const GroupedConv& what, std::int64_t begin, std::int64_t end) {
  const GroupedConvShape& shape = what.shape;
  const Sizes sizes(shape);
  const std::int64_t row_floats = sizes.whole_depth * block;
  for (std::int64_t n = begin; n < end; ++n)
    for (std::int64_t g = 0; g < shape.groups; ++g) {
      gather(shape, sizes, what.x + n * sizes.in_blocks * sizes.in_plane, g, what.scratch);
      for (std::int64_t b = g * sizes.out_blocks; b < (g + 1) * sizes.out_blocks; ++b) {
        const float* const given = what.given + (n * shape.groups * sizes.out_blocks + b) * sizes.out_plane;
        for (std::int64_t row = 0; row < shape.kernel_rows; ++row) {
          const float* const x = what.scratch + row * sizes.line;
          float* const sums = what.sums + (b * shape.kernel_rows + row) * row_floats;
          for (std::int64_t j = 0; j < sizes.depth;) {
            const std::int64_t left = sizes.depth - j;
            if (left > numbers_at_once / 2) {
              numbers_of<numbers_at_once>(shape, sizes, x + j, given, sums + j * block);
              j += numbers_at_once;
            } else if (left > numbers_at_once / 4) {
              numbers_of<numbers_at_once / 2>(shape, sizes, x + j, given, sums + j * block);
              j += numbers_at_once / 2;
            } else {
              numbers_of<numbers_at_once / 4>(shape, sizes, x + j, given, sums + j * block);
              j += numbers_at_once / 4;
            }
          }
        }
      }
    }
}

// --- gradients of the pixels

/// Adds what `count` pixels of y give to `rows` rows below each other, `vectors` wide.
template <int count, int rows, int vectors>
TRAINYARD_INLINE void back_of(const GroupedConvShape& shape, const Sizes& sizes, const float* given,
                              const float* filters, float* to) {
  Vector sums[count][rows][vectors] = {};
  for (std::int64_t b = 0; b < sizes.out_blocks; ++b, given += sizes.out_plane)
    for (std::int64_t o = 0; o < block; ++o, filters += shape.kernel_rows * sizes.whole_depth) {
      Vector of_pixel[count];
      for (int p = 0; p < count; ++p) of_pixel[p] = given[p * block + o] - Vector{};
      for (int r = 0; r < rows; ++r)
        for (int v = 0; v < vectors; ++v) {
          const Vector filter = load(filters + r * sizes.whole_depth + v * block);
          for (int p = 0; p < count; ++p) sums[p][r][v] += of_pixel[p] * filter;
        }
    }
  for (int p = 0; p < count; ++p)
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < vectors; ++v) {
        float* const at = to + r * sizes.line + p * shape.in + v * block;
        store(at, load(at) + sums[p][r][v]);
      }
}

template <int rows, int vectors>
void some_back(const GroupedConvShape& shape, const Sizes& sizes, const float* given, const float* filters,
               float* to, std::int64_t wanted) {
  if (wanted == rows) {
    for (std::int64_t r = 0; r < shape.out_rows; ++r, to += sizes.line) {
      std::int64_t c = 0;
      for (; c + 2 <= shape.out_columns; c += 2, given += 2 * block)
        back_of<2, rows, vectors>(shape, sizes, given, filters, to + c * shape.in);
      if (c == shape.out_columns) continue;
      back_of<1, rows, vectors>(shape, sizes, given, filters, to + c * shape.in);
      given += block;
    }
    return;
  }
  if constexpr (rows > 1) some_back<rows - 1, vectors>(shape, sizes, given, filters, to, wanted);
}

template <int vectors>
void back(const GroupedConvShape& shape, const Sizes& sizes, const float* given, const float* filters,
          float* to, std::int64_t wanted) {
  if (wanted == vectors) {
    for (std::int64_t row = 0; row < shape.kernel_rows; row += rows_at_once)
      some_back<rows_at_once, vectors>(shape, sizes, given, filters + row * sizes.whole_depth,
                                       to + row * sizes.line, least(rows_at_once, shape.kernel_rows - row));
    return;
  }
  if constexpr (vectors > 1) back<vectors - 1>(shape, sizes, given, filters, to, wanted);
}

void data(const GroupedConv& what, std::int64_t begin, std::int64_t end) {
  const GroupedConvShape& shape = what.shape;
  const Sizes sizes(shape);
  const std::int64_t of_group = sizes.out_blocks * block * shape.kernel_rows * sizes.whole_depth;
  for (std::int64_t n = begin; n < end; ++n) {
    for (std::int64_t g = 0; g < shape.groups; ++g) {
      float* const to = what.scratch + g * sizes.image;
      clear(to, sizes.image);
      back<most_numbers / block>(shape, sizes,
                                 what.given + (n * shape.groups + g) * sizes.out_blocks * sizes.out_plane,
                                 what.filters + g * of_group, to, sizes.whole_depth / block);
    }
    scatter(shape, sizes, what.scratch, what.x_gradient + n * sizes.in_blocks * sizes.in_plane);
  }
}

// --- what the table has

bool fits(const GroupedConvShape& shape) {
  return shape.kernel_columns * shape.in <= most_numbers && (shape.groups == 1 || shape.out % block == 0) &&
         shape.in_rows + shape.rows_before <= shape.out_rows + shape.kernel_rows - 1 &&
         shape.in_columns + shape.columns_before <= shape.out_columns + shape.kernel_columns - 1;
}

std::int64_t filter_floats(const GroupedConvShape& shape) {
  const Sizes sizes(shape);
  return shape.groups * sizes.out_blocks * block * shape.kernel_rows * sizes.whole_depth;
}

std::int64_t scratch_floats(const GroupedConvShape& shape) {
  return shape.groups * Sizes(shape).image;
}

/// Calls with each weight's place, and those in the order of forward() and of the sums, where a row has `depth` numbers, and of data().
template <class Each>
TRAINYARD_INLINE void each_weight(const GroupedConvShape& shape, const Sizes& sizes, std::int64_t depth,
                                  const Each& each) {
  std::int64_t place = 0;
  for (std::int64_t g = 0; g < shape.groups; ++g)
    for (std::int64_t o = 0; o < shape.out; ++o)
      for (std::int64_t i = 0; i < shape.in; ++i)
        for (std::int64_t row = 0; row < shape.kernel_rows; ++row)
          for (std::int64_t column = 0; column < shape.kernel_columns; ++column, ++place) {
            const std::int64_t number = column * shape.in + i, of_block = g * sizes.out_blocks + o / block;
            each(place, ((of_block * shape.kernel_rows + row) * depth + number) * block + o % block,
                 ((of_block * block + o % block) * shape.kernel_rows + row) * sizes.whole_depth + number);
          }
}

void pack(const GroupedConvShape& shape, const float* weight, float* filters) {
  const Sizes sizes(shape);
  clear(filters, filter_floats(shape));
  each_weight(shape, sizes, sizes.depth,
              [&](std::int64_t w, std::int64_t forward, std::int64_t) { filters[forward] = weight[w]; });
}

void pack_back(const GroupedConvShape& shape, const float* weight, float* filters) {
  const Sizes sizes(shape);
  clear(filters, filter_floats(shape));
  each_weight(shape, sizes, sizes.depth,
              [&](std::int64_t w, std::int64_t, std::int64_t back) { filters[back] = weight[w]; });
}

void unpack(const GroupedConvShape& shape, const float* sums, float* weight) {
  const Sizes sizes(shape);
  each_weight(shape, sizes, sizes.whole_depth,
              [&](std::int64_t w, std::int64_t forward, std::int64_t) { weight[w] = sums[forward]; });
}

}  // namespace

#define TRAINYARD_TABLE_OF(isa) grouped_conv_##isa
#define TRAINYARD_TABLE(isa) TRAINYARD_TABLE_OF(isa)
const GroupedConvKernels TRAINYARD_TABLE(TRAINYARD_ISA) = {
    block, fits, filter_floats, scratch_floats, pack, pack_back, forward, data, weights, unpack};

}  // namespace trainyard::kernels
