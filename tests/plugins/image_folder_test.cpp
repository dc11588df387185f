// The dataset image_folder against the pixels that were written, against LibTorch's resampling, and against
// idx, which augments the same images.
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>

#include <cmath>
#include <filesystem>
#include <random>

#include <catch2/catch.hpp>

#include <trainyard/staged_dataset.hpp>

#include "support/files.hpp"
#include "support/folder.hpp"
#include "support/jpeg_file.hpp"
#include "support/plugin.hpp"
#include "support/png_file.hpp"

namespace image_folder_tests {

using namespace trainyard;
using Catch::Contains;
using test::table;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// Smooth, with something at every place; [height, width, channels].
Bytes picture(int height, int width, int channels, int seed = 0) {
  Bytes bytes;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        bytes.push_back(static_cast<std::uint8_t>(
            127.5 + 120.0 * std::sin(0.11 * x + 0.07 * (c + 1) * y + 0.9 * seed + c)));
  return bytes;
}

std::unique_ptr<Dataset> open(const std::string& path, Table options, const std::string& split = "train") {
  options.set("path", path);
  auto dataset = test::make<Dataset>("image_folder", options);
  dataset->open(split);
  return dataset;
}

Array side(int pixels) {
  return Array{Value(pixels)};
}

std::string error(const std::string& path, const Table& options = table({{"size", side(8)}})) {
  return test::message_of<DataError>([&] {
    const auto dataset = open(path, options);
    for (std::int64_t i = 0; i < dataset->size(); ++i)
      dataset->read(std::vector<std::int64_t>{i}, {RandomStream(1, "data")});
  });
}

/// The first image as bytes, [channels, height, width].
Bytes first_image(const Dataset& dataset) {
  const Batch batch = dataset.read(std::vector<std::int64_t>{0}, {RandomStream(1, "data")});
  const at::Tensor& image = batch.input();
  Bytes bytes;
  for (std::int64_t i = 0; i < image.numel(); ++i)
    bytes.push_back(static_cast<std::uint8_t>(std::lround(image.const_data_ptr<float>()[i] * 255.0f)));
  return bytes;
}

Bytes planes(const Bytes& pixels, std::size_t channels) {
  Bytes result;
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t i = c; i < pixels.size(); i += channels) result.push_back(pixels[i]);
  return result;
}

int largest_difference(const Bytes& a, const Bytes& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(int{a[i]} - int{b[i]}));
  return largest;
}

/// LibTorch's, of [height, width, channels], rounded.
Bytes resampled(const Bytes& pixels, int height, int width, int channels, std::int64_t to_height,
                std::int64_t to_width) {
  std::vector<float> floats;
  for (const std::uint8_t value : planes(pixels, static_cast<std::size_t>(channels))) floats.push_back(value);
  const at::Tensor image = at::from_blob(floats.data(), {1, channels, height, width}, at::kFloat);
  const at::Tensor scaled = at::_upsample_bilinear2d_aa(image, {to_height, to_width}, false).contiguous();
  Bytes bytes;
  for (std::int64_t i = 0; i < scaled.numel(); ++i)
    bytes.push_back(static_cast<std::uint8_t>(std::lround(scaled.const_data_ptr<float>()[i])));
  return bytes;
}

}  // namespace

TEST_CASE("image_folder: classes are folders in order, and a PNG file of the right size comes to the bit") {
  const test::Folder folder;
  const Bytes colours = picture(6, 8, 3), grey = picture(6, 8, 1);
  test::write_png(folder / "b/2.PNG", 6, 8, 3, colours);
  test::write_png(folder / "b/1.png", 6, 8, 1, grey);
  test::write_png(folder / "a/x.png", 6, 8, 3, colours);
  folder.write(".hidden/no image.txt", "");
  folder.write("b/.hidden", "");
  folder.write("LICENSE", "beside the classes");
  const auto data = open(folder.path(), table({{"size", Array{6, 8}}}));
  CHECK(data->size() == 3);
  CHECK(data->labels() == std::vector<std::int64_t>{0, 1, 1});
  CHECK(data->schema().classes == 2);
  CHECK(data->schema().inputs.front().shape == std::vector<std::int64_t>{3, 6, 8});
  CHECK(first_image(*data) == planes(colours, 3));
  const Batch batch = data->read(std::vector<std::int64_t>{1, 0}, {RandomStream(1, "data")});
  CHECK(batch.target.const_data_ptr<std::int64_t>()[0] == 1);
  CHECK(batch.target.const_data_ptr<std::int64_t>()[1] == 0);
  const float* image = batch.input().const_data_ptr<float>();
  for (std::size_t i = 0; i < 3 * grey.size(); ++i)
    CHECK(image[i] == static_cast<float>(grey[i % grey.size()] / 255.0));

  const auto named = open(folder.path(), table({{"size", Array{6, 8}}, {"classes", Array{"c", "b", "a"}}}));
  CHECK(named->labels() == std::vector<std::int64_t>{2, 1, 1});
  CHECK(named->schema().classes == 3);
}

