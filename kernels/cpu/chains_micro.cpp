// This file is compiled once per instruction set, named by TRAINYARD_ISA. It has no symbol that the linker
// could share with other units, as that code would be compiled for this set: functions of headers that it
// calls are trivial or forced inline.
#include "kernels/cpu/chains_micro.hpp"

#include "kernels/cpu/vector_math.hpp"

namespace trainyard::kernels {
namespace {

constexpr std::int64_t vectors =
    register_bytes == 64 ? 16 : 8;  ///< of the accumulator: half of the registers
constexpr std::int64_t width = vectors * lanes;

struct Accumulator {
  Vector v[vectors];
};

/// Replaces each vector of the accumulator by the result of `make` for it and the operand's.
template <class Make>
TRAINYARD_INLINE void each(Accumulator& a, const float* b, const Make& make) {
#pragma GCC unroll 16
  for (int i = 0; i < vectors; ++i) a.v[i] = make(a.v[i], load(b + i * lanes));
}
/// The same where the operand may be a constant.
template <class Make>
TRAINYARD_INLINE void each(Accumulator& a, const float* b, float constant, const Make& make) {
  if (b != nullptr) return each(a, b, make);
  const Vector same = Vector{} + constant;
#pragma GCC unroll 16
  for (int i = 0; i < vectors; ++i) a.v[i] = make(a.v[i], same);
}
template <class Make>
TRAINYARD_INLINE void each(Accumulator& a, const Make& make) {
#pragma GCC unroll 16
  for (int i = 0; i < vectors; ++i) a.v[i] = make(a.v[i]);
}

/// Returns a where the mask is set, else 0.
TRAINYARD_INLINE Vector only(Words mask, Vector a) {
  return mask ? a : Vector{};
}

/// 1/2 (1 + tanh(u)) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float gelu_scale = 0.79788456f, gelu_cubic = 0.044715f;
TRAINYARD_INLINE Vector gelu_share(Vector x) {
  return sigmoid(2.0f * gelu_scale * (x + gelu_cubic * x * x * x));
}
TRAINYARD_INLINE Vector gelu_slope(Vector x) {
  const Vector share = gelu_share(x);
  const Vector inner = 2.0f * gelu_scale * (1.0f + 3.0f * gelu_cubic * x * x);
  return share + x * share * (1.0f - share) * inner;
}

TRAINYARD_INLINE Vector least(Vector a, Vector b) {
  return a < b || a != a ? a : b;
}
TRAINYARD_INLINE Vector most(Vector a, Vector b) {
  return a > b || a != a ? a : b;
}

/// Clamps x. The bounds are no NaN: in this order it takes one instruction each, and NaN stays.
TRAINYARD_INLINE Vector within(Vector x, Vector low, Vector high) {
  const Vector above = low > x ? low : x;
  return high < above ? high : above;
}

TRAINYARD_INLINE void take(const ChainStep& step, Accumulator& a, float* b) {
  const float first = step.first, second = step.second;
  const Vector zero{};
  using V = Vector;
  switch (step.op) {
    case ChainOp::load: return each(a, b, first, [](V, V y) { return y; });
    case ChainOp::keep:
#pragma GCC unroll 16
      for (int i = 0; i < vectors; ++i) store(b + i * lanes, a.v[i]);
      return;
    case ChainOp::add: return each(a, b, first, [](V x, V y) { return x + y; });
    case ChainOp::subtract: return each(a, b, first, [](V x, V y) { return x - y; });
    case ChainOp::subtract_from: return each(a, b, first, [](V x, V y) { return y - x; });
    case ChainOp::multiply: return each(a, b, first, [](V x, V y) { return x * y; });
    case ChainOp::divide: return each(a, b, first, [](V x, V y) { return x / y; });
    case ChainOp::divide_into: return each(a, b, first, [](V x, V y) { return y / x; });
    case ChainOp::maximum: return each(a, b, first, [](V x, V y) { return most(x, y); });
    case ChainOp::minimum: return each(a, b, first, [](V x, V y) { return least(x, y); });
    case ChainOp::is_larger:
      return each(a, b, first, [=](V x, V y) { return x > y ? zero + 1.0f : x == y ? zero + 0.5f : zero; });
    case ChainOp::is_smaller:
      return each(a, b, first, [=](V x, V y) { return x < y ? zero + 1.0f : x == y ? zero + 0.5f : zero; });
    case ChainOp::negate: return each(a, [](V x) { return -x; });
    case ChainOp::absolute: return each(a, [](V x) { return absolute(x); });
    case ChainOp::reciprocal: return each(a, [](V x) { return 1.0f / x; });
    case ChainOp::square_root:
      return each(a, [](V x) {
        for (int i = 0; i < lanes; ++i) x[i] = __builtin_sqrtf(x[i]);
        return x;
      });
    case ChainOp::exponential: return each(a, [](V x) { return exponential(x); });
    case ChainOp::logarithm: return each(a, [](V x) { return logarithm(x); });
    case ChainOp::relu: return each(a, [=](V x) { return zero > x ? zero : x; });
    case ChainOp::leaky_relu: return each(a, [=](V x) { return x < 0.0f ? first * x : x; });
    case ChainOp::elu: return each(a, [=](V x) { return x > 0.0f ? x : first * exponential_less_one(x); });
    case ChainOp::sigmoid: return each(a, [](V x) { return sigmoid(x); });
    case ChainOp::tanh: return each(a, [](V x) { return tanh(x); });
    case ChainOp::gelu: return each(a, [](V x) { return x * gelu_share(x); });
    case ChainOp::softplus: return each(a, [](V x) { return softplus(x); });
    case ChainOp::hard_sigmoid:
      return each(a, [=](V x) { return within(first * x + second, zero, zero + 1.0f); });
    case ChainOp::clip: return each(a, [=](V x) { return within(x, zero + first, zero + second); });
    case ChainOp::through_absolute:
      return each(a, b, [=](V g, V x) { return x > 0.0f ? g : x < 0.0f ? -g : zero; });
    case ChainOp::through_logarithm: return each(a, b, [](V g, V x) { return g / x; });
    case ChainOp::through_leaky_relu: return each(a, b, [=](V g, V x) { return x > 0.0f ? g : first * g; });
    case ChainOp::through_elu:
      return each(a, b, [=](V g, V x) { return x > 0.0f ? g : g * first * exponential(x); });
    case ChainOp::through_gelu: return each(a, b, [](V g, V x) { return g * gelu_slope(x); });
    case ChainOp::through_softplus: return each(a, b, [](V g, V x) { return g * sigmoid(x); });
    case ChainOp::through_hard_sigmoid:
      return each(a, b, [=](V g, V x) {
        const V line = first * x + second;
        return only(line > 0.0f && line < 1.0f, first * g);
      });
    case ChainOp::through_clip:
      return each(a, b, [=](V g, V x) { return only(x >= first && x <= second, g); });
    case ChainOp::through_reciprocal: return each(a, b, [](V g, V y) { return -g * y * y; });
    case ChainOp::through_square_root: return each(a, b, [](V g, V y) { return 0.5f * g / y; });
    case ChainOp::through_relu: return each(a, b, [=](V g, V y) { return y <= 0.0f ? zero : g; });
    case ChainOp::through_sigmoid: return each(a, b, [](V g, V y) { return g * y * (1.0f - y); });
    case ChainOp::through_tanh: return each(a, b, [](V g, V y) { return g * (1.0f - y * y); });
  }
}

TRAINYARD_INLINE void run(const Chain& chain, float* const* places) {
  Accumulator a{};
  for (std::int64_t s = 0; s < chain.step_count; ++s) {
    const ChainStep step = chain.steps[s];
    take(step, a, step.operand < 0 ? nullptr : places[step.operand]);
  }
}

/// Runs the chain for fewer elements than `width`, on copies.
void run_rest(const Chain& chain, std::int64_t begin, std::int64_t count, float (*copies)[width]) {
  float* places[chain_operands];
  for (std::int64_t o = 0; o < chain.operand_count; ++o) {
    places[o] = copies[o];
    const float* const elements = chain.operands[o];
    for (std::int64_t i = 0; elements != nullptr && i < width; ++i)
      copies[o][i] = i < count ? elements[begin + i] : 0.0f;
  }
  run(chain, places);
  for (std::int64_t s = 0; s < chain.step_count; ++s) {
    if (chain.steps[s].op != ChainOp::keep) continue;
    float* const elements = chain.operands[chain.steps[s].operand];
    for (std::int64_t i = 0; elements != nullptr && i < count; ++i)
      elements[begin + i] = copies[chain.steps[s].operand][i];
  }
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(chain_, isa)
void TRAINYARD_NAME(TRAINYARD_ISA)(const Chain& chain, std::int64_t begin, std::int64_t end) {
  alignas(register_bytes) float rooms[chain_operands][width];
  float* places[chain_operands];
  std::int64_t steps[chain_operands];
  for (std::int64_t o = 0; o < chain.operand_count; ++o) {
    float* const elements = chain.operands[o];
    const bool moves = elements != nullptr;
    places[o] = moves ? elements + begin : rooms[o];
    steps[o] = moves ? width : 0;
  }
  std::int64_t i = begin;
  for (; i + width <= end; i += width) {
    run(chain, places);
    for (std::int64_t o = 0; o < chain.operand_count; ++o) places[o] += steps[o];
  }
  if (i < end) run_rest(chain, i, end - i, rooms);
}

}  // namespace trainyard::kernels
