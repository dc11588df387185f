// The arithmetic of kernels/cuda/statistics.cu, on the host: how a list of tensors is divided, what a thread
// adds up, how parts are put together.
#include <catch2/catch.hpp>

#include "kernels/cuda/tally.hpp"
#include "kernels/statistics_oracle.hpp"
#include "support/host_tally.hpp"

namespace tally_tests {

using namespace trainyard::kernels::cuda;
using namespace trainyard::test;

namespace {

template <class T>
void check_all(Dtype dtype) {
  for (const Sample& sample : samples(std::is_same_v<T, double>)) {
    std::vector<T> held;
    Doubles values;
    for (const double each : sample.values) values.push_back(held.emplace_back(static_cast<T>(each)));
    INFO(sample.name << ", " << values.size());
    const Numbers expected = expected_numbers(values);
    check_same(tallied<T>(held.data(), std::ssize(held), dtype), expected);

    // At an address that no vector is aligned to, to the bit.
    std::vector<T> moved(held.size() + 1);
    std::copy(held.begin(), held.end(), moved.begin() + 1);
    const Numbers there = tallied<T>(moved.data() + 1, std::ssize(held), dtype);
    const Numbers here = tallied<T>(held.data(), std::ssize(held), dtype);
    CHECK(same(there, here));
  }
}

}  // namespace

TEST_CASE("tallies of threads, put together, are the numbers of the tensor") {
  check_all<float>(Dtype::float32);
  check_all<double>(Dtype::float64);
}

TEST_CASE("parts may be put together anywhere") {
  std::mt19937_64 random(5);
  for (const Sample& sample : samples(true)) {
    INFO(sample.name << ", " << sample.values.size());
    Numbers all;
    for (std::size_t first = 0; first < sample.values.size();) {
      const std::size_t count = std::min<std::size_t>(sample.values.size() - first, random() % 20000);
      append(all, tallied<double>(sample.values.data() + first, static_cast<std::int64_t>(count),
                                  Dtype::float64, false));
      first += count;
    }
    check_same(finished(all), expected_numbers(sample.values));
  }
}

TEST_CASE("every element is in one chunk of its tensor, in order") {
  alignas(8) static const unsigned char base[1024] = {};  // nothing is read
  std::vector<View> tensors;
  const std::int64_t lengths[] = {0,
                                  1,
                                  0,
                                  chunk_size - 1,
                                  chunk_size,
                                  chunk_size + 1,
                                  0,
                                  5 * chunk_size + 17,
                                  (std::int64_t{1} << 32) + 5};
  for (const Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16})
    for (const std::int64_t length : lengths)
      tensors.push_back({length == 0 ? nullptr : base + 8 * tensors.size(), length, dtype});
  const Partition parts = partition(tensors);
  REQUIRE(parts.firsts.size() == tensors.size() + 1);
  CHECK(parts.firsts.front() == 0);
  CHECK(parts.firsts.back() == std::ssize(parts.chunks));
  bool good = true;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::int64_t done = 0;
    for (std::int32_t number = parts.firsts[i]; number < parts.firsts[i + 1]; ++number) {
      const Chunk& chunk = parts.chunks[static_cast<std::size_t>(number)];
      good = good && chunk.dtype == tensors[i].dtype &&
             chunk.data ==
                 static_cast<const unsigned char*>(tensors[i].data) + done * size_of(tensors[i].dtype) &&
             chunk.count > 0 && chunk.count <= chunk_size &&
             (chunk.count == chunk_size || number + 1 == parts.firsts[i + 1]);
      done += chunk.count;
    }
    CHECK(done == tensors[i].count);
  }
  CHECK(good);
  CHECK(partition({}).firsts == std::vector<std::int32_t>{0});
}

TEST_CASE("a thread takes what no other takes") {
  // Of powers of two that are added up, each shows once.
  std::vector<double> values(chunk_size);
  for (const std::int32_t count : {1, 2, 3, 511, 513, 5000, chunk_size - 1, chunk_size}) {
    std::int64_t elements = 0;
    for (std::int32_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i + 1;
    double sum = 0;
    for (std::int32_t thread = 0; thread < threads_of_chunk; ++thread) {
      const Tally<double> tally = tally_of(values.data(), count, thread, 0.0);
      sum += tally.sum;
      elements += static_cast<std::int64_t>(tally.squares > 0);
    }
    CHECK(sum == 0.5 * count * (count + 1.0));
    CHECK(elements == std::min<std::int64_t>((count + 1) / 2, threads_of_chunk));
  }
}

TEST_CASE("what is no tensor is refused in words") {
  using Catch::Matchers::Contains;
  alignas(8) static const double numbers[2] = {};
  const View good{numbers, 2, Dtype::float64};
  const auto refused = [&](const View& bad) {
    try {
      partition(std::vector<View>{good, bad});
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(refused({numbers, -1, Dtype::float32}), Contains("tensor 1 has -1 elements"));
  CHECK_THAT(refused({nullptr, 1, Dtype::float32}), Contains("no data"));
  CHECK_THAT(refused({reinterpret_cast<const unsigned char*>(numbers) + 4, 1, Dtype::float64}),
             Contains("not aligned to its elements of 8 bytes"));
  CHECK_THAT(refused({numbers, std::int64_t{1} << 50, Dtype::float32}), Contains("more chunks"));
}

}  // namespace tally_tests
