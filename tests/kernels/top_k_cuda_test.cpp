// The selection on a CUDA device against the one on the CPU. Nothing is checked where there is no device.
#ifdef TRAINYARD_CUDA
#include <cuda_runtime.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <stdexcept>

#include "kernels/cpu/top_k.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/top_k.hpp"
#include "kernels/top_k_oracle.hpp"

namespace top_k_cuda_tests {

namespace {

using namespace trainyard::kernels;
using namespace trainyard::test;

bool without_device() {
  if (!cuda::available()) WARN("no CUDA device: nothing is checked");
  return !cuda::available();
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};

/// `skip` elements behind an address that is aligned for everything.
template <class T>
class Array {
 public:
  explicit Array(const std::vector<T>& values, std::size_t skip = 0) : count_(values.size()), skip_(skip) {
    void* place = nullptr;
    REQUIRE(cudaMalloc(&place, (count_ + skip) * sizeof(T) + 1) == cudaSuccess);
    memory_.reset(place);
    REQUIRE(cudaMemcpy(data(), values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  T* data() const { return static_cast<T*>(memory_.get()) + skip_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    REQUIRE(cudaMemcpy(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }

 private:
  std::size_t count_, skip_;
  std::unique_ptr<void, Free> memory_;
};

struct Found {
  Indices indices;
  Floats values;
  Selected selected;
};

Found on_cpu(TopK& top_k, const Floats& x, std::int64_t k, const Selection& how, std::uint64_t random) {
  Found found{Indices(static_cast<std::size_t>(k)), Floats(static_cast<std::size_t>(k)), {}};
  found.selected = top_k.select(x, how, random, found.indices, found.values);
  return found;
}

Found on_device(cuda::TopK& top_k, const Floats& x, std::int64_t k, const Selection& how,
                std::uint64_t random) {
  const Array<float> there(x, random % 4);
  const Array<std::int32_t> indices(Indices(static_cast<std::size_t>(k), -1));
  const Array<float> values(Floats(static_cast<std::size_t>(k), -7.5f));
  top_k.select(there.data(), std::ssize(x), how, random, k, indices.data(), values.data(), nullptr);
  const Selected selected = top_k.selected();
  return {indices.read(), values.read(), selected};
}

bool same_values(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check_exact(TopK& cpu, cuda::TopK& device, const Floats& x, std::int64_t k, std::uint64_t random) {
  for (const Method method : {Method::bitsearch, Method::radix, Method::exact}) {
    CAPTURE(x.size(), k, static_cast<int>(method));
    const Selection how{.method = method, .levels = static_cast<int>(1 + random % 4)};
    const Found expected = on_cpu(cpu, x, k, how, random), found = on_device(device, x, k, how, random);
    CHECK((found.indices == expected.indices));
    CHECK(same_values(found.values, expected.values));
    CHECK(found.selected.non_finite == expected.selected.non_finite);
    CHECK(found.selected.k1 <= k);
    CHECK(found.selected.k2 >= k);
  }
}

}  // namespace

TEST_CASE("CUDA: top-k, exact methods select what they select on the CPU") {
  if (without_device()) return;
  Random random(1);
  TopK cpu;
  cuda::TopK device;
  for (int i = 0; i < 1000; ++i) {
    const Floats x = adversarial(random, i % 10 == 0 ? 100'000 : 5'000);
    check_exact(cpu, device, x, some_k(random, x.size()), random());
  }
  std::normal_distribution<float> normal;
  Floats large(10'000'019);
  for (float& each : large) each = normal(random);
  for (const std::int64_t k : {1, 10'000, 100'000, 5'000'000, 10'000'018})
    check_exact(cpu, device, large, k, 3);
}

TEST_CASE("CUDA: top-k, mstopk selects all that is sure, and a stretch of the band") {
  if (without_device()) return;
  Random random(2);
  cuda::TopK device;
  for (int i = 0; i < 1000; ++i) {
    const Floats x = adversarial(random, i % 10 == 0 ? 100'000 : 5'000);
    const std::int64_t k = some_k(random, x.size());
    // From the minimum, which is the same on any device; the last bits of a mean are not.
    const Selection how{.method = Method::mstopk,
                        .samples = static_cast<int>(1 + random() % 35),
                        .start = i % 2 == 0 ? Start::minimum : Start::mean,
                        .levels = 1 + i % 4};
    const std::uint64_t place = random();
    CAPTURE(i, x.size(), k, how.samples, how.levels);
    const Found found = on_device(device, x, k, how, place);
    CHECK(std::ranges::adjacent_find(found.indices, std::greater_equal<>()) == found.indices.end());
    for (std::size_t j = 0; j < found.indices.size(); ++j)
      CHECK(std::memcmp(&found.values[j], &x[static_cast<std::size_t>(found.indices[j])], sizeof(float)) ==
            0);
    if (how.start == Start::mean) continue;
    TopK cpu;
    const Found expected = on_cpu(cpu, x, k, how, place);
    CHECK((found.indices == expected.indices));
    CHECK(found.selected.k1 == expected.selected.k1);
    CHECK(found.selected.k2 == expected.selected.k2);
    CHECK(found.selected.passes == expected.selected.passes);
  }
}

TEST_CASE("CUDA: top-k, selections that follow one another on a stream wait for none") {
  if (without_device()) return;
  Random random(3);
  TopK cpu;
  cuda::TopK device;
  constexpr std::size_t count = 300'000;
  constexpr std::int64_t k = 3'000;
  std::vector<Floats> tensors(20, Floats(count));
  std::vector<Array<float>> there, values;
  std::vector<Array<std::int32_t>> indices;
  std::normal_distribution<float> normal;
  for (Floats& x : tensors) {
    for (float& each : x) each = normal(random);
    there.emplace_back(x);
    values.emplace_back(Floats(k));
    indices.emplace_back(Indices(k));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    device.select(there[i].data(), count, {.method = i % 2 == 0 ? Method::radix : Method::bitsearch}, 0, k,
                  indices[i].data(), values[i].data(), nullptr);
  const Array<float> sum(Floats(count, 0.0f));
  for (std::size_t i = 0; i < tensors.size(); ++i)
    cuda::scatter_add(values[i].data(), indices[i].data(), k, sum.data(), nullptr);
  cuda::zero_at(indices[0].data(), k, there[0].data(), nullptr);
  Floats expected_sum(count, 0.0f);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Found expected = on_cpu(cpu, tensors[i], k, {}, 0);
    CHECK((indices[i].read() == expected.indices));
    CHECK(same_values(values[i].read(), expected.values));
    scatter_add(expected.values, expected.indices, expected_sum);
    if (i == 0) zero_at(expected.indices, tensors[0]);
  }
  CHECK(same_values(sum.read(), expected_sum));
  CHECK(same_values(there[0].read(), tensors[0]));
}

TEST_CASE("CUDA: top-k, what is not as described is refused") {
  if (without_device()) return;
  cuda::TopK device;
  CHECK_THROWS_AS(device.select(nullptr, 3, {}, 0, 4, nullptr, nullptr, nullptr), std::invalid_argument);
  CHECK_THROWS_AS(device.select(nullptr, 3, {.levels = 5}, 0, 2, nullptr, nullptr, nullptr),
                  std::invalid_argument);
  CHECK(device.selected().passes == 0);
}

}  // namespace top_k_cuda_tests

#endif
