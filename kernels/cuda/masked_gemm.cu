#include "kernels/cuda/masked_gemm.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/cuda/demand.hpp"

namespace trainyard::kernels::cuda {
namespace {

using bfloat16 = __nv_bfloat16;

constexpr int strip_width = 16;
constexpr int tile = 128;  // rows and columns of the result per thread block
constexpr int threads = 256;

int divided_up(std::int64_t value, int by) {
  return static_cast<int>((value + by - 1) / by);
}

/// One dimension of a product: rows from `begin` on, or the units of live strips.
struct Axis {
  const int* strips;  ///< null: a range
  int begin, count;   ///< `count` elements; of strips, 16 each
  int width;          ///< where the matrix ends: the last strip may be short

  /// Returns the place of element i in the matrix, or -1.
  __device__ int at(int i) const {
    if (i >= count) return -1;
    const int place = strips == nullptr ? begin + i : strips[i / strip_width] * strip_width + i % strip_width;
    return place < width ? place : -1;
  }
};

/// The rows of a slice and its live strips.
struct SliceAxes {
  int begin, rows;
  const int *in, *out;
  int in_strips, out_strips;
};

enum class Product { forward, input_gradient, weight_gradient };

template <class T>
struct Arguments {
  const SliceAxes* slices;  ///< one for each blockIdx.z
  int in, out;
  const T *a, *b, *y, *bias;  ///< y: null, or elements of a count as zeros where it is not positive
  std::int64_t a_stride, b_stride, y_stride;
  void* c;
  std::int64_t c_stride;
  bool relu;
  float scale;
};

/// The rows of the sum in shared memory at a time, and the elements of a row that a thread loads at once.
template <class T>
struct Shape {
  static constexpr int depth = std::is_same_v<T, float> ? 16 : 32;
  static constexpr int chunk = 16 / sizeof(T);
  static constexpr int chunks = tile * depth / chunk / threads;  ///< chunks per thread and operand
};

/// A tile of an operand in shared memory: [element][depth] where the sum runs along the rows of the matrix,
/// else [depth][element].
template <class T, bool sum_along_rows>
struct SharedTile {
  static constexpr int pad = std::is_same_v<T, float> ? 1 : 8;  // against conflicts between banks
  static constexpr int stride = (sum_along_rows ? Shape<T>::depth : tile) + pad;
  static constexpr int size = stride * (sum_along_rows ? tile : Shape<T>::depth);

  __device__ static int index(int element, int depth) {
    return sum_along_rows ? element * stride + depth : depth * stride + element;
  }
};

/// 16 bytes of a row of the matrix.
template <class T>
struct alignas(16) Chunk {
  T values[Shape<T>::chunk];
};

/// Loads the first `there` elements; the others are zeros.
template <class T>
__device__ Chunk<T> load(const T* from, int there) {
  if (there == Shape<T>::chunk && reinterpret_cast<std::uintptr_t>(from) % sizeof(Chunk<T>) == 0)
    return *reinterpret_cast<const Chunk<T>*>(from);
  Chunk<T> chunk;
  for (int i = 0; i < Shape<T>::chunk; ++i) chunk.values[i] = i < there ? from[i] : T(0.0f);
  return chunk;
}

/// Reads chunk `number` of a tile; elements outside the matrix are zeros.
template <class T, bool sum_along_rows>
__device__ Chunk<T> read(const T* data, std::int64_t stride, const T* y, std::int64_t y_stride,
                         const Axis& elements, const Axis& sum, int first_element, int first_depth,
                         int number) {
  constexpr int length = Shape<T>::chunk;
  constexpr int in_row = (sum_along_rows ? Shape<T>::depth : tile) / length;
  const int major = number / in_row, minor = number % in_row * length;
  const Axis& row_axis = sum_along_rows ? elements : sum;
  const Axis& column_axis = sum_along_rows ? sum : elements;
  const int row = row_axis.at((sum_along_rows ? first_element : first_depth) + major);
  const int column = column_axis.at((sum_along_rows ? first_depth : first_element) + minor);
  if (row < 0 || column < 0) return load<T>(nullptr, 0);
  const int there = min(length, column_axis.width - column);  // a chunk lies within a strip
  Chunk<T> chunk = load(data + row * stride + column, there);
  if (y == nullptr) return chunk;
  const Chunk<T> output = load(y + row * y_stride + column, there);
  for (int i = 0; i < length; ++i)
    if (static_cast<float>(output.values[i]) <= 0.0f) chunk.values[i] = T(0.0f);
  return chunk;
}

template <class T, bool sum_along_rows>
__device__ void write(T* shared, const Chunk<T>& chunk, int number) {
  constexpr int length = Shape<T>::chunk;
  constexpr int in_row = (sum_along_rows ? Shape<T>::depth : tile) / length;
  constexpr int stride = SharedTile<T, sum_along_rows>::stride;
  T* const to = shared + number / in_row * stride + number % in_row * length;
  if constexpr (stride % length == 0)
    *reinterpret_cast<Chunk<T>*>(to) = chunk;
  else
    for (int i = 0; i < length; ++i) to[i] = chunk.values[i];
}

/// The sums of a thread block in float: each thread has 8 x 8, 16 apart.
template <bool a_along_rows, bool b_along_rows>
struct FloatSums {
  float sums[8][8] = {};

