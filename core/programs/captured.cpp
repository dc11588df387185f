#include "core/programs/captured.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fcntl.h>

#include <trainyard/error.hpp>

#include "lib/spawn.hpp"

namespace trainyard::cli {

Captured captured(const std::vector<std::string>& words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ExitCode::internal, std::string("cannot make a pipe: ") + std::strerror(errno));
  lib::Spawn spawn;
  spawn.input();
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) spawn.output(stream, ends[1]);
  pid_t child = 0;
  const int error = spawn.start(child, words);
  ::close(ends[1]);
  Captured result;
  if (error == 0) {
    char buffer[4096];
    for (ssize_t count = 0; (count = ::read(ends[0], buffer, sizeof buffer)) != 0;) {
      if (count > 0) result.text.append(buffer, static_cast<std::size_t>(count));
      if (count < 0 && errno != EINTR) break;
    }
  }
  ::close(ends[0]);
  if (error != 0)
    throw Error(ExitCode::internal, "cannot start " + words.front() + ": " + std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace trainyard::cli
