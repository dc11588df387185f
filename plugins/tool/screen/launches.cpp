#include "launches.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <trainyard/error.hpp>

#include "lib/launch.hpp"
#include "lib/read_file.hpp"
#include "lib/spawn.hpp"
#include "lib/words.hpp"

namespace screen {
namespace {

namespace lib = trainyard::lib;
using Clock = std::chrono::steady_clock;

/// Returns how a process ended: "exit code 255", with what it printed.
std::string end_text(int status, const std::string& log) {
  std::string text = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                         : "exit code " + std::to_string(WEXITSTATUS(status));
  const std::string content = lib::read_file(log).value_or("");
  const std::string printed(lib::trimmed(content, " \t\n"));
  return printed.empty() ? text : text + ": " + printed;
}

/// Returns whether the program itself ended by an error that it told; it would come to the same again.
bool is_error_told(int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return code > static_cast<int>(trainyard::ExitCode::internal) &&
         code <= static_cast<int>(trainyard::ExitCode::distributed);
}

}  // namespace

std::vector<std::string> own_command() {
  std::stringstream line(lib::read_file("/proc/self/cmdline").value_or(""));
  std::vector<std::string> words;
  for (std::string word; std::getline(line, word, '\0');) words.push_back(word);
  if (!words.empty()) words.front() = std::filesystem::read_symlink("/proc/self/exe");
  return words;
}

Launches::Launches(Plan plan, Tell tell) : plan_(std::move(plan)), tell_(std::move(tell)) {
  plan_.folder = std::filesystem::absolute(plan_.folder);
  std::filesystem::create_directories(plan_.folder);
  for (std::size_t number = 1; number <= plan_.shares; ++number)
    launches_.push_back({.share = {number, plan_.shares}, .begins = Clock::now()});
}

Launches::~Launches() {
  end();
}

std::string Launches::log_of(const Launch& launch) const {
  return plan_.folder + "/" + std::to_string(launch.share.number) + ".txt";
}

void Launches::start(Launch& launch) {
  const std::string number = std::to_string(launch.share.number);
  const std::string script = plan_.folder + "/" + number + ".sh";
  std::vector<std::string> command = plan_.command;
  command.insert(command.end(), {"--share", launch.share.text()});
  std::ofstream file(script, std::ios::binary);
  file << lib::launch_script(command);
  file.close();
  if (!file) throw trainyard::DataError(script + ": cannot be written");
  lib::Spawn spawn;
  spawn.own_group();
  spawn.usual_signals();
  spawn.input();
  spawn.output(STDOUT_FILENO, "/dev/null");
  spawn.output(STDERR_FILENO, log_of(launch));
  if (const int error = spawn.start(
          launch.process, lib::launch_words(lib::replaced(plan_.launch, "{number}", number), script)))
    throw trainyard::Error(trainyard::ExitCode::internal,
                           std::string("/bin/sh cannot be started: ") + std::strerror(error));
}

void Launches::hear(Launch& launch, int status) {
  constexpr int most = 4;
  launch.process = 0;
  launch.over = true;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const std::string why = "share " + launch.share.text() + " ended with " + end_text(status, log_of(launch));
  if (is_error_told(status)) return tell_(why);
  if (++launch.times_lost > most) return tell_(why + "; it was lost too often, and is done here");
  const std::chrono::seconds pause(1 << (launch.times_lost - 1));
  launch.over = false;
  launch.begins = Clock::now() + pause;
  tell_(why + "; it was lost by its launcher, and begins again in " + std::to_string(pause.count()) + " s");
}

bool Launches::go_on() {
  for (Launch& each : launches_) {
    if (each.over) continue;
    if (each.process == 0) {
      if (each.begins <= Clock::now()) start(each);
      continue;
    }
    int status = 0;
    if (waitpid(each.process, &status, WNOHANG) == each.process) hear(each, status);
  }
  return std::ranges::any_of(launches_, [](const Launch& each) { return !each.over; });
}

void Launches::end() {
  for (const Launch& each : launches_)
    if (each.process != 0) kill(-each.process, SIGTERM);
  for (Launch& each : launches_) {
    if (each.process != 0) waitpid(each.process, nullptr, 0);
    each.process = 0;
    each.over = true;
  }
}

}  // namespace screen
