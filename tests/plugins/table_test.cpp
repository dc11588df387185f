// Tables with categories, gaps and text, as people have them: csv beyond numbers.
#include <cmath>
#include <filesystem>
#include <numeric>

#include <catch2/catch.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/mixins/scales_targets.hpp>
#include <trainyard/new_data.hpp>

#include "golden.hpp"
#include "support/files.hpp"
#include "support/folder.hpp"
#include "support/plugin.hpp"

namespace table_tests {

using namespace trainyard;
using Catch::Contains;
using test::make;
using test::message_of;
using test::table;
using test::TempFolder;

namespace {

std::unique_ptr<Dataset> open(Table options, const Dataset* train = nullptr) {
  auto dataset = make<Dataset>("csv", options);
  if (train != nullptr) dynamic_cast<Learns&>(*dataset).use(dynamic_cast<const Learns&>(*train).learned());
  dataset->open(train == nullptr ? "train" : "val");
  return dataset;
}

Batch read_all(const Dataset& dataset) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return dataset.read(indices, {RandomStream(1, "data", 0), 0});
}

std::vector<float> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}
std::vector<float> features(const Dataset& dataset) {
  return values(read_all(dataset).input());
}
using Floats = std::vector<float>;
using Classes = std::vector<std::int64_t>;

std::string data_error(const Table& options, const Dataset* train = nullptr) {
  return message_of<DataError>([&] { open(options, train); });
}

std::vector<float> flat(const nlohmann::json& rows) {
  std::vector<float> all;
  for (const auto& row : rows)
    for (const auto& number : row) all.push_back(number.get<float>());
  return all;
}

void check_close(const std::vector<float>& found, const std::vector<float>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(1e-5));
}

}  // namespace

TEST_CASE("csv: gaps, categories and classes are those of scikit-learn, found on the training split alone") {
  const auto golden = test::golden("tables.json");
  const TempFolder folder;
  const std::string train_path = folder.write("train.csv", golden["train"].get<std::string>()),
                    other_path = folder.write("other.csv", golden["other"].get<std::string>());
  for (const auto& each : golden["cases"]) {
    INFO(each["options"].dump());
    Table options = test::options(each["options"]);
    options.set("target", "rate");
    options.set("categorical", Array{"grade"});
    options.set("path", train_path);
    const auto train = open(options);
    check_close(features(*train), flat(each["train"]));
    CHECK(train->labels() == golden["classes"]["train"].get<Classes>());
    CHECK(dynamic_cast<const ReadsNewData&>(*train).class_names() ==
          golden["labels"].get<std::vector<std::string>>());
    options.set("path", other_path);  // its columns stand in another order
    const auto other = open(options, train.get());
    check_close(features(*other), flat(each["other"]));
    CHECK(other->labels() == golden["classes"]["other"].get<Classes>());
    CHECK(other->schema().inputs[0].shape == train->schema().inputs[0].shape);
  }
}

TEST_CASE("csv: quotes, lines within fields, byte order mark, any end of a line, separators") {
  const TempFolder folder;
  const auto labels_of = [&](const std::string& content, Table options = {}) {
    options.set("path", folder.write("q.csv", content));
    return dynamic_cast<const ReadsNewData&>(*open(options)).class_names();
  };
  using Names = std::vector<std::string>;
  CHECK(labels_of("\xef\xbb\xbf\"x\",y\r\n1,\"a, \"\"b\"\"\r\nc\"\r\n2, \" d \" \r\n") ==
        Names{" d ", "a, \"b\"\nc"});
  CHECK(labels_of("x;y\n1;\"a;b\"\n2;c", table({{"separator", ";"}})) == Names{"a;b", "c"});
  CHECK(labels_of("x\ty\n1\t5\" pipe\n2\t6\" pipe\n", table({{"separator", "\t"}})) ==
        Names{"5\" pipe", "6\" pipe"});
  CHECK(labels_of("x,y\n1,\"\n\n\"\n2,b\n") == Names{"\n\n", "b"});
}

