#include "core/engine/train/data_loader.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>

#include <catch2/catch.hpp>

#include "support/files.hpp"
#include "support/plugin.hpp"

namespace loader_tests {

using namespace trainyard;
using data::Loader;
using data::LoaderOptions;
using data::StepData;
using test::make;
using test::message_of;
using test::table;

namespace {

/// Sample i is the number i; `before_read` is called with the indices of each read.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  void open(const std::string&) override {}
  std::int64_t size() const override { return size_; }
  BatchSchema schema() const override {
    return {.inputs = {{"x", {}, at::kLong}}, .target = {"y", {}, at::kLong}};
  }
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override {
    if (before_read) before_read(indices);
    Batch batch;
    batch.inputs.push_back(at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong));
    batch.target = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
    std::copy(indices.begin(), indices.end(), batch.inputs[0].mutable_data_ptr<std::int64_t>());
    // The target tells where in the run the sample was read, as an augmentation would see it.
    for (std::size_t i = 0; i < indices.size(); ++i)
      batch.target.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(
          context.random.bits(static_cast<std::uint64_t>(context.position) + i) >> 1);
    return batch;
  }
  std::function<void(std::span<const std::int64_t>)> before_read;

 private:
  std::int64_t size_;
};

LoaderOptions options(std::int64_t batch, std::int64_t micro, int workers, bool drop_last = false) {
  return {.batch_size = batch,
          .micro_batch_size = micro,
          .drop_last = drop_last,
          .workers = workers,
          .random = RandomStream(5, "data/train")};
}

std::unique_ptr<Sampler> shuffled(std::int64_t size) {
  auto sampler = make<Sampler>("random");
  sampler->open({size, RandomStream(5, "sampler"), {}});
  return sampler;
}

/// All that a consumer can see of a step.
struct Seen {
  std::int64_t epoch, step;
  std::vector<std::int64_t> sizes, indices, targets;
  bool operator==(const Seen&) const = default;
};

Seen see(const StepData& step) {
  Seen seen{.epoch = step.epoch, .step = step.step};
  for (const Batch& batch : step.batches) {
    seen.sizes.push_back(batch.size());
    const auto* x = batch.input().const_data_ptr<std::int64_t>();
    CHECK(std::equal(batch.indices.begin(), batch.indices.end(), x));
    seen.indices.insert(seen.indices.end(), x, x + batch.size());
    const auto* y = batch.target.const_data_ptr<std::int64_t>();
    seen.targets.insert(seen.targets.end(), y, y + batch.size());
  }
  return seen;
}

std::vector<Seen> take(Loader& loader, int steps) {
  std::vector<Seen> seen;
  seen.reserve(static_cast<std::size_t>(steps));
  for (int i = 0; i < steps; ++i) seen.push_back(see(loader.next().value()));
  return seen;
}

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

}  // namespace

TEST_CASE("loader: steps, micro-batches and weights, ragged ends included") {
  const Numbers numbers(23);
  for (int workers : {0, 3}) {
    Loader loader(numbers, nullptr, options(10, 4, workers));
    CHECK(loader.steps_per_epoch() == 3);
    CHECK(loader.samples_per_epoch() == 23);
    std::vector<std::vector<std::size_t>> sizes;
    for (int i = 0; i < 3; ++i) {
      const StepData step = loader.next().value();
      CHECK(step.epoch == 0);
      CHECK(step.step == i);
      CHECK(step.samples == (i < 2 ? 10 : 3));
      CHECK(step.weight == static_cast<double>(step.samples));
      sizes.emplace_back();
      for (const Batch& batch : step.batches) sizes.back().push_back(batch.indices.size());
    }
    CHECK(sizes == std::vector<std::vector<std::size_t>>{{4, 4, 2}, {4, 4, 2}, {3}});
    const StepData next = loader.next().value();
    CHECK(next.epoch == 1);
    CHECK(next.batches[0].indices == std::vector<std::int64_t>{0, 1, 2, 3});

    Loader dropping(numbers, nullptr, options(10, 10, workers, true));
    CHECK(dropping.steps_per_epoch() == 2);
    CHECK(dropping.samples_per_epoch() == 20);
    CHECK(take(dropping, 3)[2].epoch == 1);
  }
}

