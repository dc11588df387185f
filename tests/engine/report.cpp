#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/engine/save/sink_thread.hpp"
#include "core/engine/train/memory.hpp"
#include "core/rundir/run_directory.hpp"
#include "support/folder.hpp"

namespace report_tests {

namespace {

using namespace trainyard;
using namespace trainyard::report;
using Catch::Matchers::Contains;
using test::Folder;
using Json = nlohmann::json;
namespace fs = std::filesystem;

/// Keeps what it gets; waits where told, throws where told.
class Recorder final : public Sink {
 public:
  void open(const RunInfo& run) override {
    resumed_at = run.resumed_at;
    thread = std::this_thread::get_id();
    ++opened;
    if (fail_at == 0) throw DataError("no place to write");
  }
  void record(const Record& record) override {
    if (gate.valid()) gate.wait();
    if (record.step == fail_at) throw DataError("the disk is full");
    records.push_back(record);
    same_thread = same_thread && thread == std::this_thread::get_id();
  }
  void close() override { ++closed; }

  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> result;
    for (const Record& record : records) result.push_back(record.step);
    return result;
  }

  std::int64_t fail_at = -1;
  std::shared_future<void> gate;
  std::vector<Record> records;
  std::thread::id thread;
  std::int64_t resumed_at = -1;
  int opened = 0, closed = 0;
  bool same_thread = true;
};

Record record_at(std::int64_t step, Record::What what = Record::What::train) {
  return {.what = what, .step = step};
}

struct Warnings {
  std::vector<std::string> lines;
  std::function<void(std::string_view)> taker() {
    return [this](std::string_view line) { lines.emplace_back(line); };
  }
};

RunResult good_result() {
  return {.status = Status::completed,
          .exit_code = ExitCode::done,
          .steps = 120,
          .epochs = 2,
          .samples = 7646,
          .rows = 3823,
          .values = 64,
          .seconds = 1.5,
          .metrics = {{"val/accuracy", 0.97}, {"val/loss", std::numeric_limits<double>::quiet_NaN()}},
          .model_digest = "ab12",
          .optimizer_digest = "cd34",
          .plugins = {{"adamw", "optimizer", "1.0.0", "ef56", 0.25, {{"after_step", 0.125}}}},
          .time = {{"backward", 0.5}},
          .swaps = {.made = 4, .refused = 1, .rolled_back = 2}};
}

}  // namespace

TEST_CASE("each sink gets training records at its own interval and at the last step, and all others") {
  Recorder often, seldom;
  Warnings warnings;
  SinkThread sinks({.total_steps = 25}, {{"often", &often, 5}, {"seldom", &seldom, 10}}, warnings.taker());
  CHECK_FALSE(sinks.due(1));
  CHECK(sinks.due(5));
  CHECK(sinks.due(25));
  for (int step = 1; step <= 25; ++step) {
    sinks.push(record_at(step));
    if (step == 7) sinks.push(record_at(step, Record::What::eval));
  }
  sinks.push(record_at(25, Record::What::summary));
  sinks.close();
  sinks.close();
  CHECK(often.steps() == std::vector<std::int64_t>{5, 7, 10, 15, 20, 25, 25});
  CHECK(seldom.steps() == std::vector<std::int64_t>{7, 10, 20, 25, 25});
  CHECK(often.opened == 1);
  CHECK(often.closed == 1);
  CHECK(often.same_thread);
  CHECK(often.thread != std::this_thread::get_id());
  CHECK(sinks.dropped() == 0);
  CHECK(warnings.lines.empty());
}

TEST_CASE("flush waits until the sinks have what was pushed") {
  Recorder sink;
  Warnings warnings;
  SinkThread sinks({}, {{"sink", &sink, 1}}, warnings.taker());
  sinks.flush();
  std::promise<void> gate;
  sink.gate = gate.get_future().share();
  for (int step = 1; step <= 20; ++step) sinks.push(record_at(step));
  const std::jthread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.set_value();
  });
  sinks.flush();
  CHECK(sink.steps().size() == 20);
}

