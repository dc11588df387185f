// The control channel of a run: what its clients may say, and that nothing that they do harms it.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include "core/cli/client.hpp"
#include "core/engine/swap/channel.hpp"
#include "core/rundir/protocol.hpp"
#include "core/rundir/socket.hpp"
#include "support/folder.hpp"

namespace control_tests {

using namespace trainyard;
using namespace trainyard::control;
using namespace std::chrono_literals;

namespace {

std::string refusal(const std::string& line) {
  try {
    parse_request(line);
  } catch (const BadRequest& bad) {
    return bad.what();
  }
  return "accepted";
}

/// A loop of a training: a step, a safe point, and so on. Answers every request with its own text.
class FakeLoop {
 public:
  explicit FakeLoop(Channel& channel)
      : thread_([this, &channel] {
          while (!done_) {
            ++steps;
            if (!channel.pending()) {
              channel.wait(1ms);
              continue;
            }
            while (std::optional<Command> command = channel.take()) {
              ++taken;
              const Request& request = command->request();
              if (request.verb == Verb::checkpoint)
                throw_away(std::move(*command));
              else if (request.verb == Verb::stop)
                command->refuse("no: it is said to stop");
              else
                command->answer({{"verb", name(request.verb)}, {"assignments", request.assignments}});
            }
          }
        }) {}
  ~FakeLoop() {
    done_ = true;
    thread_.join();
  }
  std::atomic<std::int64_t> steps{0}, taken{0};

 private:
  static void throw_away(Command) {}
  std::atomic<bool> done_{false};
  std::thread thread_;
};

/// A socket that does what no client would.
class Raw {
 public:
  explicit Raw(const std::string& folder) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Descriptor where = open_folder(folder);
    const sockaddr_un address = address_in(where);
    connected = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  int fd() const { return socket_.get(); }
  /// False where the other end is gone.
  bool send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t count = ::send(fd(), text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  /// Empty: none within the time, or the end.
  std::string line(std::chrono::milliseconds timeout = 20s) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      if (const std::size_t end = in_.find('\n'); end != std::string::npos) {
        std::string found = in_.substr(0, end);
        in_.erase(0, end + 1);
        return found;
      }
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      pollfd polled{fd(), POLLIN, 0};
      if (left.count() <= 0 || ::poll(&polled, 1, static_cast<int>(left.count())) <= 0) return {};
      std::array<char, 65536> buffer;
      const ssize_t count = ::recv(fd(), buffer.data(), buffer.size(), 0);
      if (count <= 0) {
        ended = true;
        return {};
      }
      in_.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }
  Answer answer() { return parse_answer(line()); }
  /// How many lines have come that are not taken yet.
  std::ptrdiff_t lines() {
    std::array<char, 65536> buffer;
    const ssize_t count = ::recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0) in_.append(buffer.data(), static_cast<std::size_t>(count));
    return std::count(in_.begin(), in_.end(), '\n');
  }

  bool connected = false, ended = false;

 private:
  Descriptor socket_;
  std::string in_;
};

std::string request(int id, std::string_view verb = "status") {
  return R"({"v":1,"id":)" + std::to_string(id) + R"(,"verb":")" + std::string(verb) + "\"}\n";
}

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

double cpu_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

}  // namespace

TEST_CASE("control: requests are read and written", "[control]") {
  Request swap{.id = 7,
               .verb = Verb::swap,
               .assignments = {"min_factor=0.1", "name=\"a = b\""},
               .slot = "schedule",
               .type = "cosine",
               .watch = Duration::parse("5ba"),
               .carry = "splice"};
  const std::string line = line_of(swap);
  REQUIRE(line.back() == '\n');
  const Request read = parse_request(std::string_view(line).substr(0, line.size() - 1));
  CHECK(read.id == 7);
  CHECK(read.verb == Verb::swap);
  CHECK(read.assignments == swap.assignments);
  CHECK(read.slot == "schedule");
  CHECK(read.type == "cosine");
  CHECK(read.watch == swap.watch);
  CHECK(read.carry == "splice");
  for (const Verb verb : {Verb::status, Verb::pause, Verb::resume, Verb::checkpoint, Verb::eval, Verb::stop})
    CHECK(parse_request(line_of(Request{.verb = verb})).verb == verb);
}

