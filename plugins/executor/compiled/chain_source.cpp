#include "chain_source.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace compiled {
namespace {

/// What an operation makes of the accumulator a, its operand b and its numbers.
struct Function {
  ChainOp op;
  std::string_view name, value;
};
constexpr std::array functions = {
    Function{ChainOp::load, "load", "b"},
    Function{ChainOp::add, "add", "a + b"},
    Function{ChainOp::subtract, "subtract", "a - b"},
    Function{ChainOp::subtract_from, "subtract_from", "b - a"},
    Function{ChainOp::multiply, "multiply", "a * b"},
    Function{ChainOp::divide, "divide", "a / b"},
    Function{ChainOp::divide_into, "divide_into", "b / a"},
    Function{ChainOp::maximum, "maximum", "a > b || a != a ? a : b"},
    Function{ChainOp::minimum, "minimum", "a < b || a != a ? a : b"},
    Function{ChainOp::is_larger, "is_larger", "a > b ? 1.0f : a == b ? 0.5f : 0.0f"},
    Function{ChainOp::is_smaller, "is_smaller", "a < b ? 1.0f : a == b ? 0.5f : 0.0f"},
    Function{ChainOp::negate, "negate", "-a"},
    Function{ChainOp::absolute, "absolute", "fabsf(a)"},
    Function{ChainOp::reciprocal, "reciprocal", "1.0f / a"},
    Function{ChainOp::square_root, "square_root", "sqrtf(a)"},
    Function{ChainOp::exponential, "exponential", "expf(a)"},
    Function{ChainOp::logarithm, "logarithm", "logf(a)"},
    Function{ChainOp::relu, "relu", "0.0f > a ? 0.0f : a"},
    Function{ChainOp::leaky_relu, "leaky_relu", "a < 0.0f ? first * a : a"},
    Function{ChainOp::elu, "elu", "a > 0.0f ? a : first * expm1f(a)"},
    Function{ChainOp::sigmoid, "sigmoid", "sigmoid_of(a)"},
    Function{ChainOp::tanh, "tanh", "tanhf(a)"},
    Function{ChainOp::gelu, "gelu", "a * gelu_share(a)"},
    Function{ChainOp::softplus, "softplus", "(a > 0.0f ? a : 0.0f) + log1pf(expf(-fabsf(a)))"},
    Function{ChainOp::hard_sigmoid, "hard_sigmoid", "within(first * a + second, 0.0f, 1.0f)"},
    Function{ChainOp::clip, "clip", "within(a, first, second)"},
    Function{ChainOp::through_absolute, "through_absolute", "b > 0.0f ? a : b < 0.0f ? -a : 0.0f"},
    Function{ChainOp::through_logarithm, "through_logarithm", "a / b"},
    Function{ChainOp::through_leaky_relu, "through_leaky_relu", "b > 0.0f ? a : first * a"},
    Function{ChainOp::through_elu, "through_elu", "b > 0.0f ? a : a * first * expf(b)"},
    Function{ChainOp::through_gelu, "through_gelu", "a * gelu_slope(b)"},
    Function{ChainOp::through_softplus, "through_softplus", "a * sigmoid_of(b)"},
    Function{ChainOp::through_hard_sigmoid, "through_hard_sigmoid",
             "first * b + second > 0.0f && first * b + second < 1.0f ? first * a : 0.0f"},
    Function{ChainOp::through_clip, "through_clip", "b >= first && b <= second ? a : 0.0f"},
    Function{ChainOp::through_reciprocal, "through_reciprocal", "-a * b * b"},
    Function{ChainOp::through_square_root, "through_square_root", "0.5f * a / b"},
    Function{ChainOp::through_relu, "through_relu", "b <= 0.0f ? 0.0f : a"},
    Function{ChainOp::through_sigmoid, "through_sigmoid", "a * b * (1.0f - b)"},
    Function{ChainOp::through_tanh, "through_tanh", "a * (1.0f - b * b)"},
};
static_assert(functions.size() == static_cast<std::size_t>(ChainOp::through_tanh));  // all but `keep`

/// What they call.
constexpr std::string_view helpers =
    R"(static __device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }
static __device__ inline float within(float x, float low, float high) {
  const float above = low > x ? low : x;
  return high < above ? high : above;
}
static __device__ inline float gelu_share(float x) {
  return sigmoid_of(2.0f * 0.79788456f * (x + 0.044715f * x * x * x));
}
static __device__ inline float gelu_slope(float x) {
  const float share = gelu_share(x);
  return share + x * share * (1.0f - share) * 2.0f * 0.79788456f * (1.0f + 3.0f * 0.044715f * x * x);
}
)";