TEST_CASE("sinks of a run that goes back have what was said, and are opened again from there") {
  Recorder sink;
  Warnings warnings;
  SinkThread sinks({}, {{"sink", &sink, 1}}, warnings.taker());
  for (int step = 1; step <= 20; ++step) sinks.push(record_at(step));
  sinks.go_back(7);
  CHECK(sink.steps().size() == 20);
  CHECK(sink.opened == 2);
  CHECK(sink.closed == 1);
  CHECK(sink.resumed_at == 7);
  sinks.push(record_at(8));
  sinks.close();
  CHECK(sink.steps().back() == 8);
  CHECK(sink.closed == 2);
  CHECK(warnings.lines.empty());
}

TEST_CASE("a slow sink costs training records, counted, and never an evaluation or a message") {
  std::promise<void> gate;
  Recorder slow;
  slow.gate = gate.get_future().share();
  Warnings warnings;
  SinkThread sinks({}, {{"slow", &slow, 1}}, warnings.taker(), 8);
  for (int step = 1; step <= 100; ++step) sinks.push(record_at(step));
  for (int step = 101; step <= 150; ++step) sinks.push(record_at(step, Record::What::eval));
  sinks.push({.what = Record::What::message, .step = 151, .text = "still here"});
  const std::int64_t dropped = sinks.dropped();
  gate.set_value();
  sinks.close();
  CHECK(dropped >= 100 - 2 * 8);  // eight wait, and eight at most are with the sink
  const auto trained = std::count_if(slow.records.begin(), slow.records.end(),
                                     [](const Record& record) { return record.what == Record::What::train; });
  CHECK(trained + dropped == 100);
  CHECK(slow.records.size() - static_cast<std::size_t>(trained) == 51);
  CHECK(std::is_sorted(slow.records.begin(), slow.records.end(),
                       [](const Record& a, const Record& b) { return a.step < b.step; }));
  REQUIRE(warnings.lines.size() == 1);
  CHECK_THAT(warnings.lines[0],
             Contains(std::to_string(dropped) + " training records were dropped") && Contains("'slow'"));
}

