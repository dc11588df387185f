#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include <catch2/catch.hpp>
#include <trainyard/dataset.hpp>

#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/sparse_rows.hpp>

#include "support/files.hpp"
#include "support/plugin.hpp"

namespace xc_tests {

using namespace trainyard;
using Catch::Contains;
using test::message_of;
using test::table;
using test::TempFolder;

namespace {

std::unique_ptr<Dataset> open(const Table& options, const std::string& split = "train") {
  auto dataset = test::make<Dataset>("xc", options);
  dataset->open(split);
  return dataset;
}
std::string data_error(const Table& options) {
  return message_of<DataError>([&] { open(options); });
}
std::string config_error(const Table& options) {
  return message_of<ConfigError>([&] { open(options); });
}

/// A sample as a batch has it.
struct Sample {
  std::vector<std::int64_t> labels;
  std::vector<std::pair<std::int64_t, float>> entries;
  bool operator==(const Sample&) const = default;
};

/// As a file has it.
std::ostream& operator<<(std::ostream& out, const Sample& sample) {
  for (const std::int64_t label : sample.labels) out << label << ',';
  for (const auto& [feature, value] : sample.entries) out << ' ' << feature << ':' << value;
  return out;
}

/// Reads them and checks that the batch is what the schema says.
std::vector<Sample> read(const Dataset& dataset, const std::vector<std::int64_t>& indices) {
  const BatchSchema schema = dataset.schema();
  const std::int64_t features = find_sparse_rows(schema), most = schema.target.shape.at(0);
  REQUIRE(has_several_labels(schema));
  const auto size = static_cast<std::int64_t>(indices.size());
  const Batch batch = dataset.read(indices, {RandomStream(1, "data"), 0});
  REQUIRE(batch.inputs.size() == 3);
  REQUIRE(batch.inputs[0].scalar_type() == at::kLong);
  REQUIRE(batch.inputs[1].scalar_type() == at::kFloat);
  REQUIRE(batch.inputs[2].scalar_type() == at::kLong);
  REQUIRE(batch.inputs[2].sizes() == at::IntArrayRef{size + 1});
  REQUIRE(batch.target.sizes() == at::IntArrayRef{size, most});
  REQUIRE(batch.target.scalar_type() == at::kLong);
  const auto* index = batch.inputs[0].const_data_ptr<std::int64_t>();
  const auto* value = batch.inputs[1].const_data_ptr<float>();
  const auto* offset = batch.inputs[2].const_data_ptr<std::int64_t>();
  const auto* target = batch.target.const_data_ptr<std::int64_t>();
  REQUIRE(offset[0] == 0);
  REQUIRE(batch.inputs[0].numel() == offset[size]);
  REQUIRE(batch.inputs[1].numel() == offset[size]);
  std::vector<Sample> samples(indices.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::int64_t j = offset[i]; j < offset[i + 1]; ++j) {
      REQUIRE((index[j] >= 0 && index[j] < features));
      REQUIRE((j == offset[i] || index[j - 1] < index[j]));
      samples[i].entries.emplace_back(index[j], value[j]);
    }
    bool over = false;
    for (std::int64_t j = 0; j < most; ++j) {
      const std::int64_t label = target[static_cast<std::int64_t>(i) * most + j];
      over = over || label == no_label;
      REQUIRE((over ? label == no_label : label >= 0 && label < schema.classes));
      if (!over) samples[i].labels.push_back(label);
    }
    REQUIRE(std::is_sorted(samples[i].labels.begin(), samples[i].labels.end()));
  }
  return samples;
}
std::vector<Sample> read_all(const Dataset& dataset) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return read(dataset, indices);
}

const std::string small =
    "6 9 5\n"
    "1,4 0:1 3:0.25 8:-2e1\r\n"
    "2 7:1 5:2 6:3\n"  // not in order
    " 1:0.5\n"         // no label
    "4:1\t5:0\n"       // no label, either
    "3,0,1\n"          // no feature
    "\n"               // neither
    "\n";              // no sample any more

Table made_up(std::int64_t size, std::int64_t own, std::int64_t noise) {
  return table({{"layout", "synthetic"},
                {"size", size},
                {"features", 400},
                {"classes", 12},
                {"prototype", 9},
                {"own", own},
                {"noise", noise}});
}

}  // namespace