TEST_CASE("control: what is wrong with a request is said", "[control]") {
  const auto [line, message] = GENERATE(table<std::string, std::string>({
      {"", "no JSON"},
      {"status", "no JSON"},
      {"[1]", "an array, expected an object"},
      {"7", "a number, expected an object"},
      {std::string("{\"v\":1}\0{}", 10), "NUL"},
      {"{\"v\":1,\"id\":1,\"verb\":\"\xff\"}", "no JSON in UTF-8"},
      {R"({"id":1,"verb":"status"})", "\"v\" is absent"},
      {R"({"v":2,"id":1,"verb":"status"})", "\"v\" is 2, this run speaks version 1"},
      {R"({"v":[[]],"id":1,"verb":"status"})", "\"v\" is an array"},
      {R"({"v":1,"verb":"status"})", "no \"id\""},
      {R"({"v":1,"id":-1,"verb":"status"})", "no \"id\""},
      {R"({"v":1,"id":1.5,"verb":"status"})", "no \"id\""},
      {R"({"v":1,"id":18446744073709551615,"verb":"status"})", "no \"id\""},
      {R"({"v":1,"id":1})", "no text \"verb\": one of status, set"},
      {R"({"v":1,"id":1,"verb":"statsu"})", "did you mean `status`"},
      {R"({"v":1,"id":1,"verb":"status","arg":{}})", "no key \"arg\": did you mean `args`"},
      {R"({"v":1,"id":1,"verb":"status","args":[]})", "an array, expected an object"},
      {R"({"v":1,"id":1,"verb":"stop","args":{"now":true}})", "no key \"now\": this verb takes no args"},
      {R"({"v":1,"id":1,"verb":"set"})", "no \"assignments\""},
      {R"({"v":1,"id":1,"verb":"set","args":{"assignments":[]}})", "no \"assignments\""},
      {R"({"v":1,"id":1,"verb":"set","args":{"assignments":"a=1"}})", "a string, expected a list"},
      {R"({"v":1,"id":1,"verb":"set","args":{"assignments":[1]}})", "holds a number"},
      {R"({"v":1,"id":1,"verb":"set","args":{"assignments":["lr"]}})", "\"lr\" is no assignment"},
      {R"({"v":1,"id":1,"verb":"set","args":{"assignments":["=1"]}})", "\"=1\" is no assignment"},
      {R"({"v":1,"id":1,"verb":"set","args":{"assignment":["a=1"]}})", "did you mean `assignments`"},
      {R"({"v":1,"id":1,"verb":"swap","args":{"type":"rex"}})", "no \"slot\""},
      {R"({"v":1,"id":1,"verb":"swap","args":{"slot":"schedule"}})", "no \"type\""},
      {R"({"v":1,"id":1,"verb":"swap","args":{"slot":"a","type":"b","step":5}})", "no key \"step\""},
      {R"({"v":1,"id":1,"verb":"swap","args":{"slot":"","type":"a"}})", "\"slot\" is empty"},
      {R"({"v":1,"id":1,"verb":"swap","args":{"slot":"a\nb","type":"a"}})", "control characters"},
      {R"({"v":1,"id":1,"verb":"swap","args":{"slot":"a","type":"b","watch":"5"}})", "\"watch\" is \"5\""},
      {R"({"v":1,"id":1,"verb":"swap","args":{"slot":"a","type":"b","watch":5}})", "a number, expected text"},
  }));
  CAPTURE(line);
  CHECK_THAT(refusal(line), Catch::Contains(message));
}

TEST_CASE("control: of a long word the beginning is quoted", "[control]") {
  const std::string shown = "begins" + std::string(54, 'x'), more(1000, 'y');
  CHECK_THAT(refusal(R"({"v":1,"id":1,"verb":")" + shown + more + "\"}"),
             Catch::Contains("\"" + shown + "...\""));
}

TEST_CASE("control: depth and width of a request cost no stack and little time", "[control]") {
  const std::string deep(max_request_bytes - 100, '[');
  CHECK(refusal(deep) != "accepted");
  CHECK(refusal(deep + std::string(deep.size(), ']')) != "accepted");
  CHECK(refusal("{\"v\":" + deep.substr(0, 30000) + std::string(30000, ']') + "}") != "accepted");
  CHECK(refusal("{\"v\":1,\"id\":1,\"verb\":" + deep.substr(0, 30000) + std::string(30000, ']') + "}") !=
        "accepted");
  std::string wide = "{";
  for (int i = 0; i < 7000; ++i) wide += "\"" + std::to_string(i) + "\":1,";
  CHECK(refusal(wide + "\"v\":1,\"id\":1,\"verb\":\"status\"}") != "accepted");
}

