// Runs seen from outside: their state, the table of them, the monitor, and `ctl` where no run answers.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include "core/engine/swap/channel.hpp"
#include "core/programs/ctl.hpp"
#include "core/programs/curve.hpp"
#include "core/programs/follow.hpp"
#include "core/programs/monitor.hpp"
#include "core/programs/runs.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/rundir/socket.hpp"
#include "support/folder.hpp"

namespace monitor_tests {

using namespace trainyard;
using namespace trainyard::cli;
using namespace std::chrono_literals;

namespace {

std::string train_line(int step, double loss) {
  return R"({"what":"train","step":)" + std::to_string(step) +
         R"(,"epoch":0,"seconds":1,"values":{"train/loss":)" + std::to_string(loss) +
         R"(,"samples_per_second":1234}})" + "\n";
}

/// A run as it lies on the disk; `status` empty: without result.json.
std::string make_run(const test::Folder& folder, const std::string& name, const std::string& status) {
  folder.write(name + "/config.toml", "schema = 1\n");
  folder.write(name + "/journal.jsonl",
               R"({"time":"t","step":3,"plugin":"rex","what":"disabled","why":"it \u001b[31mfailed"})"
               "\n");
  folder.write(
      name + "/metrics.jsonl",
      train_line(10, 2.0) + train_line(20, 1.0) +
          R"({"what":"eval","step":20,"epoch":1,"seconds":2,"values":{"val/loss":0.5,"val/accuracy":0.75}})" +
          "\n{\"what\":\"tra");
  if (!status.empty())
    folder.write(name + "/result.json",
                 R"({"status":")" + status +
                     R"(","steps":20,"metrics":{"val/loss":"nan"},"error":"no luck","plugins":)"
                     R"([{"name":"rex","kind":"schedule","version":"1.0.0","digest":"","seconds":0.25}]})");
  return folder / name;
}

/// Holds a run's lock, as its process does.
class Lock {
 public:
  explicit Lock(const std::string& run)
      : journal_(::open((run + "/journal.jsonl").c_str(), O_RDWR | O_CLOEXEC)) {
    REQUIRE(::flock(journal_.get(), LOCK_EX | LOCK_NB) == 0);
  }

 private:
  control::Descriptor journal_;
};

/// A run's loop that answers every request with the same status.
class Answering {
 public:
  Answering(const std::string& run, control::Status status)
      : channel_(run), thread_([this, status = std::move(status)] {
          while (!done_)
            if (channel_.wait(5ms)) {
              control::Command command = *channel_.take();
              if (command.request().verb == control::Verb::status)
                command.answer(status);
              else if (command.request().verb == control::Verb::pause)
                command.answer({{"message", "paused at step 7"}});
              else
                command.refuse("there is no slot \"shedule\"");
            }
        }) {}
  ~Answering() {
    done_ = true;
    thread_.join();
  }