TEST_CASE("xc: labels and features of a file, plain and packed") {
  const TempFolder folder;
  const std::vector<Sample> expected = {{{1, 4}, {{0, 1.0f}, {3, 0.25f}, {8, -20.0f}}},
                                        {{2}, {{5, 2.0f}, {6, 3.0f}, {7, 1.0f}}},
                                        {{}, {{1, 0.5f}}},
                                        {{}, {{4, 1.0f}, {5, 0.0f}}},
                                        {{0, 1, 3}, {}},
                                        {{}, {}}};
  for (const char* name : {"t.txt", "t.txt.gz"}) {
    const auto data = open(table({{"path", folder.write(name, small)}}));
    REQUIRE(data->size() == 6);
    CHECK(find_sparse_rows(data->schema()) == 9);
    CHECK(data->schema().classes == 5);
    CHECK(data->schema().target.shape == std::vector<std::int64_t>{3});
    CHECK_FALSE(data->schema().one_row_a_sample());
    CHECK(read_all(*data) == expected);
    CHECK(read(*data, {4, 0, 5, 0}) ==
          std::vector<Sample>{expected[4], expected[0], expected[5], expected[0]});
    CHECK(read(*data, {5}) == std::vector<Sample>{expected[5]});
  }
}

TEST_CASE("xc: a part of the file, a target of another width, samples of length 1") {
  const TempFolder folder;
  const std::string path = folder.write("t.txt", small);
  const auto whole = read_all(*open(table({{"path", path}})));
  const auto part = open(table({{"path", path}, {"skip", 1}, {"limit", 3}, {"most_labels", 4}}));
  CHECK(part->schema().target.shape == std::vector<std::int64_t>{4});
  CHECK(read_all(*part) == std::vector<Sample>(whole.begin() + 1, whole.begin() + 4));
  CHECK(open(table({{"path", path}, {"skip", 1}, {"limit", 1}}))->schema().target.shape ==
        std::vector<std::int64_t>{1});
  CHECK_THAT(data_error(table({{"path", path}, {"most_labels", 2}})),
             Contains("t.txt:6: the sample has 3 labels, more than most_labels = 2"));

  const auto normal = read_all(*open(table({{"path", path}, {"normalise", "l2"}})));
  CHECK(normal[0].entries[2].second == Approx(-20.0 / std::sqrt(1.0 + 0.0625 + 400.0)));
  for (const std::size_t i : {0, 1, 2, 3}) {
    double squares = 0.0;
    for (const auto& [feature, value] : normal[i].entries) squares += value * value;
    CHECK(squares == Approx(1.0));
  }
  const std::string zeros = folder.write("zeros.txt", "1 3 1\n0 1:0 2:0\n");
  CHECK(read_all(*open(table({{"path", zeros}, {"normalise", "l2"}})))[0].entries[1].second == 0.0f);
}

