#include "notice.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

#include "lib/spawn.hpp"

namespace trial {

void Notices::send(const Firing& firing) {
  std::vector<std::string> variables = {"RULE=" + firing.rule, "MESSAGE=" + firing.finding.message,
                                        "STEP=" + std::to_string(firing.mode_step), "RUN=" + run_};
  std::vector<char*> environment;
  environment.reserve(variables.size());
  for (std::string& variable : variables) environment.push_back(variable.data());
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string name(*each, std::strcspn(*each, "="));
    if (name != "RULE" && name != "MESSAGE" && name != "STEP" && name != "RUN") environment.push_back(*each);
  }
  environment.push_back(nullptr);
  trainyard::lib::Spawn spawn;
  spawn.usual_signals();
  spawn.input();
  pid_t process = 0;
  const int error = spawn.start(process, {"/bin/sh", "-c", firing.notify}, environment.data());
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