TEST_CASE("csv: classes are texts or integers, whatever they are called") {
  const TempFolder folder;
  const auto open_text = [&](const std::string& content, Table options = {}) {
    options.set("path", folder.write("c.csv", content));
    return open(options);
  };
  const auto svm = open_text("1,1\n2,-1\n3,+1\n4,10\n");
  CHECK(svm->labels() == Classes{1, 0, 1, 2});
  CHECK(dynamic_cast<const ReadsNewData&>(*svm).class_names() == std::vector<std::string>{"-1", "1", "10"});
  CHECK(svm->schema().classes == 3);
  const auto val = [&](const std::string& label) {
    return data_error(table({{"path", folder.write("v.csv", "1," + label + "\n")}}), svm.get());
  };
  CHECK_THAT(val(""), Contains("the field is empty: every row needs a class"));
  // A class that training never saw: an evaluation leaves the row out, a training that goes on refuses it.
  const Table others = table({{"path", folder.write("v.csv", "1,7\n2,10\n")}});
  const auto other = open(others, svm.get());
  CHECK(other->labels() == Classes{-1, 2});
  CHECK(dynamic_cast<const Learns&>(*other).ungraded() == Classes{0});
  CHECK_THAT(message_of<DataError>([&] {
               auto again = make<Dataset>("csv", others);
               dynamic_cast<Learns&>(*again).use(dynamic_cast<const Learns&>(*svm).learned());
               again->open("train");
             }),
             Contains("v.csv:1: column 2: '7' is none of the 3 classes of the training split: \"-1\"") &&
                 Contains("labels"));
}

TEST_CASE("csv: rows that a training split does not take teach it nothing, whichever they are") {
  const TempFolder folder;
  const RandomStream draws(1, "leaks");
  for (std::uint64_t trial = 0; trial < 20; ++trial) {
    std::vector<bool> taken;
    for (std::uint64_t row = 0; row < 24; ++row) taken.push_back(draws.at(trial).below(row, 3) > 0);
    const auto learned = [&](const std::string& nonsense) {
      std::string text = "day,age,job,class\n";
      for (std::size_t row = 0; row < taken.size(); ++row)
        text += taken[row] ? "x," + std::to_string(row % 5) + (row % 2 == 0 ? ",u," : ",v,") +
                                 (row % 3 == 0 ? "no\n" : "yes\n")
                           : nonsense;
      auto dataset = make<Dataset>("csv", table({{"path", folder.write("t.csv", text)},
                                                 {"missing", "median"},
                                                 {"indicator", true},
                                                 {"standardize", true},
                                                 {"exclude", Array{"day"}}}));
      auto& learns = dynamic_cast<Learns&>(*dataset);
      std::vector<std::int64_t> rows;
      for (std::size_t row = 0; row < taken.size(); ++row)
        if (taken[row]) rows.push_back(static_cast<std::int64_t>(row));
      learns.set_taken([&](std::int64_t size) {
        CHECK(size == 24);
        return rows;
      });
      dataset->open("train");
      const Batch batch = dataset->read(rows, {RandomStream(1, "data", 0), 0});
      return std::tuple(dynamic_cast<const ReadsNewData&>(*dataset).class_names(), values(batch.input()),
                        std::vector<std::int64_t>(batch.target.const_data_ptr<std::int64_t>(),
                                                  batch.target.const_data_ptr<std::int64_t>() + rows.size()));
    };
    CHECK(learned("x,1,u,no\n") == learned("y,1e9,w,never\n"));
    CHECK(learned("x,1,u,no\n") == learned(",,,maybe\n"));
  }
}

TEST_CASE("csv: a row that the split does not take may hold anything") {
  const TempFolder folder;
  for (const char* task : {"classification", "regression"}) {
    auto dataset = make<Dataset>(
        "csv", table({{"path", folder.write("t.csv", "a,y\n1,5\n2,6\nx,never\n,\n3,5\n")}, {"task", task}}));
    dynamic_cast<Learns&>(*dataset).set_taken([](std::int64_t) { return Classes{0, 1, 4}; });
    dataset->open("train");
    CHECK(dataset->size() == 5);
    const Batch batch = dataset->read(Classes{0, 1, 4}, {RandomStream(1, "data", 0), 0});
    CHECK(values(batch.input()) == Floats{1.f, 2.f, 3.f});
    CHECK(dynamic_cast<Learns&>(*dataset).ungraded().empty());
  }
}

