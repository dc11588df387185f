#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/learns.hpp>

#include "support/files.hpp"
#include "support/folder.hpp"
#include "support/plugin.hpp"

namespace dataset_tests {

using namespace trainyard;
using Catch::Contains;
using test::make;
using test::message_of;
using test::table;
using test::TempFolder;

namespace {

std::unique_ptr<Dataset> open(const std::string& name, const Table& options,
                              const std::string& split = "train") {
  auto dataset = make<Dataset>(name, options);
  dataset->open(split);
  return dataset;
}

std::string data_error(const std::string& name, const Table& options) {
  return message_of<DataError>([&] { open(name, options); });
}
std::string config_error(const std::string& name, const Table& options) {
  return message_of<ConfigError>([&] { open(name, options); });
}

Batch read(const Dataset& dataset, std::vector<std::int64_t> indices, std::uint64_t epoch = 0,
           std::int64_t position = 0) {
  return dataset.read(indices, {RandomStream(1, "data", epoch), position});
}
Batch read_all(const Dataset& dataset) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return read(dataset, indices);
}

template <class T = float>
std::vector<T> values(const at::Tensor& tensor) {
  REQUIRE(tensor.is_contiguous());
  const T* data = tensor.const_data_ptr<T>();
  return {data, data + tensor.numel()};
}
using Shape = std::vector<std::int64_t>;
using Classes = std::vector<std::int64_t>;
using Floats = std::vector<float>;

void check_batch_fits_schema(const Dataset& dataset) {
  const BatchSchema schema = dataset.schema();
  const Batch batch = read(dataset, {0, dataset.size() - 1});
  REQUIRE(batch.inputs.size() == schema.inputs.size());
  const auto check = [](const at::Tensor& tensor, const FieldSchema& field) {
    Shape shape = {2};
    shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    CHECK(tensor.sizes() == shape);
    CHECK(tensor.scalar_type() == field.dtype);
  };
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) check(batch.inputs[i], schema.inputs[i]);
  check(batch.target, schema.target);
}

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}
std::string idx(const std::vector<std::uint32_t>& sizes, const std::string& bytes, std::uint32_t type = 8) {
  std::string file = big_endian(type << 8 | static_cast<std::uint32_t>(sizes.size()));
  for (const std::uint32_t size : sizes) file += big_endian(size);
  return file + bytes;
}
std::string ramp(std::size_t count, int first = 0) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(first + static_cast<int>(i));
  return bytes;
}

}  // namespace

// csv
// --------------------------------------------------------------------------------------------------------

TEST_CASE("csv: header, last column as class, scale, plain and packed") {
  const TempFolder folder;
  const std::string content = "a,b,label\n1, 2 ,0\r\n\n-3,4e1,2\n+5,.5,1";
  for (const char* name : {"t.csv", "t.csv.gz"}) {
    const auto data = open("csv", table({{"path", folder.write(name, content)}, {"scale", 2.0}}));
    REQUIRE(data->size() == 3);
    CHECK(data->schema().classes == 3);
    CHECK(data->labels() == Classes{0, 2, 1});
    const Batch batch = read(*data, {2, 0, 1, 0});
    CHECK(values(batch.input()) == Floats{2.5f, 0.25f, 0.5f, 1.0f, -1.5f, 20.0f, 0.5f, 1.0f});
    CHECK(values<std::int64_t>(batch.target) == Classes{1, 0, 2, 0});
    check_batch_fits_schema(*data);
  }
}

TEST_CASE("csv: target and columns by name and index, other separators, quotes, byte order mark") {
  const TempFolder folder;
  const std::string path = folder.write("t.tsv",
                                        "\xef\xbb\xbf"
                                        "y\t\"a \"\"x\"\"\"\tb\tc\n1\t\"2\"\t3\t4\n0\t5\t6\t7\n");
  const auto columns = [&](const char* target, Array names) {
    return values(
        read_all(*open("csv",
                       table({{"path", path}, {"separator", "\t"}, {"target", target}, {"columns", names}})))
            .input());
  };
  CHECK(columns("y", {}) == Floats{2, 3, 4, 5, 6, 7});
  CHECK(columns("0", {}) == Floats{2, 3, 4, 5, 6, 7});
  CHECK(columns("-4", {"c", "a \"x\""}) == Floats{4, 2, 7, 5});
  CHECK(columns("y", {"2"}) == Floats{3, 6});
}

TEST_CASE("csv: regression, mean and std, shape, named labels") {
  const TempFolder folder;
  const std::string path = folder.write("t.csv", "1,10,0.5\n3,30,-2.5\n");
  const auto regression = open("csv", table({{"path", path},
                                             {"task", "regression"},
                                             {"mean", Array{2.0, 20.0}},
                                             {"std", Array{1.0, 10.0}},
                                             {"shape", Array{1, 2}}}));
  CHECK(regression->schema().classes == 0);
  CHECK(regression->labels().empty());
  CHECK(read_all(*regression).input().sizes() == Shape{2, 1, 2});
  CHECK(values(read_all(*regression).input()) == Floats{-1, -1, 1, 1});
  CHECK(values(read_all(*regression).target) == Floats{0.5f, -2.5f});
  check_batch_fits_schema(*regression);

  const std::string named = folder.write("named.csv", "x,kind\n1,dog\n2,cat\n3,dog\n");
  const auto labelled = open("csv", table({{"path", named}, {"labels", Array{"cat", "dog", "emu"}}}));
  CHECK(labelled->labels() == Classes{1, 0, 1});
  CHECK(labelled->schema().classes == 3);
  CHECK_THAT(data_error("csv", table({{"path", named}, {"labels", Array{"cat", "emu"}}})),
             Contains("named.csv:2: column 2 \"kind\": 'dog' is none of the 2 labels"));
  CHECK_THROWS_WITH(open("csv", table({{"path", named}, {"labels", Array{"cat", "dog"}}, {"classes", 2}})),
                    Contains("give either labels or classes"));
}

