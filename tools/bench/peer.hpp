// A process that makes steps when it is told to: it reads their number from a line and answers with a line.
#pragma once

#include <cstdio>

#include "tools/bench/process.hpp"

namespace trainyard::bench {

class Peer {
 public:
  explicit Peer(std::vector<std::string> words) {
    std::array<int, 2> to{}, from{};
    if (pipe2(to.data(), O_CLOEXEC) != 0 || pipe2(from.data(), O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe can be made");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    const int error = posix_spawn(&child_, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    if (error != 0) throw std::runtime_error(words.front() + " does not start");
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    std::fclose(to_);
    std::fclose(from_);
    waitpid(child_, nullptr, 0);
  }
  void begin(int steps) {
    std::fprintf(to_, "%d\n", steps);
    std::fflush(to_);
  }
  void wait() {
    std::array<char, 16> line;
    if (std::fgets(line.data(), line.size(), from_) == nullptr)
      throw std::runtime_error("a process that was to make steps has ended");
  }
  void operator()(int steps) {
    begin(steps);
    wait();
  }

 private:
  pid_t child_ = 0;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace trainyard::bench
