// trainyard bench: measures the host. Benchmarks are separate programs, which contain hand-written rivals.
#include <unistd.h>

#include "core/cli/engine_library.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

struct BenchArguments {
  std::string name;
  Arguments verb;
};

int bench(BenchArguments& given) {
  const std::string program = home() + "/bin/bench_" + given.name;
  const std::vector<std::string> arguments = given.verb.others();
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw ConfigError("there is no " + program +
                    ": build the benchmarks with cmake --build build/release --target bench");
}

}  // namespace

void add_bench(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("bench", "measure the host against hand-written loops");
  const auto given = std::make_shared<BenchArguments>(BenchArguments{.name = {}, .verb = verb});
  verb.add("name", given->name,
           "loop, dispatch, guards, startup, whole, loader, graph_forward, checkpoint, swap, schedule, "
           "dropout or recorder")
      .required();
  verb.allow_others();
  when_chosen(verb, line, given, bench);
}

}  // namespace trainyard::cli