TEST_CASE("loader: weights come from the function given") {
  const Numbers numbers(5);
  for (int workers : {0, 2}) {
    LoaderOptions weighted = options(4, 2, workers);
    weighted.weight = [](const Batch& batch) { return 10.0 * static_cast<double>(batch.indices[0]); };
    Loader loader(numbers, nullptr, weighted);
    const StepData step = loader.next().value();
    CHECK(step.batches[0].weight == 0.0);
    CHECK(step.batches[1].weight == 20.0);
    CHECK(step.weight == 20.0);
    CHECK(loader.next()->weight == 40.0);
  }
}

TEST_CASE("loader: the same steps for 0, 1 and 4 workers, also where reads take unequal time") {
  Numbers numbers(101);
  const auto sampler = shuffled(101);
  Loader reference(numbers, sampler.get(), options(8, 3, 0));
  const auto expected = take(reference, 60);
  numbers.before_read = [](auto indices) {
    if (indices[0] % 5 == 0) sleep_ms(3);
  };
  for (int workers : {1, 4})
    for (int prefetch : {1, 3}) {
      LoaderOptions given = options(8, 3, workers);
      given.prefetch = prefetch;
      Loader loader(numbers, sampler.get(), given);
      CHECK((take(loader, 60) == expected));
    }
}

TEST_CASE("loader: an epoch is an exact permutation, and epochs differ") {
  const Numbers numbers(1000);
  const auto sampler = shuffled(1000);
  Loader loader(numbers, sampler.get(), options(64, 16, 2));
  std::vector<std::int64_t> epochs[2];
  for (auto& epoch : epochs)
    for (std::int64_t i = 0; i < loader.steps_per_epoch(); ++i) {
      const Seen step = see(*loader.next());
      epoch.insert(epoch.end(), step.indices.begin(), step.indices.end());
    }
  CHECK(epochs[0] != epochs[1]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    std::vector<std::int64_t> all(1000);
    std::iota(all.begin(), all.end(), 0);
    CHECK(epoch == all);
  }
}