TEST_CASE("csv: standardize_with that names the file of which training takes a part is warned of") {
  const TempFolder folder;
  const std::string path = folder.write("t.csv", "a,y\n1,5\n2,6\n3,5\n4,6\n");
  const auto warned = [&](const std::string& with, const Array& fraction, bool take) {
    test::QuietHost host;
    auto dataset =
        make<Dataset>("csv", table({{"path", path}, {"standardize_with", with}, {"fraction", fraction}}));
    dataset->set_host(host);
    if (take) dynamic_cast<Learns&>(*dataset).set_taken([](std::int64_t) { return Classes{0, 1}; });
    dataset->open("train");
    return host.logged("rows that it leaves out are learned from, too", LogLevel::warning);
  };
  CHECK(warned(folder.path("") + "/./t.csv", Array{0.0, 1.0}, true));
  CHECK(warned(path, Array{0.0, 0.9}, false));
  CHECK_FALSE(warned(path, Array{0.0, 1.0}, false));
  CHECK_FALSE(warned(folder.write("other.csv", "a,y\n1,5\n2,6\n"), Array{0.0, 1.0}, true));
}

TEST_CASE("csv: a column that cannot be a feature is refused by name, with the option that mends it") {
  const TempFolder folder;
  const auto message = [&](const std::string& content, Table options = {}) {
    options.set("path", folder.write("bad.csv", content));
    return data_error(options);
  };
  CHECK_THAT(
      message("day,x,y\n2011-01-01,1,0\n2011-01-02,2,1\n"),
      Contains("bad.csv:2: column 1 \"day\": '2011-01-01' is a date") && Contains("exclude = [\"day\"]"));
  CHECK_THAT(message("day,y\n1/2/99 10:00,0\n,1\n", table({{"missing", "mode"}})), Contains("is a date"));
  CHECK_THAT(
      message("a,b,y\n1,,0\n2,NA,1\n", table({{"missing", "mean"}})),
      Contains("column 2 \"b\": it has no value in the training split") && Contains("exclude = [\"b\"]"));
  CHECK_THAT(message("a,b,y\n1,2,0\n2,?,1\n"), Contains("bad.csv:3: column 2 \"b\": '?' stands for a gap") &&
                                                   Contains("missing = \"median\"") && Contains("na_values"));
  CHECK_THAT(message("a,a,y\n1,2,0\n"),
             Contains("the columns 1 and 2 are both called \"a\"") && Contains("rename"));
  CHECK_THAT(message("a,b,y\n1,2,0\n3,\"4,1\n5,6,0\n"),
             Contains("bad.csv:3: a quote is not closed: the file ends within the field"));
  CHECK_THAT(message("a,y\n\"1\"2,0\n"), Contains("field 1 goes on behind its closing quote"));
  CHECK_THAT(message("a,b,y\n1,2,0\n1,2,3,0\n"),
             Contains("bad.csv:3: found 4 fields, expected 3") && Contains("has to stand in quotes"));
  CHECK_THAT(message("a;y\n1;0\n"), Contains("is the separator right?"));
  std::string late = "a,y\n";
  for (int i = 0; i < 4999; ++i) late += std::to_string(i) + ",0\n";
  CHECK_THAT(message(late + "unknown,1\n"),
             Contains("bad.csv:5001: column 1 \"a\": 'unknown' is not a number, though 4999 values") &&
                 Contains("na_values = [\"\", \"unknown\"]") && Contains("categorical = [\"a\"]"));
  std::string many = "id,y\n";
  for (int i = 0; i < 300; ++i) many += "id" + std::to_string(i) + ",0\n";
  CHECK_THAT(message(many), Contains("bad.csv:258: column 1 \"id\": more than 256 different texts") &&
                                Contains("max_levels"));
  CHECK_THAT(message("a,y\nx\xe9,0\nz,1\n"), Contains("no UTF-8") && Contains("iconv"));
  CHECK_THAT(message(""), Contains("there is no row of data"));
  CHECK_THAT(message("a,b\n"), Contains("there is no row of data"));
}