TEST_CASE("xc: errors name file, line and column") {
  const TempFolder folder;
  const auto error = [&](const std::string& content, Table options = {}) {
    options.set("path", folder.write("t.txt", content));
    return data_error(options);
  };
  const std::string head = "2 9 5\n", good = "1 2:3\n";
  CHECK_THAT(error(""), Contains("t.txt: the file is empty"));
  CHECK_THAT(error("1,2 3:4\n"), Contains("t.txt:1:1: ") && Contains("'1,2' is no number of samples"));
  CHECK_THAT(error("2 9\n"), Contains("t.txt:1:4: ") && Contains("no number of labels"));
  CHECK_THAT(error("2 9 5 7\n"), Contains("t.txt:1:7: ") && Contains("'7'"));
  CHECK_THAT(error("2 -9 5\n"), Contains("t.txt:1:3: ") && Contains("'-9' is no number of features"));
  CHECK_THAT(error("2 9 2147483648\n"), Contains("t.txt:1:5: ") && Contains("from 0 to 2147483647"));
  CHECK_THAT(error("0 9 5\n"), Contains("t.txt:1:1: the file has no sample"));
  CHECK_THAT(error("1 0 5\n\n"), Contains("t.txt:1: the file has no features"));
  CHECK_THAT(error("1 9 0\n\n"), Contains("t.txt:1: the file has no labels"));

  CHECK_THAT(error(head + good + "5 2:3\n"),
             Contains("t.txt:3:1: label 5 is out of range: the first line names 5 labels"));
  CHECK_THAT(error(head + "1,-1 2:3\n" + good), Contains("t.txt:2:3: label -1 is out of range"));
  CHECK_THAT(error(head + "1, 2:3\n" + good), Contains("t.txt:2:3: '' is no number of a label"));
  CHECK_THAT(error(head + "1,x 2:3\n" + good), Contains("t.txt:2:3: 'x' is no number of a label"));
  CHECK_THAT(error(head + "1 9:3\n" + good),
             Contains("t.txt:2:3: feature 9 is out of range: the first line names 9"));
  CHECK_THAT(error(head + "1 -2:3\n" + good), Contains("t.txt:2:3: feature -2 is out of range"));
  CHECK_THAT(error(head + "1 99999999999999999999:3\n" + good),
             Contains("t.txt:2:3: ") && Contains("is no number"));
  CHECK_THAT(error(head + "1 2:3 4\n" + good), Contains("t.txt:2:7: '4' is no feature with its value"));
  CHECK_THAT(error(head + " 1 2:3\n" + good), Contains("t.txt:2:2: '1' is no feature with its value"));
  CHECK_THAT(error(head + "1 2:3 4:\n" + good), Contains("t.txt:2:9: '', the value of feature 4"));
  for (const char* bad : {"nan", "inf", "-inf", "1e39", "1e999", "x", "1:2"})
    CHECK_THAT(
        error(head + good + "1 3:" + bad + "\n"),
        Contains("t.txt:3:5: '" + std::string(bad) + "', the value of feature 3, is no finite number"));
  CHECK_THAT(error(head + "1 2:3 2:3\n" + good), Contains("t.txt:2: feature 2 stands there twice"));
  CHECK_THAT(error(head + "1 4:3 2:3 4:1\n" + good), Contains("t.txt:2: feature 4 stands there twice"));
  CHECK_THAT(error(head + "3,1,3 2:3\n" + good), Contains("t.txt:2: label 3 stands there twice"));

  CHECK_THAT(error(head + good),
             Contains("t.txt: the first line names 2 samples, and the file ends after 1"));
  CHECK_THAT(error(head + good + good + "\n" + good),
             Contains("t.txt:5: the first line names 2 samples, and here is one more"));
  CHECK_THAT(error(head + good + good, table({{"skip", 2}})),
             Contains("skip = 2 leaves none of its 2 samples"));
  std::string many = "20000 9 5\n";
  for (int i = 0; i < 20000; ++i)
    many += std::to_string(i % 5) + " " + std::to_string(i * 7919 % 9) + ":" + std::to_string(i * 31 % 1009) +
            "\n";
  const std::string packed = folder.write("t.txt.gz", many);
  REQUIRE(open(table({{"path", packed}}))->size() == 20000);
  const auto bytes = std::filesystem::file_size(packed);
  for (const auto kept : {bytes - 1, bytes / 2})
    CHECK_THAT(data_error(table({{"path", folder.truncate(packed, kept)}})),
               Contains("gzip data is truncated"));
}

TEST_CASE("xc: whatever bytes a file has, it is read or refused with its name") {
  const TempFolder folder;
  const RandomStream random(1, "damage");
  const std::string bytes = "0123456789,: \t\n-.en";
  int refused = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    std::string damaged = small;
    const RandomStream stream = random.at(i);
    for (std::uint64_t hit = 0; hit < 1 + i % 3; ++hit) {
      char& byte = damaged[stream.below(2 * hit, damaged.size())];
      byte = i % 5 == 0 ? static_cast<char>(stream.below(2 * hit + 1, 256))
                        : bytes[stream.below(2 * hit + 1, bytes.size())];
    }
    try {
      read_all(*open(table({{"path", folder.write("t.txt", damaged)}})));
    } catch (const DataError& error) {
      CHECK_THAT(error.what(), Contains("t.txt:"));
      ++refused;
    }
  }
  CHECK((refused > 500 && refused < 1990));
}

