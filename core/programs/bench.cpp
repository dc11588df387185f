// trainyard bench: measures the host. Benchmarks are separate programs, which contain hand-written rivals.
#include <filesystem>

#include "core/cli/engine_library.hpp"
#include "core/cli/program.hpp"
#include "core/programs/programs.hpp"

namespace trainyard::cli {
namespace {

struct BenchArguments {
  std::string name;
  Arguments verb;
};

int bench(BenchArguments& given) {
  const std::string program = home() + "/bin/bench_" + given.name;
  if (std::filesystem::exists(program)) become(program, given.verb.others());
  throw ConfigError("there is no " + program +
                    ": build the benchmarks with cmake --build build/release --target bench");
}

}  // namespace

void add_bench(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<BenchArguments>(BenchArguments{.name = {}, .verb = verb});
  verb.add("name", given->name,
           "loop, dispatch, guards, startup, whole, loader, graph_forward, checkpoint, swap, schedule, "
           "dropout or recorder")
      .required();
  verb.allow_others();
  when_chosen(verb, line, given, bench);
}

}  // namespace trainyard::cli