TEST_CASE("loader: seek goes anywhere and reads nothing on the way") {
  Numbers numbers(100);
  const auto sampler = shuffled(100);
  Loader reference(numbers, sampler.get(), options(7, 7, 0));
  const auto expected = take(reference, 15 * 4);
  std::atomic<std::int64_t> reads = 0;
  numbers.before_read = [&](auto) { ++reads; };
  for (int workers : {0, 1, 4}) {
    Loader loader(numbers, sampler.get(), options(7, 7, workers));
    for (const int position : {31, 0, 59, 14, 15, 16, 16, 44}) {
      loader.seek(position / 15, position % 15);
      REQUIRE((see(*loader.next()) == expected[static_cast<std::size_t>(position)]));
    }
    loader.seek(1, 15);  // the end of an epoch is the beginning of the next
    CHECK((see(*loader.next()) == expected[30]));
    reads = 0;
    loader.seek(1'000'000'000, 3);
    CHECK(loader.next()->epoch == 1'000'000'000);
    CHECK(reads <= 1 + 2 * 2 * workers);
  }
}

TEST_CASE("loader: ends after its epochs and can begin again") {
  const Numbers numbers(10);
  for (int workers : {0, 1, 4}) {
    LoaderOptions once = options(4, 4, workers);
    once.epochs = 1;
    Loader loader(numbers, nullptr, once);
    for (int pass = 0; pass < 3; ++pass) {
      loader.seek(0, 0);
      std::int64_t samples = 0;
      while (const auto step = loader.next()) samples += step->samples;
      CHECK(samples == 10);
      CHECK(!loader.next());
    }
  }
}

TEST_CASE("loader: workers read ahead, no further than the ring, and across the end of an epoch") {
  Numbers numbers(6);
  std::atomic<int> reads = 0;
  numbers.before_read = [&](auto) { ++reads; };
  LoaderOptions given = options(1, 1, 2);
  given.prefetch = 4;
  Loader loader(numbers, nullptr, given);
  sleep_ms(20);
  CHECK(reads == 0);  // it does not know yet where to begin
  loader.seek(0, 0);
  for (int waited = 0; reads < 8 && waited < 5000; ++waited) sleep_ms(1);
  sleep_ms(20);
  CHECK(reads == 8);  // 2 workers x 4, of an epoch of 6
  loader.next();
  for (int waited = 0; reads < 9 && waited < 5000; ++waited) sleep_ms(1);
  sleep_ms(20);
  CHECK(reads == 9);
}

TEST_CASE("loader: what a worker's read throws arrives at its step, type and message kept") {
  struct Odd {
    int number;
  };
  Numbers numbers(50);
  numbers.before_read = [](auto indices) {
    if (indices[0] == 20) throw DataError("faces.bin: record 20 is cut short");
    if (indices[0] == 30) throw Odd{7};
  };
  for (int workers : {0, 1, 4}) {
    Loader loader(numbers, nullptr, options(10, 10, workers));
    take(loader, 2);
    CHECK(message_of<DataError>([&] { loader.next(); }) == "faces.bin: record 20 is cut short");
    try {
      loader.next();
      FAIL("no exception");
    } catch (const Odd& odd) {
      CHECK(odd.number == 7);
    }
    CHECK(loader.next()->step == 4);
    loader.seek(0, 2);
    CHECK_THROWS_AS(loader.next(), DataError);
  }
}

TEST_CASE("loader: a consumer may leave at any time") {
  Numbers numbers(1000);
  numbers.before_read = [](auto) { sleep_ms(2); };
  for (int taken : {0, 1, 5}) {
    const auto start = std::chrono::steady_clock::now();
    {
      Loader loader(numbers, nullptr, options(1, 1, 4));
      take(loader, taken);
    }
    // Joins wait for the reads under way, not for the thousand to come.
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
  }
  Numbers failing(1000);
  failing.before_read = [](auto) { throw DataError("never seen"); };
  Loader loader(failing, nullptr, options(1, 1, 4));
}

TEST_CASE("loader: a dataset or sampler that breaks its contract is named") {
  struct Stray final : Sampler {
    void open(const Source&) override {}
    std::int64_t size() const override { return 10; }
    void order(std::int64_t, std::int64_t first, std::span<std::int64_t> out) const override {
      std::iota(out.begin(), out.end(), first + 3);
    }
  } stray;
  const Numbers numbers(10);
  Loader loader(numbers, &stray, options(5, 5, 1));
  loader.next();
  CHECK_THAT(message_of<PluginError>([&] { loader.next(); }),
             Catch::Contains("the sampler gave sample 10 in epoch 0; the dataset has 10"));

  struct Short final : Dataset {
    void open(const std::string&) override {}
    std::int64_t size() const override { return 10; }
    BatchSchema schema() const override {
      return {.inputs = {{.name = "x", .shape = {}, .rows = rows}}, .target = {.name = "y", .shape = {}}};
    }
    Batch read(std::span<const std::int64_t>, const ReadContext&) const override {
      return {.inputs = {at::empty({3})}, .target = target};
    }
    Rows rows = Rows::sample;
    at::Tensor target = at::empty({5});
  } few;
  const auto refused = [&] {
    Loader broken(few, nullptr, options(5, 5, 1));
    return message_of<PluginError>([&] { broken.next(); });
  };
  CHECK_THAT(refused(), Catch::Contains("was asked for 5 samples and gave 3 rows of \"x\", not 5"));
  few.rows = Rows::offsets;
  CHECK_THAT(refused(), Catch::Contains("gave 3 rows of \"x\", not 6"));
  few.rows = Rows::free;
  few.target = at::empty({4});
  CHECK_THAT(refused(), Catch::Contains("gave 4 rows of \"y\", not 5"));
  few.target = at::Tensor();
  CHECK_THAT(refused(), Catch::Contains("gave no rows of \"y\""));
}

TEST_CASE("loader: fields of free rows, of offsets, and no targets come through") {
  /// Sample i has i % 3 rows, each of which says i.
  struct Ragged final : Dataset {
    void open(const std::string&) override {}
    std::int64_t size() const override { return 20; }
    BatchSchema schema() const override {
      return {.inputs = {{.name = "value", .shape = {}, .dtype = at::kLong, .rows = Rows::free},
                         {.name = "offsets", .shape = {}, .dtype = at::kLong, .rows = Rows::offsets}},
              .target = {},
              .has_target = false};
    }
    Batch read(std::span<const std::int64_t> indices, const ReadContext&) const override {
      std::vector<std::int64_t> values, offsets = {0};
      for (const std::int64_t index : indices) {
        values.insert(values.end(), static_cast<std::size_t>(index % 3), index);
        offsets.push_back(static_cast<std::int64_t>(values.size()));
      }
      return {.inputs = {at::tensor(values, at::kLong), at::tensor(offsets, at::kLong)}, .target = {}};
    }
  } ragged;
  for (const int workers : {0, 2}) {
    LoaderOptions four = options(4, 4, workers);
    four.view = train::View("take", config::parse_take("all but first 3").value(), 20);
    Loader loader(ragged, nullptr, std::move(four));
    CHECK(loader.samples_per_epoch() == 17);
    std::int64_t sample = 3, steps = 0;
    for (; steps < loader.steps_per_epoch(); ++steps) {
      const StepData step = loader.next().value();
      const Batch& batch = step.batches.front();
      CHECK_FALSE(batch.target.defined());
      const auto* value = batch.inputs[0].const_data_ptr<std::int64_t>();
      const auto* offset = batch.inputs[1].const_data_ptr<std::int64_t>();
      for (std::size_t i = 0; i < batch.indices.size(); ++i, ++sample) {
        CHECK(batch.indices[i] == sample);
        CHECK(offset[i + 1] - offset[i] == sample % 3);
        for (std::int64_t row = offset[i]; row < offset[i + 1]; ++row) CHECK(value[row] == sample);
      }
    }
    CHECK(sample == 20);
    CHECK(steps == 5);
  }
}

TEST_CASE("loader: drop_last that leaves nothing is a config error") {
  const Numbers numbers(10);
  CHECK_THAT(message_of<ConfigError>([&] { Loader(numbers, nullptr, options(11, 11, 0, true)); }),
             Catch::Contains("batch_size = 11") && Catch::Contains("10 samples"));
  CHECK(Loader(numbers, nullptr, options(11, 11, 0)).steps_per_epoch() == 1);
}

TEST_CASE("loader: a shipped dataset reads the same with any number of workers, augmentation included") {
  const test::TempFolder folder;
  std::string records;
  for (int i = 0; i < 60; ++i)
    for (int b = 0; b < 3073; ++b) records += static_cast<char>(b == 0 ? i % 10 : b * (i + 3) % 251);
  auto dataset = make<Dataset>(
      "cifar",
      table({{"files", Array{folder.write("a.bin", records)}}, {"crop_padding", 4}, {"flip", true}}));
  dataset->open("train");
  const auto sampler = shuffled(60);
  const auto pixels = [&](int workers, std::int64_t micro) {
    Loader loader(*dataset, sampler.get(), options(12, micro, workers));
    std::vector<float> all;
    for (int i = 0; i < 10; ++i) {
      const StepData step = loader.next().value();
      for (const Batch& batch : step.batches) {
        const float* data = batch.input().const_data_ptr<float>();
        all.insert(all.end(), data, data + batch.input().numel());
      }
    }
    return all;
  };
  const auto expected = pixels(0, 12);
  CHECK(pixels(1, 12) == expected);
  CHECK(pixels(4, 12) == expected);
  CHECK(pixels(4, 5) == expected);  // nor does the size of micro-batches matter
}

}  // namespace loader_tests
