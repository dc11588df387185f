#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>
#include <trainyard/formats/append_file.hpp>
#include <trainyard/sink.hpp>

#include <trainyard/formats/event_file.hpp>
#include "support/folder.hpp"
#include "support/plugin.hpp"

namespace sinks_tests {

namespace {

using namespace trainyard;
using Catch::Matchers::Contains;
using test::Folder;
namespace fs = std::filesystem;
namespace events = event_file;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

RunInfo run_in(const Folder& folder) {
  return {.name = "test", .directory = folder.path(), .total_steps = 100, .steps_per_epoch = 50};
}

Record train(std::int64_t step, double loss) {
  return {.what = Record::What::train,
          .step = step,
          .epoch = step / 50,
          .seconds = static_cast<double>(step) / 10,
          .values = {{"train/loss", loss}, {"train/accuracy", 0.5}, {"samples_per_second", 12345.0}}};
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      result.push_back(entry.path().string());
  std::sort(result.begin(), result.end());
  return result;
}

/// Takes what is written to standard output while it lives: a file, or a terminal of so many columns.
class Output {
 public:
  explicit Output(int columns = 0) : before_(::dup(STDOUT_FILENO)) {
    if (columns > 0) {
      winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(columns)};
      REQUIRE(::openpty(&reader_, &writer_, nullptr, nullptr, &size) == 0);
    } else {
      int ends[2];
      REQUIRE(::pipe(ends) == 0);
      reader_ = ends[0], writer_ = ends[1];
    }
    ::fcntl(reader_, F_SETFL, O_NONBLOCK);
    ::dup2(writer_, STDOUT_FILENO);
  }
  ~Output() {
    if (before_ >= 0) text();
  }
  std::string text() {
    ::dup2(std::exchange(before_, -1), STDOUT_FILENO);
    std::string result;
    char buffer[4096];
    for (ssize_t count; (count = ::read(reader_, buffer, sizeof buffer)) > 0;)
      result.append(buffer, static_cast<std::size_t>(count));
    ::close(reader_), ::close(writer_);
    return result;
  }

