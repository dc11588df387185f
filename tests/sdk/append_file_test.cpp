// A file that grows by whole records.
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include <trainyard/formats/append_file.hpp>

namespace append_file_tests {

using namespace trainyard;

TEST_CASE("a record that is written in parts arrives whole") {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};  // which ends a write that waits
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::string record;
  for (int i = 0; record.size() < 300'000; ++i) record += std::to_string(i) + "\n";
  AppendFile file("/dev/fd/" + std::to_string(ends[1]), AppendFile::Mode::extend);
  close(ends[1]);
  std::string read;
  std::thread reader([&, writer = pthread_self()] {
    // What it holds no longer grows: the writer waits, or is about to.
    for (int held = 0, now = -1; held == 0 || held != now; std::this_thread::yield()) {
      now = held;
      ioctl(ends[0], FIONREAD, &held);
    }
    pthread_kill(writer, SIGUSR1);
    std::string part(1 << 16, '\0');
    while (read.size() < record.size()) {
      const ssize_t count = ::read(ends[0], part.data(), part.size());
      if (count <= 0) break;
      read.append(part, 0, static_cast<std::size_t>(count));
    }
  });
  file.append(record);
  reader.join();
  close(ends[0]);
  sigaction(SIGUSR1, &before, nullptr);
  CHECK(read == record);
}

}  // namespace append_file_tests
