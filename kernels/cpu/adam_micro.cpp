// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/adam_micro.hpp"

namespace trainyard::kernels {
namespace {

inline void adam_element(float& w, float& m, float& v, float g, const AdamStep& step) {
  g += step.weight_decay * w;
  m += step.of_mean * (g - m);
  v = step.beta2 * v + step.of_square * g * g;
  w = step.kept * w - step.rate * m / (__builtin_sqrtf(v) * step.inverse_root + step.eps);
}

void step(const AdamRow& row, const float* __restrict gradient, const AdamStep& given) {
  const AdamStep numbers = given;
  float* __restrict const w = row.weight;
  float* __restrict const m = row.exp_avg;
  float* __restrict const v = row.exp_avg_sq;
  for (std::int64_t i = 0; i < row.width; ++i) adam_element(w[i], m[i], v[i], gradient[i], numbers);
}

void idle(const AdamRow& row, const AdamStep* steps, std::int64_t count) {
  float* __restrict const w = row.weight;
  float* __restrict const m = row.exp_avg;
  float* __restrict const v = row.exp_avg_sq;
  for (std::int64_t s = 0; s < count; ++s) {
    const AdamStep numbers = steps[s];
    for (std::int64_t i = 0; i < row.width; ++i) adam_element(w[i], m[i], v[i], 0.0f, numbers);
  }
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(adam_, isa)
const AdamKernels TRAINYARD_NAME(TRAINYARD_ISA) = {step, idle};

}  // namespace trainyard::kernels
