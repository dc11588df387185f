// Samples a second of the loader against torch::data::DataLoader, over 60000 images of 28 x 28 bytes in
// memory that become normalised floats in shuffled batches of 64. Each contender gives a whole epoch in turn.
#include <torch/data.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/engine/train/data_loader.hpp"
#include "core/engine/train/memory.hpp"
#include "support/plugin.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

constexpr std::int64_t side = 28, batch_size = 64;
std::int64_t images = 60000;
constexpr double mean = 0.2860, deviation = 0.3530;

/// What an epoch gave, so that contenders can be seen to have done the same work.
struct Total {
  std::int64_t samples = 0, labels = 0;
  void add(const at::Tensor& target) {
    samples += target.size(0);
    const auto* label = target.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < target.size(0); ++i) labels += label[i];
  }
};

/// As most programs have it: one sample a call, collated by Stack.
struct ImagePerCall : torch::data::datasets::Dataset<ImagePerCall> {
  torch::Tensor data, labels;
  ImagePerCall(torch::Tensor data, torch::Tensor labels) : data(std::move(data)), labels(std::move(labels)) {}
  torch::data::Example<> get(std::size_t i) override {
    const auto index = static_cast<std::int64_t>(i);
    return {data[index].to(torch::kFloat).div_(255.0).sub_(mean).div_(deviation), labels[index]};
  }
  torch::optional<std::size_t> size() const override { return images; }
};

/// As one who knows may write it: one call a batch.
struct BatchPerCall : torch::data::datasets::BatchDataset<BatchPerCall, torch::data::Example<>> {
  torch::Tensor data, labels;
  BatchPerCall(torch::Tensor data, torch::Tensor labels) : data(std::move(data)), labels(std::move(labels)) {}
  torch::data::Example<> get_batch(torch::ArrayRef<std::size_t> request) override {
    torch::Tensor rows = torch::empty({static_cast<std::int64_t>(request.size())}, torch::kLong);
    std::copy(request.begin(), request.end(), rows.mutable_data_ptr<std::int64_t>());
    return {data.index_select(0, rows).to(torch::kFloat).div_(255.0).sub_(mean).div_(deviation),
            labels.index_select(0, rows)};
  }
  torch::optional<std::size_t> size() const override { return images; }
};

template <class DataLoader>
Total epoch_of_torch(DataLoader& loader) {
  Total total;
  for (auto& batch : loader) total.add(batch.target);
  return total;
}

Total epoch_of_ours(data::Loader& loader) {
  Total total;
  for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const data::StepData data = loader.next().value();
    total.add(data.batches[0].target);
  }
  return total;
}

std::string big_endian(std::int64_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

/// Fixed noise, as IDX files for us and as tensors for torch::data.
struct Data {
  torch::Tensor pixels, labels;
  std::unique_ptr<Dataset> dataset =
      test::make<Dataset>("idx", test::table({{"images", path("images").c_str()},
                                              {"labels", path("labels").c_str()},
                                              {"mean", Array{mean}},
                                              {"std", Array{deviation}}}));

  Data() {
    const RandomStream random(1, "bench/loader");
    pixels = torch::empty({images, 1, side, side}, torch::kByte);
    labels = torch::empty({images}, torch::kLong);
    auto* pixel = pixels.mutable_data_ptr<std::uint8_t>();
    auto* label = labels.mutable_data_ptr<std::int64_t>();
    std::string label_bytes;
    for (std::int64_t i = 0; i < images * side * side / 8; ++i) {
      const std::uint64_t bits = random.bits(static_cast<std::uint64_t>(i));
      std::memcpy(pixel + 8 * i, &bits, 8);
    }
    for (std::int64_t i = 0; i < images; ++i) {
      label[i] = i * 7 % 10;
      label_bytes += static_cast<char>(label[i]);
    }
    std::ofstream(path("images"), std::ios::binary)
        << big_endian(0x0803) + big_endian(images) + big_endian(side) + big_endian(side)
        << std::string_view(reinterpret_cast<const char*>(pixel),
                            static_cast<std::size_t>(images * side * side));
    std::ofstream(path("labels"), std::ios::binary) << big_endian(0x0801) + big_endian(images) + label_bytes;
    dataset->open("train");
    std::filesystem::remove(path("images"));
    std::filesystem::remove(path("labels"));
  }

  static std::string path(const std::string& name) {
    return (std::filesystem::temp_directory_path() /
            ("trainyard-bench-" + std::to_string(getpid()) + "-" + name))
        .string();
  }
};

bool same_images(const Data& data) {
  const std::vector<std::int64_t> rows = {0, 1, images / 2 + 1234, images - 1};
  const Batch ours = data.dataset->read(rows, {RandomStream(1, "data"), 0});
  ImagePerCall theirs(data.pixels, data.labels);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (!ours.input()[static_cast<std::int64_t>(i)].allclose(
            theirs.get(static_cast<std::size_t>(rows[i])).data))
      return false;
  return true;
}

int run(bool quick) {
  if (quick) images = 6000;
  Data data;
  const auto sampler = test::make<Sampler>("random");
  sampler->open({images, RandomStream(1, "sampler"), {}});
  bool done = same_images(data);
  for (const int workers : {0, 2}) {
    const auto options =
        torch::data::DataLoaderOptions(batch_size).workers(static_cast<std::size_t>(workers));
    const auto per_image = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        ImagePerCall(data.pixels, data.labels).map(torch::data::transforms::Stack<>()), options);
    const auto per_batch = torch::data::make_data_loader(
        BatchPerCall(data.pixels, data.labels), torch::data::samplers::RandomSampler(images), options);
    data::Loader ours(*data.dataset, sampler.get(),
                      {.batch_size = batch_size,
                       .micro_batch_size = batch_size,
                       .workers = workers,
                       .random = RandomStream(1, "data")});
    std::vector<Total> totals(3);
    const std::vector<Contender> contenders = {
        {"torch::data, get() and Stack", [&] { totals[0] = epoch_of_torch(*per_image); }},
        {"torch::data, get_batch()", [&] { totals[1] = epoch_of_torch(*per_batch); }},
        {"trainyard", [&] { totals[2] = epoch_of_ours(ours); }}};
    const std::vector<Times> times = contest(contenders, quick ? 2 : 15);
    std::printf("%d workers, an epoch of %lld images in batches of %lld\n  %-32s %14s %22s\n", workers,
                static_cast<long long>(images), static_cast<long long>(batch_size), "", "samples/s",
                "times the first line");
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const double seconds = percentile(times[i].wall, 0.5);
      std::printf("  %-32s %14.0f %21.2fx%s\n", contenders[i].name.c_str(),
                  static_cast<double>(images) / seconds, percentile(times[0].wall, 0.5) / seconds,
                  i == 2 ? "  (bar 1.5x)" : "");
      done = done && totals[i].samples == images && totals[i].labels == totals[0].labels;
    }
  }
  if (!done) std::fprintf(stderr, "bench loader: the contenders did not give the same samples\n");
  return done ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  trainyard::train::keep_large_blocks();  // as the host does; torch::data gains as well
  return trainyard::bench::run(argc > 1 && std::strcmp(argv[1], "--quick") == 0);
}
