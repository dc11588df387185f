// Operators of a network on plain arrays, of one sample, row-major, single precision. Written for small devices: no
// allocation, no exception, no library but that of C.
#pragma once

#include <bit>
#include <cmath>

namespace runtime {

/// Partial sums side by side: vector code where the device has it, and a small error of long sums.
inline float dot(const float* a, const float* b, int n) {
  float lanes[8] = {};
  int i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) lanes[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) lanes[0] += a[i] * b[i];
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/// y += by x
inline void add_scaled(const float* __restrict x, float by, float* __restrict y, int n) {
  for (int i = 0; i < n; ++i) y[i] += by * x[i];
}

inline void copy(const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = x[i];
}

/// x: [rows, in], weight: [out, in], bias: [out] or null.
inline void gemm(const float* weight, const float* bias, const float* x, float* y, int rows, int in,
                 int out) {
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < out; ++o)
      y[r * out + o] = (bias != nullptr ? bias[o] : 0.0f) + dot(weight + o * in, x + r * in, in);
}

// A linear layer whose weight is a sum of terms: it starts with the bias, and each term adds its product to the outputs
// `y` of its own `own` rows of the weight, of `out`. x: [rows, in].

/// bias: [out] or null.
inline void start(const float* bias, float* y, int rows, int out) {
  for (int r = 0; r < rows; ++r, y += out)
    for (int o = 0; o < out; ++o) y[o] = bias != nullptr ? bias[o] : 0.0f;
}

/// weight: [own, in].
inline void add_dense(const float* weight, const float* x, float* y, int rows, int in, int out, int own) {
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < own; ++o) y[r * out + o] += dot(weight + o * in, x + r * in, in);
}

/// numbers: those that are not 0; places: how many counts there are, and for each the count, how many rows have as many numbers, which
/// ones, and the column of each number. Numbers and columns of eight rows lie side by side, those of the last rows of a count one
/// row after the other.
inline void add_sparse(const float* numbers, const unsigned short* places, const float* x, float* y, int rows,
                       int in, int out) {
  for (int r = 0; r < rows; ++r, x += in, y += out) {
    const float* number = numbers;
    const unsigned short* column = places + 1;
    for (int counts = places[0]; counts > 0; --counts) {
      const int count = column[0], many = column[1];
      const unsigned short* const row = column + 2;
      column = row + many;
      int i = 0;
      for (; i + 8 <= many; i += 8) {
        float sums[8] = {};
        for (int k = 0; k < count; ++k, number += 8, column += 8)
          for (int l = 0; l < 8; ++l) sums[l] += number[l] * x[column[l]];
        for (int l = 0; l < 8; ++l) y[row[i + l]] += sums[l];
      }
      for (; i < many; ++i, number += count, column += count) {
        float sum = 0.0f;
        for (int k = 0; k < count; ++k) sum += number[k] * x[column[k]];
        y[row[i]] += sum;
      }
    }
  }
}

/// weight = u [own, rank] v [rank, in]; between: room for `rank` numbers.
inline void add_low_rank(const float* u, const float* v, const float* x, float* y, int rows, int in, int out,
                         int own, int rank, float* between) {
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < rank; ++k) between[k] = dot(v + k * in, x + r * in, in);
    for (int o = 0; o < own; ++o) y[r * out + o] += dot(u + o * rank, between, rank);
  }
}

/// weight = b [p, q] (x) c [s, t], of which `turned` is [t, s]: by c first, then by b; between: room for q s numbers.
inline void add_kronecker(const float* b, const float* turned, const float* x, float* y, int rows, int in,
                          int out, int p, int q, int s, int t, float* between) {
  for (int r = 0; r < rows; ++r, x += in, y += out) {
    for (int i = 0; i < q * s; ++i) between[i] = 0.0f;
    for (int j = 0; j < q; ++j)
      for (int l = 0; l < t; ++l) add_scaled(turned + l * s, x[j * t + l], between + j * s, s);
    for (int i = 0; i < p; ++i)
      for (int j = 0; j < q; ++j) add_scaled(between + j * s, b[i * q + j], y + i * s, s);
  }
}