 private:
  int before_, reader_ = -1, writer_ = -1;
};

/// What stands in a terminal's line after these bytes: escape sequences take no cell, a character takes one.
std::size_t cells(const std::string& drawn) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    if (drawn[i] == '\x1b')
      while (!std::isalpha(static_cast<unsigned char>(drawn[++i]))) {}
    else if (drawn[i] != '\r' && (drawn[i] & 0xc0) != 0x80)
      ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("jsonl writes one object a record, and numbers that JSON lacks as words") {
  const Folder folder;
  const auto sink = test::make<Sink>("jsonl", test::table({{"file", "metrics.jsonl"}}));
  sink->open(run_in(folder));
  sink->record(train(10, 0.1));
  sink->record({.what = Record::What::eval,
                .step = 10,
                .values = {{"a", not_a_number}, {"b", infinity}, {"c", -infinity}}});
  sink->record({.what = Record::What::message, .step = 11, .text = "a \"quoted\" line\nand \xff"});
  sink->close();

  const auto lines = test::lines(folder / "metrics.jsonl");
  REQUIRE(lines.size() == 3);
  const auto first = nlohmann::json::parse(lines[0]);
  CHECK(first["what"] == "train");
  CHECK(first["step"] == 10);
  CHECK(first["seconds"] == 1.0);
  CHECK(first["values"]["train/loss"] == 0.1);
  CHECK(nlohmann::json::parse(lines[1])["values"] ==
        nlohmann::json{{"a", "nan"}, {"b", "inf"}, {"c", "-inf"}});
  CHECK(nlohmann::json::parse(lines[2])["text"] == "a \"quoted\" line\nand \xef\xbf\xbd");
}

TEST_CASE("csv quotes names and keeps every digit") {
  const Folder folder;
  const auto sink = test::make<Sink>("csv");
  sink->open(run_in(folder));
  sink->record(
      {.what = Record::What::eval,
       .step = 3,
       .epoch = 1,
       .seconds = 0.5,
       .values = {
           {"plain", 0.1}, {"a,b", 1.0 / 3}, {"say \"x\"", -not_a_number}, {"two\nlines", -infinity}}});
  sink->record({.what = Record::What::message, .step = 4, .text = "left out"});
  sink->close();
  CHECK(test::read_file(folder / "metrics.csv") ==
        "step,epoch,seconds,name,value\n"
        "3,1,0.5,plain,0.1\n"
        "3,1,0.5,\"a,b\",0.3333333333333333\n"
        "3,1,0.5,\"say \"\"x\"\"\",nan\n"
        "3,1,0.5,\"two\nlines\",-inf\n");
}

TEST_CASE("a resumed run shows no step twice in text files") {
  const std::string name = GENERATE("jsonl", "csv");
  const Folder folder;
  const std::string path = folder / ("metrics." + name);
  {
    const auto sink = test::make<Sink>(name);
    sink->open(run_in(folder));
    for (const int step : {10, 20, 30}) sink->record(train(step, 1.0));
    sink->close();
  }
  const std::string whole = test::read_file(path);
  std::ofstream(path, std::ios::app) << whole.substr(whole.size() / 2, 20);  // the process died in a line

  const auto sink = test::make<Sink>(name);
  RunInfo run = run_in(folder);
  run.resumed_at = 20;
  sink->open(run);
  for (const int step : {30, 40}) sink->record(train(step, 2.0));
  sink->close();
  std::multiset<std::int64_t> steps;
  for (const std::string& line : test::lines(path)) {
    if (name == "jsonl")
      steps.insert(nlohmann::json::parse(line)["step"].get<std::int64_t>());
    else if (line.find("train/loss") != std::string::npos)
      steps.insert(std::stoll(line));
  }
  CHECK(steps == std::multiset<std::int64_t>{10, 20, 30, 40});
}

TEST_CASE("a resumed run does not say again what stands at the step that it goes on from") {
  const std::string name = GENERATE("jsonl", "csv", "tensorboard");
  const Folder folder;
  const auto evaluated = [](std::int64_t step, double loss, const char* more) {
    return Record{.what = Record::What::eval, .step = step, .values = {{"val/a,b", loss}, {more, loss}}};
  };
  const auto run_with = [&](RunInfo run, const std::vector<Record>& records) {
    const auto sink = test::make<Sink>(name);
    sink->open(run);
    for (const Record& record : records) sink->record(record);
    sink->close();
  };
  const auto content = [&] {
    std::string text;
    for (const std::string& path :
         name == "tensorboard" ? event_files(folder.path()) : std::vector{folder / ("metrics." + name)})
      text += test::read_file(path);
    return text;
  };
  const auto count = [&](const std::string& what) {
    const std::string text = content();
    std::size_t times = 0;
    for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++times;
    return times;
  };
  run_with(run_in(folder), {evaluated(10, 3.0, "val/old"), train(20, 1.0), evaluated(20, 2.0, "val/old")});
  RunInfo run = run_in(folder);
  run.resumed_at = 20;
  run_with(run, {evaluated(20, 2.0, "val/old")});  // all of it stands there
  CHECK(count("val/a,b") == 2);
  CHECK(count("val/old") == 2);
  run_with(run, {evaluated(20, 2.0, "val/new"), evaluated(30, 2.0, "val/old")});  // a metric more
  CHECK(count("val/a,b") == 3);
  CHECK(count("val/old") == 3);
  CHECK(count("val/new") == 1);
  CHECK(count("train/loss") == 1);
}

TEST_CASE("file sinks refuse what they cannot write, with path and reason") {
  const std::string name = GENERATE("jsonl", "csv", "tensorboard");
  const Folder folder;
  const auto sink = test::make<Sink>(name);
  RunInfo run = run_in(folder);

  SECTION("no such folder") {
    run.directory += "/absent";
    CHECK_THROWS_WITH(sink->open(run), Contains(run.directory) && Contains("No such file or directory"));
  }
  SECTION("a folder that must not be written") {
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                                       fs::perms::others_exec);
    const test::WithoutRoot nobody;
    CHECK_THROWS_WITH(sink->open(run),
                      Contains(folder.path()) && Contains("Permission denied") && Contains("run.output_dir"));
  }
  SECTION("a full disk leaves whole records only") {
    sink->open(run);
    sink->record(train(1, 1.0));
    const std::string path =
        name == "tensorboard" ? event_files(folder.path()).at(0) : folder / ("metrics." + name);
    const std::string before = test::read_file(path);
    {
      const test::FullDisk disk(before.size() + 7);
      CHECK_THROWS_AS(sink->record(train(2, 1.0)), DataError);
    }
    CHECK(test::read_file(path) == before);
  }
}