  __device__ void add(const float* a, const float* b) {
    const int column = threadIdx.x % 16, row = threadIdx.x / 16;
    for (int depth = 0; depth < Shape<float>::depth; ++depth) {
      float left[8], right[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        left[i] = a[SharedTile<float, a_along_rows>::index(row + 16 * i, depth)];
        right[i] = b[SharedTile<float, b_along_rows>::index(column + 16 * i, depth)];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
    }
  }

  /// Calls `use` with (row of the tile, column of the tile, sum).
  template <class Use>
  __device__ void each(unsigned char*, const Use& use) const {
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j)
        use(static_cast<int>(threadIdx.x) / 16 + 16 * i, static_cast<int>(threadIdx.x) % 16 + 16 * j,
            sums[i][j]);
  }
};

/// The same sums on tensor cores: each of 8 warps has 64 x 32, in fragments of 16 x 16.
template <bool a_along_rows, bool b_along_rows>
struct TensorSums {
  static constexpr int warp_rows = 4, warp_columns = 2;
  using Accumulator = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
  using A = nvcuda::wmma::fragment<
      nvcuda::wmma::matrix_a, 16, 16, 16, bfloat16,
      std::conditional_t<a_along_rows, nvcuda::wmma::row_major, nvcuda::wmma::col_major>>;
  using B = nvcuda::wmma::fragment<
      nvcuda::wmma::matrix_b, 16, 16, 16, bfloat16,
      std::conditional_t<b_along_rows, nvcuda::wmma::col_major, nvcuda::wmma::row_major>>;
  Accumulator sums[warp_rows][warp_columns];

  __device__ TensorSums() {
#pragma unroll
    for (auto& row : sums)
#pragma unroll
      for (Accumulator& sum : row) nvcuda::wmma::fill_fragment(sum, 0.0f);
  }
  __device__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 32 / 4 * 64;
  }
  __device__ static int first_column() {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 32;
  }

  __device__ void add(const bfloat16* a, const bfloat16* b) {
    using TileA = SharedTile<bfloat16, a_along_rows>;
    using TileB = SharedTile<bfloat16, b_along_rows>;
#pragma unroll
    for (int depth = 0; depth < Shape<bfloat16>::depth; depth += 16) {
      A left[warp_rows];
      B right[warp_columns];
#pragma unroll
      for (int i = 0; i < warp_rows; ++i)
        nvcuda::wmma::load_matrix_sync(left[i], a + TileA::index(first_row() + 16 * i, depth), TileA::stride);
#pragma unroll
      for (int j = 0; j < warp_columns; ++j)
        nvcuda::wmma::load_matrix_sync(right[j], b + TileB::index(first_column() + 16 * j, depth),
                                       TileB::stride);
#pragma unroll
      for (int i = 0; i < warp_rows; ++i)
#pragma unroll
        for (int j = 0; j < warp_columns; ++j)
          nvcuda::wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
    }
  }

  /// CUDA does not tell which element of a fragment a thread holds, so sums pass through shared memory.
  template <class Use>
  __device__ void each(unsigned char* shared, const Use& use) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    float* const staged = reinterpret_cast<float*>(shared) + warp * 256;
#pragma unroll
    for (int i = 0; i < warp_rows; ++i)
#pragma unroll
      for (int j = 0; j < warp_columns; ++j) {
        nvcuda::wmma::store_matrix_sync(staged, sums[i][j], 16, nvcuda::wmma::mem_row_major);
        __syncwarp();
        for (int place = lane; place < 256; place += 32)
          use(first_row() + 16 * i + place / 16, first_column() + 16 * j + place % 16, staged[place]);
        __syncwarp();
      }
  }
};