TEST_CASE("xc: options that do not fit the layout are refused") {
  CHECK_THAT(config_error({}), Contains("needs a path"));
  Table options = made_up(10, 2, 2);
  options.set("limit", 5);
  CHECK_THAT(config_error(options), Contains("are of layout = \"text\""));
  CHECK_THAT(config_error(made_up(10, 10, 2)),
             Contains("own is 10, more than the 9 features of a prototype"));
  CHECK_THAT(config_error(made_up(10, 2, 399)), Contains("own + noise is 401, more than the 400 features"));
  CHECK_NOTHROW(open(made_up(10, 2, 398)));
  options = made_up(10, 2, 2);
  options.set("prototype", 401);
  CHECK_THAT(config_error(options), Contains("prototype is 401, more than the 400 features"));
}

TEST_CASE("xc: kept samples are the same, are made once, and are refused when a byte of them is another") {
  const TempFolder folder, shelf;
  folder.write("small.txt.gz", small);
  const auto options = [&](const std::string& keep_in, const std::string& normalise) {
    return table({{"path", folder.path("small.txt.gz")}, {"normalise", normalise}, {"keep_in", keep_in}});
  };
  const auto files = [&] {
    std::vector<std::string> found;
    for (const auto& each : std::filesystem::directory_iterator(shelf.path(""))) found.push_back(each.path());
    return found;
  };
  for (const char* normalise : {"none", "l2"}) {
    const auto expected = read_all(*open(options("", normalise)));
    const std::size_t before = files().size();
    CHECK(read_all(*open(options(shelf.path(""), normalise))) == expected);  // writes it
    CHECK(files().size() == before + 1);
    CHECK(read_all(*open(options(shelf.path(""), normalise))) == expected);
    CHECK(files().size() == before + 1);
  }
  const auto made = made_up(30, 4, 3);
  Table kept = made;
  kept.set("keep_in", shelf.path(""));
  for (const char* split : {"train", "val", "train"})
    CHECK(read_all(*open(kept, split)) == read_all(*open(made, split)));
  CHECK(files().size() == 4);

  for (const std::string& file : files()) std::filesystem::remove(file);
  open(options(shelf.path(""), "none"));
  const std::string file = files().front(), content = test::read_file(file);
  const std::string name = std::filesystem::path(file).filename();
  const auto again = [&] { return data_error(options(shelf.path(""), "none")); };
  for (std::size_t at = 0; at < content.size(); ++at) {
    std::string changed = content;
    changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
    std::ofstream(file, std::ios::binary) << changed;
    REQUIRE_THAT(again(), Contains(name) && Contains("the kept xc is damaged: remove the file"));
    std::ofstream(file, std::ios::binary) << content.substr(0, at);
    REQUIRE_THAT(again(), Contains(name) && Contains("the kept xc is damaged"));
  }
  folder.write("small.txt.gz", "1 9 5\n1 0:1\n");  // another file: read anew
  CHECK(open(options(shelf.path(""), "none"))->size() == 1);
  CHECK_THAT(config_error(options(folder.path("nowhere"), "none")), Contains("is no folder"));
}

TEST_CASE("xc: Stack Exchange Chess") {
  const std::string train = test::real_data("xc/stackex_chess/train.txt.gz");
  const std::string test = test::real_data("xc/stackex_chess/test.txt.gz");
  if (train.empty() || test.empty()) return;
  // Counted with awk.
  struct Expected {
    std::string path;
    std::size_t samples, labels, most, entries, unlabelled;
    double values;
  };
  for (const auto& [path, samples, labels, most, entries, unlabelled, values] :
       {Expected{train, 1340, 3221, 5, 24025, 3, 34348}, Expected{test, 335, 818, 5, 5927, 0, 8334}}) {
    const auto data = open(table({{"path", path}}));
    CHECK(find_sparse_rows(data->schema()) == 585);
    CHECK(data->schema().classes == 227);
    CHECK(data->schema().target.shape == std::vector{static_cast<std::int64_t>(most)});
    const std::vector<Sample> all = read_all(*data);
    CHECK(all.size() == samples);
    std::size_t of_labels = 0, of_entries = 0, without = 0;
    double sum = 0.0;
    for (const Sample& sample : all) {
      of_labels += sample.labels.size();
      of_entries += sample.entries.size();
      without += sample.labels.empty();
      for (const auto& [feature, value] : sample.entries) sum += value;
    }
    CHECK(of_labels == labels);
    CHECK(of_entries == entries);
    CHECK(without == unlabelled);
    CHECK(sum == values);
  }
}