TEST_CASE("image_folder: JPEG files, plain and progressive, are decoded; grey is luma in both formats") {
  const test::Folder folder;
  const Bytes colours = picture(24, 40, 3);
  test::write_jpeg(folder / "plain/a/1.jpg", 24, 40, 3, colours, 100);
  test::write_jpeg(folder / "progressive/a/1.jpeg", 24, 40, 3, colours, 100, true);
  test::write_png(folder / "png/a/1.png", 24, 40, 3, colours);
  for (const char* kind : {"plain", "progressive"}) {
    INFO(kind);
    const auto data = open(folder / kind, table({{"size", Array{24, 40}}}));
    CHECK(largest_difference(first_image(*data), planes(colours, 3)) <= 24);  // colours have half the places
    double sum = 0.0;
    const Bytes found = first_image(*data), expected = planes(colours, 3);
    for (std::size_t i = 0; i < found.size(); ++i) sum += std::abs(int{found[i]} - int{expected[i]});
    CHECK(sum / static_cast<double>(found.size()) < 3.0);
  }
  Bytes luma;
  for (std::size_t i = 0; i < colours.size(); i += 3)
    luma.push_back(static_cast<std::uint8_t>(
        std::lround(0.299 * colours[i] + 0.587 * colours[i + 1] + 0.114 * colours[i + 2])));
  const Table grey = table({{"size", Array{24, 40}}, {"grey", true}});
  CHECK(largest_difference(first_image(*open(folder / "png", grey)), luma) <= 1);
  CHECK(largest_difference(first_image(*open(folder / "plain", grey)), luma) <= 3);
}

TEST_CASE("image_folder: sizes are brought to one as LibTorch's antialiased bilinear interpolation does") {
  const test::Folder folder;
  const std::pair<int, int> sizes[] = {{40, 60}, {33, 47}, {9, 7}, {64, 16}, {1, 1}};
  for (const auto& [height, width] : sizes) {
    INFO(height << " x " << width);
    const Bytes pixels = picture(height, width, 3, height);
    const std::string path = folder / (std::to_string(height) + "x" + std::to_string(width));
    test::write_png(path + "/a/1.png", height, width, 3, pixels);
    const auto stretched = open(path, table({{"size", Array{20, 28}}, {"fit", "stretch"}}));
    CHECK(largest_difference(first_image(*stretched), resampled(pixels, height, width, 3, 20, 28)) <= 1);
  }
  // 40 x 60 to a square: 20 x 30, of which the 20 columns in the middle are taken.
  const Bytes whole = resampled(picture(40, 60, 3, 40), 40, 60, 3, 20, 30);
  Bytes middle;
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (i % 30 >= 5 && i % 30 < 25) middle.push_back(whole[i]);
  CHECK(largest_difference(first_image(*open(folder / "40x60", table({{"size", side(20)}}))), middle) <= 1);
}

TEST_CASE("image_folder: normalises and augments as idx does, to the bit") {
  const test::Folder folder;
  std::string images = {0, 0, 8, 3, 0, 0, 0, 6, 0, 0, 0, 8, 0, 0, 0, 8}, labels = {0, 0, 8, 1, 0, 0, 0, 6};
  for (int i = 0; i < 6; ++i) {
    const Bytes pixels = picture(8, 8, 1, i);
    images.append(pixels.begin(), pixels.end());
    labels += static_cast<char>(i / 3);
    test::write_png(folder / ("folder/" + std::to_string(i / 3) + "/" + std::to_string(i) + ".png"), 8, 8, 1,
                    pixels);
  }
  const auto with = [](Table options) {
    for (const auto& [key, value] : {std::pair<const char*, Value>("mean", Array{0.3}),
                                     {"std", Array{0.2}},
                                     {"crop_padding", 2},
                                     {"flip", true}})
      options.set(key, value);
    return options;
  };
  const auto idx = test::make<Dataset>(
      "idx", with(table({{"images", folder.write("i", images)}, {"labels", folder.write("l", labels)}})));
  const std::vector<std::int64_t> order = {4, 1, 0, 5, 2, 3};
  for (const char* split : {"train", "val"}) {
    idx->open(split);
    const auto data = open(folder / "folder", with(table({{"size", side(8)}, {"grey", true}})), split);
    at::Tensor before;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      const ReadContext context{RandomStream(7, "data", epoch), 12};
      const Batch found = data->read(order, context);
      CHECK(at::equal(found.input(), idx->read(order, context).input()));
      if (epoch > 0) CHECK(at::equal(found.input(), before) == (std::string(split) == "val"));
      before = found.input();
    }
  }
}

