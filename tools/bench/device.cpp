// The kernels of kernels/cuda against LibTorch's on the same GPU; ends with 77 where there is none.
//   trainyard bench device top_k      the largest elements of a gradient, against at::topk
//   trainyard bench device products   masked linear layers of `blockwise`, against dense ones
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <memory>

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "kernels/cuda/masked_gemm.hpp"
#include "kernels/cuda/top_k.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

using namespace kernels;

bool has_device() {
  return dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr &&
         at::detail::getCUDAHooks().deviceCount() > 0;
}

/// A contender that enqueues `times` of them on the default stream, LibTorch's as well, and waits for the last.
Contender enqueued(const char* name, int times, std::function<void()> once) {
  return {name, [times, once = std::move(once)] {
            for (int i = 0; i < times; ++i) once();
            cudaDeviceSynchronize();
          }};
}

// --- top-k

void top_k_of(std::int64_t count, double density, int rounds) {
  const int times = 10;
  const auto k = static_cast<std::int64_t>(density * static_cast<double>(count));
  const at::Tensor x = at::randn({count}, at::kCUDA), size = x.abs(),
                   indices = at::empty({k}, x.options().dtype(at::kInt)),
                   values = at::empty({k}, x.options());
  at::Tensor copy = at::empty_like(x);
  std::vector<Contender> contenders{enqueued("at::topk, not sorted, of magnitudes made before", times, [&] {
    at::topk(size, k, 0, /*largest=*/true, /*sorted=*/false);
  })};
  std::vector<std::shared_ptr<cuda::TopK>> selectors;
  const auto add = [&](const char* name, const Selection& how) {
    const auto top_k = selectors.emplace_back(std::make_shared<cuda::TopK>());
    contenders.push_back(enqueued(name, times, [=, &x, &indices, &values] {
      top_k->select(x.const_data_ptr<float>(), count, how, 12345, k, indices.mutable_data_ptr<std::int32_t>(),
                    values.mutable_data_ptr<float>(), nullptr);
    }));
  };
  add("radix", {.method = Method::radix});
  add("bitsearch", {.method = Method::bitsearch});
  add("mstopk, 30 samples", {.method = Method::mstopk});
  add("mstopk, 30 samples, one threshold a pass", {.method = Method::mstopk, .levels = 1});
  contenders.push_back(enqueued("a copy: each element read and written", times, [&] { copy.copy_(x); }));
  const std::vector<Times> found = contest(contenders, rounds);
  char title[100];
  std::snprintf(title, sizeof title, "The largest %lld of %lld (%g)", static_cast<long long>(k),
                static_cast<long long>(count), density);
  print(title, "us", 1e-6, times, contenders, found);
  const auto best = [&](std::size_t i) { return percentile(found[i].wall, 0) / times; };
  const double bytes = 4.0 * static_cast<double>(count), bandwidth = 2 * bytes / best(contenders.size() - 1);
  for (std::size_t i = 0; i < selectors.size(); ++i)
    std::printf("  %-44s %3d passes; %.2f times as fast as at::topk; %.0f %% of the speed of three passes\n",
                contenders[i + 1].name.c_str(), selectors[i]->selected().passes, best(0) / best(i + 1),
                100 * 3 * bytes / bandwidth / best(i + 1));
}

void top_k(bool quick) {
  for (const std::int64_t count : {1'000'000, 25'557'032, 110'000'000})
    for (const double density : {0.001, 0.01, 0.1}) {
      if (!quick || count == 1'000'000) top_k_of(count, density, quick ? 1 : 10);
    }
}

// --- masked products

/// Slices of as many rows, each with another half of the blocks of units.
std::vector<cuda::Slice> halves(std::int64_t rows, std::int64_t slices, std::int64_t units,
                                std::int64_t block) {
  std::vector<cuda::Slice> all;
  std::mt19937 random(5);
  for (std::int64_t i = 0; i < slices; ++i) {
    cuda::Slice slice{rows * i / slices, rows * (i + 1) / slices, {}, {}};
    for (std::int32_t unit = 0; unit < units / block; ++unit) {
      if (random() % 2 != 0) slice.in.push_back(unit);
      if (random() % 2 != 0) slice.out.push_back(unit);
    }
    all.push_back(slice);
  }
  return all;
}

void products_of(cuda::Type type, std::int64_t rows, std::int64_t units, int rounds) {
  const bool brief = type == cuda::Type::bfloat16;
  const std::int64_t block = 32, tau = 8;
  const int times = 5;
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(brief ? at::kBFloat16 : at::kFloat);
  const at::Tensor x = at::randn({rows, units}, options), weight = at::randn({units, units}, options),
                   bias = at::randn({units}, options), dy = at::randn({rows, units}, options);
  at::Tensor y = at::empty_like(x), dx = at::empty_like(x),
             dw = at::zeros({units, units}, options.dtype(at::kFloat)),
             db = at::zeros({units}, options.dtype(at::kFloat));
  const cuda::MaskedGemm gemm(
      {.in = units, .out = units, .block = block, .relu = true, .scale = 2, .type = type},
      halves(rows, tau, units, block));
  const auto of = [units](const at::Tensor& each) { return cuda::ConstMatrix{each.const_data_ptr(), units}; };
  const auto into = [units](at::Tensor& each) { return cuda::Matrix{each.mutable_data_ptr(), units}; };
  const std::vector<Contender> contenders{
      enqueued("dense: linear, ReLU, three products", times,
               [&] {
                 const at::Tensor out = at::linear(x, weight, bias).relu_();
                 const at::Tensor dz = dy * (out > 0);
                 at::mm(dz, weight);
                 at::mm(dz.t(), x);
                 dz.sum(0);
               }),
      enqueued("masked: blocks of 32, half of them, tau 8", times, [&] {
        gemm.forward(of(x), of(weight), bias.const_data_ptr(), into(y), nullptr);
        gemm.input_gradient(of(dy), of(y), of(weight), into(dx), nullptr);
        gemm.weight_gradient(of(dy), of(y), of(x), dw.mutable_data_ptr<float>(), units,
                             db.mutable_data_ptr<float>(), nullptr);
      })};
  const std::vector<Times> found = contest(contenders, rounds);
  char title[100];
  std::snprintf(title, sizeof title, "A layer of %lld units, batch %lld, %s", static_cast<long long>(units),
                static_cast<long long>(rows), brief ? "bfloat16" : "float");
  print(title, "us", 1e-6, times, contenders, found);
}

void products(bool quick) {
  const std::int64_t rows = quick ? 256 : 4096;
  for (const cuda::Type type : {cuda::Type::bfloat16, cuda::Type::float32})
    for (const std::int64_t units : {1024, 4096}) {
      if (!quick || units == 1024) products_of(type, rows, units, quick ? 1 : 10);
    }
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const Arguments given(argc, argv);
  if (!has_device()) {
    std::puts("there is no GPU here, or LibTorch's CUDA half does not load");
    return 77;
  }
  if (given.wants("top_k")) top_k(given.quick);
  if (given.wants("products")) products(given.quick);
}