template <class T, Product product>
__global__ void __launch_bounds__(threads) multiply(Arguments<T> arguments) {
  // Which operands are summed along their rows: x and W^T; dz only; none.
  constexpr bool a_along_rows = product != Product::weight_gradient;
  constexpr bool b_along_rows = product == Product::forward;
  using TileA = SharedTile<T, a_along_rows>;
  using TileB = SharedTile<T, b_along_rows>;
  using Sums = std::conditional_t<std::is_same_v<T, float>, FloatSums<a_along_rows, b_along_rows>,
                                  TensorSums<a_along_rows, b_along_rows>>;
  constexpr int half = (TileA::size + TileB::size) * static_cast<int>(sizeof(T));
  constexpr int staging = threads / 32 * 256 * static_cast<int>(sizeof(float));
  constexpr int bytes = 2 * half > staging ? 2 * half : staging;
  static_assert(half % 32 == 0 && TileA::size * sizeof(T) % 32 == 0);  // wmma reads from multiples of 32
  __shared__ __align__(128) unsigned char shared[bytes];

  const SliceAxes slice = arguments.slices[blockIdx.z];
  const Axis rows{nullptr, slice.begin, slice.rows, slice.begin + slice.rows};
  const Axis in{slice.in, 0, slice.in_strips * strip_width, arguments.in};
  const Axis out{slice.out, 0, slice.out_strips * strip_width, arguments.out};
  const Axis& m = product == Product::weight_gradient ? out : rows;
  const Axis& n = product == Product::forward ? out : in;
  const Axis& k = product == Product::forward ? in : product == Product::input_gradient ? out : rows;
  const int first_m = static_cast<int>(blockIdx.y) * tile, first_n = static_cast<int>(blockIdx.x) * tile;
  if (first_m >= m.count || first_n >= n.count) return;

  const auto half_at = [&](int buffer) { return reinterpret_cast<T*>(shared + buffer * half); };
  Chunk<T> a[Shape<T>::chunks], b[Shape<T>::chunks];
  const auto fetch = [&](int first_k) {
#pragma unroll
    for (int i = 0; i < Shape<T>::chunks; ++i) {
      const int number = static_cast<int>(threadIdx.x) + i * threads;
      a[i] = read<T, a_along_rows>(arguments.a, arguments.a_stride, arguments.y, arguments.y_stride, m, k,
                                   first_m, first_k, number);
      b[i] =
          read<T, b_along_rows>(arguments.b, arguments.b_stride, nullptr, 0, n, k, first_n, first_k, number);
    }
  };
  const auto put = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < Shape<T>::chunks; ++i) {
      const int number = static_cast<int>(threadIdx.x) + i * threads;
      write<T, a_along_rows>(half_at(buffer), a[i], number);
      write<T, b_along_rows>(half_at(buffer) + TileA::size, b[i], number);
    }
  };

  // The operands of the next step are loaded while this one is multiplied.
  Sums sums;
  const int steps = (k.count + Shape<T>::depth - 1) / Shape<T>::depth;
  if (steps > 0) {
    fetch(0);
    put(0);
  }
  __syncthreads();
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) fetch((step + 1) * Shape<T>::depth);
    sums.add(half_at(step % 2), half_at(step % 2) + TileA::size);
    if (step + 1 < steps) put((step + 1) % 2);
    __syncthreads();
  }

  sums.each(shared, [&](int row, int column, float sum) {
    const int place = m.at(first_m + row), at = n.at(first_n + column);
    if (place < 0 || at < 0) return;
    if constexpr (product == Product::forward) {
      if (arguments.bias != nullptr) sum += static_cast<float>(arguments.bias[at]);
      if (arguments.relu && sum < 0.0f) sum = 0.0f;
    }
    sum *= arguments.scale;
    if constexpr (product == Product::weight_gradient)
      static_cast<float*>(arguments.c)[place * arguments.c_stride + at] += sum;
    else
      static_cast<T*>(arguments.c)[place * arguments.c_stride + at] = T(sum);
  });
}