/// Of height and width.
struct Window {
  int kernel[2], stride[2], dilation[2], before[2];
};
struct Image {
  int channels, height, width;
};

/// First and one past the last output place whose tap `k` lies inside.
inline void reach(const Window& w, int axis, int k, int size, int places, int& first, int& last) {
  const int shift = k * w.dilation[axis] - w.before[axis];
  first = shift >= 0 ? 0 : (-shift + w.stride[axis] - 1) / w.stride[axis];
  last = size - shift <= 0 ? 0 : (size - shift + w.stride[axis] - 1) / w.stride[axis];
  if (last > places) last = places;
}

/// weight: [out channels, in channels / groups, kernel].
inline void conv(const float* weight, const float* bias, const float* x, float* y, Image in, Image out,
                 Window w, int groups) {
  const int in_group = in.channels / groups, out_group = out.channels / groups;
  for (int o = 0; o < out.channels; ++o) {
    float* const plane = y + o * out.height * out.width;
    for (int i = 0; i < out.height * out.width; ++i) plane[i] = bias != nullptr ? bias[o] : 0.0f;
    for (int c = 0; c < in_group; ++c) {
      const float* const from = x + (o / out_group * in_group + c) * in.height * in.width;
      for (int ky = 0; ky < w.kernel[0]; ++ky)
        for (int kx = 0; kx < w.kernel[1]; ++kx) {
          const float by = *weight++;
          int top, bottom, left, right;
          reach(w, 0, ky, in.height, out.height, top, bottom);
          reach(w, 1, kx, in.width, out.width, left, right);
          for (int v = top; v < bottom; ++v) {
            const float* const row = from + (v * w.stride[0] + ky * w.dilation[0] - w.before[0]) * in.width +
                                     kx * w.dilation[1] - w.before[1];
            for (int h = left; h < right; ++h) plane[v * out.width + h] += by * row[h * w.stride[1]];
          }
        }
    }
  }
}

/// The largest of each window, or the mean: of what lies inside, or of the whole window where padding counts.
inline void pool(const float* x, float* y, Image in, Image out, Window w, bool largest, bool padding_counts) {
  for (int c = 0; c < out.channels; ++c)
    for (int v = 0; v < out.height; ++v)
      for (int h = 0; h < out.width; ++h) {
        float best = -INFINITY, sum = 0.0f;
        int inside = 0;
        for (int ky = 0; ky < w.kernel[0]; ++ky)
          for (int kx = 0; kx < w.kernel[1]; ++kx) {
            const int row = v * w.stride[0] + ky * w.dilation[0] - w.before[0];
            const int column = h * w.stride[1] + kx * w.dilation[1] - w.before[1];
            if (row < 0 || row >= in.height || column < 0 || column >= in.width) continue;
            const float each = x[(c * in.height + row) * in.width + column];
            best = each > best || each != each ? each : best;
            sum += each;
            ++inside;
          }
        const int count = padding_counts ? w.kernel[0] * w.kernel[1] : inside;
        *y++ = largest ? best : sum / static_cast<float>(count);
      }
}

/// Mean of each channel of `places` numbers.
inline void global_average(const float* x, float* y, int channels, int places) {
  for (int c = 0; c < channels; ++c) {
    float sum = 0.0f;
    for (int i = 0; i < places; ++i) sum += x[c * places + i];
    y[c] = sum / static_cast<float>(places);
  }
}

/// x scale + shift, of each channel.
inline void scale_channels(const float* scale, const float* shift, const float* x, float* y, int channels,
                           int places) {
  for (int c = 0; c < channels; ++c)
    for (int i = 0; i < places; ++i) y[c * places + i] = x[c * places + i] * scale[c] + shift[c];
}

