#include "core/cli/program.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

#include "core/cli/completion.hpp"
#include "core/cli/engine_library.hpp"
#include "core/plugins/host_verbs.hpp"
#include "lib/on_path.hpp"
#include "lib/words.hpp"

namespace trainyard::cli {
namespace {

using Words = std::vector<std::string>;
using Add = std::function<void(Command&, CommandLine&)>;

bool is_help(std::string_view word) {
  return word == "help" || word == "--help" || word == "-h";
}

int parse_and_run(Words words, const Add& add) {
  CommandLine line;
  line.completes = !words.empty() && words.front() == "__complete";
  if (line.completes) {
    words.erase(words.begin());
  } else if (const auto verb = std::ranges::find_if_not(words, is_help); verb != words.begin()) {
    words.erase(words.begin(), verb);  // "help ckpt ls" is "ckpt ls --help"
    words.emplace_back("--help");
  }
  line.words = words;
  Command command("trainyard", "Trains LibTorch models from run files; every strategy of a run is a plugin.",
                  std::string("trainyard ") + TRAINYARD_VERSION + ", SDK " + TRAINYARD_SDK_VERSION +
                      ", LibTorch " + TRAINYARD_LIBTORCH_VERSION);
  add(command, line);
  if (line.completes) {
    for (const std::string& word : completions(command, words)) std::cout << word << '\n';
    return 0;
  }
  std::vector<const char*> argv = {"trainyard"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const std::optional<int> ended =
      command.parse(static_cast<int>(argv.size()), argv.data(), std::cout, std::cerr);
  return ended ? *ended : line.chosen();
}

}  // namespace

int exit_code_of(const std::function<int()>& action) {
  try {
    return action();
  } catch (const Error& error) {
    std::fprintf(stderr, "trainyard: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard: internal error: %s\n", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

void become(const std::string& path, Words words) {
  words.insert(words.begin(), path);
  std::signal(SIGXFSZ, SIG_DFL);  // the program is as a shell would start it
  ::execv(path.c_str(), lib::argv_of(words).data());
  throw ConfigError("cannot start " + path + ": " + std::strerror(errno));
}

std::optional<std::string> program_of(const std::string& verb) {
  const std::string name = "trainyard-" + verb;
  const std::string beside = home() + "/bin/" + name;
  return lib::is_program(beside) ? beside : lib::on_path(name);
}

void become_verb(const std::string& verb, const Words& words) {
  if (const auto path = program_of(verb)) become(*path, words);
  const std::string program = "trainyard-" + verb;
  throw ConfigError("the verb " + verb + " is a program of its own, " + program + ", which is neither in " +
                    home() + "/bin nor on the PATH: " +
                    (std::filesystem::exists(home() + "/CMakeCache.txt")
                         ? "build it with cmake --build " + home() + " --target " + program
                         : "install all of Trainyard"));
}

int run_front(Words words, const Add& add) {
  // Past `ulimit -f` a write fails, with its reason, instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const int code = exit_code_of([&] { return parse_and_run(std::move(words), add); });
#ifndef __SANITIZE_ADDRESS__  // it checks for leaks at the end
  // LibTorch would take a tenth of a second to destroy its tables of operators, which are no longer needed.
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
#else
  return code;
#endif
}

int run_program(const char* name, void (*add)(Arguments, CommandLine&), int argc, char** argv) {
  Words words(argv + 1, argv + argc);
  const bool completes = !words.empty() && words.front() == "__complete";
  words.insert(words.begin() + (completes ? 1 : 0), name);
  return run_front(std::move(words), [&](Command& command, CommandLine& line) {
    add(command.arguments().verb(name, plugins::find_verb(name)->help), line);
  });
}

}  // namespace trainyard::cli
