// The dataset cache before a source of limited rate: the time for which the loop waits for its input, epoch by
// epoch. The rate is emulated (plugins/dataset/throttled.cpp). Samples are the signs of TRAINYARD_DATA, scaled
// to 224 x 224 and written as JPEG files; nothing is trained.
#include <ATen/ops/upsample_bilinear2d.h>
#include <dlfcn.h>
#include <malloc.h>

#include <cstring>
#include <filesystem>

#include "core/engine/train/data_loader.hpp"
#include "core/engine/train/memory.hpp"
#include "support/jpeg_file.hpp"
#include "support/plugin.hpp"
#include "tools/bench/process.hpp"

namespace trainyard::bench {
namespace {

using test::table;

constexpr std::int64_t side = 224, epochs = 3;
constexpr double bar = 0.15;

std::string vision_data(const std::string& file) {
  const char* folder = std::getenv("TRAINYARD_DATA");
  return std::string(folder != nullptr ? folder : TRAINYARD_SOURCE_DIR "/../shared/data") + "/vision/" + file;
}

std::string real_data() {
  return vision_data("sign_digits/sign_digits_train.bin.gz");
}

/// At most `most` images, at FOLDER/CLASS/INDEX.jpg; gives their bytes.
std::uintmax_t write_images(const std::string& folder, std::int64_t most) {
  const auto signs =
      test::make<Dataset>("cifar", table({{"files", Array{real_data().c_str()}}, {"scale", 1.0}}));
  signs->open("val");
  std::uintmax_t bytes = 0;
  for (std::int64_t i = 0; i < std::min(most, signs->size()); ++i) {
    const Batch batch = signs->read(std::vector<std::int64_t>{i}, {RandomStream(0, "unused")});
    const at::Tensor large = at::upsample_bilinear2d(batch.input(), {side, side}, false)[0]
                                 .permute({1, 2, 0})
                                 .to(at::kByte)
                                 .contiguous();
    const std::string file =
        folder + "/" + std::to_string(batch.target.item<std::int64_t>()) + "/" + std::to_string(i) + ".jpg";
    test::write_jpeg(file, side, side, 3,
                     {large.const_data_ptr<std::uint8_t>(), std::size_t{3 * side * side}}, 95);
    bytes += std::filesystem::file_size(file);
  }
  return bytes;
}

/// Parts of plugins come from the benchmarks' folder, too.
class Parts final : public test::QuietHost {
 public:
  std::unique_ptr<Plugin> make(std::string_view kind, const Table& options) override {
    const std::string& type = options.find("type")->as<std::string>();
    std::unique_ptr<Plugin> made;
    if (type == "throttled" || type == "raw_images") {
      const std::string file = TRAINYARD_BENCH_PLUGINS "/dataset/lib" + type + ".so";
      void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle == nullptr) throw std::runtime_error(dlerror());
      const auto* entry = reinterpret_cast<const PluginEntry* (*)()>(dlsym(handle, "trainyard_plugin"))();
      made.reset(make_plugin(*entry, manifest_of(*entry), options).plugin);
    } else
      made = test::make(kind, type, options);
    made->set_host(*this);
    return made;
  }
};

std::unique_ptr<Dataset> open(const Table& options) {
  static Parts host;
  std::unique_ptr<Dataset> dataset(dynamic_cast<Dataset*>(host.make("dataset", options).release()));
  dataset->open("train");
  return dataset;
}

struct Epoch {
  double seconds = 0.0;  ///< that the loop waited
  std::string digest;    ///< of all batches
};

/// With a loader of its own, which reads no further.
Epoch epoch(const Dataset& dataset, std::int64_t number) {
  const auto sampler = test::make<Sampler>("random");
  sampler->open({dataset.size(), RandomStream(1, "sampler"), {}});
  data::Loader loader(dataset, sampler.get(),
                      {.batch_size = 64,
                       .micro_batch_size = 64,
                       .epochs = number + 1,
                       .workers = 2,
                       .random = RandomStream(1, "data/train")});
  State batches;
  Epoch found;
  const auto began = std::chrono::steady_clock::now();
  loader.seek(number, 0);
  while (std::optional<data::StepData> step = loader.next())
    batches.tensors.emplace(std::to_string(step->step), step->batches.front().input());
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  found.digest = digest(batches);
  return found;
}

std::vector<Epoch> three_epochs(const Dataset& dataset) {
  std::vector<Epoch> found;
  for (std::int64_t number = 0; number < epochs; ++number) found.push_back(epoch(dataset, number));
  return found;
}

/// Whether the batches are those of the source alone, and others in each epoch.
bool same_bits(const std::vector<Epoch>& found, const std::vector<Epoch>& alone) {
  bool same = found.size() == alone.size();
  for (std::size_t i = 0; same && i < found.size(); ++i) {
    same = found[i].digest == alone[i].digest;
    for (std::size_t k = 0; k < i; ++k) same = same && found[i].digest != found[k].digest;
  }
  return same;
}

void print(const char* name, const std::vector<Epoch>& found, const char* end) {
  std::printf("  %-34s", name);
  for (const Epoch& each : found) std::printf(" %8.3f", each.seconds);
  std::printf(" %9.3f %s\n", found[1].seconds / found[0].seconds, end);
}

/// One rate; false where the bar is missed, or bits differ.
bool measure(const std::string& images, double rate) {
  const Value files(table({{"type", "image_folder"},
                           {"path", images},
                           {"size", Array{64}},
                           {"crop_padding", 4},
                           {"flip", true}}));
  const Table remote = table({{"type", "throttled"}, {"of", Array{files}}, {"megabytes_per_second", rate}});
  std::printf("%.0f MB/s, emulated: input seconds of epoch 1, 2, 3; epoch 2 / epoch 1\n", rate);
  const std::vector<Epoch> alone = three_epochs(*open(remote));
  print("no cache", alone, "");
  const Folder disk, both;
  struct Way {
    const char* name;
    std::string disk;
    int memory;
    bool barred;
  };
  bool good = true;
  for (const Way& way : {Way{"disk", disk.path(), 0, false}, Way{"memory", "", 1024, true},
                         Way{"disk and memory", both.path(), 1024, true},
                         Way{"the same, in a process after that", both.path(), 1024, false}}) {
    const std::vector<Epoch> found = three_epochs(*open(table({{"type", "cache"},
                                                               {"of", Array{Value(remote)}},
                                                               {"disk", way.disk},
                                                               {"memory_budget", way.memory}})));
    const bool fast = !way.barred || std::max(found[1].seconds, found[2].seconds) <= bar * found[0].seconds;
    const bool same = same_bits(found, alone);
    good = good && fast && same;
    print(way.name, found,
          !same        ? "other bits than without"
          : !fast      ? "misses 0.15"
          : way.barred ? "(bar 0.15)"
                       : "");
  }
  return good;
}

int measure_rates(bool quick) {
  if (!std::filesystem::exists(real_data())) {
    std::printf("bench cache: skipped, as %s does not exist (TRAINYARD_DATA)\n", real_data().c_str());
    return 0;
  }
  const Folder images;
  const std::uintmax_t bytes = write_images(images.path(), quick ? 192 : 1 << 30);
  std::printf(
      "JPEG files of %lld x %lld, %.1f MB; samples of 3 x 64 x 64, cropped and mirrored at random; 2 "
      "workers\n",
      static_cast<long long>(side), static_cast<long long>(side), static_cast<double>(bytes) / 1e6);
  bool good = true;
  for (const double rate : {50.0, 5.0})
    if (!quick || rate < 50.0) good = measure(images.path(), rate) && good;
  return good ? 0 : 1;
}

std::uintmax_t bytes_below(const std::string& folder) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

/// What the cache takes of a source of raw pixels, and how many samples it gives a second once it is full. False where
/// bits differ.
bool measure_codecs(const char* name, const Value& images) {
  const Value raw(table({{"type", "raw_images"}, {"of", Array{images}}}));
  const auto source = open(table({{"type", "raw_images"}, {"of", Array{images}}}));
  const std::vector<Epoch> alone = {epoch(*source, 0), epoch(*source, 1)};
  std::printf("%s, raw pixels: bytes a sample and samples/s of epoch 2, disk alone; memory alone\n", name);
  bool good = true;
  for (const char* const codec : {"none", "boveda", "zstd"}) {
    const Array codecs = codec == std::string("none") ? Array() : Array{Value(table({{"type", codec}}))};
    const Folder folder;
    const double samples = static_cast<double>(source->size());
    std::printf("  %-8s", codec);
    for (const bool disk : {true, false}) {
      const auto cached = open(table({{"type", "cache"},
                                      {"of", Array{raw}},
                                      {"disk", disk ? folder.path() : std::string()},
                                      {"memory_budget", disk ? 0 : 4096},
                                      {"codec", codecs}}));
      const std::size_t before = mallinfo2().uordblks;
      const Epoch first = epoch(*cached, 0);
      const double bytes = disk ? static_cast<double>(bytes_below(folder.path()))
                                : static_cast<double>(mallinfo2().uordblks - before);
      const Epoch second = epoch(*cached, 1);
      good = good && first.digest == alone[0].digest && second.digest == alone[1].digest;
      std::printf(" %9.0f %9.0f", bytes / samples, samples / second.seconds);
    }
    std::printf("\n");
  }
  if (!good) std::printf("  other bits than without\n");
  return good;
}

int measure_all_codecs() {
  const Value signs(table({{"type", "cifar"}, {"files", Array{real_data().c_str()}}, {"scale", 1.0}}));
  const Value clothes(table({{"type", "idx"},
                             {"images", vision_data("fashion_mnist/t10k-images-idx3-ubyte.gz").c_str()},
                             {"labels", vision_data("fashion_mnist/t10k-labels-idx1-ubyte.gz").c_str()},
                             {"scale", 1.0}}));
  const bool first = measure_codecs("Fashion-MNIST, 1 x 28 x 28", clothes);
  return measure_codecs("signs, 3 x 32 x 32", signs) && first ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  trainyard::train::keep_large_blocks();  // as the host does
  if (argc > 1 && std::strcmp(argv[1], "--codecs") == 0) return trainyard::bench::measure_all_codecs();
  return trainyard::bench::measure_rates(argc > 1 && std::strcmp(argv[1], "--quick") == 0);
}
