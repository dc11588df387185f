// The IDX format of MNIST and its kin: a big-endian header of a magic number and one 32-bit size a dimension,
// then the bytes. http://yann.lecun.com/exdb/mnist describes it.
#include <cstdio>

#include "files.hpp"
#include "images.hpp"

namespace {

using datasets::files::Reader;

/// Reads a header of unsigned bytes with `fewest` to `most` dimensions; gives the sizes.
std::vector<std::int64_t> read_header(Reader& file, int fewest, int most) {
  const auto number = [&] {
    std::uint8_t bytes[4];
    if (file.read(bytes, 4) < 4) file.fail("the file ends inside the IDX header");
    return std::int64_t{bytes[0]} << 24 | std::int64_t{bytes[1]} << 16 | std::int64_t{bytes[2]} << 8 |
           bytes[3];
  };
  const std::int64_t magic = number();
  const std::int64_t type = magic >> 8, dimensions = magic & 255;
  constexpr std::int64_t unsigned_byte = 0x08;
  if (type != unsigned_byte || dimensions < fewest || dimensions > most) {
    char found[16];
    std::snprintf(found, sizeof found, "0x%08llx", static_cast<unsigned long long>(magic));
    file.fail(std::string("bad magic number ") + found + ": expected 0x0000080" + std::to_string(fewest) +
              (most > fewest ? " or 0x0000080" + std::to_string(most) : "") +
              ", IDX of unsigned bytes with " + std::to_string(fewest) +
              (most > fewest ? " or " + std::to_string(most) : "") + " dimensions");
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t d = 0; d < dimensions; ++d) {
    sizes.push_back(number());
    if (sizes.back() == 0) file.fail("dimension " + std::to_string(d) + " has size 0: there is no data");
  }
  return sizes;
}

std::vector<std::uint8_t> read_records(Reader& file, std::int64_t count, std::int64_t record) {
  std::vector<std::uint8_t> bytes;
  file.append(bytes, static_cast<std::size_t>(count * record));
  const auto whole = static_cast<std::int64_t>(bytes.size()) / record;
  if (whole < count)
    file.fail("record " + std::to_string(whole) + " is missing or cut short: the header promises " +
              std::to_string(count) + " records of " + std::to_string(record) + " bytes");
  if (std::uint8_t extra; file.read(&extra, 1) > 0)
    file.fail("there is more data than the " + std::to_string(count) + " records that the header promises");
  bytes.shrink_to_fit();
  return bytes;
}

class Idx final : public datasets::ImageDataset {
 public:
  struct Options : datasets::ImageOptions {
    std::string images, labels;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("idx").version("1.0.0").summary(
        "Images and labels in IDX files (MNIST, Fashion-MNIST), plain or .gz.");
    m.option("images", &Options::images,
             "file of images: [count, height, width] or [count, channels, height, width]")
        .required()
        .file();
    m.option("labels", &Options::labels, "file of labels: [count]").required().file();
    datasets::describe_images(m);
  }
  explicit Idx(const Options& options) : ImageDataset(options), options_(options) {}

 private:
  void load() override {
    Reader images(options_.images);
    const std::vector<std::int64_t> sizes = read_header(images, 3, 4);
    channels_ = sizes.size() == 4 ? sizes[1] : 1;
    height_ = sizes[sizes.size() - 2];
    width_ = sizes.back();
    constexpr std::int64_t most = 1 << 10;  // sides can be 16 times that; no product below overflows
    if (channels_ > most || height_ > 16 * most || width_ > 16 * most)
      images.fail("an image of " + std::to_string(channels_) + " x " + std::to_string(height_) + " x " +
                  std::to_string(width_) + " is too large: the header is likely damaged");
    Reader labels(options_.labels);
    const std::int64_t count = read_header(labels, 1, 1)[0];
    if (count != sizes[0])
      labels.fail("it has " + std::to_string(count) + " labels, but " + options_.images + " has " +
                  std::to_string(sizes[0]) + " images");
    labels_ = read_records(labels, count, 1);
    for (std::size_t i = 0; i < labels_.size(); ++i)
      if (const std::string error = label_error(labels_[i]); !error.empty())
        labels.fail("record " + std::to_string(i) + ": " + error);
    pixels_ = read_records(images, count, image_size());
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Idx)