TEST_CASE("xc: a made-up sample is a function of seed, split and index") {
  const auto one = read_all(*open(made_up(300, 4, 3)));
  const auto longer = open(made_up(900, 4, 3));
  CHECK(read(*longer, {7, 299}) == std::vector<Sample>{one[7], one[299]});
  CHECK_FALSE(read_all(*open(made_up(300, 4, 3), "val")) == one);
  Table other = made_up(300, 4, 3);
  other.set("seed", 1);
  CHECK_FALSE(read_all(*open(other)) == one);
  for (const Sample& sample : one) {
    CHECK(sample.labels.size() == 1);
    CHECK(sample.entries.size() == 7);
    for (const auto& [feature, value] : sample.entries) CHECK(value == 1.0f);
  }
}

TEST_CASE("xc: made-up samples have the features of their class, the same in all splits, and others") {
  const auto features_of = [](const Table& options, const std::string& split) {
    std::map<std::int64_t, std::map<std::int64_t, int>> seen;  // class, feature, how often
    for (const Sample& sample : read_all(*open(options, split)))
      for (const auto& [feature, value] : sample.entries) ++seen[sample.labels[0]][feature];
    return seen;
  };
  const auto whole = features_of(made_up(2000, 9, 0), "train");
  REQUIRE(whole.size() == 12);
  std::set<std::set<std::int64_t>> prototypes;
  for (const auto& [label, features] : whole) {
    std::set<std::int64_t> prototype;
    for (const auto& [feature, count] : features) prototype.insert(feature);
    CHECK(prototype.size() == 9);
    prototypes.insert(prototype);
  }
  CHECK(prototypes.size() == 12);

  // 4 of 9 are shown, all as often; noise falls on the 396 others alike.
  const std::int64_t size = 40000;
  const auto some = features_of(made_up(size, 4, 3), "val");
  std::map<std::int64_t, double> of_class;
  for (const Sample& sample : read_all(*open(made_up(size, 4, 3), "val"))) ++of_class[sample.labels[0]];
  for (const auto& [label, features] : some) {
    const double n = of_class[label];
    for (std::int64_t feature = 0; feature < 400; ++feature) {
      const bool own = whole.at(label).contains(feature);
      // Noise takes 3 of the 396 that the sample does not show, of its prototype's those 5 as well.
      const double share = own ? 4.0 / 9 + 5.0 / 9 * 3 / 396 : 3.0 / 396;
      const auto found = features.find(feature);
      const double count = found == features.end() ? 0.0 : found->second;
      CHECK(std::abs(count - n * share) < 5.0 * std::sqrt(n * share * (1 - share)) + 1.0);
    }
  }
}

TEST_CASE("xc: shares of made-up classes are those of Zipf and Mandelbrot") {
  const std::int64_t size = 60000, classes = 12;
  for (const auto& [exponent, shift] : {std::pair{0.7, 20.0}, std::pair{2.0, 1.0}}) {
    Table options = made_up(size, 1, 0);
    options.set("exponent", exponent);
    options.set("shift", shift);
    std::vector<double> counts(static_cast<std::size_t>(classes));
    for (const Sample& sample : read_all(*open(options)))
      ++counts[static_cast<std::size_t>(sample.labels[0])];
    double sum = 0.0;
    for (int k = 0; k < classes; ++k) sum += 1.0 / std::pow(k + shift, exponent);
    for (int k = 0; k < classes; ++k) {
      const double share = 1.0 / std::pow(k + shift, exponent) / sum, n = static_cast<double>(size);
      CHECK(std::abs(counts[static_cast<std::size_t>(k)] - n * share) <
            4.5 * std::sqrt(n * share * (1 - share)));
    }
  }
}

}  // namespace xc_tests
