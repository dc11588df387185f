#include "kernels/cpu/adam.hpp"

#include <cmath>
#include <stdexcept>

#include "kernels/cpu/adam_micro.hpp"

namespace trainyard::kernels {

AdamStep adam_step(const AdamNumbers& numbers, std::int64_t count) {
  const auto& [lr, beta1, beta2, eps, weight_decay, decouples] = numbers;
  const auto t = static_cast<double>(count);
  return {.of_mean = static_cast<float>(1.0 - beta1),
          .beta2 = static_cast<float>(beta2),
          .of_square = static_cast<float>(1.0 - beta2),
          .rate = static_cast<float>(lr / (1.0 - std::pow(beta1, t))),
          .inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, t))),
          .eps = static_cast<float>(eps),
          .weight_decay = decouples ? 0.0f : static_cast<float>(weight_decay),
          .kept = decouples ? static_cast<float>(1.0 - lr * weight_decay) : 1.0f};
}

const AdamKernels& adam_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("adam: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return adam_avx512;
  if (isa == Isa::avx2) return adam_avx2;
#endif
  return adam_portable;
}

}  // namespace trainyard::kernels
