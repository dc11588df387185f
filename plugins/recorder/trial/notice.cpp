#include "notice.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trial {

void Notices::send(const Firing& firing) {
  std::vector<std::string> variables = {"RULE=" + firing.rule, "MESSAGE=" + firing.finding.message,
                                        "STEP=" + std::to_string(firing.mode_step), "RUN=" + run_};
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string name(*each, std::strcspn(*each, "="));
    if (name != "RULE" && name != "MESSAGE" && name != "STEP" && name != "RUN") environment.push_back(*each);
  }
  environment.push_back(nullptr);
  std::string shell = "sh", flag = "-c", command = firing.notify;
  char* const words[] = {shell.data(), flag.data(), command.data(), nullptr};

  // The training's own handlers and blocked signals are not the command's.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t process = 0;
  const int error = posix_spawn(&process, "/bin/sh", &files, &attributes, words, environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error == 0)
    running_.push_back({process, firing.notify});
  else
    complain_("rules." + firing.rule + ".notify: \"" + firing.notify +
              "\" cannot be started: " + std::strerror(error));
}

bool Notices::settle() {
  std::erase_if(running_, [&](const Running& each) {
    int status = 0;
    const pid_t ended = ::waitpid(each.process, &status, WNOHANG);
    if (ended == 0) return false;
    if (ended > 0 && status != 0)
      complain_("notify: \"" + each.command + "\" ended " +
                (WIFEXITED(status) ? "with status " + std::to_string(WEXITSTATUS(status))
                                   : "by signal " + std::to_string(WTERMSIG(status))));
    return true;
  });
  return running_.empty();
}

}  // namespace trial