TEST_CASE("a sink that throws is switched off with one message, and the others go on") {
  Recorder bad, unopened, good;
  bad.fail_at = 2;
  unopened.fail_at = 0;
  Warnings warnings;
  SinkThread sinks({}, {{"bad", &bad, 1}, {"unopened", &unopened, 1}, {"good", &good, 1}}, warnings.taker());
  for (int step = 1; step <= 4; ++step) sinks.push(record_at(step));
  sinks.close();
  CHECK(good.steps() == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(bad.steps() == std::vector<std::int64_t>{1});
  CHECK(bad.closed == 0);
  CHECK(unopened.records.empty());
  CHECK(warnings.lines ==
        std::vector<std::string>{"sink 'unopened' is switched off at its opening: no place to write",
                                 "sink 'bad' is switched off at step 2: the disk is full"});
  CHECK(sinks.usage()[0].error == "the disk is full");
  CHECK(sinks.usage()[2].error.empty());
}

TEST_CASE("a reader that went away costs its sink, not the process") {
  struct Piped final : Sink {
    void open(const RunInfo&) override {}
    void record(const Record&) override {
      if (::write(end, "x", 1) < 0) throw DataError(std::strerror(errno));
    }
    void close() override {}
    int end = -1;
  } piped;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  piped.end = ends[1];
  Warnings warnings;
  SinkThread sinks({}, {{"piped", &piped, 1}}, warnings.taker());
  sinks.push(record_at(1));
  sinks.close();
  ::close(ends[1]);
  CHECK(warnings.lines == std::vector<std::string>{"sink 'piped' is switched off at step 1: Broken pipe"});
}

TEST_CASE("a run without sinks needs no thread") {
  SinkThread sinks({}, {}, [](std::string_view) {});
  CHECK_FALSE(sinks.due(1));
  sinks.push(record_at(1));
  sinks.close();
  CHECK(sinks.dropped() == 0);
}

TEST_CASE("records may be pushed while sinks are closed by their owner's end") {
  Recorder sink;
  for (int round = 0; round < 200; ++round) {
    SinkThread sinks({}, {{"sink", &sink, 1}}, [](std::string_view) {});
    for (int step = 1; step <= round % 7; ++step) sinks.push(record_at(step));
  }
  CHECK(sink.opened == 200);
  CHECK(sink.closed == 200);
}

TEST_CASE("a run's folder holds the configuration, the journal and the result") {
  const Folder folder;
  const std::string path = folder / "runs/deep/digits";
  {
    RunDirectory run = RunDirectory::create(path, "schema = 1\n", false);
    run.journal({.step = 7, .plugin = "guard", .what = "skip_step", .why = "loss was nan"});
    run.journal({.step = 9, .what = "stop", .why = "not \xff utf-8"});
    run.finish(good_result());
    CHECK(run.file("x") == path + "/x");
  }
  CHECK(test::read_file(path + "/config.toml") == "schema = 1\n");
  const auto journal = test::lines(path + "/journal.jsonl");
  REQUIRE(journal.size() == 2);
  const Json entry = Json::parse(journal[0]);
  CHECK(entry["step"] == 7);
  CHECK(entry["plugin"] == "guard");
  CHECK(entry["what"] == "skip_step");
  CHECK(entry["why"] == "loss was nan");
  CHECK_THAT(entry["time"].get<std::string>(),
             Catch::Matchers::Matches(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"));
  CHECK(Json::parse(journal[1])["why"] == "not \xef\xbf\xbd utf-8");

  const Json result = Json::parse(test::read_file(path + "/result.json"));
  CHECK(result == Json::parse(R"({
    "status": "completed", "exit_code": 0, "steps": 120, "epochs": 2, "samples": 7646, "weights_step": 0, "seconds": 1.5,
    "data": {"rows": 3823, "values": 64},
    "metrics": {"val/accuracy": 0.97, "val/loss": "nan"},
    "digest": {"model": "ab12", "optimizer": "cd34"},
    "plugins": [{"name": "adamw", "kind": "optimizer", "version": "1.0.0", "digest": "ef56", "seconds": 0.25,
                 "events": {"after_step": 0.125}}],
    "time": {"backward": 0.5},
    "swaps": {"made": 4, "refused": 1, "rolled_back": 2}, "error": null})"));
  CHECK(std::distance(fs::directory_iterator(path), {}) == 3);  // no temporary file is left
}

TEST_CASE("a journal whose last line a kill cut short is read up to there") {
  const Folder folder;
  const RunDirectory run = [&] {
    RunDirectory made = RunDirectory::create(folder / "run", "", false);
    made.journal({.step = 7, .plugin = "guard", .what = "skip_step", .why = "loss was nan"});
    return made;
  }();
  std::ofstream(folder / "run/journal.jsonl", std::ios::app) << R"({"time": "2026-01-01T00:00:00.000Z", "st)";
  const std::vector<JournalEntry> entries = RunDirectory::read_journal(run.path());
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].step == 7);
  CHECK(entries[0].what == "skip_step");
}

TEST_CASE("a failed run leaves its error") {
  const Folder folder;
  RunDirectory::create(folder / "run", "", false)
      .finish(
          {.status = Status::failed, .exit_code = ExitCode::numeric, .error = "the loss is nan at step 3"});
  const Json result = Json::parse(test::read_file(folder / "run/result.json"));
  CHECK(result["status"] == "failed");
  CHECK(result["exit_code"] == 5);
  CHECK(result["error"] == "the loss is nan at step 3");
  CHECK(result["digest"]["model"].is_null());
}

TEST_CASE("a run's folder is not overwritten unless told so") {
  const Folder folder;
  const std::string path = folder / "run";
  RunDirectory::create(path, "first", false).finish(good_result());
  CHECK_THROWS_WITH(RunDirectory::create(path, "second", false),
                    Contains(path) && Contains("holds a run already") && Contains("--overwrite"));
  CHECK(test::read_file(path + "/config.toml") == "first");
  std::ofstream(path + "/metrics.jsonl") << "old";

  const RunDirectory again = RunDirectory::create(path, "second", true);
  CHECK(test::read_file(path + "/config.toml") == "second");
  CHECK_FALSE(fs::exists(path + "/result.json"));
  CHECK_FALSE(fs::exists(path + "/metrics.jsonl"));
}

