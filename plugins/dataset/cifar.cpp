// The binary format of CIFAR-10 and CIFAR-100: records of label bytes and 3 x 32 x 32 bytes, the planes R, G,
// B in rows (https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version").
#include "files.hpp"
#include "images.hpp"

namespace {

class Cifar final : public datasets::ImageDataset {
 public:
  struct Options : datasets::ImageOptions {
    std::vector<std::string> files;
    std::int64_t label_bytes = 1;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("cifar").version("1.0.0").summary("3 x 32 x 32 images in CIFAR's binary files, plain or .gz.");
    m.option("files", &Options::files, "files whose records follow one another").required().file();
    m.option("label_bytes", &Options::label_bytes,
             "label bytes a record, of which the last counts; CIFAR-100 has 2: coarse and fine")
        .range(1, 2);
    datasets::describe_images(m);
  }
  explicit Cifar(const Options& options) : ImageDataset(options), options_(options) {}

 private:
  void load() override {
    channels_ = 3;
    height_ = width_ = 32;
    if (options_.files.empty()) throw trainyard::ConfigError("files is empty: name at least one file");
    for (const std::string& path : options_.files) load(path);
    pixels_.shrink_to_fit();
  }

  void load(const std::string& path) {
    datasets::files::Reader file(path);
    const auto label_bytes = static_cast<std::size_t>(options_.label_bytes);
    const std::size_t record_size = label_bytes + static_cast<std::size_t>(image_size());
    std::vector<std::uint8_t> record(record_size);
    for (std::size_t number = 0;; ++number) {
      const std::size_t got = file.read(record.data(), record_size);
      if (got == 0 && number == 0) file.fail("the file is empty");
      if (got == 0) return;
      if (got < record_size)
        file.fail("record " + std::to_string(number) + " is cut short: " + std::to_string(got) + " of " +
                  std::to_string(record_size) + " bytes");
      const std::uint8_t label = record[label_bytes - 1];
      if (const std::string error = label_error(label); !error.empty())
        file.fail("record " + std::to_string(number) + ": " + error);
      labels_.push_back(label);
      pixels_.insert(pixels_.end(), record.begin() + static_cast<std::ptrdiff_t>(label_bytes), record.end());
    }
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Cifar)