TEST_CASE("a full disk is named as such") {
  AppendFile full("/dev/full", AppendFile::Mode::extend);
  CHECK_THROWS_WITH(full.append("x"), Contains("cannot write to '/dev/full': No space left on device") &&
                                          Contains("free some space"));
}

TEST_CASE("CRC32C and its mask equal the published values") {  // RFC 3720, B.4
  CHECK(events::crc32c("123456789") == 0xe3069283u);
  CHECK(events::crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(events::crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(events::masked_crc("") == 0xa282ead8u);
}

TEST_CASE("tensorboard writes a step of a tag once") {
  const Folder folder;
  const auto sink = test::make<Sink>("tensorboard");
  sink->open(run_in(folder));
  for (const int step : {10, 20, 20, 10}) sink->record(train(step, 1.0));
  sink->close();
  const auto files = event_files(folder.path());
  REQUIRE(files.size() == 1);
  const std::string bytes = test::read_file(files[0]);
  const std::size_t first = events::length_through(bytes, 0), second = events::length_through(bytes, 10);
  CHECK(first > 0);
  CHECK(second > first);
  CHECK(events::length_through(bytes, 20) == bytes.size());
  CHECK(bytes.size() - second == second - first);  // one record of step 10, one of step 20
}

TEST_CASE("a file of tensorboard's that a resumed run begins comes after those that are there") {
  const Folder folder;
  // Of a process with a number that sorts behind every other, in a second that is still going or, by another
  // clock, to come.
  const std::string begun = std::to_string(static_cast<std::int64_t>(events::wall_time()) + 1);
  const std::string before =
      folder.write("events.out.tfevents." + begun + ".zoo.99999.v2", events::version_record(1.0));
  const auto sink = test::make<Sink>("tensorboard");
  RunInfo run = run_in(folder);
  run.resumed_at = 10;
  for (int files = 2; files < 4; ++files) {
    sink->open(run);
    const std::vector<std::string> names = event_files(folder.path());
    CHECK(names.size() == static_cast<std::size_t>(files));
    sink->record(train(10 * files, 1.0));
    sink->close();
    CHECK(names.front() == before);
    CHECK(test::read_file(names.back()).size() > events::version_record(1.0).size());
  }
}

TEST_CASE("damaged event files are read up to the damage") {
  std::string file = events::version_record(1.0);
  const std::size_t head = file.size();
  file += events::scalars_record(2.0, 300, {{"a", 1.0}});
  const std::string more = events::scalars_record(3.0, 301, {{"a", 2.0}});
  CHECK(events::length_through(file + more, 300) == file.size());
  CHECK(events::length_through(file + more, 299) == head);
  for (std::size_t cut = 0; cut < more.size(); ++cut)
    CHECK(events::length_through(file + more.substr(0, cut), 1000) == file.size());
  for (std::size_t i = 0; i < more.size(); ++i) {
    std::string bad = file + more;
    bad[file.size() + i] = static_cast<char>(bad[file.size() + i] ^ 0x40);
    CHECK(events::length_through(bad, 1000) == file.size());
  }
}

TEST_CASE("the console says nothing when told to be quiet") {
  const auto sink = test::make<Sink>("console");
  Output output;
  sink->open({.total_steps = 10, .quiet = true});
  sink->record(train(1, 0.5));
  sink->record({.what = Record::What::summary, .text = "done"});
  sink->close();
  CHECK(output.text().empty());
}

TEST_CASE("the console writes plain lines where there is no terminal") {
  const auto sink = test::make<Sink>("console");
  Output output;
  sink->open({.total_steps = 100, .steps_per_epoch = 50});
  sink->record(train(10, 0.25));
  sink->record(train(20, 1e-7));
  sink->record({.what = Record::What::eval, .step = 20, .epoch = 0, .values = {{"val/loss", 0.75}}});
  sink->record({.what = Record::What::summary,
                .step = 100,
                .epoch = 2,
                .seconds = 9.5,
                .values = {{"val/loss", not_a_number}}});
  sink->close();
  CHECK(output.text() ==
        "train epoch 0 step 10  loss 0.2500  accuracy 0.5000  12.3k samples/s  0:09 left\n"
        "train epoch 0 step 20  loss 1.000e-07  accuracy 0.5000  12.3k samples/s  0:08 left\n"
        "eval  epoch 0 step 20  val/loss 0.7500\n"
        "done  epoch 2 step 100  val/loss nan  in 0:10\n");
}

TEST_CASE("the console tells hours, minutes and seconds") {
  const auto took = [](double seconds) {
    const auto sink = test::make<Sink>("console");
    Output output;
    sink->open({});
    sink->record({.what = Record::What::summary,
                  .step = 1,
                  .epoch = 1,
                  .seconds = seconds,
                  .values = {{"val/loss", 0.5}}});
    sink->close();
    const std::string text = output.text();
    return text.substr(text.rfind(' ') + 1);
  };
  CHECK(took(59.5) == "1:00\n");
  CHECK(took(3599.0) == "59:59\n");
  CHECK(took(3600.0) == "1:00:00\n");
  CHECK(took(2 * 3600 + 61 * 60 + 7) == "3:01:07\n");
}

TEST_CASE("the console shows the metrics that are asked for") {
  const auto sink =
      test::make<Sink>("console", test::table({{"metrics", Array{Value("samples_per_second")}}}));
  Output output;
  sink->open({});
  sink->record(train(10, 0.25));
  sink->close();
  CHECK(output.text() == "train epoch 0 step 10  samples_per_second 1.234e+04  12.3k samples/s\n");
}

TEST_CASE("the console's bar fits the terminal, whatever its width") {
  const int columns = GENERATE(5, 20, 40, 60, 80, 200);
  ::setenv("LC_ALL", GENERATE("C.UTF-8", "C"), 1);
  const auto sink = test::make<Sink>("console");
  Output output(columns);
  sink->open({.total_steps = 100, .steps_per_epoch = 50, .terminal = true});
  sink->record(train(42, 0.25));
  sink->record({.what = Record::What::eval, .step = 50, .epoch = 1, .values = {{"val/loss", 0.75}}});
  sink->record(train(84, 0.125));
  sink->close();
  const std::string text = output.text();
  ::unsetenv("LC_ALL");

  std::vector<std::string> rows;
  std::istringstream stream(text);
  for (std::string row; std::getline(stream, row);) rows.push_back(row);
  REQUIRE(rows.size() == 2);  // the evaluation over the first bar, then the bar
  CHECK_THAT(rows[0], Contains("eval  epoch 1 step 50  val/loss 0.7500"));
  std::istringstream draws(rows[1]);
  std::string last;
  for (std::string draw; std::getline(draws, draw, '\r');)
    if (!draw.empty()) {
      last = draw;
      CHECK(cells(draw) < static_cast<std::size_t>(columns));
    }
  if (columns >= 40) {
    CHECK_THAT(last, Contains("epoch 2/2") && Contains(" 84%"));
  }
  if (columns >= 80) {
    CHECK_THAT(last, Contains("loss 0.1250") && Contains("accuracy 0.5000"));
  }
  if (columns >= 200) {
    CHECK_THAT(last, Contains("12.3k samples/s") && Contains("0:02 left"));
  }
}

// Written for tests/e2e/tensorboard_reader.py, which reads it with TensorBoard's own code.
TEST_CASE("event files of a run that died and was resumed", "[.][write-events]") {
  const char* folder = std::getenv("TRAINYARD_TEST_OUT");
  REQUIRE(folder != nullptr);
  RunInfo run{.name = "test", .directory = folder, .total_steps = 300};
  {
    const auto sink = test::make<Sink>("tensorboard");
    sink->open(run);
    for (int step = 10; step <= 200; step += 10) {
      sink->record({.step = step, .values = {{"train/loss", 1.0 / step}, {"lr", 0.1}}});
      if (step % 100 == 0)
        for (int again = 0; again < 2; ++again)
          sink->record({.what = Record::What::eval,
                        .step = step,
                        .values = {{"val/genauigkeit-ä", 0.5 + step / 1e3}}});
    }
    sink->record({.what = Record::What::message, .step = 200, .text = "no number"});
  }
  std::ofstream(event_files(folder).at(0), std::ios::app | std::ios::binary) << "torn";
  const auto sink = test::make<Sink>("tensorboard");
  run.resumed_at = 100;
  sink->open(run);
  for (int step = 110; step <= 300; step += 10)
    sink->record(
        {.step = step, .values = {{"train/loss", step == 300 ? not_a_number : 2.0 / step}, {"lr", 0.2}}});
  sink->close();
}

}  // namespace sinks_tests