TEST_CASE("control: a status travels unchanged", "[control]") {
  Status status;
  status.run = "größer \x01 \"q\"";
  status.pid = 4711;
  status.state = RunState::paused;
  status.step = 10;
  status.total_steps = 100;
  status.epoch = 1;
  status.samples_per_second = 1234.5;
  status.seconds = 8.25;
  status.seconds_left = 74.25;
  status.metrics = {{"train/loss", std::numeric_limits<double>::quiet_NaN()},
                    {"val/loss", -std::numeric_limits<double>::infinity()},
                    {"val/accuracy", 0.1}};
  status.slots = {{.slot = "schedule", .type = "rex", .version = "1.0.0", .swaps = 2, .digest = "ab"}};
  status.retired = 2;
  const Answer answer = parse_answer(line_of(Answer{.id = 3, .ok = true, .result = status}));
  REQUIRE(answer.ok);
  CHECK(answer.id == 3);
  const Status read = answer.result.get<Status>();
  CHECK(Json(read) == Json(status));
  CHECK(read.run == status.run);
  CHECK(read.seconds_left == 74.25);
  CHECK(std::isnan(read.metrics.at("train/loss")));
  CHECK(read.last_checkpoint.empty());
  Json broken = status;
  broken["state"] = "asleep";
  CHECK_THROWS_AS(broken.get<Status>(), nlohmann::json::exception);
  broken.erase("state");
  CHECK_THROWS_AS(broken.get<Status>(), nlohmann::json::exception);
}

TEST_CASE("control: an answer stays within its bound", "[control]") {
  const Answer answer{.id = 1, .ok = true, .result = std::string(max_answer_bytes, 'x')};
  CHECK(line_of(answer).size() < max_answer_bytes);
  CHECK_THAT(parse_answer(line_of(answer)).error, Catch::Contains("bytes"));
  const Answer bad{.error = std::string(max_answer_bytes, '\x01')};
  CHECK(line_of(bad).size() <= max_answer_bytes);
  CHECK_THROWS(parse_answer("{}"));
  CHECK_THROWS(parse_answer("[]"));
  CHECK_THROWS(parse_answer(R"({"v":2,"ok":true})"));
}

