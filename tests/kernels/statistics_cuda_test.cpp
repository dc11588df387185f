// The numbers of tensors on a CUDA device against ones in long double. Nothing is checked where there is no
// device.
#ifdef TRAINYARD_CUDA
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <memory>

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/statistics.hpp"
#include "kernels/statistics_oracle.hpp"

namespace statistics_cuda_tests {

namespace {

using namespace trainyard::kernels::cuda;
using namespace trainyard::test;

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};

bool without_device() {
  if (!available()) WARN("no CUDA device: nothing is checked");
  return !available();
}

/// Tensors on the device, and the numbers that they hold there.
class Tensors {
 public:
  /// `skip` elements behind an address that is aligned for everything.
  template <class T>
  void add(Dtype dtype, const Doubles& values, std::size_t skip) {
    std::vector<T> held(skip);
    Doubles& there = values_.emplace_back();
    for (const double each : values) {
      if constexpr (std::is_same_v<T, double>)
        there.push_back(held.emplace_back(each));
      else
        there.push_back(static_cast<double>(static_cast<float>(held.emplace_back(static_cast<float>(each)))));
    }
    void* place = nullptr;
    REQUIRE(cudaMalloc(&place, held.size() * sizeof(T) + 1) == cudaSuccess);
    memory_.emplace_back(place);
    REQUIRE(cudaMemcpy(place, held.data(), held.size() * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    views_.push_back({static_cast<T*>(place) + skip, std::ssize(there), dtype});
  }
  void add_all(const Doubles& values, std::size_t skip) {
    add<float>(Dtype::float32, values, skip);
    add<__half>(Dtype::float16, values, skip);
    add<__nv_bfloat16>(Dtype::bfloat16, values, skip);
    add<double>(Dtype::float64, values, skip);
  }
  const std::vector<View>& views() const { return views_; }
  const Doubles& values(std::size_t i) const { return values_[i]; }

 private:
  std::vector<View> views_;
  std::vector<Doubles> values_;
  std::vector<std::unique_ptr<void, Free>> memory_;
};

bool equal(std::span<const Numbers> a, std::span<const Numbers> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Numbers& x, const Numbers& y) { return same(x, y); });
}

}  // namespace

TEST_CASE("CUDA: one launch has the numbers of all tensors, whatever their lengths, dtypes and addresses") {
  if (without_device()) return;
  Tensors tensors;
  std::vector<const char*> names;
  for (const Sample& sample : samples(false))
    for (const std::size_t skip : {0, 1, 3}) {
      tensors.add_all(sample.values, skip);
      names.insert(names.end(), 4, sample.name);
    }
  for (const Sample& sample : samples(true)) {
    tensors.add<double>(Dtype::float64, sample.values, 0);
    names.push_back(sample.name);
  }
  MultiStatistics statistics;
  CHECK(statistics.ready());
  CHECK(statistics.results().empty());
  statistics.launch(tensors.views(), nullptr);
  const std::span<const Numbers> found = statistics.results();
  CHECK(statistics.ready());
  REQUIRE(found.size() == tensors.views().size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO(names[i] << ", " << tensors.values(i).size() << " elements of dtype "
                  << static_cast<int>(tensors.views()[i].dtype));
    check_same(found[i], expected_numbers(tensors.values(i)));
  }

  // To the bit: again, alone, and wherever the tensor lies.
  MultiStatistics other;
  other.launch(tensors.views(), nullptr);
  CHECK(equal(found, other.results()));
  for (std::size_t i = 0; i < found.size(); i += 17) {
    other.launch(std::span(tensors.views()).subspan(i, 1), nullptr);
    CHECK(equal(found.subspan(i, 1), other.results()));
  }
  for (std::size_t i = 0; i + 12 <= 12 * samples(false).size(); i += 12)
    for (std::size_t j = 4; j < 12; ++j) CHECK(equal(found.subspan(i + j % 4, 1), found.subspan(i + j, 1)));
}

TEST_CASE("CUDA: several launches are under way at once, and each reads what was there at its place") {
  if (without_device()) return;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  constexpr std::size_t count = 3'000'001, steps = 20;
  Tensors tensors;
  tensors.add<float>(Dtype::float32, Doubles(count, 0.0), 0);
  void* const memory = const_cast<void*>(tensors.views()[0].data);
  MultiStatistics statistics[4];
  for (std::size_t step = 0; step < steps; ++step) {
    if (step >= 3) {
      const std::span<const Numbers> found = statistics[(step - 3) % 4].results();
      REQUIRE(found.size() == 1);
      unsigned bits = 0x01010101u * static_cast<unsigned>(step - 3);
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      CHECK(found[0].minimum == static_cast<double>(value));
      CHECK(found[0].maximum == static_cast<double>(value));
      CHECK(found[0].count == static_cast<std::int64_t>(count));
    }
    REQUIRE(cudaMemsetAsync(memory, static_cast<int>(step), count * sizeof(float), stream) == cudaSuccess);
    statistics[step % 4].launch(tensors.views(), stream);
  }
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  for (const MultiStatistics& each : statistics) CHECK(each.ready());
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("CUDA: lists of nothing, and what is no tensor") {
  if (without_device()) return;
  MultiStatistics statistics;
  statistics.launch({}, nullptr);
  CHECK(statistics.results().empty());
  const View empty[2] = {};
  statistics.launch(empty, nullptr);
  REQUIRE(statistics.results().size() == 2);
  check_same(statistics.results()[1], Numbers());
  const View bad[1] = {{nullptr, 3, Dtype::float32}};
  CHECK_THROWS_AS(statistics.launch(bad, nullptr), std::invalid_argument);
  CHECK(statistics.results().size() == 2);
}

}  // namespace statistics_cuda_tests

#endif