TEST_CASE("csv: standardize_with takes mean and deviation of another file's columns") {
  const TempFolder folder;
  const std::string train = folder.write("train.csv", "1,5,0\n3,5,1\n5,5,0\n");
  const std::string val = folder.write("val.csv", "3,6,0\n");
  const auto data = open("csv", table({{"path", val}, {"scale", 2.0}, {"standardize_with", train}}), "val");
  CHECK(values(read_all(*data).input()) == Floats{0.0f, 0.5f});  // the constant column is only centred
  const auto whole =
      values(read_all(*open("csv", table({{"path", train}, {"standardize_with", train}}))).input());
  CHECK(whole[0] == Approx(-std::sqrt(1.5)));
  CHECK(whole[4] == Approx(std::sqrt(1.5)));
}

TEST_CASE("csv: fraction shares out the rows of one file") {
  const TempFolder folder;
  std::string content;
  for (int i = 0; i < 1000; ++i) content += std::to_string(i) + ",0\n";
  const std::string path = folder.write("t.csv", content);
  const auto rows = [&](double from, double to, int seed) {
    const auto all = values(
        read_all(*open("csv", table({{"path", path}, {"fraction", Array{from, to}}, {"split_seed", seed}})))
            .input());
    return std::set<float>(all.begin(), all.end());
  };
  std::set<float> train = rows(0.0, 0.8, 0), val = rows(0.8, 1.0, 0);
  CHECK(std::abs(static_cast<double>(train.size()) - 800) < 60);
  CHECK(train.size() + val.size() == 1000);
  train.merge(val);
  CHECK(train.size() == 1000);
  CHECK(rows(0.8, 1.0, 1) != rows(0.8, 1.0, 0));
}

TEST_CASE("csv: errors name file, line and column") {
  const TempFolder folder;
  const auto message = [&](const std::string& content, Table options = {}) {
    options.set("path", folder.write("bad.csv", content));
    return data_error("csv", options);
  };
  CHECK_THAT(data_error("csv", table({{"path", folder.path("absent.csv")}})),
             Contains("absent.csv: No such file or directory"));
  CHECK_THAT(data_error("csv", table({{"path", folder.path("")}})), Contains("Is a directory"));
  CHECK_THAT(message(""), Contains("bad.csv: there is no row of data"));
  CHECK_THAT(message("a,b\n"), Contains("there is no row of data"));
  CHECK_THAT(message("a,b\n1,0\nx,1\n"), Contains("bad.csv:3: column 1 \"a\": 'x' is not a number"));
  CHECK_THAT(message("a,b\n1,0\n,1\n"), Contains("bad.csv:3: column 1 \"a\": the field is empty"));
  CHECK_THAT(message("a,b\n1,0\n1 2,1\n"), Contains("'1 2' is not a number"));
  CHECK_THAT(message("1,0\nnan,1\n"), Contains("bad.csv:2: column 1: 'nan' stands for a gap"));
  for (const char* text : {"inf", "-inf", "1e999"})
    CHECK_THAT(message(std::string("1,0\n") + text + ",1\n"),
               Contains("bad.csv:2: column 1: '" + std::string(text) + "' is not a finite number"));
  CHECK_THAT(message("1e300,0\n"), Contains("too large for a float"));
  CHECK_THAT(message("1,2,0\n1,0\n"), Contains("bad.csv:2: found 2 fields, expected 3"));
  CHECK_THAT(message("1,0\n1,-1\n", table({{"classes", 2}})),
             Contains("bad.csv:2: column 2: label '-1' is out of range"));
  CHECK_THAT(message("1,0\n1,3\n", table({{"classes", 3}})),
             Contains("label '3' is out of range: expected 0 to 2"));
  CHECK_THAT(message("1,0\n1,0.5\n"), Contains("'0.5' is not a class"));
  CHECK_THAT(message("1,0\n1,nan\n"), Contains("'nan' stands for a gap: every row needs a class"));
  CHECK_THAT(message("1,0\n1,nan\n", table({{"task", "regression"}})),
             Contains("'nan' is not a finite number"));
  CHECK_THAT(message("1,\"0\n"), Contains("bad.csv:1: a quote is not closed"));
  CHECK_THAT(message("1,x,0\n"), Contains("line 1 has both numbers and texts: say header"));
  CHECK_THAT(message("1;2;0\n", table({{"header", "no"}})), Contains("is the separator right?"));
  CHECK_THAT(message("1,0\n", table({{"fraction", Array{0.0, 1e-9}}})), Contains("none of its 1 rows"));

  const std::string good = folder.write("t.csv", "a,b,c\n1,2,0\n");
  const auto config = [&](Table options) {
    options.set("path", good);
    return config_error("csv", options);
  };
  CHECK_THAT(config(table({{"target", "d"}})),
             Contains("no column 'd'") && Contains("3 columns, from \"a\" to \"c\""));
  CHECK_THAT(config(table({{"target", "3"}})), Contains("no column '3'"));
  CHECK_THAT(config(table({{"columns", Array{"a", "c"}}})), Contains("names the target"));
  CHECK_THAT(config(table({{"mean", Array{1.0, 2.0, 3.0}}})),
             Contains("3 numbers") && Contains("2 features"));
  CHECK_THAT(config(table({{"shape", Array{3}}})),
             Contains("shape holds 3 numbers") && Contains("2 features"));
  CHECK_THAT(config(table({{"separator", "::"}})), Contains("one character"));
  CHECK_THAT(config(table({{"fraction", Array{0.5}}})), Contains("two numbers"));
  CHECK_THAT(config(table({{"fraction", Array{0.5, 0.5}}})), Contains("from < to"));
}

TEST_CASE("csv: truncated, corrupt and mislabelled gzip files") {
  const TempFolder folder;
  std::string content;
  for (int i = 0; i < 20000; ++i) content += std::to_string((i * 7919) % 10007) + ",1\n";
  const std::string path = folder.write("t.csv.gz", content);
  const auto size = std::filesystem::file_size(path);
  for (const auto kept : {size - 1, size - 8, size / 2, std::uintmax_t{20}})
    CHECK_THAT(data_error("csv", table({{"path", folder.truncate(path, kept)}})),
               Contains("cut-t.csv.gz: the gzip data is truncated"));
  CHECK_THAT(data_error("csv", table({{"path", folder.truncate(path, 0)}})), Contains("the file is empty"));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file.write("\x55\xaa\x55\xaa\x55\xaa", 6);
  }
  CHECK_THAT(data_error("csv", table({{"path", path}})), Contains("t.csv.gz: the gzip data is corrupt"));
  std::ofstream(folder.path("plain.csv.gz")) << "1,0\n";
  CHECK_THAT(data_error("csv", table({{"path", folder.path("plain.csv.gz")}})), Contains("is not gzip data"));
}