TEST_CASE("image_folder: what is damaged, or no image, is named") {
  const test::Folder folder;
  const Bytes pixels = picture(32, 32, 3);
  const std::string jpeg = folder / "good/a/1.jpg", png = folder / "good/a/2.png",
                    progressive = folder / "good/a/3.jpg";
  test::write_jpeg(jpeg, 32, 32, 3, pixels);
  test::write_png(png, 32, 32, 3, pixels);
  test::write_jpeg(progressive, 32, 32, 3, pixels, 90, true);
  int number = 0;
  const auto damaged = [&](const std::string& name, const std::string& content) {
    const std::string path = folder / ("bad" + std::to_string(++number));
    folder.write("bad" + std::to_string(number) + "/a/" + name, content);
    const std::string message = error(path);
    CHECK_THAT(message, Contains(path + "/a/" + name + ": "));
    return message;
  };
  const std::string jpeg_bytes = test::read_file(jpeg), png_bytes = test::read_file(png);
  CHECK_THAT(damaged("1.jpg", ""), Contains("the file is empty"));
  CHECK_THAT(damaged("1.jpg", "GIF89a and so on"), Contains("neither as a JPEG nor as a PNG file"));
  CHECK_THAT(damaged("1.png", png_bytes.substr(0, 60)), Contains("the PNG file cannot be decoded"));
  for (const double part : {0.3, 0.6, 0.9, 0.99})
    for (const std::string& bytes : {jpeg_bytes, test::read_file(progressive)})
      CHECK_THAT(damaged("1.jpg", bytes.substr(0, static_cast<std::size_t>(part * double(bytes.size())))),
                 Contains("the JPEG file cannot be decoded"));
  std::string large = jpeg_bytes;  // the header's height and width, in the frame segment
  const std::size_t frame = large.find("\xff\xc0");
  large.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  CHECK_THAT(damaged("1.jpg", large), Contains("65500 x 65500 is too large"));

  CHECK_THAT(error(folder / "nowhere"), Contains("nowhere: No such file"));
  std::filesystem::create_directories(folder / "none/a");
  CHECK_THAT(error(folder / "none"), Contains("none: no image in a folder of it"));
  folder.write("text/a/notes.txt", "x");
  CHECK_THAT(error(folder / "text"), Contains("text/a/notes.txt: found \".txt\", expected .jpg"));
  std::filesystem::create_directories(folder / "deep/a/b.png");
  CHECK_THAT(error(folder / "deep"), Contains("deep/a/b.png: a folder within that of a class"));
  CHECK_THAT(error(folder / "good", table({{"size", side(8)}, {"classes", Array{"b"}}})),
             Contains("good/a: `classes` does not have \"a\""));
  const auto sizes = [&](Array size) {
    return test::message_of<ConfigError>([&] { open(folder / "good", table({{"size", size}})); });
  };
  CHECK_THAT(sizes({}), Contains("size has 0 numbers"));
  CHECK_THAT(sizes({1, 2, 3}), Contains("size has 3 numbers: give [height, width], or [side]"));
}

TEST_CASE("image_folder: no damage of a file does more than an error") {
  const test::Folder folder;
  const Bytes pixels = picture(24, 24, 3);
  test::write_jpeg(folder / "good/1.jpg", 24, 24, 3, pixels);
  test::write_jpeg(folder / "good/2.jpg", 24, 24, 3, pixels, 90, true);
  test::write_png(folder / "good/3.png", 24, 24, 3, pixels);
  std::mt19937 dice(3);
  int refused = 0;
  for (const char* name : {"1.jpg", "2.jpg", "3.png"}) {
    const std::string good = test::read_file(folder / (std::string("good/") + name));
    folder.write(std::string("bad/a/") + name, good);
    const auto data = open(folder / "bad", table({{"size", side(8)}}));
    for (int i = 0; i < 400; ++i) {
      std::string bytes = good;
      for (int k = 0; k < 3; ++k) bytes[dice() % bytes.size()] = static_cast<char>(dice());
      folder.write(std::string("bad/a/") + name, bytes);
      try {
        data->read(std::vector<std::int64_t>{data->size() - 1}, {RandomStream(1, "data")});
      } catch (const DataError& error) {
        ++refused;
        CHECK_THAT(error.what(), Contains(std::string("bad/a/") + name));
      }
    }
  }
  CHECK(refused > 100);
}

}  // namespace image_folder_tests