/// Adds the column sums of dz in one slice to db; a thread block of 16 x 16 for each live strip.
template <class T>
__global__ void add_bias_gradient(const SliceAxes* slice_at, int out, const T* dy, std::int64_t dy_stride,
                                  const T* y, std::int64_t y_stride, float scale, float* db) {
  __shared__ float sums[16][17];
  const SliceAxes slice = *slice_at;
  const int column = slice.out[blockIdx.x] * strip_width + static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int row = slice.begin + static_cast<int>(threadIdx.y); column < out && row < slice.begin + slice.rows;
       row += 16) {
    const bool dead = y != nullptr && static_cast<float>(y[row * y_stride + column]) <= 0.0f;
    if (!dead) sum += static_cast<float>(dy[row * dy_stride + column]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= out) return;
  for (int i = 1; i < 16; ++i) sum += sums[i][threadIdx.x];
  db[column] += sum * scale;
}

}  // namespace

struct MaskedGemm::State {
  MaskedLinear layer;
  std::vector<SliceAxes> slices;         ///< their lists are in device memory
  const SliceAxes* on_device = nullptr;  ///< the same
  void* memory = nullptr;
  int first_row = 0, rows = 0;  ///< of all slices
  int most_rows = 0, most_in = 0, most_out = 0;

  ~State() { cudaFree(memory); }

  template <class T>
  Arguments<T> arguments(ConstMatrix a, ConstMatrix b, ConstMatrix y, void* c, std::int64_t c_stride) const {
    return {.slices = on_device,
            .in = static_cast<int>(layer.in),
            .out = static_cast<int>(layer.out),
            .a = static_cast<const T*>(a.data),
            .b = static_cast<const T*>(b.data),
            .y = layer.relu ? static_cast<const T*>(y.data) : nullptr,
            .bias = nullptr,
            .a_stride = a.stride,
            .b_stride = b.stride,
            .y_stride = y.stride,
            .c = c,
            .c_stride = c_stride,
            .relu = layer.relu,
            .scale = layer.scale};
  }

  template <class T>
  void forward(ConstMatrix x, ConstMatrix weight, const void* bias, Matrix y, cudaStream_t stream) const {
    zero<T>(y, layer.out, stream);
    Arguments<T> all = arguments<T>(x, weight, {}, y.data, y.stride);
    all.bias = static_cast<const T*>(bias);
    launch<T, Product::forward>(all, most_out * strip_width, most_rows, slice_count(), stream);
  }

  template <class T>
  void input_gradient(ConstMatrix dy, ConstMatrix y, ConstMatrix weight, Matrix dx,
                      cudaStream_t stream) const {
    zero<T>(dx, layer.in, stream);
    launch<T, Product::input_gradient>(arguments<T>(dy, weight, y, dx.data, dx.stride), most_in * strip_width,
                                       most_rows, slice_count(), stream);
  }

  template <class T>
  void weight_gradient(ConstMatrix dy, ConstMatrix y, ConstMatrix x, float* dw, std::int64_t dw_stride,
                       float* db, cudaStream_t stream) const {
    Arguments<T> all = arguments<T>(dy, x, y, dw, dw_stride);
    for (std::size_t i = 0; i < slices.size(); ++i, ++all.slices) {
      const SliceAxes& slice = slices[i];
      if (slice.rows == 0 || slice.out_strips == 0) continue;
      if (slice.in_strips > 0)
        launch<T, Product::weight_gradient>(all, slice.in_strips * strip_width,
                                            slice.out_strips * strip_width, 1, stream);
      if (db == nullptr) continue;
      add_bias_gradient<T><<<slice.out_strips, dim3(16, 16), 0, stream>>>(
          all.slices, all.out, all.a, all.a_stride, all.y, all.y_stride, all.scale, db);
      demand(cudaGetLastError());
    }
  }

 private:
  int slice_count() const { return static_cast<int>(slices.size()); }

  template <class T>
  void zero(Matrix matrix, std::int64_t width, cudaStream_t stream) const {
    if (rows == 0) return;
    demand(cudaMemset2DAsync(static_cast<T*>(matrix.data) + first_row * matrix.stride,
                             static_cast<std::size_t>(matrix.stride) * sizeof(T), 0,
                             static_cast<std::size_t>(width) * sizeof(T), static_cast<std::size_t>(rows),
                             stream));
  }

  template <class T, Product product>
  static void launch(const Arguments<T>& arguments, int columns, int rows, int slices, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(divided_up(columns, tile)),
                    static_cast<unsigned>(divided_up(rows, tile)), static_cast<unsigned>(slices));
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    multiply<T, product><<<grid, threads, 0, stream>>>(arguments);
    demand(cudaGetLastError());
  }
};

