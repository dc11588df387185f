// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/byte_codes_micro.hpp"
#include "kernels/cpu/vector_math.hpp"

namespace trainyard::kernels {
namespace {

constexpr std::int32_t exponent = 0x7f800000;  ///< all of whose bits are set in infinities and NaN

ByteRange range(const float* x, std::int64_t count) {
  Vector least{}, most{};
  Words bad{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Vector given = load(x + i);
    least = given < least ? given : least;
    most = given > most ? given : most;
    bad |= (reinterpret_cast<Words>(given) & exponent) == exponent;
  }
  ByteRange found;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    if (least[lane] < found.least) found.least = least[lane];
    if (most[lane] > found.most) found.most = most[lane];
    if (bad[lane] != 0) found.finite = false;
  }
  for (; i < count; ++i) {
    if (x[i] < found.least) found.least = x[i];
    if (x[i] > found.most) found.most = x[i];
    if ((__builtin_bit_cast(std::int32_t, x[i]) & exponent) == exponent) found.finite = false;
  }
  return found;
}

template <class Code, std::int32_t low, std::int32_t high, bool keeps_positive>
void write_codes(Code* codes, const float* x, std::int64_t count, float inverse, std::int32_t zero) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t code = static_cast<std::int32_t>(__builtin_rintf(x[i] * inverse)) + zero;
    if (keeps_positive) code = x[i] > 0.0f && code <= zero ? zero + 1 : code;
    code = code < low ? low : code;
    code = code > high ? high : code;
    codes[i] = static_cast<Code>(code);
  }
}

void unsigned_codes(std::uint8_t* codes, const float* x, std::int64_t count, float inverse, std::int32_t zero,
                    bool keeps_positive) {
  if (keeps_positive)
    write_codes<std::uint8_t, 0, 255, true>(codes, x, count, inverse, zero);
  else
    write_codes<std::uint8_t, 0, 255, false>(codes, x, count, inverse, zero);
}

void signed_codes(std::int8_t* codes, const float* x, std::int64_t count, float inverse,
                  bool keeps_positive) {
  if (keeps_positive)
    write_codes<std::int8_t, -127, 127, true>(codes, x, count, inverse, 0);
  else
    write_codes<std::int8_t, -127, 127, false>(codes, x, count, inverse, 0);
}

template <class Code>
void write_values(float* x, const Code* codes, std::int64_t count, float scale, std::int32_t zero) {
  for (std::int64_t i = 0; i < count; ++i)
    x[i] = static_cast<float>(static_cast<std::int32_t>(codes[i]) - zero) * scale;
}

void unsigned_values(float* x, const std::uint8_t* codes, std::int64_t count, float scale,
                     std::int32_t zero) {
  write_values(x, codes, count, scale, zero);
}

void signed_values(float* x, const std::int8_t* codes, std::int64_t count, float scale) {
  write_values(x, codes, count, scale, 0);
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(byte_codes_, isa)
const ByteCodeKernels TRAINYARD_NAME(TRAINYARD_ISA) = {range, unsigned_codes, signed_codes, unsigned_values,
                                                       signed_values};

}  // namespace trainyard::kernels