TEST_CASE("csv: gzip data may have several members and zeros at its end, and nothing else") {
  const TempFolder folder;
  const std::string one = test::read_file(folder.write("a.gz", "1,0\n2,1\n")),
                    two = test::read_file(folder.write("b.gz", "3,0\n"));
  const auto sizes = [&](const std::string& bytes) {
    std::ofstream(folder.path("t.csv.gz"), std::ios::binary) << bytes;
    return open("csv", table({{"path", folder.path("t.csv.gz")}}))->size();
  };
  const auto message = [&](const std::string& bytes) {
    std::ofstream(folder.path("t.csv.gz"), std::ios::binary) << bytes;
    return data_error("csv", table({{"path", folder.path("t.csv.gz")}}));
  };
  CHECK(sizes(one + two) == 3);
  CHECK(sizes(one + two + two) == 4);
  CHECK(sizes(one + std::string(1000, '\0')) == 2);
  const std::string at = "t.csv.gz: byte " + std::to_string(one.size());
  CHECK_THAT(message(one + "garbage"), Contains(at + ": the gzip data is over"));
  CHECK_THAT(message(one + "4,1\n"), Contains(at + ": the gzip data is over"));
  CHECK_THAT(message(one + std::string(10, '\0') + "x"),
             Contains("t.csv.gz: byte " + std::to_string(one.size() + 10)));
  CHECK_THAT(message(one + two.substr(0, two.size() - 1)), Contains("the gzip data is truncated"));
  CHECK_THAT(message(one + "\x1f"), Contains("the gzip data is truncated"));
  CHECK_THAT(message(one + "\x1f\x8b\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
             Contains("the gzip data is corrupt"));
  // Larger than what is read at a time, so that members end anywhere in it.
  std::string many;
  for (int i = 0; i < 20000; ++i) many += two;
  CHECK(sizes(many) == 20000);
  CHECK_THAT(message(many + "x"), Contains("byte " + std::to_string(many.size())));
}

TEST_CASE("what is no file is refused, and nobody waits for it") {
  const TempFolder folder;
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK_THAT(data_error("csv", table({{"path", folder.path("pipe")}})), Contains("/pipe: it is a pipe"));
  CHECK_THAT(data_error("text", table({{"path", "/dev/zero"}})),
             Contains("/dev/zero: it is a pipe, a socket or a device"));
}

TEST_CASE("csv: the optical digits that come with the source") {
  const std::string folder = std::string(TRAINYARD_SOURCE_DIR) + "/data/optdigits/";
  const auto open_digits = [&](const char* file) {
    return open(
        "csv", table({{"path", folder + file}, {"scale", 16.0}, {"classes", 10}, {"shape", Array{1, 8, 8}}}));
  };
  const auto train = open_digits("optdigits.tra.gz"), test = open_digits("optdigits.tes.gz");
  CHECK(train->size() == 3823);
  CHECK(test->size() == 1797);
  // "Class distribution" of optdigits.names.
  std::vector<int> counts(10);
  for (const std::int64_t label : train->labels()) ++counts[static_cast<std::size_t>(label)];
  CHECK(counts == std::vector<int>{376, 389, 380, 389, 387, 376, 377, 387, 380, 382});
  CHECK(train->schema().inputs[0].shape == Shape{1, 8, 8});
  const Floats first = values(read(*train, {0}).input());
  CHECK(Floats(first.begin(), first.begin() + 5) ==
        Floats{0.0f, 1 / 16.0f, 6 / 16.0f, 15 / 16.0f, 12 / 16.0f});
}

// idx
// --------------------------------------------------------------------------------------------------------

TEST_CASE("idx: images and labels, normalised as (value / scale - mean) / std") {
  const TempFolder folder;
  for (const std::string end : {"", ".gz"}) {
    const auto data =
        open("idx", table({{"images", folder.write("i" + end, idx({3, 2, 2}, ramp(12, 100)))},
                           {"labels", folder.write("l" + end, idx({3}, std::string("\x01\x00\x04", 3)))},
                           {"mean", Array{0.25}},
                           {"std", Array{0.5}}}));
    CHECK(data->size() == 3);
    CHECK(data->schema().classes == 5);
    CHECK(data->labels() == Classes{1, 0, 4});
    const Batch batch = read(*data, {2, 0});
    CHECK(batch.input().sizes() == Shape{2, 1, 2, 2});
    Floats expected;
    for (const int value : {108, 109, 110, 111, 100, 101, 102, 103})
      expected.push_back(static_cast<float>((value / 255.0 - 0.25) / 0.5));
    CHECK(values(batch.input()) == expected);
    CHECK(values<std::int64_t>(batch.target) == Classes{4, 1});
    check_batch_fits_schema(*data);
  }
}

TEST_CASE("idx: one number a channel") {
  const TempFolder folder;
  const Table options = table({{"images", folder.write("i", idx({1, 2, 1, 1}, "\x0a\x14"))},
                               {"labels", folder.write("l", idx({1}, "\x01"))},
                               {"scale", 1.0},
                               {"mean", Array{1.0, 2.0}},
                               {"std", Array{3.0, 6.0}}});
  CHECK(values(read_all(*open("idx", options)).input()) == Floats{3.0f, 3.0f});
  Table three = options;
  three.set("mean", Array{1.0, 2.0, 3.0});
  CHECK_THAT(config_error("idx", three), Contains("mean has 3 numbers, the images have 2 channels"));
}

TEST_CASE("idx: a fraction of the images") {
  const TempFolder folder;
  Table options = table({{"images", folder.write("i", idx({4, 1, 1}, ramp(4, 10)))},
                         {"labels", folder.write("l", idx({4}, std::string("\x01\x00\x02\x01", 4)))},
                         {"classes", 3},
                         {"scale", 1.0}});
  const auto part = [&](double from, double to) { options.set("fraction", Value(Array{from, to})); };
  part(0.25, 0.75);
  const auto data = open("idx", options);
  const Batch batch = read_all(*data);
  CHECK(values(batch.input()) == Floats{11.0f, 12.0f});
  CHECK(values<std::int64_t>(batch.target) == Classes{0, 2});
  CHECK(data->labels() == std::vector<std::int64_t>{0, 2});
  part(0.5, 0.6);
  CHECK_THAT(config_error("idx", options), Contains("none of the 4 images"));
  part(0.5, 0.5);
  CHECK_THAT(config_error("idx", options), Contains("from < to"));
}

TEST_CASE("idx: errors name the file and the record") {
  const TempFolder folder;
  const std::string images = folder.write("images", idx({3, 2, 2}, ramp(12)));
  const std::string labels = folder.write("labels", idx({3}, std::string("\x01\x02\x03", 3)));
  const auto message = [&](const std::string& image_file, const std::string& label_file, Table options = {}) {
    options.set("images", image_file);
    options.set("labels", label_file);
    return data_error("idx", options);
  };
  CHECK_THAT(message(folder.path("no"), labels), Contains("/no: No such file"));
  CHECK_THAT(message(labels, labels), Contains("labels: bad magic number 0x00000801: expected 0x00000803"));
  CHECK_THAT(message(images, images), Contains("images: bad magic number 0x00000803: expected 0x00000801"));
  CHECK_THAT(message(folder.write("f", idx({3, 2, 2}, ramp(48), 13)), labels),
             Contains("bad magic number 0x00000d03"));
  CHECK_THAT(message(folder.write("f", idx({3, 2, 2}, ramp(11))), labels),
             Contains("/f: record 2 is missing or cut short"));
  CHECK_THAT(message(folder.write("f", idx({3, 2, 2}, ramp(13))), labels),
             Contains("more data than the 3 records"));
  CHECK_THAT(message(folder.write("f", idx({4, 2, 2}, ramp(16))), labels),
             Contains("it has 3 labels") && Contains("has 4 images"));
  CHECK_THAT(message(folder.write("f", idx({0, 2, 2}, "")), labels), Contains("there is no data"));
  CHECK_THAT(message(folder.write("f", std::string(2, '\0')), labels),
             Contains("ends inside the IDX header"));
  CHECK_THAT(message(folder.write("f", idx({3, 0xffffffffu, 0xffffffffu}, "")), labels),
             Contains("too large"));
  CHECK_THAT(message(images, folder.write("f", idx({3}, "\x01"))), Contains("/f: record 1 is missing"));
  CHECK_THAT(message(images, labels, table({{"classes", 3}})),
             Contains("labels: record 2: label 3 is out of range: classes = 3 allows 0 to 2"));
  const std::string packed = folder.write("p.gz", idx({3, 2, 2}, ramp(12)));
  CHECK_THAT(message(folder.truncate(packed, std::filesystem::file_size(packed) - 9), labels),
             Contains("cut-p.gz: the gzip data is truncated"));
  // A header that promises 2^50 bytes must not be believed.
  const std::string many = folder.write("many", idx({0xffffffffu}, "\x01"));
  CHECK_THAT(message(folder.write("f", idx({0xffffffffu, 512, 512}, "\x01")), many),
             Contains("is missing or cut short"));
}

TEST_CASE("idx: Fashion-MNIST") {
  const std::string images = test::real_data("vision/fashion_mnist/train-images-idx3-ubyte.gz");
  const std::string labels = test::real_data("vision/fashion_mnist/train-labels-idx1-ubyte.gz");
  if (images.empty() || labels.empty()) return;
  const auto data = open("idx", table({{"images", images}, {"labels", labels}}));
  REQUIRE(data->size() == 60000);
  std::vector<int> counts(10);
  for (const std::int64_t label : data->labels()) ++counts[static_cast<std::size_t>(label)];
  CHECK(counts == std::vector<int>(10, 6000));
  double sum = 0.0, squares = 0.0;
  for (const float value : values(read_all(*data).input())) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = 60000.0 * 784, mean = sum / count;
  CHECK(mean == Approx(0.2860).margin(1e-4));  // as the data's description says
  CHECK(std::sqrt(squares / count - mean * mean) == Approx(0.3530).margin(1e-4));
}

// cifar
// ------------------------------------------------------------------------------------------------------

namespace {
std::string cifar_record(const std::string& labels, int first) {
  return labels + ramp(3072, first);
}
}  // namespace

TEST_CASE("cifar: several files, both label layouts") {
  const TempFolder folder;
  const std::string a = folder.write("a.bin", cifar_record("\x03", 0) + cifar_record("\x01", 7));
  const std::string b = folder.write("b.bin.gz", cifar_record("\x02", 9));
  const auto data = open("cifar", table({{"files", Array{a, b}}, {"scale", 1.0}}));
  CHECK(data->labels() == Classes{3, 1, 2});
  const Batch batch = read(*data, {2});
  CHECK(batch.input().sizes() == Shape{1, 3, 32, 32});
  Floats expected(3072);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>((i + 9) % 256);
  CHECK(values(batch.input()) == expected);
  check_batch_fits_schema(*data);

  const std::string coarse_and_fine = folder.write("c.bin", cifar_record("\x03\x63", 0));
  CHECK(open("cifar", table({{"files", Array{coarse_and_fine}}, {"label_bytes", 2}}))->labels() ==
        Classes{99});
}

TEST_CASE("cifar: augmentation is a function of epoch and position, for the train split only") {
  const TempFolder folder;
  std::string content;
  for (int i = 0; i < 50; ++i) content += cifar_record("\x01", i);
  const Table plain = table({{"files", Array{folder.write("a.bin", content)}}, {"scale", 1.0}});
  Table options = plain;
  options.set("crop_padding", 4);
  options.set("flip", true);
  const auto augmented = open("cifar", options), original = open("cifar", plain);
  CHECK(values(read_all(*open("cifar", options, "val")).input()) == values(read_all(*original).input()));

  const Floats image = values(read(*original, {5}).input());
  std::set<std::string> seen;
  for (std::uint64_t epoch = 0; epoch < 500; ++epoch) {
    const Floats got = values(read(*augmented, {5}, epoch, 3).input());
    REQUIRE(got == values(read(*augmented, {9, 5}, epoch, 2).input().select(0, 1).contiguous()));
    // One of the 9 x 9 x 2 ways to cut it out must explain it.
    const auto place = [](int c, int y, int x) -> std::size_t { return c * 1024 + y * 32 + x; };
    bool explained = false;
    for (int way = 0; way < 162 && !explained; ++way) {
      const int down = way / 18 - 4, right = way / 2 % 9 - 4;
      explained = true;
      for (int c = 0; c < 3 && explained; ++c)
        for (int y = 0; y < 32 && explained; ++y)
          for (int x = 0; x < 32 && explained; ++x) {
            const int from_y = y + down, from_x = (way % 2 ? 31 - x : x) + right;
            const bool inside = from_y >= 0 && from_y < 32 && from_x >= 0 && from_x < 32;
            const float expected = inside ? image[place(c, from_y, from_x)] : 0.0f;
            explained = got[place(c, y, x)] == expected;
          }
      if (explained) seen.insert(std::to_string(way));
    }
    REQUIRE(explained);
  }
  CHECK(seen.size() > 140);  // of 162; 500 draws leave out 7 on average
}

TEST_CASE("cifar: errors name the file and the record") {
  const TempFolder folder;
  const auto message = [&](const std::string& content, Table options = {}) {
    options.set("files", Array{folder.write("bad.bin", content)});
    return data_error("cifar", options);
  };
  CHECK_THAT(message(""), Contains("bad.bin: the file is empty"));
  CHECK_THAT(message(cifar_record("\x01", 0) + "abc"),
             Contains("bad.bin: record 1 is cut short: 3 of 3073 bytes"));
  CHECK_THAT(message(cifar_record("\x01", 0) + cifar_record("\x0a", 0), table({{"classes", 10}})),
             Contains("bad.bin: record 1: label 10 is out of range"));
  CHECK_THAT(config_error("cifar", table({{"files", Array{}}})), Contains("files is empty"));
}

TEST_CASE("cifar: sign-language digits") {
  const std::string train = test::real_data("vision/sign_digits/sign_digits_train.bin.gz");
  if (train.empty()) return;
  const auto data = open("cifar", table({{"files", Array{train}}, {"classes", 10}}));
  CHECK(data->size() == 1651);
  const double expected[] = {0.676, 0.647, 0.618};  // as the data's description says
  const at::Tensor images = read_all(*data).input();
  for (int c = 0; c < 3; ++c) {
    const Floats channel = values(images.select(1, c).contiguous());
    CHECK(std::accumulate(channel.begin(), channel.end(), 0.0) / static_cast<double>(channel.size()) ==
          Approx(expected[c]).margin(1e-3));
  }
}

// text
// -------------------------------------------------------------------------------------------------------

TEST_CASE("text: windows of characters with the next character as target") {
  const TempFolder folder;
  const std::string path = folder.write("t.txt.gz", "abcabdaé");  // vocabulary a b c d é
  const auto data = open("text", table({{"path", path}, {"seq_len", 3}}));
  CHECK(data->schema().vocabulary == 5);
  CHECK(data->schema().tokens_per_sample == 3);
  REQUIRE(data->size() == 2);
  const Batch batch = read(*data, {1, 0});
  CHECK(values<std::int64_t>(batch.input()) == Classes{0, 1, 3, 0, 1, 2});
  CHECK(values<std::int64_t>(batch.target) == Classes{1, 3, 0, 1, 2, 0});
  check_batch_fits_schema(*data);
  CHECK(open("text", table({{"path", path}, {"seq_len", 7}}))->size() == 1);

  const auto overlapping = open("text", table({{"path", path}, {"seq_len", 3}, {"stride", 1}}));
  REQUIRE(overlapping->size() == 5);
  CHECK(values<std::int64_t>(read(*overlapping, {4}).target) == Classes{3, 0, 4});

  const auto bytes = open("text", table({{"path", path}, {"seq_len", 8}, {"level", "byte"}}));
  CHECK(bytes->schema().vocabulary == 256);
  CHECK(values<std::int64_t>(read(*bytes, {0}).target) == Classes{98, 99, 97, 98, 100, 97, 0xc3, 0xa9});
}

TEST_CASE("text: fractions of one file share its vocabulary and leave nothing out") {
  const TempFolder folder;
  const std::string path = folder.write("t.txt", std::string(60, 'a') + std::string(43, 'z'));
  const auto part = [&](double from, double to) {
    return make<Dataset>("text", table({{"path", path}, {"seq_len", 1}, {"fraction", Array{from, to}}}));
  };
  const auto train = part(0.0, 0.7), val = part(0.7, 1.0);
  train->open("train");
  dynamic_cast<Learns&>(*val).use(dynamic_cast<const Learns&>(*train).learned());
  val->open("val");
  CHECK(train->schema().vocabulary == 2);
  CHECK(val->schema().vocabulary == 2);
  CHECK(train->size() + 1 + val->size() + 1 == 103);
  CHECK(values<std::int64_t>(read(*val, {0}).input()) == Classes{1});
}

TEST_CASE("text: errors") {
  const TempFolder folder;
  CHECK_THAT(data_error("text", table({{"path", folder.write("e.txt", "")}})),
             Contains("e.txt: the file is empty"));
  CHECK_THAT(data_error("text", table({{"path", folder.write("s.txt", "abc")}, {"seq_len", 3}})),
             Contains("is 3 tokens; one sample needs seq_len + 1 = 4"));
  for (const char* bad :
       {"ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\x80", "ab\xf8\x88\x80\x80\x80"})
    CHECK_THAT(data_error("text", table({{"path", folder.write("b.txt", bad)}, {"seq_len", 1}})),
               Contains("b.txt: byte 2 is not valid UTF-8"));
  const std::string packed = folder.write("t.txt.gz", std::string(100000, 'x'));
  CHECK_THAT(data_error("text", table({{"path", folder.truncate(packed, 60)}})), Contains("truncated"));
}

TEST_CASE("text: Tiny Shakespeare") {
  const std::string path = test::real_data("text/tinyshakespeare/input.txt.gz");
  if (path.empty()) return;
  const auto data = open("text", table({{"path", path}, {"fraction", Array{0.0, 0.9}}, {"seq_len", 128}}));
  CHECK(data->schema().vocabulary == 65);
  CHECK(data->size() == (1003854 - 129) / 128 + 1);
}

TEST_CASE("text: what is learned comes from the fraction of the file that is for training") {
  const TempFolder folder;
  const auto vocabulary = [&](const std::string& text) {
    return open("text",
                table({{"path", folder.write("t.txt", text)}, {"seq_len", 1}, {"fraction", Array{0.0, 0.5}}}))
        ->schema()
        .vocabulary;
  };
  CHECK(vocabulary("abéabcde") == 3);
  CHECK(vocabulary("abéaaaaa") == 3);
}

// what is learned
// --------------------------------------------------------------------------------------------------

/// Leaks of tests/e2e/own_data.py has a case for each dataset whose seal names the header.
TEST_CASE("datasets that learn are those whose seals name learns.hpp") {
  for (const auto& file : std::filesystem::directory_iterator(TRAINYARD_PLUGIN_DIR "/dataset")) {
    const std::string name = file.path().stem().string().substr(std::string_view("lib").size());
    if (file.path().extension() != ".so") continue;
    INFO(name);
    std::ifstream library(file.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(library), {}};
    const bool sealed = bytes.find(" learns.hpp=") != std::string::npos;
    CHECK((dynamic_cast<Learns*>(make<Dataset>(name).get()) != nullptr) == sealed);
  }
}

TEST_CASE("idx: classes are those of the samples that training takes") {
  const TempFolder folder;
  const auto file = [&](const std::string& labels) {
    return table({{"images", folder.write("i", idx({4, 1, 1}, ramp(4, 10)))},
                  {"labels", folder.write("l", idx({4}, labels))}});
  };
  const auto train = make<Dataset>("idx", file({"\x01\x00\x02\x09", 4}));
  auto& learns = dynamic_cast<Learns&>(*train);
  learns.set_taken([](std::int64_t size) {
    CHECK(size == 4);
    return Classes{0, 1, 2};
  });
  train->open("train");
  CHECK(train->schema().classes == 3);
  const auto opened = [&](const std::string& labels, const std::string& split) {
    auto dataset = make<Dataset>("idx", file(labels));
    dynamic_cast<Learns&>(*dataset).use(learns.learned());
    dataset->open(split);
    return dataset;
  };
  const auto val = opened({"\x01\x09\x01\x03", 4}, "val");
  CHECK(val->schema().classes == 3);
  CHECK(dynamic_cast<const Learns&>(*val).ungraded() == Classes{1, 3});
  CHECK_THAT(message_of<DataError>([&] {
               opened({"\x01\x09\x01\x03", 4}, "train");
             }),
             Contains("record 1 is of class 9, and the run was trained with 3 classes"));
}

// synthetic
// --------------------------------------------------------------------------------------------------

TEST_CASE("synthetic: the same for a seed, another draw for another split or seed") {
  for (const char* kind : {"classification", "regression", "language"}) {
    INFO(kind);
    const auto inputs = [&](int seed, const char* split) {
      const auto data = open("synthetic", table({{"kind", kind}, {"seed", seed}, {"size", 20}}), split);
      check_batch_fits_schema(*data);
      CHECK(data->size() == 20);
      const at::Tensor input = read_all(*data).input().toType(at::kFloat);
      return values(input);
    };
    CHECK(inputs(1, "train") == inputs(1, "train"));
    CHECK(inputs(1, "train") != inputs(1, "val"));
    CHECK(inputs(1, "train") != inputs(2, "train"));
  }
}

TEST_CASE("synthetic: splits share one truth") {
  SECTION("classification: the nearest mean of the training classes tells the class of a validation sample") {
    const Table options =
        table({{"kind", "classification"}, {"size", 2000}, {"classes", 5}, {"shape", Array{4, 4}}});
    const auto train = open("synthetic", options), val = open("synthetic", options, "val");
    CHECK(train->schema().inputs[0].shape == Shape{4, 4});
    std::vector<std::vector<double>> mean(5, std::vector<double>(16));
    std::vector<double> count(5);
    const Floats x = values(read_all(*train).input());
    for (std::size_t i = 0; i < 2000; ++i) {
      const auto label = static_cast<std::size_t>(train->labels()[i]);
      ++count[label];
      for (std::size_t f = 0; f < 16; ++f) mean[label][f] += x[i * 16 + f];
    }
    int right = 0;
    const Floats y = values(read_all(*val).input());
    const Classes labels = val->labels();
    for (std::size_t i = 0; i < 2000; ++i) {
      std::vector<double> distance(5);
      for (std::size_t c = 0; c < 5; ++c)
        for (std::size_t f = 0; f < 16; ++f)
          distance[c] += std::pow(y[i * 16 + f] - mean[c][f] / count[c], 2);
      right += std::min_element(distance.begin(), distance.end()) - distance.begin() == labels[i];
    }
    CHECK(right > 1900);
  }
  SECTION("regression: without noise the target is linear in the input") {
    const Table options = table({{"kind", "regression"}, {"size", 50}, {"shape", Array{1}}, {"noise", 0.0}});
    const auto ratio = [&](const char* split) {
      const auto data = open("synthetic", options, split);
      const Batch batch = read_all(*data);
      const Floats x = values(batch.input()), y = values(batch.target);
      for (std::size_t i = 1; i < 50; ++i) CHECK(y[i] * x[0] == Approx(y[0] * x[i]).margin(1e-5));
      return y[0] / x[0];
    };
    CHECK(ratio("train") == Approx(ratio("val")));
  }
  SECTION("language: without noise each token has at most two successors, the same in both splits") {
    const Table options = table({{"kind", "language"}, {"size", 200}, {"noise", 0.0}, {"vocabulary", 12}});
    std::map<std::int64_t, std::set<std::int64_t>> successors;
    for (const char* split : {"train", "val"}) {
      const Batch batch = read_all(*open("synthetic", options, split));
      const Classes from = values<std::int64_t>(batch.input()), to = values<std::int64_t>(batch.target);
      for (std::size_t i = 0; i < from.size(); ++i) successors[from[i]].insert(to[i]);
    }
    for (const auto& [token, next] : successors) CHECK(next.size() <= 2);
  }
  CHECK_THAT(config_error("synthetic", table({{"kind", "language"}, {"noise", 2.0}})),
             Contains("probability"));
  CHECK_THAT(config_error("synthetic", table({{"shape", Array{1 << 20, 1 << 20}}})),
             Contains("size x shape"));
}

// criteo
// --------------------------------------------------------------------------------------------------------

namespace {

/// A line of the published format from a label, the first numbers and the first categories; the rest empty.
std::string click_line(const std::string& label, std::vector<std::string> numbers,
                       std::vector<std::string> categories, char separator = '\t') {
  numbers.resize(13);
  categories.resize(26);
  std::string line = label;
  for (const std::string& each : numbers) line += separator + each;
  for (const std::string& each : categories) line += separator + each;
  return line + "\n";
}

std::string click_header() {
  std::string header = "Id,Label";
  for (int i = 1; i <= 13; ++i) header += ",I" + std::to_string(i);
  for (int i = 1; i <= 26; ++i) header += ",C" + std::to_string(i);
  return header + "\n";
}

}  // namespace

TEST_CASE("criteo: numbers, categories and what is missing, plain and packed") {
  const TempFolder folder;
  const std::string content =
      click_line("1", {"0", "1", "-3", "", "20"}, {"0a", "ffffffff", "", "00000063"}) + "\r\n" +
      click_line("0", {}, {"64"});
  for (const char* name : {"day_0", "day_0.gz"}) {
    const auto data = open("criteo", table({{"path", folder.write(name, content)}, {"rows", Array{101}}}));
    REQUIRE(data->size() == 2);
    CHECK(data->labels() == Classes{1, 0});
    CHECK(data->schema().classes == 2);
    CHECK(data->schema().vocabulary == 101);
    check_batch_fits_schema(*data);
    const Batch batch = read(*data, {1, 0});
    CHECK(values<std::int64_t>(batch.target) == Classes{0, 1});
    // log(1 + x); empty and negative: 0.
    const Floats features = values(batch.inputs[0]);
    CHECK(Floats(features.begin(), features.begin() + 13) == Floats(13, 0.0f));
    Floats expected(13, 0.0f);
    expected[1] = std::log(2.0f);
    expected[4] = std::log(21.0f);
    for (std::size_t i = 0; i < 13; ++i) CHECK(features[13 + i] == Approx(expected[i]));
    // 1 + h % 100; empty: 0.
    const auto ids = values<std::int64_t>(batch.inputs[1]);
    CHECK(ids[0] == 1);
    CHECK(Classes(ids.begin() + 26, ids.begin() + 31) == Classes{11, 1 + 4294967295 % 100, 0, 100, 0});
  }
}

TEST_CASE("criteo: a table of its own for each category, and a part of the file") {
  const TempFolder folder;
  std::string content;
  for (int i = 0; i < 10; ++i)
    content +=
        click_line(i % 2 == 0 ? "0" : "1", {std::to_string(i)}, {std::to_string(i), std::to_string(i)});
  const std::string path = folder.write("t.tsv", content);
  Array rows(26, Value(2));
  rows[1] = 4;
  const auto data = open("criteo", table({{"path", path}, {"rows", rows}, {"skip", 3}, {"limit", 4}}));
  REQUIRE(data->size() == 4);
  CHECK(data->schema().vocabulary == 4);
  CHECK(data->labels() == Classes{1, 0, 1, 0});
  const auto ids = values<std::int64_t>(read_all(*data).inputs[1]);
  for (int i = 0; i < 4; ++i) {
    CHECK(ids[static_cast<std::size_t>(26 * i)] == 1);
    CHECK(ids[static_cast<std::size_t>(26 * i + 1)] == 1 + (i + 3) % 3);
  }
  CHECK_THAT(config_error("criteo", table({{"path", path}, {"rows", Array{5, 6}}})),
             Contains("rows has 2 numbers") && Contains("each of the 26"));
  CHECK_THAT(data_error("criteo", table({{"path", path}, {"rows", Array{5}}, {"skip", 10}})),
             Contains("skip = 10 leaves none of its 10 samples"));
}

TEST_CASE("criteo: commas and a header") {
  const TempFolder folder;
  const std::string line = "7," + click_line("1", {"3.0"}, {"1f"}, ',');
  const auto data = open("criteo", table({{"path", folder.write("t.csv", click_header() + line)},
                                          {"rows", Array{1000}},
                                          {"layout", "csv"}}));
  const Batch batch = read(*data, {0});
  CHECK(values(batch.inputs[0]).front() == Approx(std::log(4.0)));
  CHECK(values<std::int64_t>(batch.inputs[1]).front() == 1 + 0x1f);
  CHECK(data->labels() == Classes{1});
  CHECK_THAT(data_error("criteo", table({{"path", folder.write("u.csv", "label,I1,C1\n1,2,3\n")},
                                         {"rows", Array{9}},
                                         {"layout", "csv"}})),
             Contains("u.csv:1: the header has no column \"I2\""));
}

TEST_CASE("criteo: errors name file and line") {
  const TempFolder folder;
  const std::string good = click_line("1", {"1"}, {"ab"});
  const auto error = [&](const std::string& content) {
    return data_error("criteo", table({{"path", folder.write("t.tsv", content)}, {"rows", Array{10}}}));
  };
  CHECK_THAT(error(good + click_line("2", {}, {})), Contains("t.tsv:2: field 1: the label is '2'"));
  CHECK_THAT(error(good + good + click_line("0", {"1", "x"}, {})),
             Contains("t.tsv:3: field 3: 'x' is not a number"));
  CHECK_THAT(error(click_line("0", {"nan"}, {})), Contains("t.tsv:1: field 2: 'nan' is not a number"));
  CHECK_THAT(error(click_line("0", {}, {"", "0xff"})), Contains("t.tsv:1: field 16: '0xff' is not a hash"));
  CHECK_THAT(error(click_line("0", {}, {"123456789"})), Contains("field 15") && Contains("is not a hash"));
  CHECK_THAT(error(good + "1\t2\t3\n"), Contains("t.tsv:2: found 3 fields, expected 40"));
  CHECK_THAT(error(click_line("0", {}, {}, ',')), Contains("layout = \"csv\""));
  CHECK_THAT(error("\n"), Contains("t.tsv: there is no sample"));
  const std::string packed = folder.write("t.tsv.gz", good + good + good);
  CHECK_THAT(data_error("criteo", table({{"path", folder.truncate(packed, 30)}, {"rows", Array{10}}})),
             Contains("truncated"));
}

TEST_CASE("criteo: the samples") {
  const std::string tiny = test::real_data("rec/criteo_sample/kaggle2014_train.tiny.csv.gz");
  const std::string small = test::real_data("rec/criteo_sample/deepctr_criteo_sample.txt");
  if (tiny.empty() || small.empty()) return;
  const auto opened = [](const std::string& path) {
    return open("criteo", table({{"path", path}, {"rows", Array{1 << 24}}, {"layout", "csv"}}));
  };
  const auto data = opened(tiny);
  const std::vector<std::int64_t> clicks = data->labels();
  CHECK(data->size() == 1999);
  CHECK(std::accumulate(clicks.begin(), clicks.end(), std::int64_t{0}) == 418);
  // Counted by the README of the data; an empty field is a value.
  const Classes distinct = {79, 252, 1293, 1043, 30,  7,   1164, 39,   2, 908, 926, 1239, 824,
                            20, 819, 1159, 9,    534, 201, 4,    1204, 7, 12,  729, 33,   554};
  const auto ids = values<std::int64_t>(read_all(*data).inputs[1]);
  for (std::size_t t = 0; t < 26; ++t) {
    std::set<std::int64_t> found;
    for (std::size_t i = t; i < ids.size(); i += 26) found.insert(ids[i]);
    CHECK(static_cast<std::int64_t>(found.size()) == distinct[t]);
  }
  const std::vector<std::int64_t> others = opened(small)->labels();
  CHECK(others.size() == 200);
  CHECK(std::accumulate(others.begin(), others.end(), std::int64_t{0}) == 49);
}

// ctr
// --------------------------------------------------------------------------------------------------------

TEST_CASE("ctr: a sample is a function of seed, split and index") {
  const Table options = table({{"size", 500}, {"rows", Array{5, 40}}, {"features", 2}});
  const auto one = open("ctr", options);
  check_batch_fits_schema(*one);
  const Batch all = read_all(*one);
  const auto longer = open("ctr", table({{"size", 900}, {"rows", Array{5, 40}}, {"features", 2}}));
  const Batch some = read(*longer, {7, 499});
  const auto ids = values<std::int64_t>(all.inputs[1]);
  CHECK(values<std::int64_t>(some.inputs[1]) == Classes{ids[14], ids[15], ids[998], ids[999]});
  const Floats features = values(all.inputs[0]);
  CHECK(values(some.inputs[0]) == Floats{features[14], features[15], features[998], features[999]});
  CHECK(values<std::int64_t>(all.target) == one->labels());
  CHECK_FALSE(values<std::int64_t>(read_all(*open("ctr", options, "val")).inputs[1]) == ids);
  Table other = options;
  other.set("seed", 1);
  CHECK_FALSE(values<std::int64_t>(read_all(*open("ctr", other)).inputs[1]) == ids);
  CHECK_THAT(config_error("ctr", table({{"rows", Array{}}})), Contains("rows is empty"));
}

TEST_CASE("ctr: shares of the values are Zipf's, and of the clicks as wanted") {
  const std::int64_t size = 40000, rows = 50;
  const auto data = open("ctr", table({{"size", size}, {"rows", Array{rows, 300}}, {"zipf", 1.1}}));
  const auto ids = values<std::int64_t>(read_all(*data).input());
  std::vector<double> counts(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < ids.size(); i += 2) ++counts[static_cast<std::size_t>(ids[i])];
  double sum = 0.0;
  for (int k = 1; k <= rows; ++k) sum += std::pow(k, -1.1);
  for (int k = 0; k < rows; ++k) {
    const double share = std::pow(k + 1, -1.1) / sum, n = static_cast<double>(size);
    CHECK(std::abs(counts[static_cast<std::size_t>(k)] / n - share) <
          4.5 * std::sqrt(share * (1 - share) / n));
  }
  const std::vector<std::int64_t> labels = data->labels();
  const double clicks = static_cast<double>(std::accumulate(labels.begin(), labels.end(), std::int64_t{0}));
  // The offset is found on 16384 samples of their own, so that the rate has the error of both.
  CHECK(clicks / static_cast<double>(size) == Approx(0.32).margin(0.02));
}

TEST_CASE("ctr: splits share one truth, which categories tell") {
  const Table options = table({{"size", 20000}, {"rows", Array{4, 4}}, {"signal", 3.0}});
  const auto rates = [&](const std::string& split) {
    const Batch all = read_all(*open("ctr", options, split));
    const auto ids = values<std::int64_t>(all.input());
    const auto labels = values<std::int64_t>(all.target);
    std::vector<double> clicks(16), seen(16, 1e-9);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto cell = static_cast<std::size_t>(4 * ids[2 * i] + ids[2 * i + 1]);
      clicks[cell] += static_cast<double>(labels[i]);
      ++seen[cell];
    }
    for (std::size_t i = 0; i < 16; ++i) clicks[i] /= seen[i];
    return clicks;
  };
  const std::vector<double> train = rates("train"), val = rates("val");
  for (std::size_t i = 0; i < 16; ++i) CHECK(train[i] == Approx(val[i]).margin(0.09));
  const auto [least, most] = std::minmax_element(train.begin(), train.end());
  CHECK(*most - *least > 0.5);
}

}  // namespace dataset_tests