MaskedGemm::MaskedGemm(const MaskedLinear& layer, std::span<const Slice> slices)
    : state_(new State{.layer = layer, .slices = {}}) {
  const auto require = [](bool is_so, const char* what) {
    if (!is_so) throw std::invalid_argument(std::string("masked GEMM: ") + what);
  };
  constexpr std::int64_t most = std::int64_t{1} << 30;
  require(layer.in > 0 && layer.out > 0 && layer.in < most && layer.out < most,
          "a layer has units on either side");
  require(layer.block >= 16 && layer.block % 16 == 0,
          "on a CUDA device a block is a multiple of 16 units wide");
  require(slices.size() < 65536, "a grid has fewer than 65536 slices");

  // One allocation holds the axes of the slices, then their lists.
  std::vector<int> lists;
  std::vector<std::size_t> places;
  const auto append = [&](const std::vector<std::int32_t>& blocks, std::int64_t width) {
    places.push_back(lists.size());
    std::int64_t least = 0;
    for (const std::int32_t block : blocks) {
      require(block >= least && block * layer.block < width,
              "numbers of live blocks ascend, below their number");
      least = block + 1;
      const std::int64_t end = std::min((block + 1) * layer.block, width);
      for (std::int64_t unit = block * layer.block; unit < end; unit += strip_width)
        lists.push_back(static_cast<int>(unit / strip_width));
    }
    return static_cast<int>(lists.size() - places.back());
  };
  std::int64_t row = 0;
  for (const Slice& slice : slices) {
    require(slice.begin >= row && slice.end >= slice.begin && slice.end < most, "slices follow one another");
    row = slice.end;
    SliceAxes axes{
        static_cast<int>(slice.begin), static_cast<int>(slice.end - slice.begin), nullptr, nullptr, 0, 0};
    axes.in_strips = append(slice.in, layer.in);
    axes.out_strips = append(slice.out, layer.out);
    state_->most_rows = std::max(state_->most_rows, axes.rows);
    state_->most_in = std::max(state_->most_in, axes.in_strips);
    state_->most_out = std::max(state_->most_out, axes.out_strips);
    state_->slices.push_back(axes);
  }
  if (slices.empty()) return;
  state_->first_row = static_cast<int>(slices.front().begin);
  state_->rows = static_cast<int>(row) - state_->first_row;

  const std::size_t head = state_->slices.size() * sizeof(SliceAxes);
  demand(cudaMalloc(&state_->memory, head + (lists.size() + 1) * sizeof(int)));
  auto* const on_device = reinterpret_cast<int*>(static_cast<unsigned char*>(state_->memory) + head);
  for (std::size_t i = 0; i < state_->slices.size(); ++i) {
    state_->slices[i].in = on_device + places[2 * i];
    state_->slices[i].out = on_device + places[2 * i + 1];
  }
  demand(cudaMemcpy(state_->memory, state_->slices.data(), head, cudaMemcpyHostToDevice));
  demand(cudaMemcpy(on_device, lists.data(), lists.size() * sizeof(int), cudaMemcpyHostToDevice));
  state_->on_device = static_cast<const SliceAxes*>(state_->memory);
}

MaskedGemm::~MaskedGemm() = default;

void MaskedGemm::forward(ConstMatrix x, ConstMatrix weight, const void* bias, Matrix y, void* stream) const {
  const auto on = static_cast<cudaStream_t>(stream);
  if (state_->layer.type == Type::float32) return state_->forward<float>(x, weight, bias, y, on);
  state_->forward<bfloat16>(x, weight, bias, y, on);
}

void MaskedGemm::input_gradient(ConstMatrix dy, ConstMatrix y, ConstMatrix weight, Matrix dx,
                                void* stream) const {
  const auto on = static_cast<cudaStream_t>(stream);
  if (state_->layer.type == Type::float32) return state_->input_gradient<float>(dy, y, weight, dx, on);
  state_->input_gradient<bfloat16>(dy, y, weight, dx, on);
}

void MaskedGemm::weight_gradient(ConstMatrix dy, ConstMatrix y, ConstMatrix x, float* dw,
                                 std::int64_t dw_stride, float* db, void* stream) const {
  const auto on = static_cast<cudaStream_t>(stream);
  if (state_->layer.type == Type::float32)
    return state_->weight_gradient<float>(dy, y, x, dw, dw_stride, db, on);
  state_->weight_gradient<bfloat16>(dy, y, x, dw, dw_stride, db, on);
}

}  // namespace trainyard::kernels::cuda