TEST_CASE("what is not a run is never removed") {
  const Folder folder;
  std::ofstream(folder / "thesis.tex") << "years of work";
  const bool overwrite = GENERATE(false, true);
  CHECK_THROWS_AS(RunDirectory::create(folder.path(), "", overwrite), ConfigError);
  CHECK(test::read_file(folder / "thesis.tex") == "years of work");
  CHECK_THROWS_WITH(RunDirectory::create(folder / "thesis.tex", "", overwrite), Contains("thesis.tex"));
}

TEST_CASE("an empty folder is taken") {
  const Folder folder;
  RunDirectory::create(folder.path(), "x", false);
  CHECK(fs::exists(folder / "config.toml"));
}

TEST_CASE("a run that is going is not overwritten by another process") {
  const Folder folder;
  const RunDirectory run = RunDirectory::create(folder / "run", "first", false);
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      RunDirectory::create(folder / "run", "second", true);
    } catch (const ConfigError& error) {
      code = std::string(error.what()).find("another process is writing") != std::string::npos ? 0 : 2;
    }
    ::_exit(code);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(test::read_file(folder / "run/config.toml") == "first");
}

TEST_CASE("a full disk leaves the old result and no half of a new one") {
  const Folder folder;
  RunDirectory run = RunDirectory::create(folder / "run", "", false);
  run.finish(good_result());
  run.journal({.step = 1, .what = "stop", .why = "x"});
  const std::string before = test::read_file(folder / "run/result.json");
  const std::string journal = test::read_file(folder / "run/journal.jsonl");
  {
    const test::FullDisk disk(journal.size() + 5);
    RunResult longer = good_result();
    longer.error = std::string(1000, 'x');
    CHECK_THROWS_AS(run.finish(longer), DataError);
    CHECK_THROWS_WITH(run.journal({.step = 2, .what = "stop", .why = "y"}), Contains("journal.jsonl"));
  }
  CHECK(test::read_file(folder / "run/result.json") == before);
  CHECK(test::read_file(folder / "run/journal.jsonl") == journal);
  CHECK_FALSE(fs::exists(folder / "run/result.json.tmp"));
  run.journal({.step = 3, .what = "stop", .why = "there is space again"});
  CHECK(test::lines(folder / "run/journal.jsonl").size() == 2);
}

TEST_CASE("a folder that cannot be made or written is one message, and nothing is left") {
  const Folder folder;
  {
    const test::FullDisk disk(3);
    CHECK_THROWS_AS(RunDirectory::create(folder / "run", "schema = 1", false), DataError);
  }
  CHECK_FALSE(fs::exists(folder / "run"));
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_exec);
  const test::WithoutRoot nobody;
  CHECK_THROWS_WITH(RunDirectory::create(folder / "run", "", false),
                    Contains(folder / "run") && Contains("Permission denied") && Contains("run.output_dir"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they bring an allocator of their own
TEST_CASE("freed large blocks are kept") {
  train::keep_large_blocks();
  const auto mapped = [] {
    const auto fields = test::read_file("/proc/self/statm");
    return std::stoll(fields.substr(fields.find(' ') + 1));  // resident pages
  };
  constexpr std::size_t size = 8 << 20;
  const auto use = [] {
    std::vector<char> block(size, 1);
    return static_cast<int>(block[size / 2]);
  };
  if (std::getenv("GLIBC_TUNABLES") != nullptr) return;
  CHECK(use() == 1);
  const auto before = mapped();
  CHECK(use() == 1);
  CHECK(std::abs(mapped() - before) < 100);  // the second block is the first one's memory
  CHECK(before >= static_cast<std::int64_t>(size / 4096));
}
#endif

}  // namespace report_tests
