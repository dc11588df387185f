// What lib/ does by itself.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include <catch2/catch.hpp>

#include "lib/apart.hpp"
#include "lib/escapes.hpp"
#include "lib/fnv1a.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"
#include "lib/read_file.hpp"
#include "lib/sha256.hpp"
#include "lib/words.hpp"
#include "support/folder.hpp"

namespace lib_tests {

using namespace trainyard;

/// The syncs of this process: what was synced, and what the file of interest held then. A path may be told to fail.
struct Syncs {
  std::string file;
  std::vector<std::pair<std::string, std::string>> made;
  std::map<std::string, int> reasons;
};
Syncs* syncs = nullptr;

}  // namespace lib_tests

/// Stands in for the C library's.
extern "C" __attribute__((visibility("default"))) int fsync(int descriptor) {
  if (lib_tests::syncs != nullptr) {
    const std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
    lib_tests::syncs->made.emplace_back(path, trainyard::test::read_file(lib_tests::syncs->file));
    if (const auto found = lib_tests::syncs->reasons.find(path); found != lib_tests::syncs->reasons.end()) {
      errno = found->second;
      return -1;
    }
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace lib_tests {
namespace {

/// A file that holds "old", and its folder.
class Replaced {
 public:
  Replaced() {
    folder_.write("file", "old");
    seen_.file = folder_ / "file";
    syncs = &seen_;
  }
  ~Replaced() { syncs = nullptr; }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

  const std::string& folder() const { return folder_.path(); }
  std::string path() const { return folder_ / "file"; }
  Syncs& seen() { return seen_; }
  std::string content() const { return test::read_file(path()); }

  std::optional<lib::FileFailure> replace(const std::string& text) const {
    lib::NewFile made(path());
    std::ofstream(made.temporary()) << text;
    return made.put_in_place();
  }

 private:
  test::Folder folder_;
  Syncs seen_;
};

}  // namespace

TEST_CASE("lib: a new file is on the disk before it replaces the old one, and its name is afterwards") {
  Replaced file;
  CHECK_FALSE(file.replace("new"));
  CHECK(file.content() == "new");
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  CHECK(file.seen().made == Pairs{{file.path() + ".tmp", "old"}, {file.folder(), "new"}});
  CHECK_FALSE(std::filesystem::exists(file.path() + ".tmp"));
}

TEST_CASE("lib: a new file that cannot be synced leaves the old one") {
  Replaced file;
  file.seen().reasons[file.path() + ".tmp"] = EIO;
  const auto failure = file.replace("new");
  REQUIRE(failure);
  CHECK(failure->what == "cannot sync '" + file.path() + ".tmp': Input/output error");
  CHECK(failure->reason == EIO);
  CHECK(file.content() == "old");
  CHECK_FALSE(std::filesystem::exists(file.path() + ".tmp"));
}

TEST_CASE("lib: a file system that cannot sync is no failure; one that fails at it is") {
  Replaced file;
  file.seen().reasons = {{file.path() + ".tmp", EINVAL}, {file.folder(), EROFS}};
  CHECK_FALSE(file.replace("new"));
  CHECK(file.content() == "new");
  file.seen().reasons = {{file.folder(), EIO}};
  const auto failure = file.replace("newest");
  REQUIRE(failure);
  CHECK(failure->what == "cannot sync '" + file.folder() + "/': Input/output error");
  CHECK(file.content() == "newest");
}

TEST_CASE("lib: a new file that is never put in place is gone, and one that cannot be is named") {
  Replaced file;
  {
    const lib::NewFile given_up(file.path(), ".7");
    CHECK(given_up.temporary() == file.path() + ".7");
    std::ofstream(given_up.temporary()) << "half";
  }
  CHECK_FALSE(std::filesystem::exists(file.path() + ".7"));
  CHECK(file.content() == "old");

  const std::string taken = file.folder() + "/taken";
  std::filesystem::create_directory(taken);
  lib::NewFile onto_folder(taken);
  const auto unwritten = onto_folder.put_in_place();
  REQUIRE(unwritten);
  CHECK(unwritten->what == "cannot open '" + taken + ".tmp': No such file or directory");
  std::ofstream(onto_folder.temporary()) << "new";
  const auto failure = onto_folder.put_in_place();
  REQUIRE(failure);
  CHECK(failure->what == "cannot rename '" + taken + ".tmp' to '" + taken + "': Is a directory");
  CHECK(failure->reason == EISDIR);
}

TEST_CASE("lib: a file without a folder in its path lies in the current one") {
  const test::Folder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  lib::NewFile made("plain");
  std::ofstream(made.temporary()) << "new";
  CHECK_FALSE(made.put_in_place());
  CHECK(lib::read_file("plain") == "new");
  CHECK_FALSE(lib::sync_folder(""));
  std::filesystem::current_path(before);
}

TEST_CASE("lib: a file is read with all its bytes, and one that is not there is none") {
  const test::Folder folder;
  const std::string bytes("a\r\n\0\xff", 5);
  CHECK(lib::read_file(folder.write("some", bytes)) == bytes);
  CHECK(lib::read_file(folder.write("empty", "")) == "");
  CHECK_FALSE(lib::read_file(folder / "absent"));
  CHECK(errno == ENOENT);
}

namespace {

using End = lib::Apart::End;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string asleep() {
  for (;;) pause();
}

}  // namespace

TEST_CASE("lib: what is computed in a copy of the process comes back, and nothing else of it does") {
  std::string text(3'000'000, '!');  // more than a pipe holds
  for (std::size_t i = 0; i < text.size(); i += 7) text[i] = static_cast<char>(i);
  const test::Folder folder;
  const int file = open(folder.write("file", "").c_str(), O_WRONLY), before = dup(STDOUT_FILENO);
  dup2(file, STDOUT_FILENO);
  const lib::Apart made = lib::computed_apart([&] {
    const std::string found = text;
    text = "changed";
    (void)!write(STDOUT_FILENO, "said", 4);
    return found + (fcntl(file, F_GETFD) < 0 && errno == EBADF ? "closed" : "open");
  });
  dup2(before, STDOUT_FILENO);
  close(before);
  close(file);
  CHECK(made.end == End::returned);
  CHECK((made.bytes == text + "closed"));  // texts whose difference would take minutes to print
  CHECK(test::read_file(folder / "file").empty());
  const lib::Apart nothing = lib::computed_apart([] { return std::string(); });
  CHECK((nothing.end == End::returned && nothing.bytes.empty()));
}

TEST_CASE("lib: a copy of the process that does not return is told from one that does") {
  const auto end_of = [](const std::function<std::string()>& compute) {
    const lib::Apart made = lib::computed_apart(compute);
    CHECK(made.bytes.empty());
    return std::pair{made.end, made.number};
  };
  CHECK(end_of([]() -> std::string { throw std::runtime_error("no"); }) == std::pair{End::failed, 0});
  for (const int code : {0, 3})
    CHECK(end_of([&]() -> std::string { _exit(code); }) == std::pair{End::failed, 0});
  // What this process does about signals is not done in the copy.
  for (const int number : {SIGSEGV, SIGABRT, SIGTERM, SIGINT}) {
    const auto before = std::signal(number, [](int) { _exit(7); });
    CHECK(end_of([&]() -> std::string {
            raise(number);
            return "went on";
          }) == std::pair{End::died, number});
    std::signal(number, before);
  }
}

TEST_CASE("lib: a copy of the process is killed when its time is up, or as it is asked") {
  CHECK(seconds_of([] { CHECK(lib::computed_apart(asleep, 0.05).end == End::late); }) < 5.0);
  int asked = 0;
  CHECK(seconds_of([&] {
          CHECK(lib::computed_apart(asleep, 60.0, [&] { return ++asked > 3; }).end == End::stopped);
        }) < 5.0);
  // A signal for all processes of a terminal ends the copy before the stop is seen.
  asked = 0;
  const auto interrupted = []() -> std::string {
    raise(SIGINT);
    return "went on";
  };
  CHECK(lib::computed_apart(interrupted, 60.0, [&] { return ++asked > 1; }).end == End::stopped);
  CHECK(lib::computed_apart([] { return std::string("in time"); }, 60.0, [] { return false; }).bytes ==
        "in time");
}

TEST_CASE("lib: a copy of the process ends with the one that waits for it") {
  void* const shared =
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  std::atomic<pid_t>& copy = *new (shared) std::atomic<pid_t>(0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that the copy comes to this process
  const pid_t waiting = fork();
  if (waiting == 0) {
    lib::computed_apart([&] {
      copy = getpid();
      return asleep();
    });
    _exit(0);
  }
  while (copy == 0) usleep(1000);
  kill(waiting, SIGKILL);
  waitpid(waiting, nullptr, 0);
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 5000 && ended == 0; ++i) {
    ended = waitpid(copy, &status, WNOHANG);
    if (ended == 0) usleep(1000);
  }
  CHECK(ended == copy);
  CHECK(WIFSIGNALED(status));
  if (ended == 0) kill(copy, SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  munmap(shared, sizeof(pid_t));
}

TEST_CASE("lib: strings and keys of TOML") {
  CHECK(lib::toml_string("plain") == "\"plain\"");
  CHECK(lib::toml_string("a \"b\" \\ \n\t\x01\x7f\xc3\xa9") == R"("a \"b\" \\ \n\t\u0001\u007F)"
                                                               "\xc3\xa9\"");
  CHECK(lib::toml_key("fold_0-a") == "fold_0-a");
  CHECK(lib::toml_key("a.b") == "\"a.b\"");
  CHECK(lib::toml_key("") == "\"\"");
}

TEST_CASE("lib: numbers are printed") {
  CHECK(lib::printed("%.5g|%lld|%s", 0.1, 7LL, "text") == "0.1|7|text");
  CHECK(lib::printed("%.3f", std::numeric_limits<double>::max()).size() == 313);
  CHECK(lib::shortest(0.1) == "0.1");
  CHECK(lib::shortest(0.1f) == "0.1");
  CHECK(lib::shortest(-std::nan("")) == "-nan");
  CHECK(lib::float_text(-5.0) == "-5.0");
  CHECK(lib::float_text(1e22) == "1e+22");
  CHECK(lib::metric_text(-1e-3) == "-0.0010");
  CHECK(lib::metric_text(9.99e-4) == "9.990e-04");
  CHECK(lib::metric_text(1e4) == "1.000e+04");
  CHECK(lib::rate_text(1e3) == "1.0k");
  CHECK(lib::rate_text(2.5e6) == "2.5M");
}

TEST_CASE("lib: text is escaped for markup and CSV") {
  CHECK(lib::escaped("<a href=\"x\">'&'</a>") == "&lt;a href=&quot;x&quot;&gt;'&amp;'&lt;/a&gt;");
  CHECK(lib::escaped("<&>\"'", "<>&\"'") == "&lt;&amp;&gt;&quot;&#39;");
  CHECK(lib::escaped("<&>\"'", "<&") == "&lt;&amp;>\"'");
  CHECK(lib::csv_field("a,\"b\"") == "\"a,\"\"b\"\"\"");
  CHECK(lib::csv_field("a\rb") == "\"a\rb\"");
  CHECK(lib::csv_field("a\rb", ",\"\n") == "a\rb");
}

TEST_CASE("lib: digests are those that others compute") {
  CHECK(lib::Sha256::of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(lib::hex_of("\x01\xfe") == "01fe");
  CHECK(lib::Fnv1a().update("foo").update("bar").hex() == "85944171f73967e8");
  CHECK(lib::Fnv1a().update("\xff").hex() == "af64724c8602eb6e");
}

TEST_CASE("lib: words are joined, trimmed and lowered") {
  CHECK(lib::join(std::vector<std::string>{"a", "b", "c"}) == "a, b, c");
  CHECK(lib::join(std::vector<std::string_view>{"a", "b"}, " | ") == "a | b");
  CHECK(lib::trimmed(" \ta b\t ") == "a b");
  CHECK(lib::trimmed("\ta ", " ") == "\ta");
  CHECK(lib::trimmed("  ").empty());
  CHECK(lib::lower_case("GeMM-\xc3\x84") == "gemm-\xc3\x84");
}

}  // namespace lib_tests
