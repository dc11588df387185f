// Derivatives by sdk/include/trainyard/ad: a spline of 8 control points fitted to 100 samples, against a step of LibTorch's
// autograd; and the gradient of a loop over an array, whose time must grow with its length alone.
//   bench_ad [--quick] [spline|array]
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/ad/gradient.hpp>

#include "arguments.hpp"
#include "contest.hpp"
#include "spline.hpp"

using namespace trainyard;
using namespace trainyard::bench;

namespace {

void fit_of_a_spline(bool quick) {
  constexpr int steps = 200;
  const spline::Fit fit;
  std::array<double, spline::points> by_dual{}, by_tape{};
  std::array<double, spline::samples * spline::points> dense{};  // for LibTorch
  for (std::size_t i = 0; i < spline::samples; ++i)
    std::ranges::copy(fit.weights[i], &dense[i * spline::points + fit.first[i]]);
  const auto tensor = [](const double* numbers, at::IntArrayRef shape) {
    return at::from_blob(const_cast<double*>(numbers), shape, at::kDouble).clone();
  };
  const at::Tensor weights = tensor(dense.data(), {spline::samples, spline::points});
  const at::Tensor targets = tensor(fit.targets.data(), {spline::samples});
  at::Tensor by_torch = tensor(by_dual.data(), {spline::points}).requires_grad_();
  ad::Tape<> tape;
  volatile double seen = 0;

  const auto forward = [&] {
    for (int i = 0; i < steps; ++i) {
      const auto y = ad::gradient(fit, by_dual);
      for (std::size_t k = 0; k < by_dual.size(); ++k) by_dual[k] -= 1e-3 * y.slopes()[k];
      seen = y.inner();
    }
  };
  const auto reverse = [&] {
    for (int i = 0; i < steps; ++i) {
      const auto y = ad::gradient(fit, std::vector<double>(by_tape.begin(), by_tape.end()), tape);
      for (std::size_t k = 0; k < by_tape.size(); ++k) by_tape[k] -= 1e-3 * y.slopes[k];
      seen = y.value;
    }
  };
  const auto torch = [&] {
    for (int i = 0; i < steps; ++i) {
      at::mean(at::square(at::sub(at::matmul(weights, by_torch), targets))).backward();
      const at::NoGradGuard no_grad;
      by_torch.sub_(by_torch.grad(), 1e-3);
      by_torch.mutable_grad().zero_();
    }
  };
  const std::vector<Contender> contenders{
      {"LibTorch's autograd", torch}, {"ad: forward, Dual<8>", forward}, {"ad: reverse, a tape", reverse}};
  print("A step of the spline fit, 100 samples x 8 control points", "us a step", 1e-6, steps, contenders,
        contest(contenders, quick ? 3 : 200));
  double apart = 0;
  for (std::size_t k = 0; k < by_dual.size(); ++k)
    apart = std::max({apart, std::abs(by_dual[k] - by_tape[k]),
                      std::abs(by_dual[k] - by_torch[static_cast<std::int64_t>(k)].item<double>())});
  std::printf("  control points after the same steps: %.1e apart\n", apart);
}

void array(bool quick) {
  const auto sum = []<class T>(std::span<const T> a) -> T {
    T result = 0;
    for (const T& each : a) result += each;
    return result;
  };
  std::printf("The gradient of the sum of an array, read by index\n  %9s %12s %12s\n", "n", "us", "ns each");
  double shortest = 0, longest = 0;
  for (const std::size_t n : {1'000, 10'000, 100'000, 1'000'000}) {
    std::vector<double> x(n, 1.0);
    ad::Tape<> tape;
    double least = 1e9;
    for (int i = 0; i < (quick ? 3 : 20); ++i) {
      const double start = thread_seconds();
      if (ad::gradient(sum, x, tape).slopes.back() != 1.0) std::abort();
      least = std::min(least, thread_seconds() - start);
    }
    std::printf("  %9zu %12.1f %12.2f\n", n, 1e6 * least, 1e9 * least / static_cast<double>(n));
    (n == 1'000 ? shortest : longest) = least;
  }
  std::printf("  slope of log time by log n: %.3f; 10^6 to 10^3: %.0f times\n",
              std::log10(longest / shortest) / 3, longest / shortest);
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // blocks stay: pages that are new to the process are no part of it
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const Arguments arguments(argc, argv);
  if (arguments.wants("spline")) fit_of_a_spline(arguments.quick);
  if (arguments.wants("array")) array(arguments.quick);
}