 private:
  control::Channel channel_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

control::Status some_status() {
  control::Status status;
  status.run = "digits";
  status.pid = 42;
  status.state = control::RunState::paused;
  status.step = 7;
  status.total_steps = 100;
  status.samples_per_second = 12'345;
  status.seconds_left = 83;
  status.metrics = {{"train/loss", 0.25}};
  status.slots = {{.slot = "schedule", .type = "cosine", .version = "1.0.0", .swaps = 1, .seconds = 0.5}};
  status.retired = 1;
  return status;
}

std::size_t width(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

void append(const std::string& file, const std::string& text) {
  std::ofstream(file, std::ios::app | std::ios::binary) << text;
}

}  // namespace

TEST_CASE("monitor: a file is read as it grows", "[monitor]") {
  const test::Folder folder;
  const std::string file = folder / "metrics.jsonl";
  LineFollower follower(file);
  using Lines = std::vector<std::string>;
  CHECK(follower.take().lines.empty());
  append(file, "a1\nb2\nhal");
  CHECK(follower.take().lines == Lines{"a1", "b2"});
  CHECK(follower.take().lines.empty());
  append(file, "f\n");
  CHECK(follower.take().lines == Lines{"half"});

  SECTION("cut by a resumed run") {
    std::filesystem::resize_file(file, 3);
    const auto news = follower.take();
    CHECK(news.restarted);
    CHECK(news.lines == Lines{"a1"});
    append(file, "c3\n");
    CHECK_FALSE(follower.take().restarted);
  }
  SECTION("cut, and grown beyond the old end since") {
    std::filesystem::resize_file(file, 3);
    append(file, "c3\nd4\ne5\nf6\n");
    const auto news = follower.take();
    CHECK(news.restarted);
    CHECK(news.lines == Lines{"a1", "c3", "d4", "e5", "f6"});
  }
  SECTION("replaced by another file") {
    folder.write("other", "a1\nb2\nhalf\nnew\n");
    std::filesystem::rename(folder / "other", file);
    CHECK(follower.take().lines == Lines{"a1", "b2", "half", "new"});
  }
  SECTION("removed") {
    std::filesystem::remove(file);
    CHECK(follower.take().lines.empty());
  }
  SECTION("megabytes without a newline, then lines") {
    append(file, std::string(5 << 20, 'x'));
    CHECK(follower.take().lines.empty());
    append(file, "\ng7\n");
    const auto news = follower.take();
    CHECK_FALSE(news.restarted);
    CHECK(news.lines.back() == "g7");
  }
  SECTION("many lines at once") {
    std::string text;
    for (int i = 0; i < 300'000; ++i) text += std::to_string(i) + "\n";
    append(file, text);
    const auto news = follower.take();
    REQUIRE(news.lines.size() == 300'000);
    CHECK(news.lines.back() == "299999");
  }
}

TEST_CASE("monitor: a series goes back with its run and stays bounded", "[monitor]") {
  Series series;
  for (int i = 0; i < 1'000'000; ++i) series.add(i, i);
  CHECK(series.points().size() < 70'000);
  CHECK(series.points().front().value < 64);
  CHECK(series.points().back().step == 999'999);
  series.add(500'000, 1.0);
  CHECK(series.points().back().step == 500'000);
  CHECK(series.points().rbegin()[1].step < 500'000);
  series.add(600'000, std::numeric_limits<double>::quiet_NaN());
  CHECK(series.points().back().step == 500'000);
}

TEST_CASE("monitor: a curve stands where its values are", "[monitor]") {
  Series series;
  for (int i = 0; i <= 100; ++i) series.add(i, 100 - i);
  const auto lines = draw(series, 40, 6, false);
  REQUIRE(lines.size() == 6);
  CHECK(lines[0].substr(0, 12) == "  100.0000 |");
  CHECK(lines[0][12] == '*');
  CHECK(lines[4].back() == '*');
  CHECK(lines[5].find('0') == 12);
  CHECK(lines[5].ends_with("100"));
  unsigned dots = 0;  // a line that falls through all of it sets each of the eight dots of a cell somewhere
  for (const auto& line : draw(series, 40, 6, true)) {
    CHECK(width(line) == 40);
    for (std::size_t i = 0; i + 2 < line.size(); ++i) {
      const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(line[i + k]); };
      if (byte(0) == 0xe2 && byte(1) >= 0xa0 && byte(1) <= 0xa3)
        dots |= (byte(1) - 0xa0u) << 6 | (byte(2) & 0x3fu);
    }
  }
  CHECK(dots == 0xff);

  Series flat;
  flat.add(1, 2.0);
  CHECK(draw(flat, 40, 6, true).empty());  // one point is no curve
  flat.add(2, 2.0);
  CHECK(draw(flat, 40, 6, true).size() == 6);
  flat.add(3, 1.7e308);
  flat.add(4, -1.7e308);
  for (std::size_t columns = 0; columns < 40; ++columns)
    for (std::size_t rows = 0; rows < 8; ++rows) draw(flat, columns, rows, true);
}

TEST_CASE("monitor: a run's state is read from its directory", "[monitor]") {
  const test::Folder folder;
  for (const char* status : {"completed", "stopped", "interrupted", "failed"}) {
    const RunState run = look_at(make_run(folder, status, status), 1s);
    CHECK(name(run.life) == status);
    CHECK(run.steps == 20);
    CHECK(run.metrics.at("val/accuracy") == 0.75);
    CHECK(std::isnan(run.metrics.at("val/loss")));
    CHECK_THAT(how_it_ended(run), Catch::Contains(status) && Catch::Contains("20 steps"));
  }
  CHECK_THAT(how_it_ended(look_at(folder / "failed", 1s)), Catch::Contains("no luck"));
  const std::string killed = make_run(folder, "killed", "");
  CHECK(look_at(killed, 1s).life == Life::killed);
  CHECK(look_at(killed, 1s).steps == 20);
  {
    const Lock lock(killed);
    CHECK(look_at(killed, 1s).life == Life::running);
  }
  CHECK(look_at(killed, 1s).life == Life::killed);
  folder.write("killed/result.json", "{\"status\":");
  CHECK(look_at(killed, 1s).life == Life::killed);
  {
    // resumed: the result is of the process before
    const std::string again = make_run(folder, "again", "interrupted");
    const Lock lock(again);
    const Answering loop(again, some_status());
    const RunState run = look_at(again, 10s);
    CHECK(run.life == Life::paused);
    CHECK(run.steps == 7);
    CHECK(run.total_steps == 100);
    CHECK(run.metrics.at("train/loss") == 0.25);
    CHECK(run.metrics.at("val/accuracy") == 0.75);
  }
  CHECK_THROWS_AS(look_at(folder.path(), 1s), ConfigError);
}

TEST_CASE("monitor: no file of a run brings down who looks at it", "[monitor]") {
  const test::Folder folder;
  const std::string run = make_run(folder, "a", "failed");
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const std::vector<std::string> values = {
      "null", "true", "-1",         "1.5",         "1e999", "18446744073709551615", "\"x\"", "\"\\u0000\"",
      "[]",   "{}",   "[[[[[]]]]]", "{\"a\":[1]}", deep};
  const auto look = [&] {
    CHECK_NOTHROW(how_it_ended(look_at(run, 0ms)));
    std::ostringstream out, errors;
    CHECK(runs(folder.path(), false, out, errors) == 0);
    CHECK(runs(folder.path(), true, out, errors) == 0);
    cli::View view{.run = look_at(run, 0ms)};
    view.journal = {journal_text(test::read_file(run + "/journal.jsonl"))};
    CHECK_NOTHROW(frame(view, 80, 24, true));
    CHECK_NOTHROW(report::RunDirectory::status(run));
  };
  for (const std::string& value : values) {
    INFO(value.substr(0, 40));
    folder.write("a/result.json", value);
    look();
    for (const char* key : {"status", "steps", "metrics", "error", "plugins"}) {
      folder.write("a/result.json", std::string(R"({"status":"failed",)") + "\"" + key + "\":" + value + "}");
      look();
    }
    folder.write("a/result.json",
                 R"({"status":"failed","plugins":[{"name":)" + value + R"(,"seconds":)" + value + "}]}");
    folder.write("a/metrics.jsonl",
                 value + "\n" + R"({"what":)" + value + R"(,"step":)" + value + R"(,"values":)" + value +
                     "}\n" + R"({"what":"train","step":1,"values":{"train/loss":)" + value + "}}\n");
    folder.write("a/journal.jsonl", R"({"step":)" + value + R"(,"plugin":)" + value + R"(,"what":)" + value +
                                        R"(,"why":)" + value + "}\n");
    look();
  }
  std::filesystem::remove(run + "/result.json");
  std::filesystem::remove(run + "/metrics.jsonl");
  REQUIRE(::mkfifo((run + "/result.json").c_str(), 0600) == 0);
  REQUIRE(::mkfifo((run + "/metrics.jsonl").c_str(), 0600) == 0);
  CHECK(look_at(run, 0ms).life == Life::killed);
  LineFollower follower(run + "/metrics.jsonl");
  CHECK(follower.take().lines.empty());
}

TEST_CASE("runs: a table and JSON", "[monitor]") {
  const test::Folder folder;
  make_run(folder, "b/one", "completed");
  make_run(folder, "b/one/checkpoints/inner", "failed");  // not searched
  make_run(folder, "a", "interrupted");
  const Lock lock(make_run(folder, "c", ""));
  folder.write("empty/file", "");
  std::filesystem::create_directory_symlink(folder.path(), folder / "loop");
  std::ostringstream out, errors;
  REQUIRE(runs(folder.path(), true, out, errors) == 0);
  const auto list = control::Json::parse(out.str());
  REQUIRE(list.size() == 3);
  CHECK(list[0]["path"] == folder / "a");
  CHECK(list[0]["state"] == "interrupted");
  CHECK(list[1]["state"] == "completed");
  CHECK(list[1]["steps"] == 20);
  CHECK(list[1]["metrics"]["val/accuracy"] == 0.75);
  CHECK(list[2]["state"] == "running");
  CHECK(list[0]["age_seconds"].get<double>() >= 0);
  CHECK(list[0]["age_seconds"].get<double>() < 3600);
  out.str("");
  REQUIRE(runs(folder.path(), false, out, errors) == 0);
  CHECK_THAT(out.str(), Catch::Contains("interrupted (resumable)") &&
                            Catch::Contains("val/accuracy 0.7500") && Catch::Contains("ago"));
  out.str("");
  CHECK(runs(folder / "empty", false, out, errors) == 0);
  CHECK_THAT(out.str(), Catch::Contains("no runs"));
  CHECK(runs(folder / "absent", false, out, errors) == 1);
  CHECK_THAT(errors.str(), Catch::Contains("absent"));
}

TEST_CASE("ctl: exit codes and what is said", "[monitor]") {
  const test::Folder folder;
  std::ostringstream out, errors;
  CtlOptions options{.run = make_run(folder, "run", "completed")};
  CHECK(ctl(options, out, errors) == 1);
  CHECK_THAT(errors.str(), Catch::Contains("is not going: it was completed after 20 steps"));
  errors.str("");
  options.run = folder / "absent";
  CHECK(ctl(options, out, errors) == 1);
  CHECK_THAT(errors.str(), Catch::Contains("holds no run"));
  options.run = folder / "run";
  {
    const Lock lock(options.run);
    errors.str("");
    CHECK(ctl(options, out, errors) == 1);
    CHECK_THAT(errors.str(), Catch::Contains("does not answer: it has no control socket"));
    CHECK(out.str().empty());

    const Answering loop(options.run, some_status());
    CHECK(ctl(options, out, errors) == 0);
    CHECK_THAT(out.str(), Catch::Contains("paused") && Catch::Contains("step 7 of 100") &&
                              Catch::Contains("1:23 left") && Catch::Contains("12.3k samples/s") &&
                              Catch::Contains("cosine") && Catch::Contains("step 3  rex  disabled") &&
                              !Catch::Contains("\x1b"));
    out.str("");
    options.json = true;
    CHECK(ctl(options, out, errors) == 0);
    CHECK(control::Json::parse(out.str()) == control::Json(some_status()));
    out.str("");
    options.json = false;
    options.request.verb = control::Verb::pause;
    CHECK(ctl(options, out, errors) == 0);
    CHECK(out.str() == "paused at step 7\n");
    errors.str("");
    options.request = {.verb = control::Verb::swap, .slot = "shedule", .type = "rex"};
    CHECK(ctl(options, out, errors) == 2);
    CHECK_THAT(errors.str(), Catch::Contains("refuses: there is no slot"));
  }
  const control::Channel silent(options.run);
  errors.str("");
  options.timeout = 50ms;
  CHECK(ctl(options, out, errors) == 1);
  CHECK_THAT(errors.str(), Catch::Contains("no answer within 0.05"));
}

TEST_CASE("monitor: a frame fits its terminal", "[monitor]") {
  cli::View view;
  view.run.path = "runs/a";
  view.run.life = Life::running;
  view.run.status = some_status();
  view.run.steps = 7;
  view.run.total_steps = 100;
  for (int i = 0; i < 30; ++i) view.run.metrics["val/metric" + std::to_string(i)] = i;
  for (int i = 0; i < 500; ++i) view.loss.add(i, 1.0 / (i + 1));
  for (int i = 0; i < 500; i += 50) view.validation["val/accuracy"].add(i, i);
  view.journal = {"step 3  rex  disabled: größer als erwartet, und das ist eine lange Zeile", "b", "c"};
  for (const std::size_t columns : {1, 5, 20, 80, 300})
    for (const std::size_t rows : {1, 3, 10, 24, 60}) {
      const auto lines = frame(view, columns, rows, true);
      CHECK(lines.size() <= rows);
      for (const auto& line : lines) CHECK(width(line) <= columns);
      const auto two = frame(std::vector<cli::View>{view, view}, columns, rows, true);
      CHECK(two.size() <= rows);
      for (const auto& line : two) CHECK(width(line) <= columns);
    }
  CHECK_THAT(joined(frame(view, 100, 60, true)),
             Catch::Contains("digits  paused  step 7 of 100 (7%)") && Catch::Contains("cosine") &&
                 Catch::Contains("1 retired") && Catch::Contains("größer") && Catch::Contains("│"));
  view.run.steps = 150;  // it was longer before it was resumed
  CHECK_THAT(joined(frame(view, 100, 60, true)), Catch::Contains("step 150 of 100 (100%)"));
}

TEST_CASE("monitor: follows a run on a terminal until it ends, and gives the terminal back", "[monitor]") {
  const test::Folder folder;
  const std::string run = make_run(folder, "run", "");
  std::optional<Lock> lock(run);
  const bool quit = GENERATE(true, false);
  int terminal = -1;
  const winsize size{.ws_row = 30, .ws_col = 90};
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("LC_ALL", "C.UTF-8", 1);
    lock.reset();  // the parent holds it on, by the same description
    std::ostringstream errors;
    termios before{}, after{};
    ::tcgetattr(0, &before);
    const int code = monitor({run}, false, errors);
    ::tcgetattr(0, &after);
    ::_exit(before.c_lflag == after.c_lflag ? code : 99);
  }
  std::string seen;
  const auto read_until = [&](const std::string& text) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (seen.find(text) == std::string::npos && std::chrono::steady_clock::now() < until) {
      pollfd polled{terminal, POLLIN, 0};
      char buffer[4096];
      if (::poll(&polled, 1, 100) <= 0) continue;
      const ssize_t count = ::read(terminal, buffer, sizeof buffer);
      if (count <= 0) break;
      seen.append(buffer, static_cast<std::size_t>(count));
    }
    return seen.find(text) != std::string::npos;
  };
  CHECK(read_until("step 20"));
  CHECK(seen.starts_with("\x1b[?1049h\x1b[?25l"));
  std::filesystem::resize_file(run + "/metrics.jsonl", 0);  // a resumed run
  append(run + "/metrics.jsonl", train_line(5, 3.0));
  CHECK(read_until("step 5"));
  CHECK(read_until("train/loss 3.0000"));
  seen.clear();
  CHECK(read_until("failed"));  // the journal is as it was, and still there
  const winsize narrow{.ws_row = 10, .ws_col = 12};
  ::ioctl(terminal, TIOCSWINSZ, &narrow);
  seen.clear();
  CHECK(read_until("\x1b[H/"));
  if (quit) {
    CHECK(::write(terminal, "q", 1) == 1);
  } else {
    folder.write("run/result.json", R"({"status":"completed","steps":5})");
    lock.reset();
  }
  CHECK(read_until("\x1b[?25h\x1b[?1049l"));
  if (!quit) CHECK(read_until("it was compl"));
  while (read_until("never")) continue;
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  ::close(terminal);
}

}  // namespace monitor_tests