TEST_CASE("csv: excluded columns may hold anything, and a constant one does no harm") {
  const TempFolder folder;
  const auto data =
      open(table({{"path", folder.write("t.csv", "day,c,x,y\n2011-01-01,7,1,a\n2011-01-02,7,3,b\n")},
                  {"exclude", Array{"day"}},
                  {"standardize", true}}));
  CHECK(features(*data) == Floats{0, -1, 0, 1});
}

TEST_CASE("csv: what was learned goes through its table and back, and a damaged one is refused") {
  const TempFolder folder;
  const std::string path = folder.write("t.csv", "a,b,y\n1,u,k\n,v,l\n4,v,k\n");
  const Table options =
      table({{"path", path}, {"missing", "mean"}, {"standardize", true}, {"indicator", true}});
  const auto train = open(options);
  const Table learned = dynamic_cast<const Learns&>(*train).learned();
  const auto again = open(options, train.get());
  CHECK(features(*again) == features(*train));
  for (const char* key : {"format", "names", "count", "target", "labels", "features"}) {
    Table damaged = learned;
    damaged.erase(key);
    auto dataset = make<Dataset>("csv", options);
    CHECK_THROWS_AS(dynamic_cast<Learns&>(*dataset).use(damaged), DataError);
  }
  Table damaged = learned;
  damaged.set("target", 9);
  auto dataset = make<Dataset>("csv", options);
  CHECK_THROWS_AS(dynamic_cast<Learns&>(*dataset).use(damaged), DataError);
}

TEST_CASE(
    "csv: a target that is a number becomes mean 0 and deviation 1 of the training split, and the way back "
    "is kept") {
  const TempFolder folder;
  Table options = table({{"path", folder.write("t.csv", "a,y\n1,1000\n2,1002\n3,1004\n4,1010\n")},
                         {"task", "regression"},
                         {"standardize_target", true}});
  const auto train = open(options);
  const float deviation = std::sqrt(14.0f);  // of 1000, 1002, 1004, 1010 about 1004
  const Floats scaled = {-4 / deviation, -2 / deviation, 0, 6 / deviation};
  check_close(values(read_all(*train).target), scaled);
  const auto [factor, summand] = dynamic_cast<const ScalesTargets&>(*train).target_scale();
  CHECK(factor == Approx(deviation));
  CHECK(summand == Approx(1004));

  options.set("path", folder.write("v.csv", "a,y\n1,1004\n2,2000\n"));
  const auto val = open(options, train.get());
  check_close(values(read_all(*val).target), {0, 996 / deviation});
  CHECK(dynamic_cast<const ScalesTargets&>(*val).target_scale() == std::pair(factor, summand));

  options.erase("standardize_target");
  const auto plain = open(options);
  CHECK(values(read_all(*plain).target) == Floats{1004, 2000});
  CHECK(dynamic_cast<const ScalesTargets&>(*plain).target_scale() == std::pair(1.0, 0.0));
  options.set("path", folder.write("c.csv", "a,y\n1,5\n2,5\n"));
  options.set("standardize_target", true);
  CHECK(values(read_all(*open(options)).target) == Floats{0, 0});
  options.set("task", "classification");
  CHECK_THROWS_WITH(open(options), Contains("standardize_target is for numbers"));
}

TEST_CASE("csv: a target that is the same in all rows of the training split is warned of") {
  const TempFolder folder;
  const auto warned = [&](const std::string& rows, const char* task, const char* what) {
    test::QuietHost host;
    auto dataset = make<Dataset>("csv", table({{"path", folder.write("t.csv", rows)}, {"task", task}}));
    dataset->set_host(host);
    dataset->open("train");
    return host.logged(what, LogLevel::warning);
  };
  CHECK(warned("a,y\n1,x\n2,x\n", "classification", "are of one class, 'x'"));
  CHECK(warned("a,y\n1,5\n2,5\n", "regression", "is the same number in all rows"));
  CHECK_FALSE(warned("a,y\n1,x\n2,z\n", "classification", "nothing to learn"));
  CHECK_FALSE(warned("a,y\n1,5\n2,6\n", "regression", "nothing to learn"));
}