inline void layer_norm(const float* scale, const float* bias, const float* x, float* y, int rows, int n,
                       float epsilon) {
  for (int r = 0; r < rows; ++r, x += n, y += n) {
    float mean = 0.0f, variance = 0.0f;
    for (int i = 0; i < n; ++i) mean += x[i];
    mean /= static_cast<float>(n);
    for (int i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const float by = 1.0f / std::sqrt(variance / static_cast<float>(n) + epsilon);
    for (int i = 0; i < n; ++i) y[i] = (x[i] - mean) * by * scale[i] + (bias != nullptr ? bias[i] : 0.0f);
  }
}

inline void softmax(const float* x, float* y, int rows, int n, bool logarithm) {
  for (int r = 0; r < rows; ++r, x += n, y += n) {
    float top = x[0], sum = 0.0f;
    for (int i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; ++i) sum += std::exp(x[i] - top);
    for (int i = 0; i < n; ++i) y[i] = logarithm ? x[i] - top - std::log(sum) : std::exp(x[i] - top) / sum;
  }
}

// Functions of single numbers; `a` is their parameter.
inline float relu(float x, float) {
  return x < 0.0f ? 0.0f : x;
}
inline float leaky_relu(float x, float a) {
  return x < 0.0f ? a * x : x;
}
inline float elu(float x, float a) {
  return x < 0.0f ? a * std::expm1(x) : x;
}
inline float selu(float x, float) {
  return 1.0507009873554805f * (x > 0.0f ? x : 1.6732632423543772f * std::expm1(x));
}
/// e^x - 1, to 3e-7 of it: x = n ln 2 + r, and Moshier's polynomial of r (Cephes, expf). Beyond 87 it is that of 87. It has no branch
/// and none that a compiler would make, so that loops of it are vector code: sizes are compared as the integers of their bits.
inline float exponential_less_one(float x) {
  constexpr unsigned most = std::bit_cast<unsigned>(87.0f), infinite = 0x7f800000u;
  const unsigned size = std::bit_cast<unsigned>(x) & 0x7fffffffu, below = size < most ? size : most;
  const float inside = std::copysign(std::bit_cast<float>(below), x);
  const int n = static_cast<int>(inside * 1.44269504f + std::copysign(0.5f, x));
  const float count = static_cast<float>(n), r = (inside - count * 0.693359375f) + count * 2.12194440e-4f;
  float p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float power = std::bit_cast<float>((n + 127) << 23),
              result = (p * (r * r) + r) * power + (power - 1.0f);
  // What is not a number stays so.
  return std::bit_cast<float>(std::bit_cast<unsigned>(result) | -static_cast<unsigned>(size > infinite));
}
inline float sigmoid(float x, float = 0.0f) {
  return 1.0f / (2.0f + exponential_less_one(-x));
}
inline float tanh(float x, float = 0.0f) {
  const float grown = exponential_less_one(2.0f * std::fabs(x));
  return std::copysign(grown / (grown + 2.0f), x);
}
inline float gelu(float x, float) {
  return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
}
inline float gelu_tanh(float x, float) {
  return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}
using Function = float (*)(float, float);
inline void each(Function f, float a, const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = f(x[i], a);
}

inline void add(const float* a, const float* b, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = a[i] + b[i];
}
inline void sub(const float* a, const float* b, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = a[i] - b[i];
}
inline void mul(const float* a, const float* b, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

/// A step of an LSTM (Hochreiter and Schmidhuber, 1997; Gers et al., 2000): its cells `c` and outputs `h`, n each, by the sums that
/// come to its gates, those of the inputs, outputs, forgetting and cells one after the other.
inline void lstm_step(const float* __restrict gates, float* __restrict c, float* __restrict h, int n) {
  for (int k = 0; k < n; ++k) {
    c[k] = sigmoid(gates[2 * n + k]) * c[k] + sigmoid(gates[k]) * tanh(gates[3 * n + k]);
    h[k] = sigmoid(gates[n + k]) * tanh(c[k]);
  }
}

/// Rows of a table, `width` wide, by their numbers.
inline void gather(const float* table, const long long* numbers, float* y, int count, int width) {
  for (int i = 0; i < count; ++i) copy(table + numbers[i] * width, y + i * width, width);
}

/// A linear layer and the function behind it (null: none), as places in the weights; what fit.cpp goes by.
struct Layer {
  int in, out, weight, bias;  ///< bias: -1 where there is none
  Function function;
};

}  // namespace runtime
