// The products on a CUDA device against sums in double precision. Nothing is checked where there is no
// device.
#ifdef TRAINYARD_CUDA
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/masked_gemm.hpp"

namespace masked_gemm_cuda_tests {

namespace {

using namespace trainyard::kernels::cuda;
using Doubles = std::vector<double>;

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};

/// Numbers that T holds exactly, here and on the device.
template <class T>
struct Array {
  Doubles values;
  std::unique_ptr<void, Free> memory;

  explicit Array(Doubles numbers) : values(std::move(numbers)) {
    std::vector<T> held;
    for (double& number : values) {
      held.push_back(T(static_cast<float>(number)));
      number = static_cast<double>(static_cast<float>(held.back()));
    }
    void* place = nullptr;
    REQUIRE(cudaMalloc(&place, held.size() * sizeof(T)) == cudaSuccess);
    memory.reset(place);
    REQUIRE(cudaMemcpy(place, held.data(), held.size() * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  Doubles read() const {
    std::vector<T> held(values.size());
    REQUIRE(cudaMemcpy(held.data(), memory.get(), held.size() * sizeof(T), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    Doubles numbers;
    for (const T& each : held) numbers.push_back(static_cast<double>(static_cast<float>(each)));
    return numbers;
  }
};

double error(const Doubles& found, const Doubles& expected) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) || (expected[i] == 0 && found[i] != 0 && std::abs(found[i]) > 1e-6))
      return INFINITY;
    difference = std::max(difference, std::abs(found[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return largest == 0 ? difference : difference / largest;
}

template <class T>
void compare(Type type, double tolerance, std::int64_t rows, std::int64_t in, std::int64_t out,
             std::int64_t block, std::int64_t tau, bool relu, double keep, std::mt19937_64& random) {
  CAPTURE(rows, in, out, block, tau, relu, keep);
  std::bernoulli_distribution live(keep);
  std::normal_distribution<double> normal;
  std::vector<Slice> slices;
  const auto units = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  Doubles live_in(units(rows * in)), live_out(units(rows * out));
  for (std::int64_t j = 0; j < tau; ++j) {
    Slice slice{rows * j / tau, rows * (j + 1) / tau, {}, {}};
    const auto draw = [&](std::int64_t width, std::vector<std::int32_t>& blocks, Doubles& mask) {
      for (std::int32_t number = 0; number * block < width; ++number) {
        if (!live(random)) continue;
        blocks.push_back(number);
        for (std::int64_t row = slice.begin; row < slice.end; ++row)
          for (std::int64_t u = number * block; u < std::min(width, (number + 1) * block); ++u)
            mask[units(row * width + u)] = 1;
      }
    };
    draw(in, slice.in, live_in);
    draw(out, slice.out, live_out);
    slices.push_back(std::move(slice));
  }
  const auto numbers = [&](std::int64_t count) {
    Doubles result(units(count));
    for (double& each : result) each = normal(random);
    return result;
  };
  const Array<T> x(numbers(rows * in)), weight(numbers(out * in)), bias(numbers(out)),
      dy(numbers(rows * out));
  const Array<T> y(Doubles(units(rows * out), 7.0)), dx(Doubles(units(rows * in), 7.0));
  const Array<float> dw(Doubles(units(out * in), 0.0)), db(Doubles(units(out), 0.0));
  constexpr float scale = 2;
  const MaskedGemm gemm({.in = in, .out = out, .block = block, .relu = relu, .scale = scale, .type = type},
                        slices);
  gemm.forward({x.memory.get(), in}, {weight.memory.get(), in}, bias.memory.get(), {y.memory.get(), out},
               nullptr);
  gemm.input_gradient({dy.memory.get(), out}, {y.memory.get(), out}, {weight.memory.get(), in},
                      {dx.memory.get(), in}, nullptr);
  gemm.weight_gradient({dy.memory.get(), out}, {y.memory.get(), out}, {x.memory.get(), in},
                       static_cast<float*>(dw.memory.get()), in, static_cast<float*>(db.memory.get()),
                       nullptr);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);

  const Doubles found = y.read();
  Doubles ey(units(rows * out)), edx(units(rows * in)), edw(units(out * in)), edb(units(out));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      const std::size_t at = units(r * out + o);
      if (live_out[at] == 0) continue;
      double sum = bias.values[units(o)];
      for (std::int64_t i = 0; i < in; ++i)
        sum += live_in[units(r * in + i)] * x.values[units(r * in + i)] * weight.values[units(o * in + i)];
      // The sign of sums next to 0 is taken as found.
      ey[at] = !relu || sum > 1e-3 ? sum * scale : sum < -1e-3 ? 0.0 : found[at];
      if (relu && found[at] <= 0) continue;
      const double dz = dy.values[at] * scale;
      edb[units(o)] += dz;
      for (std::int64_t i = 0; i < in; ++i) {
        if (live_in[units(r * in + i)] == 0) continue;
        edx[units(r * in + i)] += dz * weight.values[units(o * in + i)];
        edw[units(o * in + i)] += dz * x.values[units(r * in + i)];
      }
    }
  CHECK(error(found, ey) <= tolerance);
  CHECK(error(dx.read(), edx) <= tolerance);
  CHECK(error(dw.read(), edw) <= tolerance);
  CHECK(error(db.read(), edb) <= tolerance);
}

}  // namespace

TEST_CASE("CUDA: masked products equal the dense ones of masked matrices") {
  if (!available()) {
    WARN("no CUDA device: nothing is checked");
    return;
  }
  std::mt19937_64 random(3);
  for (const bool relu : {false, true})
    for (const auto& [rows, in, out, block, tau, keep] :
         {std::tuple(256, 256, 320, 32, 4, 0.5), std::tuple(61, 200, 168, 16, 4, 0.5),
          std::tuple(61, 203, 171, 64, 3, 0.5), std::tuple(3, 96, 80, 16, 8, 0.5),
          std::tuple(40, 96, 80, 32, 2, 0.0), std::tuple(150, 130, 140, 128, 1, 1.0)}) {
      compare<float>(Type::float32, 1e-5, rows, in, out, block, tau, relu, keep, random);
      compare<__nv_bfloat16>(Type::bfloat16, 1e-2, rows, in, out, block, tau, relu, keep, random);
    }
}

}  // namespace masked_gemm_cuda_tests

#endif