TEST_CASE("csv: new rows, a few at a time, without a target, in any order of columns") {
  const TempFolder folder;
  const auto train =
      open(table({{"path", folder.write("t.csv", "a,job,y\n1,u,no\n3,v,yes\n")}, {"exclude", Array{}}}));
  const auto& reader = dynamic_cast<const ReadsNewData&>(*train);
  const auto read = [&](const std::string& content) {
    const auto data = reader.read_new(folder.write("new.csv", content));
    std::vector<float> all;
    for (Batch batch = data->next(2); !batch.indices.empty(); batch = data->next(2)) {
      CHECK(batch.indices.size() <= 2);
      CHECK_FALSE(batch.target.defined());
      const std::vector<float> part = values(batch.input());
      all.insert(all.end(), part.begin(), part.end());
      CHECK(data->name(0) == std::to_string(batch.indices[0] + 1));
    }
    return all;
  };
  CHECK(read("job,extra,a\nv,9,5\nu,9,6\nw,9,7\n") == Floats{5, 0, 1, 6, 1, 0, 7, 0, 0});
  CHECK(read("a,job,y\n5,v,yes\n") == Floats{5, 0, 1});
  CHECK(read("a,job\n") == Floats{});
  const auto fails = [&](const std::string& content) {
    return message_of<DataError>([&] { read(content); });
  };
  CHECK_THAT(fails("a,work,y\n5,v,yes\n"), Contains("new.csv:1: it lacks the column \"job\"") &&
                                               Contains("it has \"work\", which the run does not know"));
  CHECK_THAT(fails("a,job\n5,v\nx,v\n"), Contains("new.csv:3: column 1 \"a\": 'x' is not a number"));
  CHECK_THAT(fails("a,job\n,v\n"), Contains("the training split has no gap in this column"));

  const auto plain = open(table({{"path", folder.write("p.csv", "0,1,2\n1,3,4\n")}, {"target", "0"}}));
  const auto& places = dynamic_cast<const ReadsNewData&>(*plain);
  CHECK(values(places.read_new(folder.write("n.csv", "5,6\n"))->next(9).input()) == Floats{5, 6});
  CHECK(values(places.read_new(folder.write("n.csv", "1,5,6\n"))->next(9).input()) == Floats{5, 6});
  CHECK_THROWS_WITH(places.read_new(folder.write("n.csv", "5\n")), Contains("found 1 columns, expected 3"));
}

TEST_CASE("parquet: a file that is cut off or damaged is refused or read, and never crashes") {
  if (!std::filesystem::exists(test::shipped_file("dataset", "parquet"))) {
    WARN("not tried: this build has no Arrow");
    return;
  }
  const TempFolder folder;
  for (const std::string name : {"small.parquet", "small.arrow", "small.arrows"}) {
    INFO(name);
    const std::string whole = test::read_file(std::string(TRAINYARD_SOURCE_DIR) + "/tests/support/" + name);
    const auto message = [&](const std::string& bytes) -> std::string {
      try {
        const auto data = make<Dataset>(
            "parquet",
            table({{"path", folder.write(name, bytes)}, {"missing", "mode"}, {"indicator", true}}));
        data->open("train");
        return features(*data) == Floats{1.5, 0, 1, 0, 0, 1, 0, 1.5, 1, 0, 1, 0, 0, 1, 3, 0, 1, 0, 1, 1, 0}
                   ? ""
                   : "read";
      } catch (const DataError& error) {
        return error.what();
      }
    };
    CHECK(message(whole).empty());
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const std::string said = message(whole.substr(0, size));
      // A stream may end where one of its messages does.
      CHECK((said.find(name) != std::string::npos || (name == "small.arrows" && said.empty())));
    }
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string bytes = whole;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      const std::string said = message(bytes);
      CHECK((said.empty() || said == "read" || said.find("mall") != std::string::npos));
    }
  }
}

}  // namespace table_tests
