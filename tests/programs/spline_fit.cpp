// A fit as a small device has it: a spline of 8 control points through 100 samples, by descent with momentum on a loss that
// is differentiated by trainyard/ad. Prints its control points, and the time of a step and the peak of its memory.
#include <chrono>
#include <cstdio>
#include <cstring>

#include <trainyard/ad/gradient.hpp>

#include "tools/bench/spline.hpp"

int main() {
  constexpr int steps = 20'000;
  static const spline::Fit fit;
  std::array<double, spline::points> control{}, speed{};
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    const auto loss = trainyard::ad::gradient(fit, control);
    for (std::size_t k = 0; k < control.size(); ++k) {
      speed[k] = 0.98 * speed[k] - loss.slopes()[k];
      control[k] += speed[k];
    }
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  for (const double each : control) std::printf("%.12g\n", each);
  std::fprintf(stderr, "%.3f us a step\n", took.count() / steps);
  char line[128];
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  while (status != nullptr && std::fgets(line, sizeof(line), status) != nullptr)
    if (std::strncmp(line, "VmHWM:", 6) == 0) std::fputs(line, stderr);
}