TEST_CASE("control: requests reach the loop and answers their client", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  struct stat status {};
  REQUIRE(::stat((folder / socket_name).c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK_FALSE(channel.pending());
  CHECK_FALSE(channel.take());
  CHECK_FALSE(channel.wait(1ms));
  const FakeLoop loop(channel);

  Client client(folder.path());
  CHECK(client.ask({.verb = Verb::status}, 10s).at("verb") == "status");
  const Json set = client.ask({.verb = Verb::set, .assignments = {"optimizer.lr=3e-4"}}, 10s);
  CHECK(set.at("assignments") == Json::array({"optimizer.lr=3e-4"}));
  CHECK_THROWS_WITH(client.ask({.verb = Verb::stop}, 10s), "no: it is said to stop");
  CHECK_THROWS_WITH(client.ask({.verb = Verb::checkpoint}, 10s), Catch::Contains("the run ended before"));
  CHECK_THROWS_WITH(client.ask({.verb = Verb::set, .assignments = {"lr"}}, 10s),
                    Catch::Contains("no assignment"));
  CHECK_THROWS_AS(client.ask({.verb = Verb::set, .assignments = {"a=" + std::string(70000, '1')}}, 10s),
                  Refused);
}

TEST_CASE("control: fifty clients at once", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  FakeLoop loop(channel);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 50; ++i)
    threads.emplace_back([&, i] {
      Client client(folder.path());
      for (int j = 0; j < 4; ++j) {
        const std::string text = "a=" + std::to_string(100 * i + j);
        const Json result = client.ask({.verb = Verb::set, .assignments = {text}}, 30s);
        right += result.at("assignments") == Json::array({text});
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 200);
  CHECK(loop.taken == 200);
}

TEST_CASE("control: garbage is answered, and the same connection goes on", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  const FakeLoop loop(channel);
  Raw raw(folder.path());
  const std::string nul("\0\0{\"v\":1}\n", 10);
  for (const std::string& garbage :
       {std::string("hello\n"), nul, std::string("\xff\xfe\x80\n"), std::string("{\n")}) {
    REQUIRE(raw.send(garbage));
    const Answer answer = raw.answer();
    CHECK_FALSE(answer.ok);
    CHECK_FALSE(answer.id);
  }
  REQUIRE(raw.send("\n\n\n" + request(1)));  // empty lines are nothing
  CHECK(raw.answer().id == 1);

  SECTION("bytes one by one") {
    for (const char c : request(2)) REQUIRE(raw.send(std::string_view(&c, 1)));
    CHECK(raw.answer().id == 2);
  }
  SECTION("a line that is too long is refused once, the next one is read") {
    REQUIRE(raw.send(std::string(10 * max_request_bytes, 'x') + "\n" + request(3)));
    CHECK_THAT(raw.answer().error, Catch::Contains("longer than 65536 bytes"));
    CHECK(raw.answer().id == 3);
  }
  SECTION("the longest line that fits") {
    std::string line = R"({"v":1,"id":4,"verb":"set","args":{"assignments":["a=)";
    line += std::string(max_request_bytes - line.size() - 5, '1') + "\"]}}\n";
    REQUIRE(line.size() == max_request_bytes);
    REQUIRE(raw.send(line));
    CHECK(raw.answer().ok);
    line.insert(line.size() - 6, "1");
    REQUIRE(raw.send(line + request(5)));
    CHECK_THAT(raw.answer().error, Catch::Contains("longer than"));
    CHECK(raw.answer().id == 5);
  }
  SECTION("several requests in one write") {
    REQUIRE(raw.send(request(6) + "garbage\n" + request(7)));
    std::vector<std::optional<std::int64_t>> ids;
    for (int i = 0; i < 3; ++i) ids.push_back(raw.answer().id);
    std::sort(ids.begin(), ids.end());
    CHECK((ids == std::vector<std::optional<std::int64_t>>{{}, 6, 7}));
  }
  SECTION("one side closed: the answer comes, a half-written line is not obeyed") {
    const std::string half = request(9, "eval");
    REQUIRE(raw.send(request(8) + half.substr(0, half.size() - 1)));
    ::shutdown(raw.fd(), SHUT_WR);
    std::vector<Answer> answers = {raw.answer(), raw.answer()};
    std::sort(answers.begin(), answers.end(), [](const Answer& a, const Answer& b) { return a.id < b.id; });
    CHECK_THAT(answers[0].error, Catch::Contains("no newline"));
    CHECK(answers[1].id == 8);
    CHECK(answers[1].ok);
    CHECK(raw.line().empty());
    CHECK(raw.ended);
    CHECK(loop.taken == 2);  // ids 1 and 8
  }
}

TEST_CASE("control: a line that is too long is told, in whatever parts it comes", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  const FakeLoop loop(channel);
  for (const std::size_t first : {std::size_t{1}, max_request_bytes - 1, max_request_bytes}) {
    INFO("first " << first << " bytes");
    Raw raw(folder.path());
    REQUIRE(raw.send(std::string(first, 'x')));
    std::this_thread::sleep_for(50ms);  // they are read apart
    REQUIRE(raw.send(std::string(max_request_bytes + 1 - first, 'x') + "\n" + request(7)));
    CHECK_THAT(raw.answer().error, Catch::Contains("long"));
    CHECK(raw.answer().id == 7);
  }
}

TEST_CASE("control: too many requests of one client are told", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  Raw raw(folder.path());
  for (int i = 0; i <= max_open; ++i) REQUIRE(raw.send(request(i)));
  const Answer busy = raw.answer();
  CHECK(busy.id == max_open);
  CHECK_THAT(busy.error, Catch::Contains("busy"));
  REQUIRE(channel.wait(10s));
  CHECK(channel.pending());
  for (int i = 0; i < max_open; ++i) {
    std::optional<Command> command = channel.take();
    REQUIRE(command);
    CHECK(command->request().id == i);
    command->answer(i);
    CHECK(raw.answer().result == i);
  }
  CHECK_FALSE(channel.pending());
}

TEST_CASE("control: too many clients are told", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  std::vector<Raw> others;
  for (std::size_t i = 0; i < max_clients; ++i) others.emplace_back(folder.path());
  REQUIRE(others.back().send(request(1)));
  REQUIRE(channel.wait(10s));
  Raw further(folder.path());
  CHECK_THAT(further.answer().error, Catch::Contains("64 clients"));
  CHECK(further.line().empty());
  CHECK(further.ended);
  others.erase(others.begin());
  for (int attempt = 0; attempt < 100; ++attempt) {  // until the channel has seen that one is gone
    Raw next(folder.path());
    next.send("garbage\n");
    if (next.answer().error.find("JSON") != std::string::npos) return;
    std::this_thread::sleep_for(20ms);
  }
  FAIL("no place was freed");
}

namespace {

/// One client sends so many lines as fast as they are taken, while another asks.
void flood_with(const std::string& line, int lines) {
  const test::Folder folder;
  Channel channel(folder.path());
  FakeLoop loop(channel);
  CAPTURE(line);
  const double began = cpu_seconds();
  Raw flood(folder.path());
  std::atomic<int> answered{0};
  std::thread reader([&] {
    while (answered < lines && !flood.line().empty()) ++answered;
  });
  std::thread writer([&] {
    std::string block;
    for (int i = 0; i < 100; ++i) block += line;
    for (int i = 0; i < lines / 100; ++i) flood.send(block);
  });
  Client client(folder.path());
  std::chrono::milliseconds longest{0};
  while (answered < lines * 9 / 10) {
    const auto asked = std::chrono::steady_clock::now();
    CHECK(client.ask({.verb = Verb::eval}, 20s).at("verb") == "eval");
    longest = std::max(longest, std::chrono::duration_cast<std::chrono::milliseconds>(
                                    std::chrono::steady_clock::now() - asked));
    std::this_thread::sleep_for(20ms);
  }
  writer.join();
  reader.join();
  CHECK(answered == lines);
  WARN(lines << " lines of " << line << loop.taken << " reached the loop, the slowest answer to another took "
             << longest.count() << " ms, " << cpu_seconds() - began
             << " s of processor time with the test itself");
  CHECK(longest < 2s);
}

}  // namespace

TEST_CASE("control: a flood is answered at its own cost, and others are served", "[control]") {
  flood_with("garbage\n", 10'000);
  flood_with(request(1), 200);
}

namespace {

/// Clients that send garbage as fast as it is taken, each in a thread of its own, and come again when they
/// are sent away.
class Floods {
 public:
  /// `stay`: they read what is answered, and send again; else they go when they have sent a little.
  Floods(const std::string& folder, std::size_t count, bool stay) {
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([this, folder, stay] {
        std::string block;
        for (int line = 0; line < 50; ++line) block += "garbage\n";
        while (!over_) {
          Raw raw(folder);
          ++came_;
          while (!over_ && raw.send(block) && stay)
            for (int line = 0; line < 50 && !raw.line(5s).empty(); ++line) ++answered_;
        }
      });
  }
  ~Floods() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  std::int64_t came() const { return came_; }
  std::int64_t answered() const { return answered_; }

 private:
  std::atomic<bool> over_{false};
  std::atomic<std::int64_t> came_{0}, answered_{0};
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("control: who asks now and then is served while others flood", "[control]") {
  const auto [floods, stay] = GENERATE(table<std::size_t, bool>({{max_clients - 8, true}, {16, false}}));
  CAPTURE(floods, stay);
  const test::Folder folder;
  Channel channel(folder.path());
  const FakeLoop loop(channel);
  const Floods others(folder.path(), floods, stay);
  while (stay ? others.answered() < 1'000 : others.came() < 200) std::this_thread::sleep_for(1ms);
  std::chrono::milliseconds longest{0};
  for (int i = 0; i < 10; ++i) {
    const auto asked = std::chrono::steady_clock::now();
    Client client(folder.path());
    CHECK(client.ask({.verb = Verb::status}, 20s).at("verb") == "status");
    longest = std::max(longest, std::chrono::duration_cast<std::chrono::milliseconds>(
                                    std::chrono::steady_clock::now() - asked));
    std::this_thread::sleep_for(50ms);
  }
  WARN(floods << " floods: the slowest answer took " << longest.count() << " ms");
}

TEST_CASE("control: a line waits for a turn or two of another client, and not for all that it has sent",
          "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  Raw flood(folder.path()), other(folder.path());
  constexpr int lines = 1'000, soon = 20, turns = 100;  // 100 lines: five turns
  std::string block;
  for (int i = 0; i < lines; ++i) block += "garbage\n";
  int judged = 0;
  for (int round = 0; round < 200 && judged < 20; ++round) {
    REQUIRE(flood.send(block));
    REQUIRE(other.send("garbage\n"));
    int answers = 0;
    if (flood.lines() <= soon) {  // else this thread came too late to see it
      for (; answers < turns; ++answers) REQUIRE_FALSE(flood.line().empty());
      CHECK(other.lines() == 1);
      ++judged;
    }
    REQUIRE_FALSE(other.line().empty());
    for (; answers < lines; ++answers) REQUIRE_FALSE(flood.line().empty());
  }
  CHECK(judged > 0);
}

TEST_CASE("control: all have their turns, where there is not enough for a turn of each at a time",
          "[control]") {
  constexpr int rounds = 4, lines = 300, used_up = 100, turns = 70;  // 100 of each: more than comes at once
  std::string block;
  for (int i = 0; i < lines; ++i) block += "garbage\n";
  for (int round = 0; round < rounds; ++round) {
    const test::Folder folder;
    Channel channel(folder.path());
    std::vector<Raw> floods;
    for (std::size_t i = 0; i + 1 < max_clients; ++i) floods.emplace_back(folder.path());
    Raw other(folder.path());
    REQUIRE(other.send("garbage\n"));  // its answer says that it was accepted, which takes turns, too
    REQUIRE_FALSE(other.line().empty());
    for (Raw& each : floods) REQUIRE(each.send(block));
    for (int i = 0; i < used_up; ++i) REQUIRE_FALSE(floods.front().line().empty());
    REQUIRE(other.send("garbage\n"));
    const std::ptrdiff_t seen = floods.front().lines();
    if (used_up + seen + turns > lines) continue;  // this thread came too late to see it
    for (int i = 0; i < seen + turns; ++i) REQUIRE_FALSE(floods.front().line().empty());
    CHECK(other.lines() == 1);
  }
}

TEST_CASE("control: a long flood", "[.][long]") {
  flood_with("garbage\n", 100'000);
  flood_with(request(1), 1'000);
}

TEST_CASE("control: who does not read is not read, then dropped; others are served", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  const FakeLoop loop(channel);
  Raw silent(folder.path());
  timeval timeout{.tv_sec = 0, .tv_usec = 200'000};
  ::setsockopt(silent.fd(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  std::size_t sent = 0;
  const auto began = std::chrono::steady_clock::now();
  bool dropped = false;
  while (!dropped && std::chrono::steady_clock::now() - began < 30s) {
    const ssize_t count = ::send(silent.fd(), "garbage\n", 8, MSG_NOSIGNAL);
    if (count > 0) sent += 8;
    dropped = count < 0 && errno == EPIPE;
    if (count < 0 && !dropped) {
      Client client(folder.path());
      CHECK(client.ask({.verb = Verb::eval}, 10s).at("verb") == "eval");
    }
  }
  CHECK(dropped);
  CHECK(sent < std::size_t{4} << 20);
}

TEST_CASE("control: a client that went away is obeyed, and costs no descriptor", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  FakeLoop loop(channel);
  Client client(folder.path());
  client.ask({}, 10s);
  const std::size_t files = open_files();
  for (int i = 0; i < 60; ++i) {
    Raw raw(folder.path());
    REQUIRE(raw.connected);
    if (i % 2 == 0) raw.send(request(i));
    if (i % 2 == 1) raw.send("{\"v\":1,");
  }
  for (int i = 0; i < 500 && loop.taken < 31; ++i) std::this_thread::sleep_for(10ms);
  CHECK(loop.taken == 31);
  client.ask({}, 10s);
  for (int i = 0; i < 100 && open_files() > files; ++i) std::this_thread::sleep_for(10ms);
  CHECK(open_files() == files);
}

TEST_CASE("control: the end of a run answers what is open", "[control]") {
  const test::Folder folder;
  std::optional<Command> taken;
  std::optional<Raw> raw;
  {
    Channel channel(folder.path());
    raw.emplace(folder.path());
    REQUIRE(raw->send(request(1) + request(2)));
    REQUIRE(channel.wait(10s));
    taken = channel.take();
    while (!channel.wait(10ms)) continue;  // the second one is there
  }
  for (int id = 1; id <= 2; ++id) {
    const Answer answer = raw->answer();
    CHECK(answer.id == id);
    CHECK_THAT(answer.error, Catch::Contains("the run ended before"));
  }
  CHECK(raw->line().empty());
  CHECK(raw->ended);
  CHECK_FALSE(std::filesystem::exists(folder / socket_name));
  taken->answer("too late, and no harm");
}

TEST_CASE("control: a folder whose path is longer than an address", "[control]") {
  const test::Folder folder;
  std::string path = folder.path();
  for (int i = 0; i < 10; ++i) path += "/" + std::string(100, static_cast<char>('a' + i));
  std::filesystem::create_directories(path);
  Channel channel(path);
  const FakeLoop loop(channel);
  CHECK(std::filesystem::is_socket(path + "/" + socket_name));
  CHECK(Client(path).ask({}, 10s).at("verb") == "status");
}

TEST_CASE("control: a dead run's socket is replaced, a live one and other files are not", "[control]") {
  const test::Folder folder;
  {
    const Descriptor dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const Descriptor where = open_folder(folder.path());
    const sockaddr_un address = address_in(where);
    REQUIRE(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(dead.get(), 1) == 0);
  }
  REQUIRE(std::filesystem::exists(folder / socket_name));
  CHECK_THROWS_WITH(Client(folder.path()), Catch::Contains("is gone"));
  {
    Channel channel(folder.path());
    const FakeLoop loop(channel);
    CHECK_THROWS_AS(Channel(folder.path()), ConfigError);
    CHECK(Client(folder.path()).ask({}, 10s).at("verb") == "status");
  }
  CHECK_THROWS_WITH(Client(folder.path()), Catch::Contains("no control socket"));
  std::ofstream(folder / socket_name) << "a file";
  CHECK_THROWS_AS(Channel(folder.path()), ConfigError);
  CHECK(test::read_file(folder / socket_name) == "a file");
  CHECK_THROWS_AS(Channel(folder / "absent"), DataError);

  const test::Folder foreign;  // where a socket lies that takes other messages than ours
  const Descriptor datagrams(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Descriptor where = open_folder(foreign.path());
  const sockaddr_un address = address_in(where);
  REQUIRE(::bind(datagrams.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK_THROWS_WITH(Channel(foreign.path()), Catch::Contains("look at"));
  CHECK(std::filesystem::is_socket(foreign / socket_name));
}

TEST_CASE("control: a socket that took the place of ours stays", "[control]") {
  const test::Folder folder;
  {
    Channel channel(folder.path());
    std::filesystem::remove(folder / socket_name);
    std::ofstream(folder / socket_name) << "another's";
  }
  CHECK(std::filesystem::exists(folder / socket_name));
}

TEST_CASE("control: another user is turned away", "[control]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can be another user");
    return;
  }
  const test::Folder folder;
  Channel channel(folder.path());
  const FakeLoop loop(channel);
  const auto as_another = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
      Raw raw(folder.path());
      if (!raw.connected) ::_exit(1);
      raw.send(request(1));
      ::_exit(raw.answer().error.find("only the owner") != std::string::npos && raw.line().empty() ? 2 : 3);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  ::chmod(folder.path().c_str(), 0755);
  CHECK(as_another() == 1);  // by the mode of the file
  ::chmod((folder / socket_name).c_str(), 0666);
  CHECK(as_another() == 2);  // by who it is
  CHECK(loop.taken == 0);
}

TEST_CASE("control: no answer in time is said, and the connection serves on", "[control]") {
  const test::Folder folder;
  Channel channel(folder.path());
  Client client(folder.path());
  CHECK_THROWS_WITH(client.ask({.verb = Verb::pause}, 50ms), Catch::Contains("no answer within 0.05"));
  const FakeLoop loop(channel);
  CHECK(client.ask({.verb = Verb::eval}, 10s).at("verb") == "eval");
}

}  // namespace control_tests