std::string_view name_of(ChainOp op) {
  return std::find_if(functions.begin(), functions.end(), [&](const Function& each) { return each.op == op; })
      ->name;
}

/// A number to the bit.
std::string literal(float value) {
  std::array<char, 48> text;
  if (std::isfinite(value))
    std::snprintf(text.data(), text.size(), "%af", static_cast<double>(value));
  else
    std::snprintf(text.data(), text.size(), "__int_as_float(0x%08x)", std::bit_cast<std::uint32_t>(value));
  return text.data();
}

std::string number(std::string_view letter, std::size_t value) {
  return std::string(letter) + std::to_string(value);
}

/// Which operands in memory are read ahead of being written, and which are written.
struct Use {
  std::vector<bool> read, written;
};
Use use_of(const Program& program, std::size_t in_memory) {
  Use use{std::vector<bool>(in_memory), std::vector<bool>(in_memory)};
  for (const ChainStep& step : program.steps) {
    if (step.operand < 0 || static_cast<std::size_t>(step.operand) >= in_memory) continue;
    const auto o = static_cast<std::size_t>(step.operand);
    if (step.op == ChainOp::keep)
      use.written[o] = true;
    else if (!use.written[o])
      use.read[o] = true;
  }
  return use;
}

std::string parameters(const Program& program, std::size_t in_memory) {
  std::string text = "long long count";
  for (std::size_t o = 0; o < in_memory; ++o) text += ", float* " + number("p", o);
  for (std::size_t c = 0; c < constants_of(program); ++c) text += ", float* " + number("c", c);
  return text;
}

std::string step_text(const Program& program, std::size_t s) {
  const ChainStep& step = program.steps[s];
  const std::string its = number("x", static_cast<std::size_t>(step.operand));
  if (step.op == ChainOp::keep) return its + " = a;";
  std::string b = step.operand >= 0 ? its : literal(step.first);
  for (const auto& [constant_step, constant] : program.constants)
    if (constant_step == s) b = "*" + number("c", constant);
  return "a = chain_" + std::string(name_of(step.op)) + "(a, " + b + ", " + literal(step.first) + ", " +
         literal(step.second) + ");";
}

}  // namespace

std::string chain_functions() {
  std::string text(helpers);
  for (const Function& each : functions)
    text += "static __device__ inline float chain_" + std::string(each.name) +
            "(float a, float b, float first, float second) { return " + std::string(each.value) + "; }\n";
  return text;
}

std::size_t constants_of(const Program& program) {
  std::size_t count = 0;
  for (const auto& [step, constant] : program.constants) count = std::max(count, constant + 1);
  return count;
}

std::string chain_kernel_text(std::string_view name, const Program& program, std::size_t in_memory) {
  const Use use = use_of(program, in_memory);
  std::string text = "extern \"C\" __global__ void " + std::string(name) + "(" +
                     parameters(program, in_memory) +
                     ") {\n"
                     "  const long long stride = (long long)gridDim.x * blockDim.x;\n"
                     "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += "
                     "stride) {\n"
                     "    float a = 0.0f;\n";
  for (std::size_t o = 0; o < in_memory + program.rooms; ++o)
    text += "    float " + number("x", o) +
            (o < in_memory && use.read[o] ? " = " + number("p", o) + "[i];\n" : " = 0.0f;\n");
  for (std::size_t s = 0; s < program.steps.size(); ++s) text += "    " + step_text(program, s) + "\n";
  for (std::size_t o = 0; o < in_memory; ++o)
    if (use.written[o]) text += "    " + number("p", o) + "[i] = " + number("x", o) + ";\n";
  return text + "  }\n}\n";
}

}  // namespace compiled
